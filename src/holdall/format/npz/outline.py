"""What explain opens in npy and npz files: headers, the metadata, and deflated entries with both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdall.base.check import Check
from holdall.binary.documents.outline import LONGEST, SHOWN, Item
from holdall.format.npz.header import find_text, name_encoding
from holdall.format.npz.layout import PREFIX
from holdall.format.outline import Outline, Place, outline_json
from holdall.format.zip.outline import open_deflated

if TYPE_CHECKING:
    from holdall.limits import Limits
    from holdall.model.model import Model
    from holdall.source import Source

__all__ = ["outline"]


def outline(place: Place, source: Source, model: Model | None, limits: Limits) -> Outline | None:
    """The outline of a header, of the metadata, or of an entry that is stored deflated."""
    match place.name:
        case "npy header":
            return _outline_array(source, place.start, place.stop)
        case "metadata":
            return outline_json(source, place.start, place.stop)
        case "deflated":
            return open_deflated(source, place.start, place.stop, limits, _outline_array)
    return None


def _outline_array(source: Source, start: int, stop: int) -> Outline:
    return Outline("npy", lambda since: _walk_array(source, start, stop, since), stop - start)


def _walk_array(source: Source, start: int, stop: int, since: int) -> Iterator[Item]:
    """The fields of the header, and as much of the elements as there is."""
    head = source.read(start, min(stop - start, PREFIX.size + 4))
    first, last = find_text(head, start, Check(), "npz: the array")
    text = source.read(start + first, min(last - first, stop - start - first, LONGEST))
    fields = [
        ("magic", 0, 6, "bytes", head[:6]),
        ("version", 6, PREFIX.size, "u8", list(head[6 : PREFIX.size])),
        ("header length", PREFIX.size, first, "integer", last - first),
        ("header", first, last, "text", text.decode(name_encoding(head), "backslashreplace")),
        ("elements", last, stop - start, "elements", None),
    ]
    for name, begin, end, kind, value in fields:
        if begin < end <= stop - start and start + end > since:
            shown = source.read(start + begin, min(end - begin, SHOWN))
            whole = kind != "text" or last - first <= LONGEST
            yield Item(start + begin, start + end, 0, name, kind, value, shown, whole=whole)
