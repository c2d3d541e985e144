"""Files that lack their end: what can still be known of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdall.check import SHORT, Check, Report
from holdall.errors import FormatError
from holdall.ledger import Ledger
from holdall.payload import Range
from holdall.source import CHUNK, Source

if TYPE_CHECKING:
    from holdall.examine import Examination
    from holdall.model import Model

__all__ = ["Cut", "cut_of"]

_TURNS = 3  # what a longer file would hold may need a still longer one
_MOST = 1 << 60  # bytes that any file can be said to have
_FURTHER = 4 << 20  # bytes behind the end that are read as zeros


@dataclass(frozen=True, slots=True)
class Cut:
    """A file that is shorter than it says itself. ``model`` is what its index says, payloads missing or not."""

    size: int  # bytes that are here: the first missing one has this offset
    needs: int  # bytes that the whole file has
    model: Model | None
    whole: int  # tensors of the model that are here to their last byte


def cut_of(seen: Examination) -> Cut | None:
    """How much of a cut file is there; None for one that is not cut, or does not say how long it was.

    The index is read once more, as if the rest of the file were there.
    """
    if seen.format is None or seen.source.is_folder:
        return None
    size, needs = seen.source.size, _needs(seen.report)
    model = None
    for _ in range(_TURNS):
        if not size < needs < _MOST:
            break
        report = Report(seen.source.name, seen.format.name, "structure")
        check = Check(limits=seen.check.limits, report=report)
        source = CutSource(seen.source, needs)
        with check.scope():
            model = seen.format.read(source, check, Ledger())
        if _needs(report) <= needs:
            break
        needs = _needs(report)
    if not size < needs < _MOST:
        return None
    return Cut(size, needs, model, 0 if model is None else sum(1 for _ in _whole(model, size)))


def _needs(report: Report) -> int:
    return max((finding.needs for finding in report.findings if finding.needs is not None), default=0)


def _whole(model: Model, size: int) -> Iterator[str]:
    for tensor in model.tensors:
        payload = tensor.payload
        if not isinstance(payload, Range) or payload.offset + payload.size <= size:
            yield tensor.name


class CutSource(Source):
    """A file as if it had its end, where zeros stand for what is missing: readers look a little further than they need.

    More than a little of what is not there is refused before anything is made ready for it.
    """

    def __init__(self, source: Source, size: int) -> None:
        self._source = source
        self.name = source.name
        self.size = size

    @property
    def identity(self) -> tuple[object, ...]:
        return ("cut", self._source.identity, self.size)

    def read(self, offset: int, size: int) -> bytes:
        self._near(offset, size)
        return super().read(offset, size)

    def chunks(self, offset: int, size: int, chunk: int = CHUNK) -> Iterator[memoryview]:
        self._near(offset, size)
        return super().chunks(offset, size, chunk)

    def read_into(self, offset: int, buffer: memoryview) -> None:
        self._near(offset, len(buffer))
        here = min(max(self._source.size - offset, 0), len(buffer))
        if here:
            self._source.read_into(offset, buffer[:here])
        buffer[here:] = bytes(len(buffer) - here)

    def close(self) -> None:
        return None

    def _near(self, offset: int, size: int) -> None:
        self._inside(offset, size)
        if offset + size > self._source.size + _FURTHER:
            message = f"{self.name}: bytes {offset}..{offset + size} are not there: it ends at {self._source.size}"
            raise FormatError(SHORT.id, self._source.size, message)
