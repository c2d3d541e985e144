"""Quantizing one array."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf, isfinite, prod
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from holdall.base.parallel import map_spans
from holdall.errors import ContentError, UnsupportedError
from holdall.model.tensor import Tensor
from holdall.quant.encodings import encoding_of
from holdall.quant.engine import quantize_blocks
from holdall.quant.flat import FLAT_PIECE, choose_scale
from holdall.quant.methods import SUPER, Method, find_method
from holdall.quant.record import DOMAINS, Domain, QuantRecord
from holdall.quant.source_rows import describe, find_extremes, rows_per_piece, symmetric_bounds, use_float32

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = [
    "MODES",
    "Quantized",
    "check_mode",
    "clip_bounds",
    "importance_of",
    "quantize",
    "quantize_rows",
    "slice_rows",
]

R = TypeVar("R")

Mode = Literal["reference", "ieee", "best"]

MODES = {"reference": 0, "ieee": 1, "best": 2}  # the numbers that the kernels use
GIVEN = 3  # the scales are given, only codes are made


@dataclass(frozen=True, slots=True)
class Quantized:
    """An array in quantized form. ``clip`` has the bounds for its quant record."""

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
        """Stored bits for each value, scales and padding included."""
        return 8 * self.nbytes / max(1, prod(self.shape))

    def numpy(self) -> NDArray[np.float32]:
        """The decoded values, as float32."""
        return encoding_of(self.method, DOMAINS[self.domain]).decode(self.payload, self.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        values = self.numpy()
        return values if dtype is None else values.astype(dtype, copy=False)

    def tensor(self, name: str) -> Tensor:
        """A tensor of this payload, with its quant record, ready to be saved."""
        from holdall.model.payload import InMemory

        record = QuantRecord(self.method, self.domain, *self.clip)
        return Tensor(name, encoding_of(self.method, DOMAINS[self.domain]), self.shape, InMemory(self.payload), record)


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
    searches for the scales of least squared error, weighted by ``importance`` (one weight for each column) if given.
    ``clip`` cuts the values to (low, high) first. ``name`` is used in messages, by default that of a tensor.

    >>> import numpy as np, holdall
    >>> q = holdall.quant.quantize(np.linspace(-1, 1, 64, dtype=np.float32).reshape(2, 32), "k4")
    >>> q.method, q.shape, q.nbytes, bool(abs(q.numpy()[0, 0] + 1) < 0.1)
    ('k4', (2, 32), 160, True)
    """
    found = find_method(method)
    check_mode(found, mode, domain)
    if isinstance(array, Tensor):
        name = name or array.name
    values = np.asarray(array)
    shape = values.shape
    if not found.fits(shape):
        kind = "arrays that are not empty" if found.family == "int" else "matrices that are not empty"
        raise ContentError(f"{describe(name)}: {found.name} takes {kind}, not the shape {list(shape)}")
    cols = shape[-1] if shape else 1
    rows = prod(shape) // cols
    table = values.reshape(rows, cols)
    if clip is not None:
        clip = clip_bounds(0, 0, clip, domain)
    weights = importance_of(importance, cols, found, mode, name)
    if found.family == "int":
        return _quantize_flat(found, table, shape, clip, mode, domain, name, threads)

    where = found.lay_out_blocks(shape)
    payload = np.zeros(where.size, np.uint8)
    regions = [payload[start:stop] for start, stop in (where.scales, where.subs, where.codes)]
    cut = clip or (float("-inf"), float("inf"))

    def quantize_piece(block: NDArray[np.float32], start: int, stop: int) -> tuple[float, float]:
        if clip is not None:
            find_extremes(block, name, shape, start * cols)  # refuses an infinity, which the cut would hide
        parts = (slice_rows(region, rows, start, stop) for region in regions)
        top = quantize_rows(found, mode, block, cut, weights, *parts)
        return (-top, top) if isfinite(top) else find_extremes(block, name, shape, start * cols)

    def work(start: int, stop: int) -> tuple[float, float]:
        return use_float32(table[start:stop], name, lambda block: quantize_piece(block, start, stop))

    ends = list(map_spans(work, rows, rows_per_piece(cols), threads))
    bounds = _merge_bounds(ends, clip, domain)
    return Quantized(payload.data.toreadonly(), found.name, shape, bounds, mode, domain)


def quantize_rows(
    method: Method,
    mode: str | int,
    block: NDArray[np.float32],
    cut: tuple[float, float],
    importance: NDArray[np.float32] | None,
    scales: NDArray[np.uint8],
    subs: NDArray[np.uint8],
    codes: NDArray[np.uint8] | memoryview,
) -> float:
    """Quantize rows into the three regions, on this thread; returns the largest magnitude."""
    number = mode if isinstance(mode, int) else MODES[mode]
    group = SUPER if method.super else 0
    weights = b"" if importance is None else importance
    rows, cols = block.shape
    return quantize_blocks(method.bits, group, number, rows, cols, block, cut[0], cut[1], weights, scales, subs, codes)


def slice_rows(region: NDArray[np.uint8], rows: int, start: int, stop: int) -> NDArray[np.uint8]:
    """The part of a region that belongs to the rows ``start..stop`` of ``rows``."""
    width = region.size // rows
    return region[start * width : stop * width]


def _merge_bounds(
    ends: Sequence[tuple[float, float]], clip: tuple[float, float] | None, domain: str
) -> tuple[float, float]:
    return clip_bounds(min(low for low, _ in ends), max(high for _, high in ends), clip, domain)


def clip_bounds(low: float, high: float, clip: tuple[float, float] | None, domain: str) -> tuple[float, float]:
    """The bounds for a quant record: those given, else symmetric ones, or for activations the extremes."""
    if clip is not None:
        first, last = (_round_bound(bound) for bound in clip)
        if not (isfinite(first) and isfinite(last)) or first > last:
            raise ContentError(f"clip bounds are two finite numbers, the lower one first, not {first:g} and {last:g}")
        return first, last
    return symmetric_bounds(low, high) if domain == "weights" else (low, high)


def _round_bound(bound: float) -> float:
    """Round to float32; a bound beyond it is infinite, be it an integer beyond all floats."""
    try:
        with np.errstate(over="ignore"):
            return float(np.float32(bound))
    except OverflowError:
        return inf if bound > 0 else -inf


def check_mode(method: Method, mode: str, domain: str) -> None:
    """Raise UnsupportedError for a mode or a domain that does not exist, or not for this method."""
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
    """Checked column weights, as the kernels take them; None without any."""
    if weights is None:
        return None
    if mode != "best" or method.family == "int":
        raise UnsupportedError("importance counts in mode best of q* and k* only")
    found = np.ascontiguousarray(weights, np.float32)
    if found.shape != (cols,):
        raise ContentError(f"{describe(name)}: {cols} columns need as many weights, not the shape {list(found.shape)}")
    if not (np.isfinite(found).all() and (found >= 0).all()):
        raise ContentError(f"{describe(name)}: importance is finite and not negative")
    return found


def _quantize_flat(
    method: Method,
    table: NDArray[Any],
    shape: tuple[int, ...],
    clip: tuple[float, float] | None,
    mode: str,
    domain: Domain,
    name: str,
    threads: int | None,
) -> Quantized:
    flat, number = table.reshape(-1), DOMAINS[domain]

    def map_floats(work: Callable[[NDArray[np.float32], int], R]) -> Iterator[R]:
        def take(start: int, stop: int) -> R:
            return use_float32(flat[start:stop], name, lambda values: work(values, start))

        return map_spans(take, flat.size, FLAT_PIECE, threads)

    ends = list(map_floats(lambda values, start: find_extremes(values, name, shape, start)))
    bounds = _merge_bounds(ends, clip, domain)
    scale = choose_scale(method, number, mode, bounds, clip is not None, map_floats)
    payload = np.empty(method.nbytes(shape, number), np.uint8)
    head = scale.encode_head()
    payload[: len(head)] = np.frombuffer(head, np.uint8)
    codes = payload[len(head) :]
    for _ in map_floats(lambda values, start: scale.encode_into(values, codes[start * method.bits // 8 :])):
        pass
    return Quantized(payload.data.toreadonly(), method.name, shape, bounds, mode, domain)
