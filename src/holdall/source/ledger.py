"""Which bytes of a file belong to what.

Readers note every region and table that they read, with one entry each, whatever the number of tensors. ``explain``
expands the entries into fields, and :meth:`Ledger.gaps` finds the bytes that belong to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from holdall.binary.layout import Layout

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from holdall.binary.layout import Columns
    from holdall.source import Source

__all__ = ["Ledger", "Owner"]


@dataclass(frozen=True, slots=True, eq=False)
class Owner:
    """A set of byte ranges with one meaning: a header, a table, or the payloads of one kind.

    ``starts`` and ``sizes`` are columns, one row a range; ``label(row)`` names a row.
    """

    kind: Literal["record", "table", "region", "payload"]
    name: str
    starts: NDArray[np.uint64]
    sizes: NDArray[np.uint64]
    layout: Layout | None
    label: Callable[[int], str] | None

    def __len__(self) -> int:
        return len(self.starts)


class Ledger:
    """The owners of the bytes of one file, in the order in which the reader found them.

    ``pad_to`` is the alignment that the format fills with zeros: a gap of zeros that ends on a multiple of
    it is padding, not a hole. ``members`` are the ledgers of other files of the same set, by their sources.
    """

    def __init__(self) -> None:
        self.owners: list[Owner] = []
        self.members: list[tuple[Source, Ledger]] = []
        self.pad_to = 1

    def member(self, source: Source) -> Ledger:
        """Return the ledger of another file of the set."""
        ledger = Ledger()
        self.members.append((source, ledger))
        return ledger

    def record(self, layout: Layout, start: int) -> None:
        """Add one record of a fixed layout."""
        self._add("record", layout.name, [start], [layout.size], layout, None)

    def table(self, layout: Layout, start: int, count: int, label: Callable[[int], str] | None = None) -> None:
        """Add ``count`` records of a fixed layout, one after the other."""
        import numpy as np

        starts = np.arange(count, dtype=np.uint64) * np.uint64(layout.size) + np.uint64(start)
        self._add("table", layout.name, starts, np.full(count, layout.size, np.uint64), layout, label)

    def entries(
        self, columns: Columns, label: Callable[[int], str] | None = None, *, payload: str | None = None
    ) -> None:
        """Add entries of a scan. ``payload`` names a last field that lies in the table but does not belong to it."""
        import numpy as np

        layout = columns.layout
        if payload is not None:
            ends = columns[f"{payload}@"]
            layout = Layout(layout.name, **{name: field for name, field in layout.fields.items() if name != payload})
        else:
            ends = np.append(columns.starts[1:], np.uint64(columns.whole)) if len(columns) else columns.starts
        self._add("table", layout.name, columns.starts, ends - columns.starts, layout, label)

    def add_scattered(
        self,
        layout: Layout,
        starts: NDArray[np.uint64],
        sizes: NDArray[np.uint64],
        label: Callable[[int], str] | None = None,
    ) -> None:
        """Add records of one layout at any offsets, such as the headers before each entry of an archive."""
        self._add("table", layout.name, starts, sizes, layout, label)

    def region(self, name: str, start: int, size: int) -> None:
        """Add a range without fields: a string table, a JSON document, reserved bytes."""
        self._add("region", name, [start], [size], None, None)

    def regions(
        self,
        name: str,
        starts: NDArray[np.uint64] | list[int],
        sizes: NDArray[np.uint64] | list[int],
        label: Callable[[int], str] | None = None,
    ) -> None:
        """Add many ranges of one kind."""
        self._add("region", name, starts, sizes, None, label)

    def payloads(
        self,
        name: str,
        starts: NDArray[np.uint64],
        sizes: NDArray[np.uint64],
        label: Callable[[int], str] | None = None,
    ) -> None:
        """Add payload ranges, as columns."""
        self._add("payload", name, starts, sizes, None, label)

    def _add(
        self,
        kind: Literal["record", "table", "region", "payload"],
        name: str,
        starts: NDArray[np.uint64] | list[int],
        sizes: NDArray[np.uint64] | list[int],
        layout: Layout | None,
        label: Callable[[int], str] | None,
    ) -> None:
        import numpy as np

        self.owners.append(
            Owner(kind, name, np.asarray(starts, np.uint64), np.asarray(sizes, np.uint64), layout, label)
        )

    def gaps(self, size: int) -> Iterator[tuple[int, int]]:
        """Find the ranges (start, stop) of a file of ``size`` bytes that have no owner, in order."""
        import numpy as np

        if self.owners:
            starts = np.concatenate([owner.starts for owner in self.owners])
            sizes = np.concatenate([owner.sizes for owner in self.owners])
            starts = np.minimum(starts, np.uint64(size))  # a damaged file may claim bytes beyond its end
            sizes = np.minimum(sizes, np.uint64(size) - starts)
            used = sizes > 0
            order = np.argsort(starts[used], kind="stable")
            starts, ends = starts[used][order], (starts[used] + sizes[used])[order]
        else:
            starts = ends = np.empty(0, np.uint64)
        reached = np.maximum.accumulate(np.concatenate([np.zeros(1, np.uint64), ends]))
        limits = np.append(starts, np.uint64(size))
        for row in (limits > reached).nonzero()[0].tolist():
            yield int(reached[row]), int(limits[row])
