"""What explain opens in PyTorch files: pickles, texts and deflated entries."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from holdall.format.outline import Outline, Place, outline_by_name, outline_numbers
from holdall.format.pickle_opcodes import walk_opcodes
from holdall.format.torch.layout import PICKLES
from holdall.format.zip.outline import open_deflated

if TYPE_CHECKING:
    from holdall.limits import Limits
    from holdall.model.model import Model
    from holdall.source import Source

__all__ = ["outline"]


def outline(place: Place, source: Source, model: Model | None, limits: Limits) -> Outline | None:
    """The outline of an entry of the archive, or of the pickles of a legacy file."""
    start, stop = place.start, place.stop
    match place.name:
        case "pickles":
            return _outline_pickles(source, start, stop, PICKLES)
        case "entry":
            return _outline_entry(place.label, source, start, stop)
        case "storage size":
            return outline_numbers(source, start, stop, "i64")
        case "deflated":
            return open_deflated(source, start, stop, limits, partial(_outline_entry, place.label))
    return None


def _outline_entry(name: str, source: Source, start: int, stop: int) -> Outline:
    if name.endswith((".pkl", ".debug_pkl")):
        return _outline_pickles(source, start, stop, 1)
    return outline_by_name(name, source, start, stop)


def _outline_pickles(source: Source, start: int, stop: int, pickles: int) -> Outline:
    what = "pickle" if pickles == 1 else f"{pickles} pickles"
    return Outline(what, lambda since: walk_opcodes(source, start, stop, since, pickles), stop - start)
