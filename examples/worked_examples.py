"""The two examples of the format's document, and where their bytes end up."""

import numpy as np

import holdall
from holdall import oinf


def conceptual() -> None:
    """B := 4, D := 16, w1: f32[16, 32], b1: f32[32], mode: string = "clamp_up"."""
    model = oinf.model(
        {"w1": np.zeros((16, 32), np.float32), "b1": np.zeros(32, np.float32)},
        sizevars={"B": 4, "D": 16},
        metadata={"mode": "clamp_up"},
    )
    holdall.save("conceptual.oinf", model)
    with holdall.open("conceptual.oinf") as found:
        print("conceptual:", dict(found.sizevars), dict(found.metadata), list(found))


def alignment() -> None:
    """x: f32[4] and y: u8[8] with mode = "fast": every payload starts on a multiple of 8."""
    content = {"x": np.arange(4, dtype=np.float32), "y": np.arange(8, dtype=np.uint8)}
    holdall.save("alignment.oinf", content, metadata={"mode": "fast"})
    with holdall.open("alignment.oinf") as found:
        for name, tensor in found.items():
            print(f"{name}: {tensor.nbytes} bytes at {tensor.offset} = 8 * {tensor.offset / 8:g}")


def packed_sizes() -> None:
    """Nine elements of I1, I2 and I4 take 2, 3 and 5 bytes."""
    for dtype in ("i1", "i2", "i4"):
        tensor = oinf.model({"w": oinf.TensorSpec([0, -1] * 4 + [0], dtype)})["w"]
        print(f"{dtype}: {tensor.count} elements take {tensor.nbytes} bytes: {tensor.raw().hex(' ')}")


if __name__ == "__main__":
    conceptual()
    alignment()
    packed_sizes()
