"""Shortens names that are too long for a target to their ends, uniquely, and the same way each time."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from holdall.format.base import Format
from holdall.model.arranged_table import ArrangedTable
from holdall.model.metadata import NAMES
from holdall.model.model import Model
from holdall.model.table import TensorTable

__all__ = ["lengthen_names", "names_entry", "shorten_names"]


def shorten_names(table: TensorTable, target: Format) -> tuple[TensorTable, dict[str, str]]:
    """Return the tensors with names that fit ``target``, and a mapping from the new names to the old ones.

    A name loses its beginning, since its end says which weight it is. Names that would be equal get a number.
    """
    longest = target.holds.max_name
    taken = set(table.names)
    names, before = [], {}
    for old in table.names:
        if longest is None or len(old.encode(errors="replace")) <= longest:
            names.append(old)
            continue
        name = _shorten(old, longest, taken)
        taken.add(name)
        before[name] = old
        names.append(name)
    return (ArrangedTable(table, np.arange(len(table)), names) if before else table), before


def _shorten(name: str, longest: int, taken: set[str]) -> str:
    number = 1
    while True:
        mark = "~" if number == 1 else f"~{number}~"
        tail = name.encode()[-(longest - len(mark)) :].decode(errors="ignore")  # drops the bytes of a split letter
        if mark + tail not in taken:
            return mark + tail
        number += 1


def lengthen_names(model: Model) -> tuple[Model, int]:
    """Return ``model`` with the names that it had before :func:`shorten_names`, and how many names that changed."""
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
    return model.replace(tensors=tensors, metadata=model.metadata.replace({}, without=[NAMES])), count


def names_entry(before: dict[str, str]) -> dict[str, Any]:
    """The metadata entry that records shortened names."""
    return {NAMES: json.dumps(before, ensure_ascii=False)}
