"""MXFP4 of gpt-oss, NVFP4 of ModelOpt, and MLX: codes row by row, with scales for groups of columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdall.packed.decoders import FP4, RowCodes, Stacked
from holdall.packed.finder import Finder, row_part, whole_part
from holdall.packed.statements import compare_statements, report_plain_layers

__all__ = ["find_mlx", "find_mxfp4", "find_nvfp4"]

_MLX_BITS = (2, 3, 4, 5, 6, 8)
_HALVES = frozenset(("f16", "bf16", "f32"))


def find_mxfp4(finder: Finder) -> None:
    """Find stacks of experts with ``_blocks`` and ``_scales``; the model knows each with its axes swapped."""
    for name, stem in finder.list_names("_blocks"):
        blocks, scales = finder.model[name], finder.get(f"{stem}_scales")
        if blocks.ndim != 4 or blocks.shape[3] != 16:
            finder.report(name, "shape", f"is {list(blocks.shape)}, and should be experts, rows, groups and 16 bytes")
            continue
        good = finder.has_form(blocks, name, stem, {"u8"}, None)
        good &= finder.has_form(scales, f"{stem}_scales", name, {"u8"}, blocks.shape[:3])
        if not good or scales is None:
            continue
        experts, rows, groups, _ = blocks.shape
        matrix = RowCodes(4, (1, 32), table=FP4, exponents=True)
        decoder = Stacked(matrix, (rows, rows), swapped=True)
        parts = [(blocks, row_part(blocks)), (scales, row_part(scales))]
        finder.add(stem, "fp4", (experts, groups * 32, rows), parts, decoder, plain=finder.choose_plain(None))


def find_nvfp4(finder: Finder) -> None:
    """Find weights of ModelOpt: two codes of FP4 in a byte, scales of FP8 by group of 16, and one scale for all."""
    compare_statements(finder)
    for name, stem in finder.list_names(".weight_scale_2"):
        codes, scale, outer = finder.get(f"{stem}.weight"), finder.get(f"{stem}.weight_scale"), finder.model[name]
        if not finder.has_form(codes, f"{stem}.weight", name, {"u8"}, None):
            continue
        assert codes is not None
        if codes.ndim != 2:
            finder.report(codes.name, "shape", f"is {list(codes.shape)}, and should be a matrix")
            continue
        rows, columns = codes.shape[0], codes.shape[1] * 2
        good = finder.has_form(scale, f"{stem}.weight_scale", codes.name, {"f8_e4m3"}, (rows, -(-columns // 16)))
        good &= finder.has_form(outer, name, codes.name, {"f32"}, ())
        if not good or scale is None:
            continue
        parts = [(codes, row_part(codes)), (scale, row_part(scale)), (outer, whole_part(outer))]
        decoder = RowCodes(4, (1, 16), table=FP4, shared="multiply")
        unused = [f"{stem}.input_scale"] if f"{stem}.input_scale" in finder.model else []
        finder.add(codes.name, "nvfp4", (rows, columns), parts, decoder, plain=finder.choose_plain(None), unused=unused)
    report_plain_layers(finder)


def find_mlx(finder: Finder) -> None:
    """Find weights of MLX: words of codes, with a scale and a bias for each group of columns."""
    for name, stem in finder.list_names(".scales"):
        codes, scales, biases = finder.get(f"{stem}.weight"), finder.model[name], finder.get(f"{stem}.biases")
        settings = _settings_of(finder, stem)
        if settings is None:
            finder.report(name, "settings", f"belongs to {stem!r}, whose settings are not known")
            continue
        bits, wide = settings
        if not finder.has_form(codes, f"{stem}.weight", name, {"u32"}, None):
            continue
        assert codes is not None
        columns, rest = divmod(codes.shape[-1] * 32, bits) if codes.ndim in (2, 3) else (0, 1)
        if rest:
            finder.report(codes.name, "shape", f"is {list(codes.shape)}, which codes of {bits} bits do not fill")
            continue
        outer = codes.shape[:-1]
        good = finder.has_form(scales, name, codes.name, _HALVES, (*outer, -(-columns // wide)))
        good &= finder.has_form(biases, f"{stem}.biases", codes.name, {str(scales.dtype)}, scales.shape)
        if not good or biases is None:
            continue
        parts = [(each, row_part(each)) for each in (codes, scales, biases)]
        matrix = RowCodes(bits, (1, max(1, min(wide, columns))), zeros="bias")
        decoder = matrix if codes.ndim == 2 else Stacked(matrix, (outer[1],) * 3)
        plain = finder.choose_plain(scales.dtype)
        finder.add(codes.name, f"int{bits}", (*outer, columns), parts, decoder, plain=plain)


def _settings_of(finder: Finder, stem: str) -> tuple[int, int] | None:
    """Find bits and columns of a group for a layer, which may have settings of its own; None if they are not known."""
    own = finder.settings.get(stem)
    stated: Mapping[str, Any] = {**finder.settings, **(own if isinstance(own, Mapping) else {})}
    bits, group, mode = stated.get("bits"), stated.get("group_size"), stated.get("mode", "affine")
    good = type(bits) is int and bits in _MLX_BITS and type(group) is int and group > 0 and mode == "affine"
    return (int(bits or 0), int(group or 0)) if good and own is not False else None
