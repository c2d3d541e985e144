"""Tables whose payloads lie between their entries, read by positioned reads, a window at a time.

The scanner needs its table in memory. Where tensors are stored inside the table, that would be the whole file. So the
walk reads windows, scans the entries that fit into one, and steps over payloads that do not. Memory is needed for the
entries only, not for their payloads.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from holdall.base.buffer_sizes import buffer_size
from holdall.binary import kernels
from holdall.binary.columns import Shapes
from holdall.binary.layout import Columns, Layout

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.source import Source

__all__ = ["InterleavedTable", "walk"]

_FIRST = buffer_size(16 << 10)  # a window after a large payload, for one head
_LARGEST = 4 << 20  # a window for many small tensors; no head may be larger


@dataclass(slots=True)
class InterleavedTable:
    """The entries of a table: columns with offsets in the file, and the content of texts and dims.

    ``unreadable`` is the first text that is not UTF-8, as the name of its field and its row; ``texts`` then end
    before it.
    """

    columns: Columns
    texts: dict[str, list[str]]
    shapes: Shapes | None
    unreadable: tuple[str, int] | None


@dataclass(slots=True)
class _Walk:
    layout: Layout
    batches: list[dict[str, NDArray[np.uint64]]] = field(default_factory=list)
    texts: dict[str, list[str]] = field(default_factory=dict)
    dims: list[NDArray[np.uint8]] = field(default_factory=list)
    unreadable: tuple[str, int] | None = None
    done: int = 0

    def add(self, data: bytes, base: int, columns: Columns, payload: str | None = None) -> None:
        """Add the entries of the window at ``base``. ``payload`` names a payload that goes beyond the window."""
        batch = {"": columns.starts + np.uint64(base)}
        for name, row in columns.layout.fields.items():
            if row.kind == "int":
                batch[name] = columns[name]
                continue
            batch[f"{name}@"] = columns[f"{name}@"] + np.uint64(base)
            if row.kind == "text":
                batch[f"{name}#"] = columns[f"{name}#"]
                self._decode(name, data, columns)
            elif row.kind == "array":
                width = int(row.type[1:]) // 8
                self.dims.append(_gather(data, columns[f"{name}@"], columns[row.count] * np.uint64(width)))
        if payload is not None:
            batch[f"{payload}@"] = np.array([base + columns.end], np.uint64)
        self.batches.append(batch)
        self.done += len(columns)

    def _decode(self, name: str, data: bytes, columns: Columns) -> None:
        found = self.texts.setdefault(name, [])
        if self.unreadable is not None:
            return
        texts, bad = kernels.texts(
            data, np.ascontiguousarray(columns[f"{name}@"]), np.ascontiguousarray(columns[f"{name}#"])
        )
        found += texts
        if bad >= 0:
            self.unreadable = (name, self.done + bad)

    def result(self, failed: str | None, end: int, whole: int) -> InterleavedTable:
        _, names = self.layout._program
        keys = ["", *names]
        values: dict[str, NDArray[Any]] = {
            key: np.concatenate([batch[key] for batch in self.batches]) if self.batches else np.empty(0, np.uint64)
            for key in keys
        }
        starts = values.pop("")
        columns = Columns(self.layout, values, starts, failed, end, whole)
        return InterleavedTable(columns, self.texts, self._shapes(columns), self.unreadable)

    def _shapes(self, columns: Columns) -> Shapes | None:
        for row in self.layout.fields.values():
            if row.kind == "array":
                width = int(row.type[1:]) // 8
                ranks = columns[row.count]
                sizes = ranks * np.uint64(width)
                data = np.concatenate(self.dims).tobytes() if self.dims else b""
                return Shapes(data, np.cumsum(sizes, dtype=np.uint64) - sizes, ranks, width)
        return None


def walk(source: Source, layout: Layout, start: int, stop: int, count: int) -> InterleavedTable:
    """Walk ``count`` entries of ``source`` from ``start`` on, none of them beyond ``stop``.

    ``layout`` may end in one payload (``blob`` or ``elements``); its bytes are read only where they are few. As with
    :meth:`Layout.scan`, ``columns.failed`` names the field that is not inside.
    """
    head, payload = _split(layout)
    found = _Walk(layout)
    at, window = start, _FIRST
    while found.done < count:
        size = min(window, stop - at)
        data = source.read(at, size)
        columns = layout.scan(data, 0, size, count - found.done)
        if len(columns):
            found.add(data, at, columns)
        if columns.failed is None:
            at += columns.end
            break
        if len(columns):
            at += columns.whole
            if columns.whole > size // 2:  # the entries are small
                window = min(2 * window, _LARGEST)
            continue
        alone = columns if payload is None else head.scan(data, 0, size, 1)
        if alone.failed is not None:
            if size == stop - at or window == _LARGEST:
                return found.result(alone.failed, at + alone.end, at)
            window = _LARGEST
            continue
        assert payload is not None
        needed = _payload_size(layout, payload, data, alone)
        if needed > stop - at - alone.end:
            return found.result(payload, at + alone.end, at)
        found.add(data, at, alone, payload)
        at, window = at + alone.end + needed, _FIRST
    return found.result(None, at, at)


def _split(layout: Layout) -> tuple[Layout, str | None]:
    """Return the layout without its payload, and the name of the payload."""
    *fields, last = layout.fields
    if layout.fields[last].kind not in ("blob", "elements"):
        return layout, None
    return Layout(layout.name, **{name: layout.fields[name] for name in fields}), last


def _payload_size(layout: Layout, payload: str, data: bytes, head: Columns) -> int:
    """Bytes of the payload of the one entry in ``head``, exact below 2**64."""
    row = layout.fields[payload]
    if row.kind == "blob":
        return int(head[row.count][0])
    width = int(layout.fields[row.dims].type[1:]) // 8
    dims = Shapes(data, head[f"{row.dims}@"], head[row.count], width)[0]
    size = 0 if 0 in dims else row.size
    for dim in dims:
        size = min(size * dim, 1 << 64)  # already too large; the exact product of hostile numbers would be slow
    return size


def _gather(data: bytes, positions: NDArray[np.uint64], lengths: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """Gather the pieces of ``data`` at the positions, joined."""
    sizes = lengths.astype(np.int64)
    ends = np.cumsum(sizes)
    shifts = positions.astype(np.int64) - (ends - sizes)
    where = np.repeat(shifts, sizes) + np.arange(int(ends[-1]) if len(ends) else 0)
    return np.frombuffer(data, np.uint8)[where]
