"""Decoding ggml blocks from memory to float32, beside the gguf package, which has to give the same values.

``Tensor.numpy()`` decodes on as many threads as there are processors; "one thread" is the kernel alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from bench.case import Case, Contender, Run, at_least
from bench.work import Action, work

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TYPES = (2, 3, 6, 7, 8, 10, 11, 12, 13, 14)
SCALES = {10: (80, 82), 11: (108,), 14: (208,), 2: (0,), 6: (0,), 8: (0,)}  # where a block has halves; others (0, 2)


def holdall_decodes(kind: int, count: int) -> Action:
    from holdall.model.ggml import BLOCKS

    stored = blocks_of(kind, count)
    shape = (count // 256, 256)

    def action() -> dict[str, float]:
        return sample(BLOCKS[kind].decode(stored.data.cast("B"), shape))

    return action


def kernel_decodes(kind: int, count: int) -> Action:
    import numpy as np

    from holdall.binary import kernels

    stored, out = blocks_of(kind, count), np.empty(count, np.float32)

    def action() -> dict[str, float]:
        kernels.ggml_decode(kind, stored, out)
        return sample(out)

    return action


def gguf_decodes(kind: int, count: int) -> Action:
    import gguf

    stored = blocks_of(kind, count)
    return lambda: sample(gguf.dequantize(stored, gguf.GGMLQuantizationType(kind)))


def blocks_of(kind: int, count: int) -> NDArray[np.uint8]:
    """Random codes under scales such as files have."""
    import numpy as np

    from holdall.model.ggml import BLOCKS

    blocks = BLOCKS[kind]
    width = 256 // blocks.elements * blocks.block_bytes
    stored = np.random.default_rng(kind).integers(0, 256, (count // 256, width), np.uint8)
    for place in SCALES.get(kind, (0, 2)):
        stored.reshape(-1, blocks.block_bytes)[:, place : place + 2] = np.full(1, 0.01, np.float16).view(np.uint8)
    return stored


def sample(values: NDArray[Any]) -> dict[str, float]:
    """A few values from all over: cheap beside decoding, and not by chance the same."""
    return {"same": float(values.reshape(-1)[:: values.size // 997].astype("f8").sum())}


def cases(run: Run) -> Iterator[Case]:
    """A case for each type of block."""
    from holdall.model.ggml import BLOCKS

    count = run.pick(1 << 24, 1 << 18)
    for kind in TYPES if not run.quick else TYPES[:2]:
        lines = [
            Contender("gguf.dequantize", work(gguf_decodes, kind, count)),
            Contender("holdall", work(holdall_decodes, kind, count), [at_least(5, "gguf.dequantize")]),
            Contender("holdall, one thread", work(kernel_decodes, kind, count), [at_least(5, "gguf.dequantize")]),
        ]
        yield Case(f"Decode {BLOCKS[kind].title}", lines, run.pick(5, 2), "gguf.dequantize", size=count,
                   unit="values", alone=False)  # fmt: skip
