"""Sorts the fields of a dataclass into the tables of a file: by annotation, by field metadata, by value."""

from __future__ import annotations

import dataclasses
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from holdall.base.check import figure
from holdall.errors import ContentError
from holdall.format.oinf.inputs import ScalarValue, SizeVar, TensorSpec, Uninitialized, entry_of, sizevar_of, tensor_of
from holdall.format.oinf.values import Bitset
from holdall.model.metadata import Entry
from holdall.model.tensor import Tensor

__all__ = ["Tables", "collect"]

_MERGED = ("sizevars", "metadata", "tensors")
_UNKNOWN = object()  # an annotation that cannot be evaluated


@dataclass(slots=True)
class Tables:
    """The content of a model, table by table."""

    sizevars: dict[str, int] = field(default_factory=dict)
    metadata: dict[str, Entry] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Item:
    """One field: its value, the bare type of its annotation, and the extras of annotation and field metadata."""

    name: str
    value: Any
    type: Any
    extras: Mapping[str, Any]

    @property
    def table(self) -> str:
        value, extras = self.value, self.extras
        if isinstance(value, SizeVar) or extras.get("sizevar"):
            return "sizevars"
        if isinstance(value, (TensorSpec, Uninitialized, Tensor, np.ndarray)) or extras.get("tensor"):
            return "tensors"
        if "dtype" in extras and (isinstance(value, (list, tuple)) or (value is None and "shape" in extras)):
            return "tensors"
        if value is not None and np.ndarray in (self.type, typing.get_origin(self.type)):
            return "tensors"
        if isinstance(value, str) and self.type in (int, float, bool):
            raise ContentError(f"oinf: field {self.name!r}: {value!r} is text, its annotation {self.type.__name__}")
        if isinstance(value, (ScalarValue, Bitset, str)):
            return "metadata"
        if self.type is _UNKNOWN:
            raise ContentError(f"oinf: field {self.name!r}: its annotation cannot be evaluated; name a table with it")
        return "sizevars" if self.type in (int, SizeVar) else "metadata"


def collect(obj: Any) -> Tables:
    """Collect the tables of a dataclass instance (or of a class whose fields all have defaults), or of a plain dict."""
    items = list(_iter_items(obj))
    tables = Tables()
    for item in items:  # dicts first, so that a field replaces an entry of the same name
        if item.name in _MERGED and isinstance(item.value, Mapping):
            _merge(tables, item)
    chosen = [(item, item.table) for item in items if not (item.name in _MERGED and isinstance(item.value, Mapping))]
    for item, table in chosen:
        if table == "sizevars":
            tables.sizevars[item.name] = sizevar_of(item.name, item.value)
    for item, table in chosen:
        if table == "metadata":
            value = _convert(item.name, item.value, item.type)
            tables.metadata[item.name] = entry_of(item.name, value, item.extras.get("dtype"))
        elif table == "tensors":
            tables.tensors[item.name] = _make_tensor(item, tables.sizevars)
    return tables


def _merge(tables: Tables, item: _Item) -> None:
    for name, value in item.value.items():
        if not isinstance(name, str):
            raise ContentError(f"oinf: a name in {item.name!r} is a {type(name).__name__}, not text")
        if item.name == "sizevars":
            tables.sizevars[name] = sizevar_of(name, value)
        elif item.name == "metadata":
            tables.metadata[name] = entry_of(name, value)
        else:
            tables.tensors[name] = tensor_of(name, value, sizes=tables.sizevars)


def _convert(name: str, value: Any, kind: Any) -> Any:
    """Return numbers as the type that the annotation ``kind`` names, also those of lists; other values unchanged."""
    if isinstance(value, (list, tuple)):
        elements = [_read_annotation(argument)[0] for argument in typing.get_args(kind) if argument is not Ellipsis]
        if not elements:
            return value
        each = elements if len(elements) == len(value) else elements[:1] * len(value)
        return [_convert(name, item, element) for item, element in zip(value, each, strict=True)]
    if not isinstance(value, (bool, int, float, np.integer, np.floating)):
        return value
    if kind is bool and value in (0, 1):
        return bool(value)
    if kind is int and isinstance(value, bool):
        return int(value)
    if kind is float and not isinstance(value, float):  # a float stays: a NaN may know the bits it had in a file
        try:
            return float(value)
        except OverflowError:
            raise ContentError(f"oinf: metadata {name!r}: {figure(int(value))} is too large for a float") from None
    return value


def _make_tensor(item: _Item, sizes: Mapping[str, int]) -> Tensor:
    extras, value = item.extras, item.value
    name = extras.get("name", item.name)
    if value is not None:
        return tensor_of(name, value, extras.get("dtype"), sizes)
    if "dtype" not in extras or "shape" not in extras:
        raise ContentError(f"oinf: tensor {name!r}: None declares a tensor only with a dtype and a shape")
    return tensor_of(name, Uninitialized(extras["dtype"], extras["shape"]), sizes=sizes)


def _iter_items(obj: Any) -> Iterator[_Item]:
    if isinstance(obj, Mapping):
        for name, value in obj.items():
            if not isinstance(name, str):
                raise ContentError(f"oinf: names are text, not {type(name).__name__}")
            yield _Item(name, value, type(value), {})
        return
    if isinstance(obj, type) and dataclasses.is_dataclass(obj):
        try:
            obj = obj()
        except TypeError as error:
            raise ContentError(f"oinf: {obj.__name__} cannot be made without arguments: {error}") from None
    if not dataclasses.is_dataclass(obj):
        raise ContentError(f"oinf: a dataclass instance or a dict is needed, not {type(obj).__name__}")
    declared = dataclasses.fields(obj)
    for declared_field in declared:
        kind, extras = _read_annotation(_resolve_annotation(type(obj), declared_field))
        yield _Item(declared_field.name, getattr(obj, declared_field.name), kind, {**extras, **declared_field.metadata})
    yield from _iter_undeclared(obj, {declared_field.name for declared_field in declared})


def _iter_undeclared(obj: Any, declared: set[str]) -> Iterator[_Item]:
    """Attributes of the instance that are not fields; they count like entries of a dict."""
    for name, value in getattr(obj, "__dict__", {}).items():
        private = name.startswith("_") or isinstance(getattr(type(obj), name, None), cached_property)
        if name not in declared and not private:
            yield _Item(name, value, type(value), {})


def _resolve_annotation(cls: type, declared_field: dataclasses.Field[Any]) -> Any:
    if not isinstance(declared_field.type, str):
        return declared_field.type
    # A dataclass shares the fields that it inherits, so that the first in this order has declared it.
    fields = ((base, vars(base).get("__dataclass_fields__", {})) for base in reversed(cls.__mro__))
    home = next(base for base, found in fields if found.get(declared_field.name) is declared_field)
    scope = {**vars(sys.modules.get(home.__module__, types)), **vars(home)}
    holder = types.SimpleNamespace(__annotations__={declared_field.name: declared_field.type})
    try:
        return typing.get_type_hints(holder, scope, include_extras=True)[declared_field.name]
    except (NameError, AttributeError, SyntaxError, TypeError):
        return _UNKNOWN


def _read_annotation(annotation: Any) -> tuple[Any, dict[str, Any]]:
    """Return the bare type, and the extras that ``Annotated`` adds: a word stands for True, a dict for its entries."""
    extras: dict[str, Any] = {}
    while True:
        origin = typing.get_origin(annotation)
        if origin is typing.Annotated:
            annotation, *added = typing.get_args(annotation)
            for extra in added:
                extras.update({extra: True} if isinstance(extra, str) else extra if isinstance(extra, dict) else {})
            continue
        if origin in (typing.Union, types.UnionType):
            members = [member for member in typing.get_args(annotation) if member is not type(None)]
            if len(members) == 1:
                annotation = members[0]
                continue
        return annotation, extras
