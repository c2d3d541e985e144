"""Types of less than a byte, and small floats: on one thread, from memory to memory, beside a copy of it."""

from __future__ import annotations

from collections.abc import Iterator

from bench.case import Case, Contender, Run, at_least
from bench.work import Action, work

COPY = "numpy.copyto"
FLOATS = ("bf16", "f16", "f8_e4m3", "f8_e5m2")


def bytes_are_copied(size: int) -> Action:
    import numpy as np

    values = np.random.default_rng(0).integers(0, 256, size, np.uint8)
    out = np.ones_like(values)
    return lambda: np.copyto(out, values)


def codes_are_packed(count: int, bits: int) -> Action:
    import numpy as np

    from holdall.binary import kernels

    codes = np.random.default_rng(0).integers(0, 1 << bits, count, np.uint8)
    out = np.ones(count * bits // 8, np.uint8)
    return lambda: kernels.pack(codes, bits, out)


def codes_are_unpacked(count: int, bits: int, kind: int) -> Action:
    import numpy as np

    from holdall.binary import kernels

    stored = np.random.default_rng(0).integers(0, 256, count * bits // 8, np.uint8)
    out = np.ones(count, np.int8)
    return lambda: kernels.unpack(stored, 0, bits, count, kind, out)


def floats_are_widened(count: int, kind: str) -> Action:
    import numpy as np

    from holdall.binary import kernels

    width = 2 if kind in ("bf16", "f16") else 1
    values = np.random.default_rng(0).standard_normal(count).astype(np.float32)
    stored, out = np.empty(count * width, np.uint8), np.ones(count, np.float32)
    kernels.narrow(kind, values, stored)
    return lambda: kernels.widen(kind, stored, out)


def floats_are_narrowed(count: int, kind: str) -> Action:
    import numpy as np

    from holdall.binary import kernels

    width = 2 if kind in ("bf16", "f16") else 1
    values = np.random.default_rng(0).standard_normal(count).astype(np.float32)
    stored = np.ones(count * width, np.uint8)
    return lambda: kernels.narrow(kind, values, stored)


def ml_dtypes_casts(count: int, kind: str, widen: bool) -> Action:
    import ml_dtypes
    import numpy as np

    small = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f8_e4m3": ml_dtypes.float8_e4m3fn,
             "f8_e5m2": ml_dtypes.float8_e5m2}[kind]  # fmt: skip
    values = np.random.default_rng(0).standard_normal(count).astype(np.float32)
    stored = values.astype(small)
    if widen:
        out = np.ones(count, np.float32)
        return lambda: np.copyto(out, stored, casting="unsafe")
    return lambda: np.copyto(stored, values, casting="unsafe")


def cases(run: Run) -> Iterator[Case]:
    """Packing, then floats."""
    count, rounds = run.pick(1 << 26, 1 << 22), run.pick(7, 3)
    lines = [Contender(COPY, work(bytes_are_copied, count))]
    for bits in (1, 2, 3, 4, 6):
        lines.append(Contender(f"pack {bits} bits", work(codes_are_packed, count, bits), [at_least(0.1, COPY)]))
        for code, sign in ((0, "unsigned"), (1, "signed")):
            job = work(codes_are_unpacked, count, bits, code)
            lines.append(Contender(f"unpack {bits} bits, {sign}", job, [at_least(0.1, COPY)]))
    yield Case("Codes of less than a byte, beside a copy of them as bytes", lines, rounds, COPY, COPY, count,
               alone=False)  # fmt: skip
    count //= 4
    lines = [Contender(COPY, work(bytes_are_copied, count * 4))]
    for kind in FLOATS:
        for to, job in (
            (f"{kind} → f32", work(floats_are_widened, count, kind)),
            (f"f32 → {kind}", work(floats_are_narrowed, count, kind)),
        ):
            lines.append(Contender(to, job, [at_least(0.4, COPY)]))
            name = "numpy" if kind == "f16" else "ml_dtypes"
            lines.append(Contender(f"{name}: {to}", work(ml_dtypes_casts, count, kind, to.endswith("f32"))))
    yield Case("Small floats, beside a copy of the f32 side", lines, rounds, COPY, COPY, count * 4, alone=False)
