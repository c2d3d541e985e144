"""What explain opens in files of other programs: opcodes of pickles, which are not run, and fields of protobuf.

Of a compressed file only what is shown is unpacked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdall.format.foreign.packed import find_packing, unpack_pieces
from holdall.format.foreign.pickle_names import find_names
from holdall.format.foreign.pickles import find_pickle, has_magic
from holdall.format.foreign.protobufs import name_protobuf
from holdall.format.outline import (
    Outline,
    Place,
    cap_expansion,
    open_packed,
    outline_by_name,
    outline_protobuf,
    stop_at,
)
from holdall.format.pickle_opcodes import walk_opcodes

if TYPE_CHECKING:
    from holdall.binary.documents.outline import Item
    from holdall.limits import Limits
    from holdall.source import Source
    from holdall.source.ledger import Ledger

__all__ = ["claim", "outline"]

_PICKLES, _PACKED, _PROTOBUF = "pickles", "packed", "protobuf"
_HEAD = 16  # bytes by which a pickle is recognized
_FRONT = 1 << 16  # and a message
_OPCODES = 1 << 16  # of a packed pickle that are looked at


def claim(source: Source, ledger: Ledger) -> None:
    """Give the ledger what can be opened: a packed file, a message, or pickles, as far as they were walked through.

    Arrays may follow a pickle.
    """
    head = source.read(0, min(_HEAD, source.size))
    if find_packing(source, head) is not None:
        ledger.region(_PACKED, 0, source.size)
        return
    found = find_pickle(source, head)
    if found is not None:
        if found.reached:
            ledger.region(_PICKLES, 0, found.reached)
    elif name_protobuf(source.read(0, min(_FRONT, source.size)), source.size) is not None:
        ledger.region(_PROTOBUF, 0, source.size)


def outline(place: Place, source: Source, limits: Limits) -> Outline | None:
    """The outline of what :func:`claim` gave the ledger, or the reader of ONNX of a message that is none."""
    start, stop = place.start, place.stop
    if place.name == _PICKLES:
        return Outline("pickle", lambda since: walk_opcodes(source, start, stop, since, None), stop)
    if place.name == _PACKED:
        return _outline_packed(source, limits)
    return outline_protobuf(source, start, stop) if place.name == _PROTOBUF else None


def _outline_packed(source: Source, limits: Limits) -> Outline | None:
    found = find_packing(source, source.read(0, min(_HEAD, source.size)))
    if found is None:
        return None
    kind, _ = found
    return open_packed(kind.name, unpack_pieces(source, kind), cap_expansion(limits, source.size), _outline_inside)


def _outline_inside(source: Source, start: int, stop: int) -> Outline:
    """The outline of an unpacked file: of a pickle, or of a text."""
    if not has_magic(source.read(start, min(_HEAD, stop - start))):
        return outline_by_name("", source, start, stop)
    found = find_names(source, cut=True, most=_OPCODES)

    def walk(since: int) -> Iterator[Item]:
        yield from walk_opcodes(source, start, found.reached, since, None)
        if found.reached < stop:
            what = "what follows is no pickle" if found.whole or found.stopped else "no more opcodes are looked at"
            raise stop_at(found.reached, what)

    return Outline("pickle", walk, stop - start)
