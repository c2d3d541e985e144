"""What explain opens in EMBD files: the names of tensors, and the count of tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdall.format.outline import Outline, Place, outline_names, outline_numbers

if TYPE_CHECKING:
    from holdall.limits import Limits
    from holdall.model.model import Model
    from holdall.source import Source

__all__ = ["outline"]


def outline(place: Place, source: Source, model: Model | None, limits: Limits) -> Outline | None:
    """The outline of the names, which follow each other in the order of the index, or of the count."""
    match place.name:
        case "tensor names":
            return outline_names(() if model is None else model, source, place.start, place.stop)
        case "token count":
            return outline_numbers(source, place.start, place.stop, "u32")
    return None
