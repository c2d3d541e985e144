"""Finds stored tensors that look like parts of packed weights and belong to none of those that were found.

A scale without its codes, or codes without their scale, mean that the weights are not what their scheme says: to decode
the others and leave these would write wrong numbers without a word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdall.format.packed_weights import PART_ENDINGS
from holdall.model.dtypes import DTYPES
from holdall.packed.finder import Finder, Problem

__all__ = ["find_leftovers"]

# Endings that plain models have too.
_SCALE = ".weight_scale"
_OF_SCHEMES = {"gptq": (".scales",), "awq": (".scales",), "mlx": (".scales", ".biases"), "mxfp4": ("_scales",)}
_CODES = frozenset(
    name
    for name, dtype in DTYPES.items()
    if dtype.kind in ("int", "uint") and (dtype.bits <= 8 or name in ("i32", "u32"))
)
_SMALL_FLOATS = frozenset(name for name, dtype in DTYPES.items() if dtype.kind == "float" and dtype.bits <= 8)
_SIBLING = re.compile("scale|zero|quant|idx|perm|absmax|shift|rotat")


def find_leftovers(finder: Finder) -> Iterator[Problem]:
    """Find what belongs to no weight, unless something else is wrong already."""
    endings = (*PART_ENDINGS, _SCALE, *_OF_SCHEMES.get(finder.scheme, ()))
    stems = {weight.name.removesuffix(".weight") for weight in finder.weights}
    floats = frozenset[str]() if finder.scheme == "comfy" else _SMALL_FLOATS  # of ComfyUI some have no scale
    rule = f"packed.{finder.scheme}.left"
    for name in finder.model.tensors.names:
        if name in finder.taken:
            continue
        if name.endswith(endings):
            yield Problem(name, rule, "looks like a part of a weight, and belongs to none")
        elif _is_sibling(name, stems):
            yield Problem(name, rule, "is beside a packed weight, and its meaning is not known")
        elif name.endswith("weight") or floats:
            tensor = finder.model[name]
            kind = str(tensor.dtype)
            if tensor.ndim >= 2 and (kind in floats or (kind in _CODES and name.endswith("weight"))):
                yield Problem(name, rule, f"is {kind}, and no part says what its numbers stand for")


def _is_sibling(name: str, stems: set[str]) -> bool:
    """Whether ``name`` is that of a part of a layer whose weight is packed; its bias is none."""
    layer, _, last = name.rpartition(".")
    if layer in stems:
        return _SIBLING.search(last) is not None
    stem, found = name, False
    while not found and "_" in stem.rpartition(".")[2]:  # gate_up_proj_scale is beside gate_up_proj
        stem = stem.rpartition("_")[0]
        found = stem in stems
    return found and _SIBLING.search(name[len(stem) :]) is not None
