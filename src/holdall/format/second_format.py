"""Finds the files that two programs would read as two formats.

A file has one meaning only if no other program finds another one in it. Most formats are recognised by their first
bytes, which no two can share. Six meanings go past those:

- a zip is found from the end of the file, whatever that begins with. Python's ``zipfile``, and with it ``NpzFile``,
  counts from the front of the archive, PyTorch's reader from the front of the file;
- in one zip numpy and PyTorch look for different entries;
- PyTorch reads a file with the header of a tar at byte 0 as the tar of its oldest versions;
- PyTorch reads a file that is no zip as pickles, which may begin in many ways;
- protobuf skips fields that it does not know, so that ONNX may begin with the magic of another format;
- safetensors begins with a number, which may be the first bytes of something else.

Chance makes none of these: letters of a zip in a tensor are no end record with a directory before it. A zip that was
stored whole, as an asset or as the bytes of a tensor, counts from its own beginning, and belongs to the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdall.base.check import Check, Rule
from holdall.errors import FormatError, HoldallError
from holdall.format.second_pickle import is_pickle

if TYPE_CHECKING:
    from holdall.format.base import Format
    from holdall.source import Source

__all__ = ["FRONT", "TWO", "is_aeroset", "is_safetensors", "refuse_second"]

TWO = Rule("core.format.two", "no other program reads the file as another format")
FRONT = 512  # bytes at the beginning that are looked at: the header of a tar

_END = b"PK\5\6"  # of a zip
_END_SIZE, _COMMENT = 22, 0xFFFF  # bytes of the end record, and the most that follow it
_DIRECTORY = 1 << 26  # bytes of a directory that are looked at
_FIELDS = 256  # of protobuf: more than bytes of another kind ever make
_GRAPH_FIELDS = 16
_IN_GRAPH = {number << 3 | 2 for number in (1, 2, 5, 10, 11, 12, 13, 14, 15, 16)}
_WIRE = {1: 8, 3: 0, 4: 0, 5: 4}  # bytes of a field by its wire type, where that says it


@dataclass(frozen=True, slots=True)
class _Second:
    """Another meaning: the format, how it is found, and where it begins."""

    format: str
    what: str
    at: int


@dataclass(frozen=True, slots=True)
class _Zip:
    """A zip that is found from the end. Its offsets are ``lead`` too small, or too large if that is negative."""

    start: int  # of the directory
    size: int
    lead: int
    stop: int  # where the end record ends


def is_safetensors(head: bytes, size: int) -> bool:
    """Whether a file of ``size`` bytes begins with a header length that fits it and a brace.

    >>> is_safetensors((2).to_bytes(8, "little") + b"{}", 10)
    True
    """
    return len(head) > 9 and head[8] == ord("{") and 2 <= int.from_bytes(head[:8], "little") <= size - 8


def is_aeroset(head: bytes) -> bool:
    """Whether JSON that begins with ``head`` says AEROSET there.

    >>> is_aeroset(b'{"format": "AEROSET"')
    True
    """
    return head.lstrip().startswith(b"{") and b'"AEROSET"' in head and b"\0" not in head


def refuse_second(source: Source, front: bytes, chosen: Format) -> None:
    """Raise FormatError if the file, which is ``chosen`` and begins with ``front``, is another format as well."""
    for second in _find_others(source, front, chosen):
        message = (
            f"{source.name}: is {chosen.name}, and {second.format} too, by {second.what} at byte {second.at}: "
            "give the format that is meant"
        )
        raise FormatError(TWO.id, second.at, message)


def _find_others(source: Source, front: bytes, chosen: Format) -> Iterator[_Second]:
    if chosen.name != "safetensors" and is_safetensors(front, source.size):
        yield _Second("safetensors", "a header that fits the file,", 0)
    if chosen.name == "hf" and is_aeroset(front[:64]):
        yield _Second("aeroset", "the word AEROSET,", front.index(b'"AEROSET"'))
    if _is_tar(front):
        yield _Second("torch", "the header of a tar", 0)
    if chosen.name != "torch" and is_pickle(source, front):
        yield _Second("torch", "a pickle", 0)
    if chosen.name != "onnx" and _is_onnx(source, front):
        yield _Second("onnx", "fields of protobuf", 0)
    yield from _find_zips(source, front, chosen)


# -- a tar ------------------------------------------------------------------------------------------------------------


def _is_tar(front: bytes) -> bool:
    """Whether there is the header of a tar with a right checksum, signed or not: what Python's tarfile asks for."""
    if len(front) < FRONT:
        return False
    field, rest = front[148:156], front[:148] + front[156:]
    if field[0] in (0x80, 0xFF):  # a binary number
        stated = int.from_bytes(field[1:], "big") - (256**7 if field[0] == 0xFF else 0)
    else:
        try:
            stated = int(field.split(b"\0")[0].decode("ascii").strip() or "0", 8)
        except ValueError:
            return False
    counted = 8 * ord(" ") + sum(rest)
    return stated in (counted, counted - 256 * sum(byte > 127 for byte in rest))


# -- ONNX -------------------------------------------------------------------------------------------------------------


def _is_onnx(source: Source, front: bytes) -> bool:
    """Whether the file is fields of protobuf from beginning to end, the graph of a model among them."""
    at = 0
    groups: list[int] = []
    has_graph = is_sure = False
    for _ in range(_FIELDS):
        if at == source.size:
            return has_graph and not groups
        head = front[at : at + 20] if at + 20 <= len(front) else source.read(at, min(20, source.size - at))
        tag, used = _read_varint(head, 0)
        value, end = _read_varint(head, used) if tag & 7 in (0, 2) else (0, used)
        number, wire = tag >> 3, tag & 7
        if wire == 3:
            groups.append(number)
        length = value if wire == 2 else 0 if wire == 0 else _WIRE.get(wire, source.size)
        if not used or not end or not number or length > source.size - at - end:
            return False
        if wire == 4 and (not groups or groups.pop() != number):
            return False
        if number == 7 and wire == 2 and not groups:
            has_graph = True
            is_sure = is_sure or _is_graph(source, at + end, at + end + length)
        at += end + length
    return is_sure


def _is_graph(source: Source, start: int, stop: int) -> bool:
    """Whether the bytes begin with fields that a graph has: letters make fields by chance, but not those."""
    for _ in range(_GRAPH_FIELDS):
        if start >= stop:
            break
        head = source.read(start, min(20, stop - start))
        tag, used = _read_varint(head, 0)
        size, end = _read_varint(head, used)
        if tag not in _IN_GRAPH or not end or size > stop - start - end:
            return False
        start += end + size
    return True


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at ``at``, and where it ends; 0 where it has no end."""
    value = 0
    for place, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, at + place + 1
    return 0, 0


# -- zips -------------------------------------------------------------------------------------------------------------


def _find_zips(source: Source, front: bytes, chosen: Format) -> Iterator[_Second]:
    """Find what numpy and PyTorch would read in a zip at the end of the file, beside what ``chosen`` reads."""
    tail_at = max(0, source.size - _END_SIZE - _COMMENT)
    tail = source.read(tail_at, source.size - tail_at)
    # All readers take the last end record; it has 22 bytes, so that letters of one in its numbers are none.
    last = tail.rfind(_END, 0, max(0, len(tail) - _END_SIZE + len(_END)))
    if last < 0:
        return
    own = chosen.name if front.startswith(b"PK") and chosen.name in ("npz", "torch") else None

    def read(at: int, size: int) -> bytes:
        return tail[at - tail_at : at - tail_at + size] if at >= tail_at else source.read(at, size)

    for found in dict.fromkeys(_resolve(read, tail_at + last)):  # both end records mostly say the same
        data = read(found.start, min(found.size, _DIRECTORY))
        # Most archives are of one format: one search through the directory says so.
        if own is None or (b".npy" in data if own == "torch" else b"/data.pkl" in data.lower()):
            yield from _name_seconds(source, found, data, chosen, own)


def _name_seconds(source: Source, found: _Zip, data: bytes, chosen: Format, own: str | None) -> Iterator[_Second]:
    for format, at in _list_formats(data):
        begins = found.lead + at
        if format != own and not (found.lead and _owns(chosen, source, begins, found.stop)):
            what = "an entry of the zip" if own else "a zip that is found from the end of the file,"
            yield _Second(format, what, begins)


def _resolve(read: Callable[[int, int], bytes], place: int) -> Iterator[_Zip]:
    """The zips that readers make of the end record at ``place``: each has its directory where one of them looks."""
    from holdall.format.zip.layout import CENTRAL_FRONT, END, END64, LOCATOR

    end = END.read(read(place, END.size), 0)
    stop = place + END.size
    ends = [(place - end.size, end.size, end.offset)]
    before = place - LOCATOR.size
    if before >= END64.size and read(before, 4) == b"PK\6\7":
        for at in {before - END64.size, LOCATOR.read(read(before, LOCATOR.size), 0).offset}:
            if at <= before - END64.size and read(at, 4) == b"PK\6\6":
                wide = END64.read(read(at, END64.size), 0)
                ends.append((at - wide.size, wide.size, wide.offset))
    for start, size, offset in ends:
        # zipfile looks directly before the end record, PyTorch at the stated offset.
        for at, lead in {(start, start - offset), (offset, 0)}:
            inside = 0 <= at <= place - CENTRAL_FRONT.size and size >= CENTRAL_FRONT.size
            if inside and read(at, 4) == b"PK\1\2":
                yield _Zip(at, min(size, place - at), lead, stop)


def _list_formats(directory: bytes) -> Iterator[tuple[str, int]]:
    """The formats that the names in a directory are of, and where the first entry of each begins."""
    from holdall.format.zip.layout import CENTRAL_FRONT, CENTRAL_SIGNATURE

    found: dict[str, int] = {}
    at = 0
    while at + CENTRAL_FRONT.size <= len(directory):
        entry = CENTRAL_FRONT.read(directory, at)
        if entry.signature != CENTRAL_SIGNATURE:
            break
        at += CENTRAL_FRONT.size
        name = directory[at : at + entry.name_size]
        at += entry.name_size + entry.extra_size + entry.comment_size
        is_pickle = name.lower().endswith(b"/data.pkl") and name.count(b"/") == 1  # PyTorch ignores case
        format = "npz" if name.endswith(b".npy") else "torch" if is_pickle else None
        if format is not None:
            found[format] = min(entry.offset, found.get(format, entry.offset))
    yield from found.items()


def _owns(chosen: Format, source: Source, start: int, stop: int) -> bool:
    """Whether the file, read as ``chosen``, has all of these bytes in something of its own.

    What was appended belongs to nothing, but not every format refuses it.
    """
    from holdall.source.ledger import Ledger

    ledger = Ledger()
    try:
        chosen.read(source, Check(), ledger)
    except HoldallError:
        return True  # the reader says what is wrong
    return not any(first < stop and start < last for first, last in ledger.gaps(source.size))
