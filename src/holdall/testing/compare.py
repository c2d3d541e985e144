"""Writes a model and reads it back, and compares two models."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

import holdall
from holdall.format.base import Format
from holdall.model.metadata import Entry, Metadata
from holdall.model.model import Model

if TYPE_CHECKING:
    from holdall.model.tensor import Tensor

__all__ = ["assert_same", "restrict_to", "write_read"]


def assert_same(expected: Model, actual: Model, *, extra_metadata: bool = False) -> None:
    """Assert that two models have the same tensors, bit for bit, metadata and assets, in any order.

    ``extra_metadata`` allows further entries in ``actual``: some formats state facts about themselves.
    """
    assert sorted(expected) == sorted(actual), f"names {_few(expected)} became {_few(actual)}"
    for name in expected:
        _same_tensor(expected[name], actual[name])
    for key, value in expected.metadata.items():
        assert key in actual.metadata, f"metadata {key!r} is gone"
        found = actual.metadata[key]
        assert _same_value(value, found), f"metadata {key!r}: {value!r} became {found!r}"
    assert extra_metadata or set(actual.metadata) == set(expected.metadata), f"metadata: {set(actual.metadata)}"
    for name, data in expected.assets.items():
        assert actual.assets[name] == data, f"asset {name!r} changed"


def _same_tensor(expected: Tensor, actual: Tensor) -> None:
    name = expected.name
    assert actual.name == name
    assert str(actual.dtype) == str(expected.dtype), f"{name}: {expected.dtype} became {actual.dtype}"
    assert actual.shape == expected.shape, f"{name}: {expected.shape} became {actual.shape}"
    assert actual.has_data == expected.has_data, f"{name}: has_data became {actual.has_data}"
    if expected.has_data:
        assert actual.nbytes == expected.nbytes, f"{name}: {expected.nbytes} bytes became {actual.nbytes}"
        assert bytes(actual.raw()) == bytes(expected.raw()), f"{name}: its bytes changed"


def _same_value(expected: Any, actual: Any) -> bool:
    """Whether values are equal in value and in kind: 1, 1.0 and True differ, a list and a tuple do not."""
    if isinstance(expected, np.ndarray) or isinstance(actual, np.ndarray):
        left, right = np.asarray(expected), np.asarray(actual)
        return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
    if isinstance(expected, (list, tuple)):
        return (
            isinstance(actual, (list, tuple))
            and len(expected) == len(actual)
            and all(map(_same_value, expected, actual))
        )
    if isinstance(expected, Mapping):
        return (
            isinstance(actual, Mapping)
            and list(expected) == list(actual)
            and all(_same_value(value, actual[key]) for key, value in expected.items())
        )
    if isinstance(expected, float) and isinstance(actual, float):
        return np.float64(expected).tobytes() == np.float64(actual).tobytes()
    kinds = (bool, int, str, bytes, float, type(None))
    kind = next((kind for kind in kinds if isinstance(expected, kind)), object)
    return isinstance(actual, kind) and isinstance(actual, bool) == isinstance(expected, bool) and expected == actual


def _few(names: Mapping[str, Any]) -> str:
    return ", ".join(map(repr, sorted(names)[:8])) + (", ..." if len(names) > 8 else "")


def restrict_to(model: Model, format: Format) -> Model | None:
    """Return the part of ``model`` that ``format`` says it can hold, or None if that is nothing."""
    holds = format.holds
    tensors = [tensor for tensor in model.tensors if holds.refuses(tensor) is None]
    entries = [
        Entry(key, value)
        for key, value in model.metadata.items()
        if holds.metadata and holds.refuses_metadata(key, value) is None
    ]
    assets = {name: data for name, data in model.assets.items() if holds.assets and not holds.refuses_asset(name)}
    lost_all = (len(model) and not tensors) or (model.metadata and not entries) or (model.assets and not assets)
    return None if lost_all else Model(tensors, metadata=Metadata(entries), assets=assets)


def write_read(path: str | os.PathLike[str], model: Model, format: str, **options: Any) -> Model:
    """Write ``model`` to ``path`` and open it. Asserts that writing did not change the model.

    >>> import numpy as np
    >>> from holdall.model.model import model_of
    >>> model = model_of({"w": np.ones(3, np.float32)})
    >>> assert_same(model, write_read("/tmp/example.oinf", model, "oinf"))
    """
    before = _snapshot(model)
    holdall.save(path, model, format=format, fsync=False, **options)
    assert _snapshot(model) == before, "writing changed the model"
    return holdall.open(path, format=format)


def _snapshot(model: Model) -> tuple[Any, ...]:
    tensors = [(t.name, str(t.dtype), t.shape, bytes(t.raw()) if t.has_data else None) for t in model.tensors]
    entries = [(entry.key, repr(entry.value), entry.kind) for entry in model.metadata.entries]
    return tensors, entries, dict(model.assets), repr(model.native)
