"""The facets of an opened model: size variables, vocabulary, configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdall.format import registry
from holdall.model.metadata import is_carried_key

if TYPE_CHECKING:
    from holdall.model.model import Model

__all__ = ["resolve_facet"]


def resolve_facet(model: Model, name: str) -> Any:
    """Find the facet by the format of ``model``, else by the format of the original that the file carries."""
    if name == "decoded":
        from holdall.packed import decode_weights

        return decode_weights(model)
    found = registry.resolve_facet(model, name)
    if found is None and _may_carry(model):
        from holdall.operations.convert.carried_source import open_original

        original = open_original(model)
        found = None if original is None else registry.resolve_facet(original, name)
    return found


def _may_carry(model: Model) -> bool:
    """Whether to look for a carried original: looking imports what conversion needs."""
    in_folder = bool(model.sources) and model.sources[0].is_folder  # a folder carries it as a file
    return model.format is not None and (in_folder or any(map(is_carried_key, model.metadata)))
