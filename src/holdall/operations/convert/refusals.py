"""What a conversion refuses before it writes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from holdall.base.text import list_text
from holdall.errors import ContentError, UnsupportedError
from holdall.format import registry
from holdall.format.packed_weights import find_packed_weights
from holdall.model.model import Model
from holdall.packed import find_parts, find_weights

if TYPE_CHECKING:
    from holdall.format.base import Format

__all__ = ["refuse_losses", "refuse_methods", "refuse_packed"]


def refuse_packed(model: Model, changed: Iterable[str], *, scaled: bool = False) -> None:
    """Raise ContentError if a tensor that is part of a weight is ``changed`` alone.

    Tensors with parameters of their own are among them only if ``scaled``: the changes of a conversion refuse these
    themselves.
    """
    packed = find_packed_weights(model) if scaled else find_parts(model)
    wrong = list(dict.fromkeys(name for name in changed if name in packed)) if packed else []
    if wrong:
        raise ContentError(
            f"tensor {wrong[0]!r} {packed[wrong[0]]}: the weight is made of several tensors, and a change of one "
            f"alone would change its values; {len(wrong)} of {len(model)} tensors are so. Copies are possible"
            f"{_name_way(model)}"
        )


def _name_way(model: Model) -> str:
    """Name the option that helps, if holdall knows how the weights are packed."""
    found = find_weights(model)
    if found is None:
        return ""
    if found.problems:
        return f". It looks like {found.scheme.title}, but {found.problems[0]}"
    return f", and --dequantize makes plain weights of the {len(found.weights)} of {found.scheme.title}"


def refuse_methods(target: Format, methods: Iterable[str]) -> None:
    """Raise UnsupportedError if ``target`` cannot hold what these methods write, naming the formats that can."""
    needed = {f"mcf.{method}" for method in methods}
    if not needed <= target.holds.dtypes:
        able = [name for name in registry.names() if needed <= registry.find(name).holds.dtypes]
        raise UnsupportedError(f"{target.name} cannot hold {', '.join(sorted(needed))}; these can: {', '.join(able)}")


def refuse_losses(target: Format, losses: Sequence[str]) -> None:
    """Raise ContentError with the losses, if there are any, and the options that help."""
    if not losses:
        return
    raise ContentError(
        f"{target.name} cannot hold everything, and strict was asked for: {list_text(losses, '; ')}. "
        "To go on without it leave out --strict; to keep it, use --carry or another format"
    )
