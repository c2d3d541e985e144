"""A small regression network as a dataclass, written to OINF, read back and run."""

from dataclasses import dataclass, field

import numpy as np

import holdall
from holdall import oinf


def weights(rows: int, columns: int) -> np.ndarray:
    """Numbers that are the same every time."""
    return (np.sin(np.arange(rows * columns)) / rows).astype(np.float32).reshape(rows, columns)


@dataclass
class Mlp:
    # Integers are size variables: names for dimensions.
    B: int = 4
    D: int = 8
    H: int = 16
    # Text and numbers are metadata.
    activation: str = "relu"
    learning_rate: float = 0.01
    # Arrays are tensors. This one is declared only: the program that runs the model fills it.
    w1: np.ndarray = field(default_factory=lambda: weights(8, 16))
    b1: np.ndarray = field(default_factory=lambda: np.zeros(16, np.float32))
    w2: oinf.TensorSpec = field(default_factory=lambda: oinf.TensorSpec(weights(16, 1), dtype="bf16"))
    hidden: oinf.Uninitialized = field(default_factory=lambda: oinf.Uninitialized("f32", ("B", "H")))


def main() -> None:
    holdall.save("mlp_regression.oinf", oinf.from_dataclass(Mlp()))
    print(holdall.verify("mlp_regression.oinf", level="strict"))
    with holdall.open("mlp_regression.oinf") as model:
        print("sizes:", dict(model.sizevars), "- a batch is", model.resolve(("B", "D")))
        print("metadata:", {key: f"{model.metadata[key]} ({model.metadata.kind(key)})" for key in model.metadata})
        for name, tensor in model.items():
            state = "" if tensor.has_data else " (declared)"
            print(f"{name}: {tensor.dtype}{list(tensor.shape)}{state}")
        x = np.ones(model.resolve(("B", "D")), np.float32)
        hidden = np.maximum(x @ model["w1"].numpy() + model["b1"].numpy(), 0)
        print("output:", (hidden @ model["w2"].numpy().astype(float)).round(3).tolist())


if __name__ == "__main__":
    main()
