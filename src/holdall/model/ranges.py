"""Ranges of sources as columns: where the payloads of many tensors are, without an object for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from holdall.base.once import computed_once
from holdall.model.payload import Payload, SourceRange, Span

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.source import Source

__all__ = ["Ranges", "Spans"]


@dataclass(frozen=True, slots=True, eq=False)
class Ranges:
    """A range for each row. ``owners`` are the numbers of their sources, -1 for a row that is no plain range of one.

    >>> from holdall.source import BytesSource
    >>> source = BytesSource(b"holdall")
    >>> ranges = Ranges.of_payloads([SourceRange(source, 4, 3), None])
    >>> ranges.owners.tolist(), ranges.starts.tolist(), ranges.sizes.tolist()
    ([0, -1], [4, 0], [3, 0])
    """

    sources: Sequence[Source]
    owners: NDArray[np.intp]
    starts: NDArray[np.uint64]
    sizes: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.owners)

    def take(self, rows: NDArray[np.intp]) -> Ranges:
        """The ranges of some rows."""
        return Ranges(self.sources, self.owners[rows], self.starts[rows], self.sizes[rows])

    @classmethod
    def of_payloads(cls, payloads: Iterable[Payload | None]) -> Ranges:
        """The ranges of ``payloads``; one that is no plain range of a source has none."""
        return cls._collect(
            (each.source, each.offset, each.size) if type(each) is SourceRange else None for each in payloads
        )

    @classmethod
    def of_spans(cls, spans: Iterable[Span]) -> Ranges:
        """The ranges ``spans``. Those of :class:`Spans` are columns already."""
        if isinstance(spans, Spans):
            return spans.ranges
        return cls._collect((source, start, stop - start) for source, start, stop in spans)

    @classmethod
    def _collect(cls, found: Iterable[tuple[Source, int, int] | None]) -> Ranges:
        numbers: dict[int, int] = {}
        sources: list[Source] = []
        owners, starts, sizes = list[int](), list[int](), list[int]()
        for each in found:
            if each is None:
                owners.append(-1)
                starts.append(0)
                sizes.append(0)
                continue
            number = numbers.setdefault(id(each[0]), len(sources))
            if number == len(sources):
                sources.append(each[0])
            owners.append(number)
            starts.append(each[1])
            sizes.append(each[2])
        return cls(sources, np.array(owners, np.intp), np.array(starts, np.uint64), np.array(sizes, np.uint64))

    @classmethod
    def join(cls, first: Ranges, second: Ranges) -> Ranges:
        """The rows of both, one after the other. A source of both gets two numbers."""
        owners = np.where(second.owners < 0, -1, second.owners + len(first.sources))
        return cls(
            [*first.sources, *second.sources],
            np.concatenate([first.owners, owners]),
            np.concatenate([first.starts, second.starts]),
            np.concatenate([first.sizes, second.sizes]),
        )

    def select_distinct(self, is_wanted: Callable[[Source], bool]) -> Ranges:
        """The ranges that have bytes in a source that ``is_wanted``, each once, by source and in file order."""
        wanted = np.array([*map(is_wanted, self.sources), False], np.bool_)  # the last is that of owner -1
        kept = self.take((wanted[self.owners] & (self.sizes > 0)).nonzero()[0])
        sorted_ = kept.take(np.lexsort((kept.sizes, kept.starts, kept.owners)))
        columns = (sorted_.owners, sorted_.starts, sorted_.sizes)
        fresh = np.ones(len(sorted_), np.bool_)
        if len(sorted_):
            fresh[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
        return sorted_.take(fresh.nonzero()[0])


class Spans(Iterable[Span]):
    """Ranges that are collected when they are first asked for, as columns or one by one."""

    def __init__(self, collect: Callable[[], Ranges]) -> None:
        self._collect = collect

    @computed_once
    def ranges(self) -> Ranges:
        """The ranges as columns."""
        return self._collect()

    def __iter__(self) -> Iterator[Span]:
        found = self.ranges
        columns = (found.owners.tolist(), found.starts.tolist(), (found.starts + found.sizes).tolist())
        return ((found.sources[owner], start, stop) for owner, start, stop in zip(*columns, strict=True))
