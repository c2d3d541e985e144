"""What quantizing did to a model: the error of every tensor and of all together."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from holdall.base.progress import Progress
from holdall.errors import MissingError
from holdall.model.encodings import Encoding
from holdall.quant.measures import Measures, Sums, map_pairs, sum_errors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.model.model import Model
    from holdall.model.tensor import Tensor

__all__ = ["ErrorBins", "QuantReport", "TensorError", "compare"]

_BINS = 41
_WORST = 6


@dataclass(frozen=True, slots=True)
class ErrorBins:
    """A histogram of the errors of a tensor: counts in equal bins over ``-limit..limit``."""

    limit: float
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorError:
    """One quantized tensor and its error."""

    name: str
    method: str
    shape: tuple[int, ...]
    source_bytes: int
    measures: Measures
    errors: ErrorBins | None = None  # only the worst tensors have them


@dataclass(frozen=True, slots=True)
class QuantReport:
    """All quantized tensors in file order, the error of all, and the bytes of the whole model before and after.

    ``elements`` counts those of the whole model, including tensors that were not quantized (``untouched``).
    """

    source: str
    target: str
    mode: str
    tensors: tuple[TensorError, ...]
    total: Measures
    source_bytes: int
    target_bytes: int
    elements: int
    untouched: int = 0
    worst: tuple[str, ...] = ()

    @property
    def bits_per_weight(self) -> float:
        """Stored bits of the whole model, divided by its elements."""
        return 8 * self.target_bytes / max(1, self.elements)

    def as_dict(self) -> dict[str, Any]:
        """The report in plain values, for JSON; an infinite ratio is None."""
        return {
            "source": self.source,
            "target": self.target,
            "mode": self.mode,
            "source_bytes": self.source_bytes,
            "target_bytes": self.target_bytes,
            "untouched": self.untouched,
            "elements": self.elements,
            "total": {**_to_plain(self.total), "bits_per_weight": self.bits_per_weight},
            "worst": list(self.worst),
            "tensors": [
                {
                    "name": each.name,
                    "method": each.method,
                    "shape": list(each.shape),
                    "source_bytes": each.source_bytes,
                    **_to_plain(each.measures),
                    **({} if each.errors is None else {"error_histogram": asdict(each.errors)}),
                }
                for each in self.tensors
            ],
        }


def _to_plain(measures: Measures) -> dict[str, Any]:
    return {k: None if isinstance(v, float) and not isfinite(v) else v for k, v in asdict(measures).items()}


def compare(
    source: Model,
    target: Model,
    *,
    names: tuple[str, str] = ("", ""),
    mode: str = "",
    worst: int = _WORST,
    progress: Progress | None = None,
) -> QuantReport:
    """Measure every tensor of ``target`` that is quantized against its original in ``source``, block by block.

    Packed weights of ``source`` are decoded by the caller: they are no tensors of it, and their parts no numbers.
    """
    chosen = [t for t in target.tensors if _is_quantized(t) and t.name in source and not _is_quantized(source[t.name])]
    if not chosen:
        raise MissingError("no tensor is quantized in the one model and plain in the other: there is nothing to report")
    todo, done = sum(tensor.nbytes for tensor in chosen), 0
    total, found = Sums(), []
    for tensor in chosen:
        original = source[tensor.name]
        sums = sum_errors(original, tensor)
        total.join(sums)
        method = str(tensor.dtype).removeprefix("mcf.")
        found.append(TensorError(tensor.name, method, tensor.shape, original.nbytes, sums.measures()))
        done += tensor.nbytes
        if progress is not None:
            progress(done, todo)
    order = sorted(range(len(found)), key=lambda row: (-found[row].measures.relative, row))[:worst]
    for row in order:
        each = found[row]
        bins = _bin_errors(source[each.name], target[each.name], each.measures.max_error)
        found[row] = replace(each, errors=bins)
    return QuantReport(
        names[0],
        names[1],
        mode,
        tuple(found),
        total.measures(),
        source.nbytes,
        target.nbytes,
        sum(tensor.count for tensor in target.tensors if tensor.has_data),
        len(target) - len(found),
        tuple(found[row].name for row in order),
    )


def _is_quantized(tensor: Tensor) -> bool:
    return isinstance(tensor.dtype, Encoding) and tensor.has_data


def _bin_errors(original: Tensor, restored: Tensor, limit: float) -> ErrorBins:
    counts = np.zeros(_BINS, np.int64)
    if limit > 0 and isfinite(limit):
        for found in map_pairs(original, restored, partial(_count_errors, limit)):
            counts += found
    return ErrorBins(limit, tuple(counts.tolist()))


def _count_errors(limit: float, original: NDArray[np.float32], restored: NDArray[np.float32]) -> NDArray[np.int64]:
    miss = restored.astype(np.float64) - original
    place = ((miss / limit + 1) * (_BINS / 2)).astype(np.int64)
    return np.bincount(np.clip(place, 0, _BINS - 1).reshape(-1), minlength=_BINS)
