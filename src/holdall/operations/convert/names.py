"""Names that a target has no room for, made shorter: unique, the same each time, and their tails kept."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from holdall.format import Format
from holdall.metadata import NAMES
from holdall.model import Model
from holdall.tensor import Tensor

__all__ = ["lengthen_names", "names_entry", "shorten_names"]


def shorten_names(tensors: Sequence[Tensor], target: Format) -> tuple[list[Tensor], dict[str, str]]:
    """``tensors`` with names that fit ``target``; and the names that they had before, by the new ones.

    A name loses its beginning, since its end says which weight it is. Names that would be equal get a number.
    """
    longest = target.holds.max_name
    taken = {tensor.name for tensor in tensors}
    result, before = [], {}
    for tensor in tensors:
        if longest is None or len(tensor.name.encode(errors="replace")) <= longest:
            result.append(tensor)
            continue
        name = _shorten(tensor.name, longest, taken)
        taken.add(name)
        before[name] = tensor.name
        result.append(tensor.replace(name=name))
    return result, before


def _shorten(name: str, longest: int, taken: set[str]) -> str:
    number = 1
    while True:
        mark = "~" if number == 1 else f"~{number}~"
        tail = name.encode()[-(longest - len(mark)) :].decode(errors="ignore")  # not inside a letter
        if mark + tail not in taken:
            return mark + tail
        number += 1


def lengthen_names(model: Model) -> tuple[Model, int]:
    """``model`` with the names that were shortened on its way as they were before; and how many those are."""
    text = model.metadata.get(NAMES)
    if not isinstance(text, str):
        return model, 0
    try:
        before = json.loads(text)
    except (ValueError, RecursionError):
        return model, 0
    if not isinstance(before, dict) or not all(isinstance(name, str) for name in before.values()):
        return model, 0
    tensors = [tensor.replace(name=before.get(tensor.name, tensor.name)) for tensor in model.tensors]
    count = sum(tensor.name in before for tensor in model.tensors)
    if not count:
        return model, 0
    return model.replace(tensors=tensors, metadata=model.metadata.updated({}, without=[NAMES])), count


def names_entry(before: dict[str, str]) -> dict[str, Any]:
    """What the metadata says of shortened names."""
    return {NAMES: json.dumps(before, ensure_ascii=False)}
