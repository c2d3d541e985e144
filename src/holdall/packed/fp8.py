"""Weights of eight bits with scales: FP8 of DeepSeek, Qwen, FBGEMM, ModelOpt and ComfyUI, and int8 likewise.

The weight is a tensor of its logical shape. Its scale multiplies it: one number, one for each row, or one for each
block of rows and columns. ``weight_scale_inv`` is such a scale too, whatever it is called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdall.model.tensor import Tensor
from holdall.packed.decoders import RowCodes, Stacked
from holdall.packed.finder import Finder, row_part, whole_part
from holdall.packed.statements import compare_statements, report_plain_layers

__all__ = ["EIGHT_BITS", "FLOATS", "add_scaled", "find_comfy", "find_fp8", "find_modelopt_fp8"]

EIGHT_BITS = frozenset(("f8_e4m3", "f8_e5m2", "f8_e4m3fnuz", "f8_e5m2fnuz", "i8"))
FLOATS = frozenset(("f32", "bf16", "f16", "f8_e8m0"))
_FORMATS = ("e4m3", "e5m2")
_EXPONENTS = frozenset(("u8",))  # of two, less 127: the bytes of f8_e8m0
# Scales of what the model computes with, which no weight needs.
ACTIVATIONS: tuple[str, ...] = (
    ".input_scale",
    ".input_scale_inv",
    ".activation_scale",
    ".k_scale",
    ".v_scale",
    ".q_scale",
)
ACTIVATIONS += (".output_scale", ".scale_input", ".input_scale_ub", ".prob_scale", ".input_zero_point")


def find_fp8(finder: Finder) -> None:
    """Find weights with ``_scale_inv`` or ``_scale``. Each matrix of eight bits needs one."""
    compare_statements(finder)
    block = _read_block(finder, finder.settings.get("weight_block_size"))
    fmt = finder.settings.get("fmt")
    if fmt is not None and fmt not in _FORMATS:
        finder.report("", "settings", f"fmt is {fmt!r}, and {' or '.join(_FORMATS)} is known")
        return
    spare = []
    for name in finder.model.tensors.names:
        if name.endswith(ACTIVATIONS):
            if finder.model[name].count == 1:  # of a cache, or of a layer whose weight is plain
                spare.append(name)
            continue
        if name.endswith(("_scale", "_scale_inv")):
            continue
        tensor = finder.model[name]
        if str(tensor.dtype) not in EIGHT_BITS or tensor.ndim < 2:
            continue
        if str(tensor.dtype) == "i8":  # transformers takes such bytes for two codes of four bits
            finder.report(name, "dtype", "is i8, and the settings say FP8")
            continue
        if fmt is not None and not str(tensor.dtype).startswith(f"f8_{fmt}"):
            finder.report(name, "settings", f"is {tensor.dtype}, and the settings say that fmt is {fmt}")
            continue
        found = [each for each in (f"{name}_scale_inv", f"{name}_scale") if each in finder.model]
        if not found:
            finder.report(name, "part", f"is {tensor.dtype} and has no {name}_scale_inv or {name}_scale")
        elif len(found) > 1:
            finder.report(name, "part", f"has two scales, {found[0]!r} and {found[1]!r}")
        else:
            add_scaled(finder, name, tensor, finder.model[found[0]], block)
    report_plain_layers(finder)
    finder.taken.update(spare)


def find_modelopt_fp8(finder: Finder) -> None:
    """Find weights as ModelOpt stores FP8: ``weight_scale`` of one number, or one for each row."""
    find_fp8(finder)


def find_comfy(finder: Finder) -> None:
    """Find weights with ``scale_weight``, one number; other tensors of FP8 are what they are."""
    for name, stem in finder.list_names(".scale_weight"):
        weight = finder.get(f"{stem}.weight")
        if finder.has_form(weight, f"{stem}.weight", name, EIGHT_BITS - {"i8"}, None):
            assert weight is not None
            unused = [each for each in (f"{stem}.scale_input",) if each in finder.model]
            add_scaled(finder, weight.name, weight, finder.model[name], None, unused)
    if "scaled_fp8" in finder.model:
        finder.taken.add("scaled_fp8")


def add_scaled(
    finder: Finder,
    name: str,
    tensor: Tensor,
    scale: Tensor,
    block: tuple[int, int] | None,
    unused: Sequence[str] = (),
) -> None:
    """Add the weight of the codes ``tensor`` and the scales ``scale``; ``block`` is what one of these is for."""
    if not finder.has_form(scale, scale.name, name, FLOATS | _EXPONENTS, None):
        return
    exponents = str(scale.dtype) in _EXPONENTS
    high, wide = _find_block(tensor.shape, scale.shape, block)
    if not high:
        finder.report(
            scale.name, "shape", f"is {list(scale.shape)}, which fits {name!r} {list(tensor.shape)} in no way"
        )
        return
    kind = "int8" if str(tensor.dtype) == "i8" else str(tensor.dtype).removeprefix("f8_")
    plain = finder.choose_plain(scale.dtype)
    decoder = RowCodes(0, (high, wide), exponents=exponents)
    own = [each for each in _list_extra(finder, name) if each not in unused]
    if tensor.ndim == 2:
        part = whole_part(scale) if scale.count == 1 else row_part(scale, high)
        if scale.count == 1:
            decoder = RowCodes(0, (tensor.shape[0] or 1, wide), exponents=exponents)
        finder.add(
            name, kind, tensor.shape, [(tensor, row_part(tensor)), (scale, part)], decoder, plain=plain,
            unused=[*unused, *own],
        )  # fmt: skip
        return
    entries = 1 if scale.count == tensor.shape[0] else scale.shape[1]
    stacked = Stacked(
        RowCodes(0, (tensor.shape[1] or 1, wide), exponents=exponents) if entries == 1 else decoder,
        (tensor.shape[1], entries),
    )
    finder.add(
        name, kind, tensor.shape, [(tensor, row_part(tensor)), (scale, row_part(scale))], stacked, plain=plain,
        unused=[*unused, *own],
    )  # fmt: skip


def _list_extra(finder: Finder, name: str) -> list[str]:
    stem = name.removesuffix(".weight")
    return [stem + ending for ending in ACTIVATIONS if stem + ending in finder.model]


def _find_block(shape: tuple[int, ...], scales: tuple[int, ...], block: tuple[int, int] | None) -> tuple[int, int]:
    """Find how many rows and columns a scale is for; zeros where the shapes do not fit."""
    if len(shape) not in (2, 3):
        return 0, 0
    rows, columns = shape[-2:]
    outer = shape[:-2]
    fits: Mapping[tuple[int, ...], tuple[int, int]] = {
        (*outer, rows): (1, columns),
        (*outer, rows, 1): (1, columns),
        (*outer, 1, 1): (rows, columns),
        (*outer, 1): (rows, columns),
    }
    if block is not None:
        wanted = (*outer, -(-rows // block[0]), -(-columns // block[1]))
        return (max(1, min(block[0], rows)), max(1, min(block[1], columns))) if scales == wanted else (0, 0)
    if not outer and scales in ((), (1,)):
        return max(1, rows), max(1, columns)
    high, wide = fits.get(scales, (0, 0))
    return (max(1, high), max(1, wide)) if scales in fits else (0, 0)


def _read_block(finder: Finder, stated: Any) -> tuple[int, int] | None:
    """Read the size of a block from the settings; None if they state none."""
    if isinstance(stated, Sequence) and len(stated) == 2 and all(type(each) is int and each > 0 for each in stated):
        return stated[0], stated[1]
    if stated is not None:
        finder.report("", "settings", f"weight_block_size is {stated!r}")
    return None
