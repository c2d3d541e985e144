"""What explain opens in files of other programs: the opcodes of pickles, which are read and not run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdall.format.foreign.pickles import find_pickle
from holdall.format.outline import Outline, Place
from holdall.format.pickle_opcodes import walk_opcodes

if TYPE_CHECKING:
    from holdall.source import Source
    from holdall.source.ledger import Ledger

__all__ = ["claim", "outline"]

_PICKLES = "pickles"
_HEAD = 16  # bytes by which a pickle is recognized


def claim(source: Source, ledger: Ledger) -> None:
    """Give the ledger the pickles that a file is, as far as they were walked through: arrays may follow them."""
    found = find_pickle(source, source.read(0, min(_HEAD, source.size)))
    if found is not None and found.reached:
        ledger.region(_PICKLES, 0, found.reached)


def outline(place: Place, source: Source) -> Outline | None:
    """The outline of what :func:`claim` gave the ledger."""
    if place.name != _PICKLES:
        return None
    return Outline("pickle", lambda since: walk_opcodes(source, place.start, place.stop, since, None), place.stop)
