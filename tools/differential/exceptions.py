"""The differences that stand: where the library is at fault, or where the format's document says otherwise."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdall.format.torch.layout import STORAGES, TYPES
from tools.differential.normal import Content, compare

__all__ = ["EXCEPTIONS", "Standing", "explain"]


@dataclass(frozen=True, slots=True)
class Standing:
    """A difference that stands. ``covers`` says whether it is the reason why two contents differ."""

    format: str
    name: str
    why: str
    covers: Callable[[bytes, Content, Content], bool]


def _flatten(value: Any) -> Any:
    """A list without the lists in it, as gguf's reader makes it."""
    if not isinstance(value, tuple) or value[0] != "list":
        return value
    items = [_flatten(item) for item in value[1]]
    flat = [inner for item in items for inner in (item[1] if isinstance(item, tuple) and item[0] == "list" else [item])]
    return ("list", flat)


def _is_flattened(data: bytes, ours: Content, theirs: Content) -> bool:
    flat = {key: (kind, _flatten(value)) for key, (kind, value) in ours.metadata.items()}
    return not compare(Content(ours.tensors, flat), Content(theirs.tensors, theirs.metadata))


_REPR = re.compile(r"<(?:function|built-in function) (\w+)(?: at 0x[0-9a-f]+)?>|<class '([\w.]+)'>")
_STORAGE_TYPE = re.compile(r"StorageType\(dtype=torch\.(\w+)\)")  # what torch.load has for torch.FloatStorage


def _is_name_of(text: str, spelled: str) -> bool:
    """Whether ``text`` is the full name of what Python spells in its own way, such as ``<function f at 0x7f>``."""
    storage = _STORAGE_TYPE.fullmatch(spelled)
    if storage is not None:
        name = text.removeprefix("torch.")
        return name != text and name in STORAGES and STORAGES[name] == TYPES.get(storage[1])
    found = _REPR.fullmatch(spelled)
    if found is None:
        return text == spelled  # torch.float32
    return text.rpartition(".")[2] == found[1] or text == found[2]


def _means_same(ours: Any, theirs: Any) -> bool:
    """Whether two values are the same but for the spelling of functions, classes, types and devices."""
    if ours == theirs:
        return True
    if not (isinstance(ours, tuple) and isinstance(theirs, tuple)):
        return False
    if ours[0] == "text" and theirs[0] == "other":
        return _is_name_of(ours[1], theirs[1])
    if ours[0] not in ("list", "dict") or ours[0] != theirs[0] or len(ours[1]) != len(theirs[1]):
        return False
    return all(map(_means_same, *(_flat_items(value) for value in (ours, theirs))))


def _flat_items(value: Any) -> list[Any]:
    return [part for pair in value[1] for part in pair] if value[0] == "dict" else value[1]


def _is_spelled(data: bytes, ours: Content, theirs: Content) -> bool:
    return _are_spelled(ours.tensors, theirs.tensors) and _are_spelled(ours.metadata, theirs.metadata)


def _are_spelled(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    """Whether the same things are in both; an ellipsis is what holdall writes for an object inside a key."""
    return len(ours) == len(theirs) and all(
        (_is_name_of(mine, other) or "…" in mine) and _means_same(ours[mine], theirs[other])
        for mine, other in zip(ours, theirs, strict=True)  # both are in the order of the file
    )


_F8 = "f8_e5m2"


def _is_f8_nan(data: bytes, ours: Content, theirs: Content) -> bool:
    """Whether the contents are the same but for NaN in elements of F8 that are infinite to the verifier."""
    parts = ((ours.tensors, theirs.tensors), (ours.metadata, theirs.metadata))
    return all(
        mine.keys() == other.keys() and all(_is_nan_here(mine[key], other[key]) for key in mine)
        for mine, other in parts
    )


def _is_nan_here(mine: Any, other: Any) -> bool:
    if mine == other:
        return True
    if not (isinstance(mine, tuple) and isinstance(other, tuple) and mine[:-1] == other[:-1] and _F8 in mine):
        return False
    return bool(mine[-1][0] == "float" and (mine[-1][1], other[-1][1].strip("-")) == ("nan", "inf")) or (
        isinstance(mine[-1], str) and _are_nan_here(mine[-1], other[-1])
    )


def _are_nan_here(mine: str, other: str) -> bool:
    """The same of values in bits, which are hexadecimal where they are few."""
    if len(mine) != len(other) or len(mine) % 8:
        return False
    here, there = (np.frombuffer(bytes.fromhex(text), "<f4") for text in (mine, other))
    return bool(((here == there) | np.isnan(here) & (np.isnan(there) | np.isinf(there))).all())


EXCEPTIONS: tuple[Standing, ...] = (
    Standing(
        "torch",
        "names of functions and objects",
        "a function, class, type or device is its full name here, and objects inside a key are an ellipsis; torch has "
        "the thing itself, which Python spells with its address or its values",
        _is_spelled,
    ),
    Standing(
        "gguf",
        "arrays in arrays",
        "GGUFReader returns the numbers of arrays in arrays in one row; the document says that arrays nest",
        _is_flattened,
    ),
    Standing(
        "oinf",
        "NaN of F8",
        "the codes 7D to 7F and FD to FF are NaN here and in the runtime of the format, and infinite to its verifier",
        _is_f8_nan,
    ),
)


def explain(format: str, data: bytes, ours: Content, theirs: Content) -> str | None:
    """The name of the exception that a difference falls under; None if it is a finding."""
    rows = (row for row in EXCEPTIONS if row.format == format)
    return next((row.name for row in rows if row.covers(data, ours, theirs)), None)
