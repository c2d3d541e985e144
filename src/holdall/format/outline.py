"""What formats open for ``explain``: documents in ranges of their files, as outlines.

A format that is a package has them in its module ``outline``. Here is what they share: an outline of JSON, of
MessagePack and of text, and of documents that are stored compressed.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from holdall.base.buffer_sizes import buffer_size
from holdall.binary.documents.base import DocumentError
from holdall.binary.documents.outline import LONGEST, SHOWN, Item
from holdall.errors import FormatError
from holdall.source import BytesSource

if TYPE_CHECKING:
    from holdall.limits import Limits
    from holdall.model.model import Model
    from holdall.source import Source

__all__ = ["Outline", "Place", "ReadAhead", "cap_expansion", "open_packed", "open_regions"]
__all__ += ["outline_by_name", "outline_json", "outline_msgpack", "outline_names", "outline_numbers"]
__all__ += ["outline_protobuf", "outline_text", "stop_at"]

_READ = 4 << 20  # bytes of a document that are read at first, and after the byte that is asked for
_MOST = 64 << 20  # and at most
_LINE = 1 << 16  # bytes of a text that are read at a time

Walk: TypeAlias = Callable[[int], Iterator[Item]]
OpenRange: TypeAlias = "Callable[[Source, int, int], Outline]"
OpenPlace: TypeAlias = "Callable[[Place, Source, Model | None, Limits], Outline | None]"


@dataclass(frozen=True, slots=True)
class Place:
    """A range of the ledger as far as the file has it: bytes ``start`` to ``stop`` of the owner ``name``.

    ``label`` is the file's name for it, such as that of an entry of an archive; empty without one.
    """

    name: str
    label: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Outline:
    """A document in a range of a file. ``walk(since)`` lists its items, but for those that end before a byte.

    The items have offsets in the file; those of a document that is stored packed (``packing`` says how) have offsets in
    the unpacked document. ``size`` is that of the document. If it is not ``whole``, only its beginning was unpacked,
    and ``fault`` says what is wrong with the rest, if anything is. A walk ends with FormatError at what is wrong.
    ``resume(place)`` is the outline of a later range of the same document, where it need not begin anew.
    """

    syntax: str
    walk: Walk
    size: int
    packing: str = ""
    whole: bool = True
    fault: str = ""
    resume: Callable[[Place], Outline] | None = None


def stop_at(at: int, why: str) -> FormatError:
    """The error that ends a walk at byte ``at``."""
    return FormatError("core.outline", at, why)


def outline_json(source: Source, start: int, stop: int) -> Outline:
    """The outline of the JSON document in bytes ``start`` to ``stop``."""
    from holdall.binary.documents.json_outline import outline_json as walk

    return Outline("JSON", _walk_document(walk, source, start, stop), stop - start)


def outline_msgpack(source: Source, start: int, stop: int) -> Outline:
    """The outline of the MessagePack document in bytes ``start`` to ``stop``."""
    from holdall.binary.documents.msgpack_outline import outline_msgpack as walk

    return Outline("MessagePack", _walk_document(walk, source, start, stop), stop - start)


def outline_protobuf(source: Source, start: int, stop: int) -> Outline:
    """The outline of the protobuf message in bytes ``start`` to ``stop``, whose fields have no names here."""
    from holdall.binary.documents.protobuf_outline import outline_protobuf as walk

    return Outline("protobuf", _walk_document(partial(walk, size=stop - start), source, start, stop), stop - start)


def _walk_document(
    walk: Callable[[bytes, int, int], Iterator[Item]], source: Source, start: int, stop: int
) -> Walk:  # fmt: skip
    def walk_since(since: int) -> Iterator[Item]:
        size = min(stop - start, _MOST, max(0, since - start) + _READ)
        try:
            yield from walk(source.read(start, size), start, since)
        except DocumentError as error:
            if size < stop - start:  # what is wrong may be that it was cut here
                raise stop_at(start + size, f"no more than {size} bytes of a document are opened") from None
            raise stop_at(start + error.offset, f"{error.message} (in {error.path})") from None

    return walk_since


def outline_text(source: Source, start: int, stop: int, *, end: bytes = b"\n", what: str = "line") -> Outline:
    """The lines of the text in bytes ``start`` to ``stop``, or what else ends with the byte ``end``."""

    def walk(since: int) -> Iterator[Item]:
        if since - start > _MOST:
            raise stop_at(start, f"lines that begin within {_MOST} bytes are shown, not those around byte {since}")
        ahead, at, number = ReadAhead(source, stop, _LINE), start, 0
        while at < stop:
            held = ahead.read(at, _LINE)
            size = held.find(end) + 1 or len(held)  # a longer line is cut into several
            number += 1
            if at + size > since:
                text = held[: min(size, LONGEST)]
                value, whole = text.decode("utf-8", "backslashreplace"), size <= LONGEST
                yield Item(at, at + size, 0, f"{what} {number}", "text", value, text[:SHOWN], whole=whole)
            at += size

    return Outline("text", walk, stop - start)


def outline_numbers(source: Source, start: int, stop: int, type: str = "u64") -> Outline:
    """The integers of ``type``, little-endian, in bytes ``start`` to ``stop``."""
    size, signed = int(type[1:]) // 8, type[0] == "i"

    def walk(since: int) -> Iterator[Item]:
        ahead = ReadAhead(source, stop)
        first = max(0, since - start) // size
        for number, at in enumerate(range(start + first * size, stop - size + 1, size), first):
            data = ahead.read(at, size)
            yield Item(at, at + size, 0, f"[{number}]", type, int.from_bytes(data, "little", signed=signed), data)
        if (stop - start) % size:
            raise stop_at(stop - (stop - start) % size, f"{(stop - start) % size} bytes are no whole number")

    return Outline(f"{type} numbers", walk, stop - start)


def outline_names(names: Iterable[str], source: Source, start: int, stop: int) -> Outline:
    """The ``names`` that follow each other in bytes ``start`` to ``stop``, as far as they do; the rest as text."""

    def walk(since: int) -> Iterator[Item]:
        ahead, at = ReadAhead(source, stop), start
        for number, name in enumerate(names):
            data = name.encode("utf-8", "surrogatepass")
            if ahead.read(at, len(data)) != data:
                break
            if at + len(data) > since:
                yield Item(at, at + len(data), 0, f"[{number}]", "text", name, data[:SHOWN])
            at += len(data)
        yield from outline_text(source, at, stop).walk(max(at, since))

    return Outline("names", walk, stop - start)


def open_regions(syntaxes: Mapping[str, OpenRange]) -> OpenPlace:
    """The function ``outline`` of a format: how each of its regions is opened, by name."""

    def outline(place: Place, source: Source, model: Model | None, limits: Limits) -> Outline | None:
        open_range = syntaxes.get(place.name)
        return None if open_range is None else open_range(source, place.start, place.stop)

    return outline


def outline_by_name(name: str, source: Source, start: int, stop: int) -> Outline:
    """The outline of a file called ``name``: of JSON if it is called so, else of text, if it is any.

    >>> from holdall.source import BytesSource
    >>> outline_by_name("config.json", BytesSource(b"{}"), 0, 2).syntax
    'JSON'
    """
    if name.endswith(".json"):
        return outline_json(source, start, stop)
    head = source.read(start, min(stop - start, LONGEST))
    if _is_text(head):
        return outline_text(source, start, stop)
    item = Item(start, stop, 0, "", "bytes", None, head[:SHOWN])
    return Outline("bytes", lambda since: iter([item] if stop > since else []), stop - start)


def _is_text(head: bytes) -> bool:
    """Whether a file that begins with ``head``, which may end inside a letter, is text."""
    try:
        return "\0" not in getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False


def cap_expansion(limits: Limits, file_size: int) -> int:
    """The bytes to which a packed document is unpacked to be shown."""
    return min(_MOST, max(limits.document_bytes, file_size // 8))


def open_packed(packing: str, pieces: Iterable[bytes], most: int, open_inside: OpenRange) -> Outline:
    """The outline of the first ``most`` bytes of a document that comes unpacked in ``pieces``."""
    held, fault, whole = bytearray(), "", True
    try:
        for piece in pieces:
            held += piece[: most + 1 - len(held)]
            if len(held) > most:
                del held[most:]
                whole = False
                break
    except (FormatError, ValueError) as error:  # ValueError: a broken zstd frame
        whole, fault = False, error.message if isinstance(error, FormatError) else str(error)
    source = BytesSource(bytes(held), packing)
    return replace(open_inside(source, 0, len(held)), packing=packing, whole=whole, fault=fault)


class ReadAhead:
    """Reads small pieces of a range in order, ``step`` bytes or more at a time, none beyond ``stop``."""

    def __init__(self, source: Source, stop: int, step: int = buffer_size(1 << 16)) -> None:
        self._source = source
        self._stop = stop
        self._step = step
        self._base, self._data = 0, b""

    def read(self, at: int, size: int) -> bytes:
        """The ``size`` bytes at ``at``; fewer at the end of the range."""
        place, size = at - self._base, min(size, self._stop - at)
        if place < 0 or place + size > len(self._data):
            self._data = self._source.read(at, min(max(size, self._step), self._stop - at))
            self._base, place = at, 0
        return self._data[place : place + size]
