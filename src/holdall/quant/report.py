"""What quantizing did to a model: error of every tensor and of all, as JSON, Markdown or one HTML page."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from holdall.encodings import Encoding
from holdall.errors import MissingError, UnsupportedError
from holdall.quant.measures import Measures, Sums, measured, paired_blocks

if TYPE_CHECKING:
    import os

    from holdall.model import Model
    from holdall.tensor import Tensor

__all__ = ["ErrorBins", "QuantReport", "TensorError", "compare", "write_report"]

_BINS = 41
_WORST = 6

Progress = Callable[[int, int], None]  # bytes of quantized payloads compared, bytes in all


@dataclass(frozen=True, slots=True)
class ErrorBins:
    """How the errors of a tensor are spread: counts over ``-limit..limit`` in equal bins."""

    limit: float
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorError:
    """One quantized tensor."""

    name: str
    method: str
    shape: tuple[int, ...]
    source_bytes: int
    measures: Measures
    errors: ErrorBins | None = None  # of the worst tensors only


@dataclass(frozen=True, slots=True)
class QuantReport:
    """All quantized tensors in file order, the error of all, and the bytes of the whole model before and after.

    ``elements`` counts those of the whole model, tensors that stayed as they were included.
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
    worst: tuple[str, ...] = field(default=())

    @property
    def bits_per_weight(self) -> float:
        """Stored bits of the whole model by its elements."""
        return 8 * self.target_bytes / max(1, self.elements)

    def as_dict(self) -> dict[str, Any]:
        """The report in plain values, as the JSON file has it; a ratio without end is null."""
        return {
            "source": self.source,
            "target": self.target,
            "mode": self.mode,
            "source_bytes": self.source_bytes,
            "target_bytes": self.target_bytes,
            "untouched": self.untouched,
            "elements": self.elements,
            "total": {**_plain(self.total), "bits_per_weight": self.bits_per_weight},
            "worst": list(self.worst),
            "tensors": [
                {
                    "name": each.name,
                    "method": each.method,
                    "shape": list(each.shape),
                    "source_bytes": each.source_bytes,
                    **_plain(each.measures),
                    **({} if each.errors is None else {"error_histogram": asdict(each.errors)}),
                }
                for each in self.tensors
            ],
        }


def _plain(measures: Measures) -> dict[str, Any]:
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
    """Measure every tensor of ``target`` that is quantized against its original in ``source``, block by block."""
    chosen = [t for t in target.tensors if _quantized(t) and t.name in source and not _quantized(source[t.name])]
    if not chosen:
        raise MissingError("no tensor is quantized in the one model and plain in the other: there is nothing to report")
    todo, done = sum(tensor.nbytes for tensor in chosen), 0
    total, found = Sums(), []
    for tensor in chosen:
        original = source[tensor.name]
        sums = measured(original, tensor)
        total.join(sums)
        method = str(tensor.dtype).removeprefix("mcf.")
        found.append(TensorError(tensor.name, method, tensor.shape, original.nbytes, sums.measures()))
        done += tensor.nbytes
        if progress is not None:
            progress(done, todo)
    order = sorted(range(len(found)), key=lambda row: (-found[row].measures.relative, row))[:worst]
    for row in order:
        each = found[row]
        bins = _error_bins(source[each.name], target[each.name], each.measures.max_error)
        found[row] = TensorError(each.name, each.method, each.shape, each.source_bytes, each.measures, bins)
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


def _quantized(tensor: Tensor) -> bool:
    return isinstance(tensor.dtype, Encoding) and tensor.has_data


def _error_bins(original: Tensor, restored: Tensor, limit: float) -> ErrorBins:
    counts = np.zeros(_BINS, np.int64)
    if limit > 0:
        for a, b in paired_blocks(original, restored):
            miss = b.astype(np.float64) - a
            place = ((miss / limit + 1) * (_BINS / 2)).astype(np.int64)
            counts += np.bincount(np.clip(place, 0, _BINS - 1).reshape(-1), minlength=_BINS)
    return ErrorBins(limit, tuple(counts.tolist()))


def write_report(report: QuantReport, path: str | os.PathLike[str]) -> None:
    """Write the report as its suffix says: ``.html``, ``.json`` or ``.md``."""
    target = Path(path)
    target.write_text(render(report, target.suffix.lower()), encoding="utf-8")


def check_suffix(path: str | os.PathLike[str]) -> None:
    """Refuse a suffix that no report has, before the work."""
    if Path(path).suffix.lower() not in (".html", ".htm", ".json", ".md"):
        raise UnsupportedError(f"{path}: a report is .html, .json or .md")


def render(report: QuantReport, suffix: str) -> str:
    """The report as text of the kind that ``suffix`` names."""
    check_suffix(f"report{suffix}")
    if suffix == ".json":
        return json.dumps(report.as_dict(), indent=1, allow_nan=False) + "\n"
    if suffix == ".md":
        from holdall.quant.pages import markdown

        return markdown(report)
    from holdall.quant.pages import html

    return html(report)
