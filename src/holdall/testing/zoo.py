"""Small models, each with one trait that is easy to get wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from holdall.model.dtypes import DTYPES, FINITE, DType, find_dtype
from holdall.model.model import Model
from holdall.model.payload import InMemory
from holdall.model.tensor import Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["AWKWARD_NAMES", "AWKWARD_VALUES", "ZOO", "sample_values"]

_SPECIAL = (0.0, -0.0, 1.0, -1.5, 0.1, 1e-45, -6e-8, 65504.0, 3.4e38, np.inf, -np.inf, np.nan)


def sample_values(dtype: str | DType, shape: Sequence[int], seed: int = 0) -> NDArray[Any]:
    """Return values of a dtype, the same for the same seed: both signs, the ends of the range, special floats.

    >>> sample_values("t1", (4,)).tolist()
    [1, 1, 1, -1]
    """
    kind = find_dtype(dtype)
    random = np.random.Generator(np.random.PCG64(seed))
    count = prod(shape)
    flat: NDArray[Any]
    match kind.kind:
        case "float" | "complex":
            limits = [value for value in _SPECIAL if np.isfinite(value) and abs(value) <= 1.5]
            specials = limits if kind.name in FINITE else list(_SPECIAL)
            flat = random.standard_normal(count)
            flat[: len(specials)] = specials[:count]
            if kind.kind == "complex":
                flat = flat.astype(np.complex128)
                flat.imag = flat.real[::-1]
        case "sign":
            flat = random.integers(0, 2, count) * 2 - 1
        case "ternary":
            flat = random.integers(-1, 2, count)
        case _:
            low, high = kind.range or (0, 1)
            flat = random.integers(low, high, count, np.uint64 if high > 1 << 62 and low == 0 else np.int64, True)
            flat[:2] = [low, high][:count]
    with np.errstate(over="ignore", invalid="ignore"):
        return flat.astype(kind.numpy).reshape(shape)


def _of(dtype: str, shape: Sequence[int], name: str = "w", seed: int = 0) -> Tensor:
    return Tensor.of(name, sample_values(dtype, shape, seed), dtype)


def _one_dtype(dtype: str) -> Callable[[], Model]:
    return lambda: Model([_of(dtype, (3, 5), "matrix"), _of(dtype, (7,), "vector", 1), _of(dtype, (1,), "single", 2)])


def _scalars() -> Model:
    return Model([_of(dtype, (), f"scalar.{dtype}") for dtype in ("f32", "i64", "u8", "bool", "i4", "bf16")])


def _zero_size() -> Model:
    shapes = {"none": (0,), "rows": (0, 7), "columns": (3, 0), "middle": (2, 0, 5)}
    empty = [_of(dtype, shape, f"{name}.{dtype}") for name, shape in shapes.items() for dtype in ("f32", "i4", "u8")]
    return Model([*empty[:4], _of("f32", (2, 2), "between"), *empty[4:]])


def _declared() -> Model:
    declared = [Tensor(f"declared.{name}", find_dtype(name), (4, 6), None) for name in ("f32", "i4", "u8")]
    return Model(
        [declared[0], _of("f32", (2, 2), "stored"), *declared[1:], Tensor("scalar", find_dtype("f32"), (), None)]
    )


def _many() -> Model:
    dtypes = ("f32", "i64", "u8", "f16")
    return Model([_of(dtypes[n % 4], (n % 3 + 1, n % 5 + 1), f"layers.{n}.weight", n) for n in range(300)])


def _unicode() -> Model:
    names = ["größe", "重み", "a/b.c", "emoji😀", "with space", "e\u0301", "\u00e9", "UPPER", "upper"]
    return Model([_of("f32", (2, n + 1), name, n) for n, name in enumerate(names)])


def _special_floats() -> Model:
    quiet = np.array([0x7FC00000, 0xFFC00001, 0x7F800000, 0xFF800000, 0x80000000, 1], np.uint32).view(np.float32)
    wide = np.array([0x7FF8 << 48, 0xFFF8000000000001, 0x7FF0 << 48, 1 << 63, 1], np.uint64).view(np.float64)
    tensors = [Tensor.of("f32", quiet), Tensor.of("f64", wide)]
    return Model(tensors + [_of(dtype, (4, 3), f"small.{dtype}") for dtype in ("f16", "bf16", "f8_e4m3", "f8_e5m2")])


def _big_endian() -> Model:
    kinds = (">f4", ">f8", ">i4", ">i8", ">u2", ">f2")
    return Model([Tensor.of(f"swapped.{kind[1:]}", np.arange(6).reshape(2, 3).astype(kind)) for kind in kinds])


def _strided() -> Model:
    grid = np.arange(48, dtype=np.float32).reshape(6, 8)
    views = {"transposed": grid.T, "even": grid[:, ::2], "reversed": grid[::-1], "fortran": np.asfortranarray(grid)}
    views["broadcast"] = np.broadcast_to(grid[0], (3, 8))
    return Model([Tensor.of(name, view) for name, view in views.items()])


def _long_names() -> Model:
    return Model([_of("f32", (2, 2), "n" * length) for length in (1, 7, 8, 63, 64, 255, 256, 4000)])


def _aliases() -> Model:
    payload = InMemory(sample_values("f32", (4, 4)).tobytes())
    names = ("embed.weight", "head.weight", "head.copy")
    return Model([Tensor(name, find_dtype("f32"), (4, 4), payload) for name in names])


def _ranks() -> Model:
    return Model([_of("f32", (2,) * rank, f"rank{rank}", rank) for rank in range(1, 9)])


def _metadata() -> Model:
    values: dict[str, Any] = {
        "text": "plain",
        "unicode": "grüße 重み",
        "empty": "",
        "int": -5,
        "large": 2**40,
        "float": 0.1,
        "flag": True,
        "list": [1, 2, 3],
        "texts": ["a", "b"],
        "nested": {"a": {"b": [1, None]}},
        "nothing": None,
    }
    return Model([_of("f32", (2, 2))], metadata=values)


def _assets() -> Model:
    return Model([_of("f32", (2, 2))], assets={"tokenizer.json": b'{"a": 1}', "empty.bin": b"", "raw.bin": bytes(300)})


ZOO: Mapping[str, Callable[[], Model]] = {
    "empty": Model,
    **{f"dtype-{name}": _one_dtype(name) for name in DTYPES},
    "scalars": _scalars,
    "zero-size": _zero_size,
    "declared": _declared,
    "many": _many,
    "unicode": _unicode,
    "special-floats": _special_floats,
    "big-endian": _big_endian,
    "strided": _strided,
    "long-names": _long_names,
    "aliases": _aliases,
    "ranks": _ranks,
    "metadata": _metadata,
    "assets": _assets,
}


def _nest(levels: int, wrap: Callable[[Any], Any]) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = wrap(value)
    return value


# Names and values that many formats cannot hold: a writer refuses them with ContentError, or they come back.
AWKWARD_NAMES: Mapping[str, str] = {
    "empty": "",
    "half of a surrogate pair": "half \ud800",
    "of 70,000 letters": "n" * 70_000,
    "with a NUL": "a\0b",
    "dotted and slashed": "./a//b/..",
}

AWKWARD_VALUES: Mapping[str, Callable[[], Any]] = {
    "half of a surrogate pair": lambda: "half \ud800",
    "half of a surrogate pair in a list": lambda: ["half \ud800"],
    "half of a surrogate pair as a key": lambda: {"half \ud800": 1},
    "a list 200 levels deep": lambda: _nest(200, lambda value: [value]),
    "a mapping 200 levels deep": lambda: _nest(200, lambda value: {"a": value}),
    "a list 5000 levels deep": lambda: _nest(5000, lambda value: [value]),
    "an integer of 71 bits": lambda: 1 << 70,
    "an integer of 5001 digits": lambda: 10**5000,
    "a float that is no number": lambda: float("nan"),
    "an infinite float in a list": lambda: [float("-inf")],
    "a mapping with a number as a key": lambda: {1: "one"},
    "an empty list": list,
    "a list of mixed items": lambda: [1, "a", None, 0.5],
    "text of 70,000 letters": lambda: "n" * 70_000,
    "bytes": lambda: b"\xff\0",
    "an object": object,
}
