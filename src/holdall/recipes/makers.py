"""Tensors that a recipe computes from the configuration, and the search for what they were computed from.

What is found on the way back counts only if it makes the same tensor again, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from math import isfinite, pi
from typing import TYPE_CHECKING, Any

from holdall.errors import ContentError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["MAKERS", "MOST_VALUES", "Maker"]

_LARGEST = float(1 << 127)  # of the numbers that the factors are computed of
MOST_VALUES = 1 << 20  # of a tensor that is computed from the numbers that a configuration states


@dataclass(frozen=True, slots=True)
class Maker:
    """How a tensor is made from ``arguments``, and how those that are not known are found in one."""

    arguments: tuple[str, ...]
    make: Callable[..., NDArray[np.float32]]
    find: Callable[..., dict[str, Any] | None]  # (values, *arguments), of which some are None


def _make_llama3_factors(
    base: float, dims: int, factor: float, low: float, high: float, old: int
) -> NDArray[np.float32]:
    """Make the divisors of the rotary frequencies of Llama 3.1: 1 for short waves, ``factor`` for long ones.

    >>> _make_llama3_factors(500000.0, 8, 8.0, 1.0, 4.0, 8192).tolist()
    [1.0, 1.0, 2.6945300102233887, 8.0]
    """
    import numpy as np

    for name, value in zip(_LLAMA3, (base, dims, factor, low, high, old), strict=True):
        if not _is_number(value) or not 0 < value < _LARGEST:
            raise ContentError(f"rope scaling needs {name}, a number above 0 that f32 holds, not {value!r}")
    if factor < 1 or old != int(old):
        raise ContentError(f"rope scaling is by 1 or more, of a whole number of positions, not by {factor} of {old}")
    if not low < high or dims > MOST_VALUES:
        raise ContentError(f"rope scaling from {low} to {high} with {dims} dimensions cannot be")
    exponents = np.arange(0, dims, 2, dtype=np.float32) / np.float32(dims)
    with np.errstate(all="ignore"):
        waves = np.float32(2 * pi) * np.float32(base) ** exponents
        smooth = (np.float32(old) / waves - np.float32(low)) / np.float32(high - low)
        between = np.float32(1) / ((np.float32(1) - smooth) / np.float32(factor) + smooth)
        made = np.where(waves > old / low, np.float32(factor), np.where(waves < old / high, np.float32(1), between))
    if not np.isfinite(made).all():
        raise ContentError(f"rope scaling from {low} to {high} by {factor} gives numbers that f32 does not hold")
    return made.astype(np.float32)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _find_llama3(values: NDArray[np.float32], base: float, dims: int, *unknown: Any) -> dict[str, Any] | None:
    """Find factor, low, high and old; None if none of the likely ones makes ``values``."""
    import numpy as np

    if not (_is_number(base) and _is_number(dims) and values.size == (dims + 1) // 2 > 0 and np.isfinite(values).all()):
        return None
    factor = float(str(np.float32(values.max())))
    for low, high, old in _guess_llama3(values, base, dims, factor):
        try:
            made = _make_llama3_factors(base, dims, factor, low, high, old)
        except ContentError:
            continue
        if made.shape == values.shape and np.array_equal(made, values):
            return {"factor": factor, "low": low, "high": high, "old": old}
    return None


def _guess_llama3(
    values: NDArray[np.float32], base: float, dims: int, factor: float
) -> Iterator[tuple[float, float, int]]:
    """Guess low, high and old: those in use, then those that two waves between them say."""
    import numpy as np

    yield from product((1.0,), (4.0,), (8192, 4096, 2048, 16384, 32768))
    between = ((values > 1) & (values < factor)).nonzero()[0]
    if len(between) > 1:
        ends = between[[0, -1]]
        with np.errstate(all="ignore"):  # of a tensor that nothing like it made
            waves = 2 * pi * float(base) ** (2.0 * ends / dims)
            smooth = (1 / values[ends].astype(np.float64) - 1 / factor) / (1 - 1 / factor)
            slope = float((smooth[0] - smooth[1]) / (1 / waves[0] - 1 / waves[1]))
            shift = float(slope / waves[0] - smooth[0])
        for old in (2**power for power in range(7, 24)) if slope and isfinite(slope) else ():
            low, high = old * shift / slope, old * (1 + shift) / slope
            for digits in (0, 1, 2, 3):
                yield round(low, digits), round(high, digits), old
    yield from product((1.0, 0.5, 2.0), (4.0, 2.0, 8.0, 1.5, 16.0, 32.0), [2**power for power in range(4, 24)])


_LLAMA3 = ("base", "dims", "factor", "low", "high", "old")

MAKERS = {"llama3_rope_factors": Maker(_LLAMA3, _make_llama3_factors, _find_llama3)}
