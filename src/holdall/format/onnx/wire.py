"""Protobuf, as much as finding tensors needs: a bounded walk over the fields of a message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdall.base.buffer_sizes import buffer_size
from holdall.base.check import Check
from holdall.format.onnx import rules

if TYPE_CHECKING:
    from holdall.source import Source

__all__ = ["BYTES", "FIXED32", "FIXED64", "VARINT", "Walker", "field", "varint"]

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_WINDOW = buffer_size(1 << 16)

Field = tuple[int, int, int, int]  # number, kind, and start and end of the bytes; of a varint its value and end


class Walker:
    """Reads the fields of messages. Payloads are skipped, not read."""

    def __init__(self, source: Source, check: Check) -> None:
        self._source = source
        self._check = check
        self._data = b""
        self._base = 0
        self.value_at = 0  # where the last varint field's value begins

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._source.size

    def fields(self, start: int, stop: int) -> Iterator[Field]:
        """The fields of the message at ``start..stop``."""
        at = start
        while at < stop:
            tag, after = self.varint(at, stop)
            number, kind = tag >> 3, tag & 7
            if number == 0:
                self._check.fail(rules.WIRE, at, "onnx: a field has the number 0, which is none")
            if kind == VARINT:
                self.value_at = after
                value, end = self.varint(after, stop)
                yield number, kind, value, end
            else:
                size = 8 if kind == FIXED64 else 4
                if kind == BYTES:
                    size, after = self.varint(after, stop)
                elif kind not in (FIXED64, FIXED32):
                    self._check.fail(rules.WIRE, at, f"onnx: field {number} is of the kind {kind}, which is none")
                if size > stop - after:
                    message = f"onnx: field {number} has {size} bytes, {stop - after} are left in its message"
                    self._check.fail(rules.WIRE, at, message)
                end = after + size
                yield number, kind, after, end
            at = end

    def text(self, start: int, stop: int, what: str) -> str:
        """The text of a field."""
        self._check.limit("metadata_bytes", stop - start, start, f"onnx: bytes of {what}")
        place = start - self._base
        inside = place >= 0 and stop - self._base <= len(self._data)
        data = self._data[place : stop - self._base] if inside else self._source.read(start, stop - start)
        try:
            return data.decode()
        except UnicodeDecodeError:
            self._check.fail(rules.TEXT, start, f"onnx: {what} is not UTF-8")

    def varint(self, at: int, stop: int) -> tuple[int, int]:
        """The number at ``at``, and where it ends."""
        data, place = self._data, at - self._base
        if place < 0 or place + 10 > len(data):
            self._data = data = self._source.read(at, min(_WINDOW, self._source.size - at))
            self._base, place = at, 0
        if at < stop and data[place] < 0x80:  # most numbers have one byte
            return data[place], at + 1
        value = size = 0
        for byte in data[place : place + min(10, stop - at)]:
            value |= (byte & 0x7F) << 7 * size
            size += 1
            if byte < 0x80:
                break
        else:
            size = 0
        if not size or value >> 64:
            self._check.fail(rules.VARINT, at, "onnx: a number does not end, or has more than 64 bits")
        return value, at + size


def varint(value: int, width: int = 0) -> bytes:
    """Encode ``value``, in at least ``width`` bytes.

    >>> varint(300), varint(1, 3)
    (b'\\xac\\x02', b'\\x81\\x80\\x00')
    """
    out = bytearray()
    while value >= 0x80 or len(out) + 1 < width:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, data: bytes | int) -> bytes:
    """Encode one field: a number, or bytes with their length."""
    if isinstance(data, int):
        return varint(number << 3 | VARINT) + varint(data)
    return varint(number << 3 | BYTES) + varint(len(data)) + data
