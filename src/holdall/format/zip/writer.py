"""Planning zip archives: every entry is stored and its data aligned; times are constant, so that bytes repeat."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from holdall.base.buffer_sizes import buffer_size
from holdall.binary.columns import place
from holdall.binary.layout import Layout
from holdall.format.zip.entries import Rows, Single, sum_known
from holdall.format.zip.layout import (
    CENTRAL_FRONT,
    CENTRAL_SIGNATURE,
    END,
    END64,
    END64_SIGNATURE,
    END_SIGNATURE,
    LOCAL_FRONT,
    LOCAL_SIGNATURE,
    LOCATOR,
    LOCATOR_SIGNATURE,
    UTF8_FLAG,
    ZIP64,
)
from holdall.model.payload import Computed, InMemory, Payload, Span
from holdall.sink.plan import Plan, Results
from holdall.source import CHUNK
from holdall.source.buffers import regroup

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.model.table import TensorTable

__all__ = ["ZipPlan"]

_PADDING: Final = 0x4246  # "FB", the id under which PyTorch fills up to its alignment
_NEWYEAR: Final = 0x0021  # 1980-01-01, the first day that a zip can state
_FULL: Final = 0xFFFFFFFF
_TINY: Final = buffer_size(512)  # bytes of a payload in memory that is joined with the headers around it
_LARGE: Final = buffer_size(1 << 20)  # bytes above which a piece is not joined with others: that would copy it
_TOGETHER: Final = buffer_size(4096)  # entries that are made at a time
_ZIP64_SIZE: Final = 20  # bytes of the field with both sizes
_NARROW, _WIDE = 20, 45  # versions of the zip format, without and with numbers of 64 bits


class ZipPlan:
    """Collects the entries of a zip and makes its plan; the data of each begins on a multiple of ``align``.

    >>> archive = ZipPlan(64)
    >>> archive.add("hello.txt", b"hello")
    >>> archive.finish().size
    146
    """

    def __init__(self, align: int) -> None:
        self._align = align
        self._groups: list[Single | Rows] = []

    def add(self, name: str, *parts: bytes | Payload, pending: bool = False, crc: int | None = None) -> None:
        """Append an entry made of ``parts``, one after the other.

        ``pending`` says that some bytes are not final, ``crc`` is their CRC-32 if the caller knows it.
        """
        self._groups.append(Single(name, parts, None if pending else sum_known(parts) if crc is None else crc))

    def add_rows(
        self, table: TensorTable, rows: NDArray[np.intp], name_of: Callable[[int], str], head_of: Callable[[int], bytes]
    ) -> None:
        """Append an entry for each of the ``rows`` of a table, made of ``head_of(row)`` and the payload.

        ``name_of(number)`` is the name of the entry of ``rows[number]``.
        """
        if len(rows):
            self._groups.append(Rows(table, rows, name_of, head_of))

    def finish(self) -> Plan:
        """The plan, with the directory at its end."""
        plan = Plan()
        columns = _Columns(self._groups, self._align)
        for group, first in zip(self._groups, columns.firsts, strict=True):
            if isinstance(group, Single):
                _put_single(plan, group, columns, first)
            else:
                _put_rows(plan, group, columns, first)
        _put_directory(plan, columns)
        return plan


class _Columns:
    """The numbers of all entries of an archive. ``firsts`` is the number of the first entry of each group."""

    def __init__(self, groups: Sequence[Single | Rows], align: int) -> None:
        counts = [len(group.sizes) for group in groups]
        self.firsts = [sum(counts[:number]) for number in range(len(counts))]
        self.groups = groups
        self.stretches: list[_Stretch] = []
        self.sizes = _join([group.sizes for group in groups], np.uint64)
        self.crcs = _join([group.crcs for group in groups], np.uint32)
        self.known = _join([group.known for group in groups], np.bool_)
        for group, first, count in zip(groups, self.firsts, counts, strict=True):
            group.sizes = self.sizes[first : first + count]  # not kept twice
            group.crcs, group.known = self.crcs[first : first + count], self.known[first : first + count]
        names = (len(group.name(row)) for group, count in zip(groups, counts, strict=True) for row in range(count))
        self.names = np.fromiter(names, np.uint32, len(self.sizes))
        self._padding = [b""] * 4 + [_encode_field(_PADDING, bytes(size - 4)) for size in range(4, align + 4)]
        spans = self.names + np.uint64(LOCAL_FRONT.size)
        spans[self.sizes >= _FULL] += np.uint64(_ZIP64_SIZE)
        # The data of each entry are aligned, so that the place of the next depends on the size of this one alone.
        ends = spans.copy()
        ends[1:] += self.sizes[:-1]
        self.fills = (-(ends % np.uint64(align)).astype(np.int16) % align).astype(np.uint16)
        del ends
        self.fills[(self.fills > 0) & (self.fills < 4)] += np.uint16(align)
        spans += self.fills
        spans += self.sizes
        self.offsets, self.end = place(spans)

    def extra(self, number: int) -> bytes:
        """The extra field of a local header, which aligns the data."""
        size = int(self.sizes[number])
        wide = _encode_field(ZIP64, size.to_bytes(8, "little") * 2) if size >= _FULL else b""
        return wide + self._padding[int(self.fills[number])]

    def local_headers(self, start: int, stop: int) -> bytes:
        """Encode the fixed part of the local headers ``start..stop``; a CRC that is not known yet is 0."""
        table = self._new_table(LOCAL_FRONT, LOCAL_SIGNATURE, start, stop)
        wide = self.sizes[start:stop] >= _FULL
        table["version"] = np.where(wide, _WIDE, _NARROW)
        table["extra_size"] = self.fills[start:stop] + np.where(wide, _ZIP64_SIZE, 0)
        return table.tobytes()

    def list_unknown(self) -> list[int]:
        """The numbers of entries whose CRC is known only once their bytes are written."""
        numbers: list[int] = (~self.known).nonzero()[0].tolist()
        return numbers

    def directory_size(self) -> int:
        """The bytes of the directory."""
        wide, far = self.sizes >= _FULL, self.offsets >= _FULL
        extras = 16 * int(wide.sum()) + 8 * int(far.sum()) + 4 * int((wide | far).sum())
        return extras + int(self.names.sum()) + CENTRAL_FRONT.size * len(self.sizes)

    def sum_entries(self) -> None:
        """Find the CRC-32 of small entries that have not been made."""
        for stretch in self.stretches:
            stretch.sum()

    def directory(self, crcs: NDArray[np.uint32] | None = None) -> Iterator[bytes]:
        """Encode the directory, block by block."""
        if crcs is None:
            self.sum_entries()
            crcs = self.crcs
        width = CENTRAL_FRONT.size
        for group, first in zip(self.groups, self.firsts, strict=True):
            for start in range(0, len(group.sizes), _TOGETHER):
                rows = range(start, min(start + _TOGETHER, len(group.sizes)))
                low, high = first + rows.start, first + rows.stop
                numbers = zip(self.sizes[low:high].tolist(), self.offsets[low:high].tolist(), strict=True)
                extras = [_encode_central_extra(size, offset) for size, offset in numbers]
                table = self._new_table(CENTRAL_FRONT, CENTRAL_SIGNATURE, low, high)
                table["version"] = table["made_by"] = [_WIDE if extra else _NARROW for extra in extras]
                table["extra_size"] = [len(extra) for extra in extras]
                table["offset"] = np.minimum(self.offsets[low:high], np.uint64(_FULL))
                table["crc"] = crcs[low:high]
                fixed, pieces = table.tobytes(), list[bytes]()
                for number, (row, extra) in enumerate(zip(rows, extras, strict=True)):
                    pieces += fixed[number * width : (number + 1) * width], group.name(row), extra
                yield b"".join(pieces)

    def _new_table(self, layout: Layout, signature: int, start: int, stop: int) -> NDArray[np.void]:
        """A record for each entry, with the fields that local headers and the directory share."""
        table: NDArray[Any] = np.zeros(stop - start, layout.dtype)
        table["signature"], table["flags"], table["date"] = signature, UTF8_FLAG, _NEWYEAR
        table["stored"] = table["size"] = np.minimum(self.sizes[start:stop], np.uint64(_FULL))
        table["name_size"] = self.names[start:stop]
        table["crc"] = self.crcs[start:stop]
        return table


def _join(columns: Sequence[NDArray[Any]], dtype: type) -> NDArray[Any]:
    return np.concatenate([np.empty(0, dtype), *columns])


def _put_single(plan: Plan, entry: Single, columns: _Columns, number: int) -> None:
    """Put an entry."""
    front = columns.local_headers(number, number + 1) + entry.name(0) + columns.extra(number)
    known = [front]  # bytes that wait for the next put
    if not columns.known[number]:
        known = []
        _put_late(plan, front, number, int(columns.sizes[number]))
    for part in entry.parts:
        if isinstance(part, bytes):
            known.append(part)
            if len(part) > _LARGE:
                _put_known(plan, known)
                known = []
        elif isinstance(part, InMemory) and part.size <= _TINY:
            known.append(bytes(part.data))
        else:
            _put_known(plan, known)
            plan.stream(part)
            known = []
    _put_known(plan, known)


def _put_late(plan: Plan, front: bytes, number: int, size: int) -> None:
    """Put a local header that is made once the CRC-32 of its entry is known."""
    tap = _tap_of(number)
    plan.late(f"header {number}", len(front), (tap,), _LateHeader(front, tap))
    plan.tap(tap, "crc32", plan.cursor, plan.cursor + size)


def _tap_of(number: int) -> str:
    return f"crc {number}"


def _put_rows(plan: Plan, group: Rows, columns: _Columns, first: int) -> None:
    """Put the entries of a table: stretches of those whose CRC is known, and the others one by one."""
    start = 0
    for row in [*(~group.known).nonzero()[0].tolist(), len(group.known)]:
        if row > start:
            end = int(columns.offsets[first + row]) if first + row < len(columns.offsets) else columns.end
            columns.stretches.append(_Stretch(group, columns, first, start, row, end - plan.cursor))
            plan.stream(columns.stretches[-1])
        start = row + 1
        if row < len(group.known):
            number = first + row
            front = columns.local_headers(number, number + 1) + group.name(row) + columns.extra(number)
            _put_late(plan, front, number, int(columns.sizes[number]))
            head, payload = group.head_of(group.rows[row]), group.payload(row)
            _put_known(plan, [head] if head else [])
            if payload.size:
                plan.stream(payload)


class _Stretch(Payload):
    """The entries ``start..stop`` of a table, all of them small. Making them finds their CRC-32."""

    in_order = True

    def __init__(self, group: Rows, columns: _Columns, first: int, start: int, stop: int, size: int) -> None:
        self._group, self._columns, self._first = group, columns, first
        self._start, self._stop = start, stop
        self.size = size
        self._summed = False

    def spans(self) -> Iterator[Span]:
        for row in range(self._start, self._stop):
            yield from self._group.payload(row).spans()

    def slice(self, start: int, stop: int) -> memoryview:
        return memoryview(self.read())[start:stop]

    def chunks(self, piece: int = CHUNK) -> Iterator[memoryview]:
        return regroup(self._make(), piece)

    def sum(self) -> None:
        """Find the CRC-32 of each entry, unless they have been made."""
        if not self._summed:
            deque(self._make(), 0)

    def _make(self) -> Iterator[bytes]:
        group, columns, first, width = self._group, self._columns, self._first, LOCAL_FRONT.size
        low = self._start
        while low < self._stop:
            reach = columns.offsets[first + low] + np.uint64(_LARGE)
            high = min(int(np.searchsorted(columns.offsets, reach)) - first, low + _TOGETHER, self._stop)
            rows = range(low, max(high, low + 1))
            entries = group.read(rows)
            columns.crcs[first + rows.start : first + rows.stop] = [crc for _, _, crc in entries]
            fronts, pieces = columns.local_headers(first + rows.start, first + rows.stop), list[bytes | memoryview]()
            for number, (row, (head, data, _)) in enumerate(zip(rows, entries, strict=True)):
                front = fronts[number * width : (number + 1) * width]
                pieces += front, group.name(row), columns.extra(first + row), head, data
            yield b"".join(pieces)
            low = rows.stop
        self._summed = True


def _put_directory(plan: Plan, columns: _Columns) -> None:
    """Put the directory and the end record."""
    start, size, unknown = plan.cursor, columns.directory_size(), columns.list_unknown()

    def directory(results: Results) -> bytes:
        columns.sum_entries()
        crcs = columns.crcs.copy()
        crcs[unknown] = [results[_tap_of(number)] for number in unknown]
        return b"".join(columns.directory(crcs))

    if unknown:
        plan.late("directory", size, tuple(map(_tap_of, unknown)), directory)
    elif not columns.stretches:
        plan.put(directory({}))
    else:
        plan.stream(Computed(size, columns.directory))
    plan.put(_encode_end(len(columns.sizes), start, size))


def _put_known(plan: Plan, known: list[bytes]) -> None:
    """Put all pieces as one; a large last one is put apart, since joining would copy it."""
    large = known.pop() if known and len(known[-1]) > _LARGE else b""
    if known:
        plan.put(b"".join(known))
    if large:
        plan.put(large)


@dataclass(frozen=True, slots=True)
class _LateHeader:
    """Makes the local header of an entry once its CRC-32 is known."""

    front: bytes
    tap: str

    def __call__(self, results: Results) -> bytes:
        at, crc = LOCAL_FRONT.offset_of("crc"), int(results[self.tap])
        return self.front[:at] + crc.to_bytes(4, "little") + self.front[at + 4 :]


def _encode_field(kind: int, data: bytes) -> bytes:
    return kind.to_bytes(2, "little") + len(data).to_bytes(2, "little") + data


def _encode_central_extra(size: int, offset: int) -> bytes:
    """Encode the zip64 field, with the numbers that do not fit 32 bits; empty if all fit."""
    numbers = [number for number in (size, size, offset) if number >= _FULL]
    return _encode_field(ZIP64, b"".join(number.to_bytes(8, "little") for number in numbers)) if numbers else b""


def _encode_end(count: int, start: int, size: int) -> bytes:
    wide = b""
    if count >= 0xFFFF or start >= _FULL or size >= _FULL:
        wide = END64.pack(
            signature=END64_SIGNATURE, record_size=END64.size - 12, made_by=_WIDE, version=_WIDE, disk=0,
            first_disk=0, here=count, count=count, size=size, offset=start,
        )  # fmt: skip
        wide += LOCATOR.pack(signature=LOCATOR_SIGNATURE, disk=0, offset=start + size, disks=1)
    few = min(count, 0xFFFF)
    return wide + END.pack(
        signature=END_SIGNATURE, disk=0, first_disk=0, here=few, count=few, size=min(size, _FULL),
        offset=min(start, _FULL), comment_size=0,
    )  # fmt: skip
