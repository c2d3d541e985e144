"""Truncated files: how long they should be, and which of their tensors are complete."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdall.base.check import SHORT, Check, Report
from holdall.errors import FormatError
from holdall.model.payload import SourceRange
from holdall.source import CHUNK, Source
from holdall.source.ledger import Ledger

if TYPE_CHECKING:
    from holdall.model.model import Model
    from holdall.operations.examine import Examination

__all__ = ["Truncation", "find_truncation"]

_TURNS = 3  # an index that is read further may ask for a still longer file
_MOST = 1 << 60  # stated sizes beyond this are damage
_FURTHER = 4 << 20  # missing bytes that read as zeros


@dataclass(frozen=True, slots=True)
class Truncation:
    """A file that is shorter than it states. ``model`` has all tensors of its index, with or without their bytes."""

    size: int  # bytes in the file
    needs: int  # bytes that the complete file has
    model: Model | None
    whole: int  # tensors of the model that are complete


def find_truncation(seen: Examination) -> Truncation | None:
    """Find how much of a truncated file is there; None for a file that is complete, or does not state its size.

    The index is read once more, from a source that has the complete size.
    """
    if seen.format is None or seen.source.is_folder:
        return None
    size, needs = seen.source.size, _find_needed_size(seen.report)
    model = None
    for _ in range(_TURNS):
        if not size < needs < _MOST:
            break
        report = Report(seen.source.name, seen.format.name, "structure")
        check = Check(limits=seen.check.limits, report=report)
        source = TruncatedSource(seen.source, needs)
        with check.scope():
            model = seen.format.read(source, check, Ledger())
        if _find_needed_size(report) <= needs:
            break
        needs = _find_needed_size(report)
    if not size < needs < _MOST:
        return None
    return Truncation(size, needs, model, 0 if model is None else _count_complete(model, size))


def _find_needed_size(report: Report) -> int:
    return max((finding.needs for finding in report.findings if finding.needs is not None), default=0)


def _count_complete(model: Model, size: int) -> int:
    payloads = [tensor.payload for tensor in model.tensors]
    return sum(not isinstance(p, SourceRange) or p.offset + p.size <= size for p in payloads)


class TruncatedSource(Source):
    """A truncated file with its complete size, in which missing bytes read as zeros.

    Readers often read a little more than they need. A range far beyond the end raises before any memory is allocated.
    """

    def __init__(self, source: Source, size: int) -> None:
        self._source = source
        self.name = source.name
        self.size = size

    @property
    def identity(self) -> tuple[object, ...]:
        return ("truncated", self._source.identity, self.size)

    def read(self, offset: int, size: int) -> bytes:
        self._check_near(offset, size)
        return super().read(offset, size)

    def chunks(self, offset: int, size: int, chunk: int = CHUNK) -> Iterator[memoryview]:
        self._check_near(offset, size)
        return super().chunks(offset, size, chunk)

    def read_into(self, offset: int, buffer: memoryview) -> None:
        self._check_near(offset, len(buffer))
        here = min(max(self._source.size - offset, 0), len(buffer))
        if here:
            self._source.read_into(offset, buffer[:here])
        buffer[here:] = bytes(len(buffer) - here)

    def close(self) -> None:
        return None

    def _check_near(self, offset: int, size: int) -> None:
        self._check_inside(offset, size)
        if offset + size > self._source.size + _FURTHER:
            message = f"{self.name}: bytes {offset}..{offset + size} are not there: it ends at {self._source.size}"
            raise FormatError(SHORT.id, self._source.size, message)
