"""Quantizing one array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, prod
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from holdall.errors import ContentError, UnsupportedError
from holdall.quant.encodings import encoding_of
from holdall.quant.engine import quantize_blocks
from holdall.quant.flat import flat_scale
from holdall.quant.methods import ACTIVATIONS, SUPER, WEIGHTS, Method, method_named
from holdall.quant.parallel import rows_at_a_time, spread
from holdall.quant.values import as_float32, extremes, symmetric
from holdall.tensor import Tensor

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["MODES", "Quantized", "check_mode", "clip_bounds", "importance_of", "quantize"]

Mode = Literal["reference", "ieee", "best"]
Domain = Literal["weights", "activations"]

MODES = {"reference": 0, "ieee": 1, "best": 2}  # as the kernels count them
GIVEN = 3  # the scales are there already
DOMAINS: dict[str, int] = {"weights": WEIGHTS, "activations": ACTIVATIONS}


@dataclass(frozen=True, slots=True)
class Quantized:
    """An array in quantized form. ``clip`` are the bounds that its quant record states."""

    payload: memoryview
    method: str
    shape: tuple[int, ...]
    clip: tuple[float, float]
    mode: str = "best"
    domain: Domain = "weights"

    @property
    def nbytes(self) -> int:
        """Bytes of the payload."""
        return self.payload.nbytes

    @property
    def bits_per_weight(self) -> float:
        """Stored bits, scales and padding included, for each value."""
        return 8 * self.nbytes / max(1, prod(self.shape))

    def numpy(self) -> NDArray[np.float32]:
        """The values that the payload stands for, as float32."""
        return encoding_of(self.method, DOMAINS[self.domain]).decode(self.payload, self.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        values = self.numpy()
        return values if dtype is None else values.astype(dtype, copy=False)

    def tensor(self, name: str) -> Tensor:
        """A tensor of this payload, with its quant record, ready to be saved."""
        from holdall.formats.mcf.quantinfo import QuantRecord
        from holdall.payload import Held

        record = QuantRecord(self.method, self.domain, *self.clip)
        return Tensor(name, encoding_of(self.method, DOMAINS[self.domain]), self.shape, Held(self.payload), record)


def quantize(
    array: ArrayLike | Tensor,
    method: str | Method,
    *,
    mode: Mode = "best",
    clip: tuple[float, float] | None = None,
    importance: ArrayLike | None = None,
    domain: Domain = "weights",
    name: str = "",
    threads: int | None = None,
) -> Quantized:
    """Quantize a float array or tensor: a matrix for q* and k*, any shape for int8 and int4.

    ``mode``: "reference" gives the bytes of the reference quantizer, "ieee" rounds its scales correctly, "best"
    searches for the scales of least squared error, weighed by ``importance`` (one weight a column) where given.
    ``clip`` cuts the values to (low, high) first. ``name`` is for messages; a tensor has its own.

    >>> import numpy as np, holdall
    >>> q = holdall.quant.quantize(np.linspace(-1, 1, 64, dtype=np.float32).reshape(2, 32), "k4")
    >>> q.method, q.shape, q.nbytes, bool(abs(q.numpy()[0, 0] + 1) < 0.1)
    ('k4', (2, 32), 160, True)
    """
    found = method_named(method)
    check_mode(found, mode, domain)
    if isinstance(array, Tensor):
        name = name or array.name
    values = np.asarray(array)
    shape = values.shape
    if not found.fits(shape):
        kind = "arrays that are not empty" if found.family == "int" else "matrices that are not empty"
        raise ContentError(f"{_what(name)}: {found.name} takes {kind}, not the shape {list(shape)}")
    cols = shape[-1] if shape else 1
    rows = prod(shape) // cols
    table = values.reshape(rows, cols)
    if clip is not None:
        clip = clip_bounds(0, 0, clip, domain)
    weights = importance_of(importance, cols, found, mode, name)
    if found.family == "int":
        return _flat(found, table, shape, clip, mode, domain, name)

    where = found.blocks(shape)
    payload = np.zeros(where.size, np.uint8)
    regions = [payload[start:stop] for start, stop in (where.scales, where.subs, where.codes)]
    cut = clip or (float("-inf"), float("inf"))

    def work(start: int, stop: int) -> tuple[float, float]:
        block = as_float32(table[start:stop], name)
        if clip is not None:
            extremes(block, name, shape, start * cols)  # the cut would hide an infinity
        top = fill(found, mode, block, cut, weights, *(_rows(region, rows, start, stop) for region in regions))
        return (-top, top) if isfinite(top) else extremes(block, name, shape, start * cols)

    bounds = _bounds(spread(work, rows, cols, threads), clip, domain)
    return Quantized(payload.data.toreadonly(), found.name, shape, bounds, mode, domain)


def fill(
    method: Method,
    mode: str | int,
    block: NDArray[np.float32],
    cut: tuple[float, float],
    importance: NDArray[np.float32] | None,
    scales: NDArray[np.uint8],
    subs: NDArray[np.uint8],
    codes: NDArray[np.uint8],
) -> float:
    """Quantize rows into their parts of the three regions, on this thread; returns the largest magnitude."""
    number = mode if isinstance(mode, int) else MODES[mode]
    group = SUPER if method.super else 0
    weights = b"" if importance is None else importance
    rows, cols = block.shape
    return quantize_blocks(method.bits, group, number, rows, cols, block, cut[0], cut[1], weights, scales, subs, codes)


def _rows(region: NDArray[np.uint8], rows: int, start: int, stop: int) -> NDArray[np.uint8]:
    width = region.size // rows
    return region[start * width : stop * width]


def _bounds(ends: Sequence[tuple[float, float]], clip: tuple[float, float] | None, domain: str) -> tuple[float, float]:
    return clip_bounds(min(low for low, _ in ends), max(high for _, high in ends), clip, domain)


def clip_bounds(low: float, high: float, clip: tuple[float, float] | None, domain: str) -> tuple[float, float]:
    """What a quant record states: the bounds given, else symmetric ones, else (activations) the extremes."""
    if clip is not None:
        first, last = (float(np.float32(bound)) for bound in clip)
        if not (isfinite(first) and isfinite(last)) or first > last:
            raise ContentError(f"clip bounds are two finite numbers, the lower one first, not {clip[0]} and {clip[1]}")
        return first, last
    return symmetric(low, high) if domain == "weights" else (low, high)


def check_mode(method: Method, mode: str, domain: str) -> None:
    """Refuse a mode or a domain that there is not, or not for this method."""
    if mode not in MODES:
        raise UnsupportedError(f"mode is one of {', '.join(MODES)}, not {mode!r}")
    if domain not in DOMAINS:
        raise UnsupportedError(f"domain is one of {', '.join(DOMAINS)}, not {domain!r}")
    if method.family == "int" and mode == "reference":
        raise UnsupportedError(f"the reference quantizer does not write {method.name}; use mode ieee or best")
    if method.family != "int" and domain == "activations":
        raise UnsupportedError(f"{method.name} is for weights; int8 and int4 also take activations")


def importance_of(
    weights: ArrayLike | None, cols: int, method: Method, mode: str, name: str
) -> NDArray[np.float32] | None:
    """Column weights as the kernels want them."""
    if weights is None:
        return None
    if mode != "best" or method.family == "int":
        raise UnsupportedError("importance counts in mode best of q* and k* only")
    found = np.ascontiguousarray(weights, np.float32)
    if found.shape != (cols,):
        raise ContentError(f"{_what(name)}: {cols} columns need as many weights, not the shape {list(found.shape)}")
    if not (np.isfinite(found).all() and (found >= 0).all()):
        raise ContentError(f"{_what(name)}: importance is finite and not negative")
    return found


def _flat(
    method: Method,
    table: NDArray[Any],
    shape: tuple[int, ...],
    clip: tuple[float, float] | None,
    mode: str,
    domain: Domain,
    name: str,
) -> Quantized:
    values = as_float32(table, name)
    step = rows_at_a_time(values.shape[1])
    starts = range(0, len(values), step)
    ends = [extremes(values[start : start + step], name, shape, start * values.shape[1]) for start in starts]
    bounds = _bounds(ends, clip, domain)
    scale = flat_scale(method, DOMAINS[domain], mode, bounds, clip is not None, lambda: [values])
    payload = scale.head() + scale.codes(values.reshape(-1)).tobytes()
    return Quantized(memoryview(payload), method.name, shape, bounds, mode, domain)


def _what(name: str) -> str:
    return f"tensor {name!r}" if name else "the array"
