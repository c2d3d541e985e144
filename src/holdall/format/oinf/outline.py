"""What explain opens in OINF files: metadata values, by the parts of each kind."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING

from holdall.binary.documents.outline import LONGEST, SHOWN, Item
from holdall.format.oinf.layout import TAGS
from holdall.format.outline import Outline, Place, stop_at
from holdall.model.dtypes import DTYPES

if TYPE_CHECKING:
    from holdall.limits import Limits
    from holdall.model.model import Model
    from holdall.source import Source

__all__ = ["outline"]

_MANY = 64  # elements of an array that are decoded


def outline(place: Place, source: Source, model: Model | None, limits: Limits) -> Outline | None:
    """The outline of a metadata value, whose kind the table of metadata states."""
    if place.name != "metadata" or model is None or place.label not in model.metadata:
        return None
    kind, size = model.metadata.kind(place.label), place.stop - place.start

    def walk(since: int) -> Iterator[Item]:
        return (item for item in _Value(source, place.start, place.stop).walk(kind) if item.stop > since)

    return Outline(f"{kind} value", walk, size)


class _Value:
    def __init__(self, source: Source, start: int, stop: int) -> None:
        self._source = source
        self._stop = stop
        self._at = start

    def walk(self, kind: str) -> Iterator[Item]:
        """The parts of a value of ``kind``."""
        if kind == "string":
            length, size = self._number("length")
            yield length
            yield self._text(size)
        elif kind == "bitset":
            yield self._number("bits")[0]
            stated, size = self._number("size")
            yield stated
            yield self._take("bits of the set", "bytes", size)
        elif kind.startswith("ndarray"):
            yield from self._array()
        else:
            yield self._elements("value", kind, ())
        if self._at < self._stop:
            yield self._take("padding", "bytes", self._stop - self._at)

    def _array(self) -> Iterator[Item]:
        type, tag = self._number("type")
        yield type
        stated, rank = self._number("rank")
        yield stated
        kind = TAGS.get(tag, "")
        if kind not in DTYPES:
            raise stop_at(type.start, f"there are no arrays of the type {tag}")
        shape = []
        for axis in range(rank):
            item, dim = self._number(f"dim {axis}", 8)
            shape.append(dim)
            yield item
        yield self._elements("elements", kind, tuple(shape))

    def _elements(self, name: str, kind: str, shape: tuple[int, ...]) -> Item:
        dtype, count = DTYPES[kind], prod(shape)
        item = self._take(name, kind, dtype.nbytes(shape))
        few = min(count, _MANY)
        data = self._source.read(item.start, dtype.nbytes((few,)))
        values = dtype.decode(memoryview(data), (few,)).tolist()
        shown = values if shape else values[0]
        return Item(item.start, item.stop, 0, name, kind, shown, item.data, whole=few == count)

    def _text(self, size: int) -> Item:
        item = self._take("text", "text", size)
        text = self._source.read(item.start, min(size, LONGEST)).decode("utf-8", "backslashreplace")
        return Item(item.start, item.stop, 0, "text", "text", text, item.data, whole=size <= LONGEST)

    def _number(self, name: str, size: int = 4) -> tuple[Item, int]:
        item = self._take(name, f"u{8 * size}", size)
        value = int.from_bytes(item.data, "little")
        return Item(item.start, item.stop, 0, name, item.kind, value, item.data), value

    def _take(self, name: str, kind: str, size: int) -> Item:
        """The next ``size`` bytes."""
        start = self._at
        if size > self._stop - start:
            raise stop_at(start, f"{name}: {size} bytes do not fit the {self._stop - start} that are left")
        self._at += size
        return Item(start, self._at, 0, name, kind, None, self._source.read(start, min(size, SHOWN)))
