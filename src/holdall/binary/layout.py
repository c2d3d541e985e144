"""Fields at known offsets: one table of fields, read as single records or as columns.

A :class:`Layout` is written so that it reads like the table in the format's document::

    HEADER = Layout("header", magic=raw(4), version=U32, flags=U32, count=U64)
    ENTRY  = Layout("entry", name=text(U32, pad=8), rank=U32, dims=array(U64, "rank"), offset=U64)

``HEADER.read(data, 0)`` returns one record of Python integers. ``HEADER.table(data, 0, n)`` returns n records as numpy
columns. A layout with counted strings or arrays has no fixed size: ``ENTRY.scan(...)`` walks its entries with the
scanner of :mod:`holdall.binary.kernels` and returns columns too, with the position of each string and array instead of
its content.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

from holdall.base.once import computed_once

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["F32", "F64", "I32", "I64", "U8", "U16", "U32", "U64", "Columns", "Field", "FieldValue", "Layout"]
__all__ += ["array", "blob", "elements", "raw", "text"]

Buffer = bytes | bytearray | memoryview

_STRUCT = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i32": "i", "i64": "q", "f32": "f", "f64": "d"}
_WIDTH = {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "i32": 4, "i64": 8, "f32": 4, "f64": 8}


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a layout: its type, its size, and the fields that its size depends on."""

    kind: Literal["int", "raw", "text", "array", "blob", "elements"]
    type: str = ""  # the integer or float type, of the item or of the counter
    size: int = 0  # raw: bytes; elements: bytes of one item
    count: str = ""  # array, blob, elements: the earlier field that counts
    dims: str = ""  # elements: the earlier array field to multiply out
    pad: int = 1  # text: the whole field is padded with zeros to a multiple of this

    @property
    def fixed_size(self) -> int:
        """The least number of bytes that the field takes."""
        if self.kind == "int" or self.kind == "text":
            return -(-_WIDTH[self.type] // self.pad) * self.pad
        return self.size if self.kind == "raw" else 0


U8, U16, U32, U64 = (Field("int", t) for t in ("u8", "u16", "u32", "u64"))
I32, I64, F32, F64 = (Field("int", t) for t in ("i32", "i64", "f32", "f64"))


def raw(size: int) -> Field:
    """``size`` uninterpreted bytes: a magic, an id, reserved bytes."""
    return Field("raw", size=size)


def text(counter: Field, *, pad: int = 1) -> Field:
    """A counted string: the counter, the bytes, and zeros until the field has a multiple of ``pad`` bytes."""
    return Field("text", counter.type, pad=pad)


def array(item: Field, count: str) -> Field:
    """As many items as the earlier field ``count`` says."""
    return Field("array", item.type, count=count)


def blob(count: str) -> Field:
    """As many bytes as the earlier field ``count`` says, in the middle of the table."""
    return Field("blob", count=count)


def elements(rank: str, dims: str, item_bytes: int) -> Field:
    """A payload in the middle of the table: the product of the earlier array ``dims``, times ``item_bytes``."""
    return Field("elements", size=item_bytes, count=rank, dims=dims)


@dataclass(frozen=True, slots=True)
class FieldValue:
    """One field of one record with its place, for ``explain``."""

    name: str
    offset: int
    size: int
    value: object


class Layout:
    """A named list of fields, little-endian, without implicit padding.

    >>> point = Layout("point", x=U16, y=U16)
    >>> point.size, point.read(b"\\x01\\x00\\x02\\x00", 0).y, point.pack(x=1, y=2)
    (4, 2, b'\\x01\\x00\\x02\\x00')
    """

    def __init__(self, name: str, /, **fields: Field) -> None:
        self.name = name
        self.fields: Mapping[str, Field] = fields
        self.fixed = all(field.kind in ("int", "raw") for field in fields.values())
        self.min_size = sum(field.fixed_size for field in fields.values())

    def __repr__(self) -> str:
        return f"Layout({self.name!r}, {', '.join(self.fields)})"

    @property
    def size(self) -> int:
        """The bytes of one record; only a layout without counted fields has a size."""
        assert self.fixed, f"{self.name} has entries of variable length"
        return self.min_size

    def offset_of(self, field: str) -> int:
        """The offset of ``field`` inside a record of a fixed layout."""
        assert self.fixed
        offset = 0
        for name, row in self.fields.items():
            if name == field:
                return offset
            offset += row.fixed_size
        raise AttributeError(field)

    @computed_once
    def _struct(self) -> struct.Struct:
        codes = (f"{f.size}s" if f.kind == "raw" else _STRUCT[f.type] for f in self.fields.values())
        return struct.Struct("<" + "".join(codes))

    def read(self, data: Buffer, offset: int) -> SimpleNamespace:
        """Read one record as Python values. The caller has checked that its bytes exist."""
        return SimpleNamespace(**dict(zip(self.fields, self._struct.unpack_from(data, offset), strict=True)))

    def pack(self, **values: Any) -> bytes:
        """Pack one record; counted fields take ``bytes`` (text, blob) or integers (array)."""
        for name, field in self.fields.items():
            if field.kind == "raw":  # struct would cut or pad it silently
                assert len(values[name]) == field.size, f"{self.name}.{name} takes {field.size} bytes"
        if self.fixed:
            return self._struct.pack(*(values[name] for name in self.fields))
        return b"".join(_pack_field(field, values[name]) for name, field in self.fields.items())

    @computed_once
    def dtype(self) -> np.dtype[np.void]:
        """The packed numpy record of a fixed layout."""
        import numpy as np

        assert self.fixed
        return np.dtype([(n, f"V{f.size}" if f.kind == "raw" else _code_of(f)) for n, f in self.fields.items()])

    def table(self, data: Buffer, offset: int, count: int) -> NDArray[np.void]:
        """Read ``count`` records as columns: ``table["name"]`` is an array. The caller has checked the range."""
        import numpy as np

        return np.frombuffer(data, self.dtype, count, offset)

    def scan(self, data: Buffer, start: int, stop: int, count: int) -> Columns:
        """Walk ``count`` entries of ``data[start:stop]`` into :class:`Columns`.

        ``count`` may be any number that a file states: nothing is allocated for entries that cannot fit.
        """
        import numpy as np

        from holdall.binary import kernels

        assert self.min_size > 0
        room = min(count, max(0, stop - start) // self.min_size)
        program, names = self._program
        columns = np.empty((len(names), room), np.uint64)
        starts = np.empty(room, np.uint64)
        done, failed, at = kernels.scan(data, start, stop, room, program, columns, starts)
        if done == room < count:  # the next entry cannot even start
            failed = 0
        values = {name: _cast_column(columns[row, :done], self.fields.get(name)) for row, name in enumerate(names)}
        whole = int(starts[done]) if done < room else at
        return Columns(self, values, starts[:done], None if failed < 0 else list(self.fields)[failed], at, whole)

    @computed_once
    def _program(self) -> tuple[NDArray[np.int64], list[str]]:
        """The scanner's steps, and the names of the columns they fill."""
        import numpy as np

        steps: list[tuple[int, int, int, int, int]] = []
        columns: list[str] = []
        for name, field in self.fields.items():
            match field.kind:
                case "int":
                    steps.append((0, _WIDTH[field.type], 0, 0, 0))
                    columns.append(name)
                case "raw":
                    steps.append((1, field.size, 0, 0, 0))
                    columns.append(f"{name}@")
                case "text":
                    steps.append((2, _WIDTH[field.type], field.pad, 0, 0))
                    columns += [f"{name}@", f"{name}#"]
                case "array":
                    steps.append((3, _WIDTH[field.type], columns.index(field.count), 0, 0))
                    columns.append(f"{name}@")
                case "blob":
                    steps.append((4, columns.index(field.count), 0, 0, 0))
                    columns.append(f"{name}@")
                case "elements":
                    rank, dims = columns.index(field.count), columns.index(f"{field.dims}@")
                    steps.append((5, rank, dims, _WIDTH[self.fields[field.dims].type], field.size))
                    columns.append(f"{name}@")
        return np.array(steps, np.int64), columns

    def expand(self, data: Buffer, offset: int) -> Iterator[FieldValue]:
        """Expand the fields of the record at ``offset``, each with its place and value."""
        seen: dict[str, Any] = {}
        for name, field in self.fields.items():
            size, value = _locate(field, seen, data, offset)
            seen[name] = value
            yield FieldValue(name, offset, size, value)
            offset += size


class Columns:
    """The result of a scan: a column for each integer field, positions and lengths for the others.

    ``columns["dtype"]`` is the value of an integer field; ``columns["name@"]`` where the bytes of a text,
    array, blob or raw field start and ``columns["name#"]`` how long a text is. ``starts`` is each entry's
    offset, ``end`` the byte after the last one. When an entry did not fit, ``failed`` names the field that
    ran over, and ``end`` is where it starts; the columns hold the entries before, which end at ``whole``.
    """

    def __init__(
        self,
        layout: Layout,
        values: dict[str, NDArray[Any]],
        starts: NDArray[np.uint64],
        failed: str | None,
        end: int,
        whole: int,
    ) -> None:
        self.layout = layout
        self.starts = starts
        self.failed = failed
        self.end = end
        self.whole = whole
        self._values = values

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._values[name]


def _cast_column(column: NDArray[np.uint64], field: Field | None) -> NDArray[Any]:
    """Convert a scanned column to the type of its field: the scanner returns unsigned integers only."""
    if field is None or field.type.startswith("u"):
        return column
    return column.astype(f"<u{_WIDTH[field.type]}").view(_code_of(field))


def _code_of(field: Field) -> str:
    return f"<{field.type[0]}{_WIDTH[field.type]}"


def _pack_field(field: Field, value: Any) -> bytes:
    match field.kind:
        case "int":
            return struct.pack("<" + _STRUCT[field.type], value)
        case "text":
            stored: bytes = struct.pack("<" + _STRUCT[field.type], len(value)) + value
            return stored + bytes(-len(stored) % field.pad)
        case "array":
            return struct.pack(f"<{len(value)}{_STRUCT[field.type]}", *value)
        case _:
            return bytes(value)


def _locate(field: Field, seen: Mapping[str, Any], data: Buffer, offset: int) -> tuple[int, Any]:
    """Size and value of the field at ``offset``, given the values before it."""
    match field.kind:
        case "int":
            return _WIDTH[field.type], struct.unpack_from("<" + _STRUCT[field.type], data, offset)[0]
        case "raw":
            return field.size, bytes(data[offset : offset + field.size])
        case "text":
            width = _WIDTH[field.type]
            length = struct.unpack_from("<" + _STRUCT[field.type], data, offset)[0]
            stored = width + length
            return stored + -stored % field.pad, bytes(data[offset + width : offset + stored])
        case "array":
            count = int(seen[field.count])
            return count * _WIDTH[field.type], struct.unpack_from(f"<{count}{_STRUCT[field.type]}", data, offset)
        case "blob":
            return int(seen[field.count]), None
        case "elements":
            size = field.size
            for dim in seen[field.dims]:
                size *= dim
            return size, None
