"""Quantizing and dequantizing, beside a memory copy of the same matrix and beside gguf-py.

All is on one thread unless it says two. A ratio of 1 to the copy is the speed of ``numpy.copyto`` into memory that
was touched before.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from bench.case import Bar, Case, Contender, Run, at_least, megabytes
from bench.content import name_of
from bench.work import Action, work
from bench.work import run as run_once

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

COPY = "numpy.copyto"
METHODS = ("q8", "q4", "k6", "k4", "k3", "k2")
GGUF = {"q8": "Q8_0", "q4": "Q4_0"}
REFERENCE = {"q": 0.15, "k": 0.08}  # of the speed of a copy
BEST, DECODE = 0.015, 0.3
MATRIX = 1024 * 4096 * 4  # bytes of one in the file


@cache  # all works of a case are in one process
def matrix(rows: int) -> NDArray[np.float32]:
    import numpy as np

    return np.random.default_rng(0).normal(0, 0.02, (rows, 4096)).astype(np.float32)


def matrix_is_copied(rows: int) -> Action:
    import numpy as np

    values = matrix(rows)
    out = values.copy()
    return lambda: np.copyto(out, values)


def holdall_quantizes(rows: int, name: str, mode: str, threads: int) -> Action:
    from holdall.quant import measure, quantize

    values = matrix(rows)

    def quantized(mode: Any) -> Any:
        return quantize(values, name, mode=mode, threads=threads)

    if mode != "best" or name.startswith("int"):
        return lambda: quantized(mode)
    gain = measure(values, quantized("best")).snr_db - measure(values, quantized("reference")).snr_db

    def action() -> dict[str, float]:
        quantized(mode)
        return {"dB over reference": round(gain, 3)}

    return action


def holdall_dequantizes(rows: int, name: str, threads: int) -> Action:
    """Into memory that is there, as the copy does, where the method has blocks."""
    from holdall.quant import encoding_of, quantize
    from holdall.quant.encodings import BlockEncoding

    values = matrix(rows)
    made, encoding, out = quantize(values, name, mode="ieee"), encoding_of(name), values.copy()
    if isinstance(encoding, BlockEncoding):
        return lambda: encoding.decode_into(made.payload, out, threads)
    return lambda: encoding.decode(made.payload, made.shape)


def gguf_quantizes(rows: int, kind: str) -> Action:
    from gguf import GGMLQuantizationType, quants

    values = matrix(rows)
    return lambda: quants.quantize(values, GGMLQuantizationType[kind])


def gguf_dequantizes(rows: int, kind: str) -> Action:
    from gguf import GGMLQuantizationType, quants

    packed = quants.quantize(matrix(rows), GGMLQuantizationType[kind])
    return lambda: quants.dequantize(packed, GGMLQuantizationType[kind])


def holdall_quantizes_file(source: str, target: str) -> Action:
    import holdall

    return lambda: holdall.convert(source, target, quantize="k4", fsync=False)


def matrices_are_saved(path: str, size: int) -> Action:
    """A file of matrices, as vectors are not quantized."""
    import numpy as np

    import holdall
    from holdall.model.dtypes import find_dtype
    from holdall.model.payload import Computed
    from holdall.model.tensor import Tensor

    block = np.random.default_rng(0).normal(0, 0.02, (1024, 4096)).astype(np.float32)
    assert block.nbytes == MATRIX
    payload = Computed(MATRIX, lambda: iter([block.data]))
    content = [Tensor(name_of(n), find_dtype("f32"), block.shape, payload) for n in range(size // MATRIX)]
    return lambda: holdall.save(path, content, fsync=False)


def cases(run: Run) -> Iterator[Case]:
    """Each method in each mode; two threads; a file."""
    rows, rounds = run.pick(4096, 512), run.pick(5, 2)
    size = rows * 4096 * 4
    lines = [Contender(COPY, work(matrix_is_copied, rows))]
    for name in METHODS:
        peer = [at_least(1, f"gguf-py: quantize {name}")] if name in GGUF else []
        bars: dict[str, list[Bar]] = {"reference": [at_least(REFERENCE[name[0]], COPY), *peer], "ieee": [],
                                      "best": [at_least(BEST, COPY)]}  # fmt: skip
        for mode, asked in bars.items():
            lines.append(Contender(f"{mode} {name}", work(holdall_quantizes, rows, name, mode, 1), asked))
        if name in GGUF:
            lines.append(Contender(f"gguf-py: quantize {name}", work(gguf_quantizes, rows, GGUF[name])))
    lines += [Contender(f"ieee {name}", work(holdall_quantizes, rows, name, "ieee", 1)) for name in ("int8", "int4")]
    yield Case("Quantize a matrix of f32", lines, rounds, COPY, COPY, size, alone=False)

    lines = [Contender(COPY, work(matrix_is_copied, rows))]
    for name in (*METHODS, "int8", "int4"):
        peer = [at_least(1, f"gguf-py: dequantize {name}")] if name in GGUF else []
        job = work(holdall_dequantizes, rows, name, 1)
        lines.append(Contender(f"dequantize {name}", job, [at_least(DECODE, COPY), *peer]))
        if name in GGUF:
            lines.append(Contender(f"gguf-py: dequantize {name}", work(gguf_dequantizes, rows, GGUF[name])))
    yield Case("Dequantize a matrix to f32", lines, rounds, COPY, COPY, size, alone=False)

    lines = []
    for threads in (1, 2):
        for mode in ("reference", "best"):
            job = work(holdall_quantizes, rows, "k4", mode, threads)
            lines.append(Contender(f"{mode} k4, threads: {threads}", job))
        lines.append(Contender(f"dequantize k4, threads: {threads}", work(holdall_dequantizes, rows, "k4", threads)))
    yield Case("What a second thread gains", lines, rounds, size=size, alone=False)

    size = run.pick(60, 2) * MATRIX
    with run.folder(2 * size) as folder:
        source, target = folder / "one.safetensors", folder / "one.mcf"
        run_once(work(matrices_are_saved, str(source), size))
        lines = [Contender("holdall: k4 into mcf", work(holdall_quantizes_file, str(source), str(target)),
                           [megabytes(300)], leaves=target, least=size // 8)]  # fmt: skip
        yield Case(f"Quantize a file of {size / 1e6:,.0f} MB", lines, run.pick(3, 1), size=size)
