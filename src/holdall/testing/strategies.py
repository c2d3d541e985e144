"""Hypothesis strategies for content, limited to what a format says it can hold.

>>> import holdall
>>> from hypothesis import given
>>> @given(models(holdall.formats()["oinf"]))
... def test_any_model(model): ...
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from holdall.format.base import Format
from holdall.model.dtypes import DTYPES, DType
from holdall.model.metadata import Entry, Metadata
from holdall.model.model import Model
from holdall.model.payload import InMemory
from holdall.model.tensor import Tensor

__all__ = ["basic_indices", "dtypes", "metadata", "models", "names", "shapes", "tensors"]

_VALUES: st.SearchStrategy[Any] = st.one_of(
    st.text(max_size=20),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=True),
    st.lists(st.integers(-(2**31), 2**31 - 1), max_size=4),
)


def names(format: Format) -> st.SearchStrategy[str]:
    """Draw tensor names that the format takes: dotted ones, and any text that it does not refuse."""
    plain = st.from_regex(r"[a-z][a-z0-9_]{0,8}(\.[a-z0-9_]{1,8}){0,3}", fullmatch=True)
    anything = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
    return st.one_of(plain, anything).filter(lambda name: format.holds.refuses_name(name) is None)


def dtypes(format: Format) -> st.SearchStrategy[DType]:
    """Draw dtypes that the format holds; encodings are left to its own tests."""
    return st.sampled_from([DTYPES[name] for name in DTYPES if name in format.holds.dtypes])


def shapes(format: Format, max_side: int = 5) -> st.SearchStrategy[tuple[int, ...]]:
    """Draw small shapes of every rank that the format holds, up to six."""
    holds = format.holds
    most = 6 if holds.max_rank is None else min(6, holds.max_rank)
    side = st.integers(0 if holds.zero_size else 1, max_side)
    return st.lists(side, min_size=holds.min_rank, max_size=most).map(tuple)


@st.composite
def tensors(draw: st.DrawFn, format: Format) -> Tensor:
    """Draw a tensor of random bits; the values of bool, ternary and sign types are legal."""
    dtype, shape = draw(dtypes(format)), draw(shapes(format))
    name = draw(names(format))
    if format.holds.declared and draw(st.integers(0, 9)) == 0:
        return Tensor(name, dtype, shape, None)
    count = int(np.prod(shape, dtype=np.int64))
    if format.holds.whole_bytes and count * dtype.bits % 8:
        shape, count = ((*shape[:-1], shape[-1] * 8), count * 8) if shape else ((8,), 8)
    if dtype.kind in ("bool", "ternary", "sign"):
        legal = {"bool": [0, 1], "ternary": [-1, 0, 1], "sign": [-1, 1]}[dtype.kind]
        values = draw(st.lists(st.sampled_from(legal), min_size=count, max_size=count))
        return Tensor.of(name, np.array(values, np.int8).reshape(shape), dtype)
    size = dtype.nbytes(shape)
    data = bytearray(draw(st.binary(min_size=size, max_size=size)))
    if unused := size * 8 - count * dtype.bits:
        data[-1] &= 0xFF >> unused
    return Tensor(name, dtype, shape, InMemory(bytes(data)))


def metadata(format: Format, max_size: int = 4) -> st.SearchStrategy[Metadata]:
    """Draw metadata that the format does not refuse."""
    if not format.holds.metadata:
        return st.just(Metadata())
    keys = st.from_regex(r"[a-z][a-z0-9_.]{0,12}", fullmatch=True)
    pairs = st.tuples(keys, _VALUES).filter(lambda pair: format.holds.refuses_metadata(*pair) is None)
    entries = st.lists(pairs, max_size=max_size, unique_by=lambda pair: pair[0])
    return entries.map(lambda pairs: Metadata([Entry(key, value) for key, value in pairs]))


@st.composite
def models(draw: st.DrawFn, format: Format, max_tensors: int = 5) -> Model:
    """Draw a model that the format says it can hold."""
    chosen = draw(st.lists(tensors(format), max_size=max_tensors, unique_by=lambda tensor: tensor.name))
    return Model(chosen, metadata=draw(metadata(format)))


@st.composite
def basic_indices(draw: st.DrawFn, shape: Sequence[int]) -> tuple[Any, ...]:
    """Draw an index of integers, slices (any step) and at most one ``...`` that suits ``shape``."""
    axes: list[Any] = []
    for size in shape:
        if size and draw(st.booleans()):
            axes.append(draw(st.integers(-size, size - 1)))
        else:
            axes.append(draw(st.slices(size)))
    if draw(st.booleans()):
        cut = draw(st.integers(0, len(axes)))
        until = draw(st.integers(cut, len(axes)))
        axes[cut:until] = [Ellipsis]
    return tuple(axes)
