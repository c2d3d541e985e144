"""Opening the documents in a file for ``explain``: pickles, protobuf, JSON, MessagePack, compressed or not.

The format knows what lies in a range; here is how much of it is opened.

>>> from holdall.operations.examine import examine
>>> from holdall.operations.explain import list_records
>>> import holdall, numpy as np
>>> holdall.save("example.safetensors", {"w": np.ones(2, np.float32)})
>>> with examine("example.safetensors") as seen:
...     opened = Opener(seen).open(next(list_records(seen.ledger.owners[1])))
>>> [(item.start, item.name, item.value) for item in opened.items[2:4]]
[(22, 'dtype', 'F32'), (36, 'shape', [2])]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdall.errors import FormatError, UnsupportedError
from holdall.format.foreign import outline as foreign
from holdall.format.outline import Place, cap_expansion, open_packed, outline_msgpack
from holdall.operations.convert.skeleton import unpack_carried

if TYPE_CHECKING:
    from holdall.binary.documents.outline import Item
    from holdall.format.outline import Outline
    from holdall.operations.examine import Examination
    from holdall.operations.explain import Record
    from holdall.source.ledger import Owner

__all__ = ["Opened", "Opener", "Stop", "claim_foreign"]

_ITEMS = 100  # of one document
_DOCUMENTS = 20  # of as many items as a file has at most
_OPENED = 64 << 20  # bytes of all documents that are opened,
_READ = 4 << 20  # of which one counts with so many at most: the rest of it is not read


@dataclass(frozen=True, slots=True)
class Stop:
    """Where a document could not be read further, and why. The byte is that of the items."""

    offset: int | None
    message: str


@dataclass(frozen=True, slots=True)
class Opened:
    """A document of a file, in ``stored`` bytes there: its first items, whether there are more, and where it breaks."""

    outline: Outline
    stored: int
    items: list[Item]
    more: bool
    stopped: Stop | None


def claim_foreign(seen: Examination) -> None:
    """Give the ledger what can be opened in a file of another program."""
    if seen.format is None and seen.source.size and not seen.source.is_folder and not seen.ledger.owners:
        foreign.claim(seen.source, seen.ledger)


class Opener:
    """Opens documents of one file, of each ``most`` items, from byte ``since`` of the file on.

    All documents together have 20 times as many items at most, and 64 MiB.
    """

    def __init__(self, seen: Examination, most: int = _ITEMS, since: int = 0) -> None:
        self._seen = seen
        self._most = most
        self._since = since
        self._items_left = most * _DOCUMENTS
        self._bytes_left = _OPENED
        self._last: tuple[Owner | None, Callable[[Place], Outline] | None] = (None, None)

    def open(self, record: Record) -> Opened | None:
        """Open a record; None if the format has nothing to say about its bytes, or enough of the file is open."""
        seen = self._seen
        start, stop = record.start, min(record.start + record.size, seen.source.size)
        if start >= stop or self._items_left <= 0 or self._bytes_left <= 0:
            return None
        place = Place(record.name, record.label, start, stop)
        owner, resume = self._last
        if resume is not None and owner is record.owner:
            outline: Outline | None = resume(place)
        elif seen.format is None:
            outline = foreign.outline(place, seen.source, seen.check.limits)
        else:
            outline = seen.format.outline(place, seen.source, seen.model, seen.check.limits)
        self._last = (record.owner, None if outline is None else outline.resume)
        return None if outline is None else self.show(outline, stop - start, 0 if outline.packing else self._since)

    def open_carried(self) -> Opened | None:
        """Open the skeleton that the file carries in its metadata; None without one."""
        model = self._seen.model
        try:
            found = None if model is None else unpack_carried(model)
        except (FormatError, UnsupportedError):  # the findings say what is wrong with the metadata
            return None
        if found is None:
            return None
        stored, pieces = found
        most = cap_expansion(self._seen.check.limits, self._seen.source.size)
        return self.show(open_packed("zstd in base64", pieces, most, outline_msgpack), stored)

    def show(self, outline: Outline, stored: int, since: int = 0) -> Opened:
        """Open the first items of an outline of ``stored`` bytes."""
        items: list[Item] = []
        more, stopped = False, None
        try:
            for item in outline.walk(since):
                if len(items) >= min(self._most, self._items_left):
                    more = True
                    break
                items.append(item)
        except FormatError as error:
            stopped = Stop(error.offset, error.message)
        if not outline.whole and not more:  # the walk came to the end of what was unpacked
            more, stopped = not outline.fault, Stop(outline.size, outline.fault) if outline.fault else None
        self._items_left -= len(items)
        self._bytes_left -= min(outline.size, _READ)
        return Opened(outline, stored, items, more, stopped)
