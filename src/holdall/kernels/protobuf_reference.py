"""The readable twin of the protobuf kernel: the records of a message as rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdall.kernels.buffers import array_of, check_size, view_of

if TYPE_CHECKING:
    from holdall.kernels.buffers import Bytes

__all__ = ["COUNT", "END", "FIELD", "FIRST", "ODD", "ROOM", "START", "STOP", "WINDOW", "WIRE", "protobuf_records"]

END, WINDOW, ROOM, WIRE = range(4)  # why a walk stopped
FIELD, START, STOP, ODD, COUNT, FIRST = range(6)  # columns of a row before those of the fields
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def protobuf_records(
    data: Bytes,
    base: int,
    at: int,
    stop: int,
    record: int,
    repeated: int,
    singles: Bytes,
    odd: Bytes,
    rows: Bytes,
    values: Bytes,
    /,
) -> tuple[int, int, int, int]:
    """Walk the fields from `at` on of a message that ends at `stop`; every field `record` that is bytes makes a row.

    `data` is what is at hand of the file, from byte `base` on. A row is uint64: where the field begins, where the
    record starts and stops, whether it is odd, how many `values` its varints in the field `repeated` have added, and
    two for each of `singles`, tags of one byte: where its bytes start and stop, or a varint's value and where it
    stops; 0 and 0 when it is absent. A record is odd, and nothing else is said of it, when it is broken, has a single
    field twice or of another kind, or a field whose number is in `odd`, or when it is the first of the window or of
    the values and does not fit.

    Returns the number of rows and of values, how far the walk came and why: END, or what is missing is a WINDOW from
    there on, more ROOM, or a sound field (WIRE).
    """
    check_size(base, at, stop, record, repeated)
    window, tags, outsiders = view_of(data).tobytes(), view_of(singles).tobytes(), view_of(odd).tobytes()
    if at < base or at > stop:
        raise ValueError("the walk begins inside the window, and before its end")
    if any(tag >= 0x80 for tag in tags):
        raise ValueError("tags have one byte")
    width = FIRST + 2 * len(tags)
    table, numbers = view_of(rows, writable=True), view_of(values, writable=True)
    if len(table) % (8 * width) or len(numbers) % 8:
        raise ValueError(f"rows are {width} uint64 each, values uint64")
    walk = _Walk(window, base, repeated, tags, outsiders, len(numbers) // 8)
    reached, why = walk.records(at, stop, record, len(table) // (8 * width))
    array_of(table, "<u8", writable=True)[: len(walk.rows)] = walk.rows
    array_of(numbers, "<u8", writable=True)[: len(walk.values)] = walk.values
    return len(walk.rows) // width, len(walk.values), reached, why


class _Stop(Exception):
    """A number or a field that cannot be read, or kept: the reason is its argument."""


class _Walk:
    """``rows`` and ``values`` are flat."""

    def __init__(self, data: bytes, base: int, repeated: int, tags: bytes, odd: bytes, room: int) -> None:
        self.rows: list[int] = []
        self.values: list[int] = []
        self._data = data
        self._base = base
        self._repeated = repeated
        self._columns = {tag >> 3: (FIRST + 2 * index, tag & 7) for index, tag in reversed(list(enumerate(tags)))}
        self._odd = frozenset(odd)
        self._room = room
        self._blank = [0] * (FIRST + 2 * len(tags) - ODD)

    def records(self, at: int, stop: int, record: int, room: int) -> tuple[int, int]:
        count = 0
        try:
            while at < stop:
                number, kind, first, last = self._field(at, stop)
                if number == record and kind == _BYTES:
                    if count >= room:
                        raise _Stop(ROOM)
                    self.rows += self._row(at, first, last, count)
                    count += 1
                at = last
        except _Stop as reason:
            return at, reason.args[0]
        return at, END

    def _row(self, at: int, start: int, stop: int, count: int) -> list[int]:
        row = [at, start, stop, *self._blank]
        before = len(self.values)
        try:
            self._record(row, start, stop)
        except _Stop as reason:
            del self.values[before:]
            why = reason.args[0]
            if (why == WINDOW and at != self._base) or (why == ROOM and count):
                raise
            return [at, start, stop, 1, *self._blank[1:]]
        row[COUNT] = len(self.values) - before
        return row

    def _record(self, row: list[int], at: int, stop: int) -> None:
        data, base, size = self._data, self._base, len(self._data)
        columns, repeated, values, room = self._columns, self._repeated, self.values, self._room
        while at < stop:
            begun = at
            place = at - base
            # Most tags and most numbers have one byte. It is worth a few lines not to call anybody for them.
            if stop - at > 1 < size - place and data[place] < 0x80 > data[place + 1]:
                tag, first, at = data[place], data[place + 1], at + 2
                number, kind = tag >> 3, tag & 7
                if kind == _BYTES and number:
                    first, at = at, at + first
                    if at > stop:
                        raise _Stop(WIRE)
                elif kind != _VARINT:
                    number, kind, first, at = self._field(begun, stop)
            else:
                number, kind, first, at = self._field(begun, stop)
            if number == repeated:
                if kind == _VARINT and len(values) < room:
                    values.append(first)
                else:
                    self._packed(kind, first, at)
            elif number in columns:
                column, wanted = columns[number]
                if row[column + 1] or kind != wanted:
                    raise _Stop(WIRE)
                row[column], row[column + 1] = first, at
            elif number in self._odd:
                raise _Stop(WIRE)

    def _packed(self, kind: int, first: int, last: int) -> None:
        """Keep the varints that are packed into bytes; for one by itself there was no room."""
        if kind != _BYTES:
            raise _Stop(ROOM if kind == _VARINT else WIRE)
        while first < last:
            value, first = self._varint(first, last)
            if len(self.values) >= self._room:
                raise _Stop(ROOM)
            self.values.append(value)

    def _field(self, at: int, stop: int) -> tuple[int, int, int, int]:
        """Number, kind, and where its bytes start and stop; a varint's value, and where it stops."""
        tag, after = self._varint(at, stop)
        kind = tag & 7
        if kind == _VARINT:
            return tag >> 3, kind, *self._varint(after, stop)
        if kind == _BYTES:
            size, after = self._varint(after, stop)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise _Stop(WIRE)
        if tag < 8 or size > stop - after:
            raise _Stop(WIRE)
        return tag >> 3, kind, after, after + size

    def _varint(self, at: int, stop: int) -> tuple[int, int]:
        """The number at ``at`` in a message that ends at ``stop``, and where it ends."""
        place, most = at - self._base, 10 if stop - at > 10 else stop - at
        piece = self._data[place : place + most]
        value = shift = 0
        for byte in piece:
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                if value >> 64:
                    break
                return value, at + shift // 7
        else:
            if len(piece) < most:
                raise _Stop(WINDOW)
        raise _Stop(WIRE)
