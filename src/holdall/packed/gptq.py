"""GPTQ and AWQ: words of 32 bits whose rows are the columns of the weight, with scales and zero points by group."""

from __future__ import annotations

from holdall.errors import ContentError, UnsupportedError
from holdall.model.tensor import Tensor
from holdall.packed.decoders import ColumnCodes
from holdall.packed.finder import Finder, column_part, whole_part
from holdall.packed.statements import compare_statements, report_plain_layers
from holdall.packed.targets import Targets

__all__ = ["find_awq", "find_gptq"]

_WORDS = frozenset(("i32", "u32"))
_SCALES = frozenset(("f16", "bf16", "f32"))
_AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)  # where the code of each of eight rows is in its word


def find_gptq(finder: Finder) -> None:
    """Find weights of GPTQ. Before version 2 zero points are stored less one."""
    compare_statements(finder)
    stated_formats = [finder.settings.get(key) for key in ("checkpoint_format", "format")]
    versions = {str(each) for each in stated_formats if each} or {"gptq"}
    version = versions.pop()
    if finder.settings.get("is_marlin_format"):
        finder.report("", "settings", "is_marlin_format is stated, and the order of its codes is not known")
        return
    if versions or version not in ("gptq", "gptq_v2"):
        finder.report(
            "", "settings", f"checkpoint_format and format are {stated_formats}: 'gptq' and 'gptq_v2' are known"
        )
        return
    bits = _read_number(finder, "bits", (2, 3, 4, 8))
    stated = _read_number(finder, "group_size", None)
    if bits is None or stated is None:
        return
    for name, stem in finder.list_names(".qweight"):
        words = finder.model[name]
        if not finder.has_form(words, name, stem, _WORDS, None) or not _is_matrix(finder, words):
            continue
        if "embed" in stem.rpartition(".")[2]:
            finder.report(name, "part", "is of an embedding, whose axes GPTQ stores the other way round")
            continue
        columns, rest = divmod(words.shape[0] * 32, bits)
        rows = words.shape[1]
        group = columns if stated == -1 else min(stated, columns)
        if rest or rows * bits % 32 or group < 1:
            finder.report(name, "shape", f"is {list(words.shape)}, which codes of {bits} bits cannot fill")
            continue
        groups = -(-columns // group)
        scales, zeros = finder.get(f"{stem}.scales"), finder.get(f"{stem}.qzeros")
        order = finder.get(f"{stem}.g_idx")
        good = finder.has_form(scales, f"{stem}.scales", name, _SCALES, (groups, rows))
        good &= finder.has_form(zeros, f"{stem}.qzeros", name, _WORDS, (groups, rows * bits // 32))
        if order is not None:
            good &= finder.has_form(order, f"{stem}.g_idx", name, {"i32", "i64"}, (columns,))
        elif finder.settings.get("desc_act"):
            finder.report(name, "part", f"needs {stem + '.g_idx'!r}, since desc_act is stated")
            good = False
        if not good or scales is None or zeros is None:
            continue
        parts = [(words, column_part(words)), (scales, column_part(scales)), (zeros, column_part(zeros, bits))]
        if order is not None:
            parts.append((order, whole_part(order)))
        decoder = ColumnCodes(bits, columns, group, (), add=version == "gptq", grouped=order is not None, groups=groups)
        plain = finder.choose_plain(scales.dtype)
        finder.add(f"{stem}.weight", f"int{bits}", (rows, columns), parts, decoder, plain=plain)
    report_plain_layers(finder)
    _report_overrides(finder)


def _report_overrides(finder: Finder) -> None:
    """Report the layers that have settings of their own, or are excluded: their patterns are keys of ``dynamic``."""
    stated = finder.settings.get("dynamic")
    if not stated:
        return
    patterns = list(stated) if isinstance(stated, dict) else [stated]
    targets = Targets(f"re:{str(each).removeprefix('+:').removeprefix('-:')}" for each in patterns)
    try:
        mistake = targets.compile()
        named = (
            () if mistake else [each.name for each in finder.weights if targets.have(each.name.removesuffix(".weight"))]
        )
    except (ContentError, UnsupportedError) as error:
        mistake, named = str(error), ()
    if mistake:
        finder.report("", "settings", f"dynamic: {mistake}")
    for name in named:
        finder.report(name, "settings", "has settings of its own in dynamic, which are not read")


def find_awq(finder: Finder) -> None:
    """Find weights of AWQ, as its GEMM version stores them."""
    compare_statements(finder)
    if finder.settings.get("zero_point") is False:
        for name, _ in finder.list_names(".qzeros"):
            finder.report(name, "settings", "has zero points, and the settings say that there are none")
    stated_formats = [finder.settings.get(key) for key in ("version", "format", "checkpoint_format")]
    others = {str(each).lower() for each in stated_formats if each} - {"gemm"}
    if others:
        finder.report("", "settings", f"version is {others.pop()!r}, and only 'gemm' is known")
        return
    bits, stated = _read_number(finder, "bits", (4,)), _read_number(finder, "group_size", None)
    if bits is None or stated is None:
        return
    for name, stem in finder.list_names(".qweight"):
        words = finder.model[name]
        if not finder.has_form(words, name, stem, _WORDS, None) or not _is_matrix(finder, words):
            continue
        columns, rows = words.shape[0], words.shape[1] * 8
        group = columns if stated == -1 else stated
        if group < 1 or columns % group:  # so that no group is larger than a row
            finder.report(name, "shape", f"has {columns} columns, which groups of {group} do not fill")
            continue
        scales, zeros = finder.get(f"{stem}.scales"), finder.get(f"{stem}.qzeros")
        good = finder.has_form(scales, f"{stem}.scales", name, _SCALES, (columns // group, rows))
        good &= finder.has_form(zeros, f"{stem}.qzeros", name, _WORDS, (columns // group, rows // 8))
        if not good or scales is None or zeros is None:
            continue
        parts = [(words, column_part(words, 4)), (scales, column_part(scales)), (zeros, column_part(zeros, 4))]
        decoder = ColumnCodes(4, columns, group, _AWQ_ORDER, across=True, groups=columns // group)
        finder.add(
            f"{stem}.weight", "int4", (rows, columns), parts, decoder, plain=finder.choose_plain(scales.dtype)
        )  # fmt: skip
    report_plain_layers(finder)


def _is_matrix(finder: Finder, words: Tensor) -> bool:
    if words.ndim != 2:
        finder.report(words.name, "shape", f"is {list(words.shape)}, and should be a matrix")
    return words.ndim == 2


def _read_number(finder: Finder, key: str, choices: tuple[int, ...] | None) -> int | None:
    """Read a number from the settings; None, with a problem, if it is not one of ``choices``."""
    stated = finder.settings.get(key)
    if key == "bits" and stated is None:
        stated = finder.settings.get("w_bit")
    if key == "group_size" and stated is None:
        stated = finder.settings.get("q_group_size", -1)
    if type(stated) is int and (stated in choices if choices else stated == -1 or stated > 0):
        return stated
    known = " or ".join(map(str, choices)) if choices else "-1 or a positive number"
    finder.report("", "settings", f"{key} is {stated!r}, and should be {known}")
    return None
