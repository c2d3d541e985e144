"""compressed-tensors: groups of layers, chosen by patterns, each with the type of its codes and the use of scales."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from holdall.errors import ContentError, UnsupportedError
from holdall.model.tensor import Tensor
from holdall.packed.decoders import FP4, RowCodes, words_unit
from holdall.packed.finder import Finder, row_part, whole_part
from holdall.packed.fp8 import EIGHT_BITS, FLOATS, add_scaled
from holdall.packed.targets import Budget, Targets
from holdall.packed.weight import Part

__all__ = ["find_compressed"]

_FORMATS = frozenset(
    (
        *("int-quantized", "float-quantized", "naive-quantized", "pack-quantized", "nvfp4-pack-quantized"),
        *("mxfp4-pack-quantized", "mxfp8-quantized", "mixed-precision", "dense"),
    )
)
_STRATEGIES = ("tensor", "channel", "group", "block", "tensor_group")
_CODES = (".weight_packed", ".weight")
_UNUSED = (".input_scale", ".input_zero_point", ".output_scale", ".output_zero_point", ".input_global_scale")
# What actorder may be: columns that stay in another order, and those that do not.
_ORDERED = (True, "group", "dynamic")
_RESTORED = (None, "weight", "static")
_WORDS = frozenset(("i32", "u32"))


@dataclass(frozen=True, slots=True)
class _Group:
    """How the layers that match ``targets`` are packed."""

    targets: Targets
    format: str
    bits: int
    is_float: bool
    strategy: str
    group: int
    block: tuple[int, int] | None
    symmetric: bool
    ordered: bool


def find_compressed(finder: Finder) -> None:
    """Find the weights of all groups."""
    sparsity = finder.settings.get("sparsity_config")
    if isinstance(sparsity, Mapping) and sparsity.get("format") not in (None, "dense"):
        finder.report("", "settings", f"sparsity_config has the format {sparsity.get('format')!r}, which is not known")
    if finder.settings.get("transform_config"):
        finder.report("", "settings", "transform_config turns weights before they are packed, which is not known")
    budget = Budget()
    groups = list(_read_groups(finder, budget))
    if finder.problems or not groups:
        return
    ignored = finder.settings.get("ignore")
    listed = ignored if isinstance(ignored, list) else ()
    kept = Targets((each for each in listed if isinstance(each, str)), budget)
    try:
        mistakes = (targets.compile() for targets in (kept, *(group.targets for group in groups)))
        mistake = next(filter(None, mistakes), "")
        if mistake:
            finder.report("", "settings", mistake)
            return
        for name, layer in _list_layers(finder):
            _find(finder, name, layer, _choose(groups, layer), kept)
    except (ContentError, UnsupportedError) as error:  # too many patterns, or too long a name for them
        finder.problems.clear()  # this one is the reason, however many layers were looked at before
        finder.report("", "settings", str(error))


def _find(finder: Finder, name: str, layer: str, group: _Group | None, kept: Targets) -> None:
    if kept.have(layer):
        finder.report(name, "group", f"is packed, and the settings ignore {layer!r}")
    elif group is None:
        finder.report(name, "group", f"is packed, and no group of the settings has {layer!r}")
    else:
        _add(finder, name, layer, group)


def _list_layers(finder: Finder) -> Iterator[tuple[str, str]]:
    """List the codes of packed weights, and the layers to which they belong."""
    for name, layer in finder.list_names(*_CODES):
        packed = name.endswith(_CODES[0])
        if packed or (str(finder.model[name].dtype) in EIGHT_BITS and finder.model[name].ndim >= 2):
            yield name, layer


def _choose(groups: Sequence[_Group], layer: str) -> _Group | None:
    """Choose the group that names ``layer``, else the one whose targets are classes of layers."""
    named = [group for group in groups if group.targets.have(layer)]
    found = named or [group for group in groups if group.targets.are_classes]
    return found[0] if len(found) == 1 else None


def _read_groups(finder: Finder, budget: Budget) -> Iterator[_Group]:
    stated = finder.settings.get("config_groups")
    outer = finder.settings.get("format")
    for name, each in stated.items() if isinstance(stated, Mapping) else ():
        weights = each.get("weights") if isinstance(each, Mapping) else None
        if not isinstance(weights, Mapping):
            continue  # only activations
        format = each.get("format") or outer
        targets, block = each.get("targets"), weights.get("block_structure")
        group, bits, strategy = weights.get("group_size"), weights.get("num_bits"), weights.get("strategy")
        good = isinstance(targets, list) and all(isinstance(target, str) for target in targets)
        good &= (
            isinstance(format, str)
            and format in _FORMATS
            and strategy in _STRATEGIES
            and type(bits) is int
            and 1 <= bits <= 8
        )
        order = weights.get("actorder") or None
        good &= order in (*_ORDERED, *_RESTORED)
        good &= group is None or (type(group) is int and (group > 0 or group == -1))
        is_block = isinstance(block, Sequence) and len(block) == 2 and all(type(e) is int and e > 0 for e in block)
        if not good or (block is not None and not is_block) or (strategy == "block" and block is None):
            finder.report(
                "", "settings", f"config_groups has {name!r} with settings that are not known: {dict(weights)}"
            )
            continue
        yield _Group(
            Targets(targets, budget), str(format), int(bits or 0), weights.get("type") == "float", str(strategy),
            group or -1, tuple(block) if block is not None else None, weights.get("symmetric", True) is not False,
            order in _ORDERED,
        )  # fmt: skip


def _add(finder: Finder, name: str, layer: str, group: _Group) -> None:
    codes, scale = finder.model[name], finder.get(f"{layer}.weight_scale")
    if not finder.has_form(scale, f"{layer}.weight_scale", name, (FLOATS | {"u8", *EIGHT_BITS}), None):
        return
    assert scale is not None
    if codes.ndim != 2:
        finder.report(name, "shape", f"is {list(codes.shape)}, and should be a matrix")
        return
    if group.ordered and f"{layer}.weight_g_idx" not in finder.model:
        finder.report(name, "part", f"needs {layer + '.weight_g_idx'!r}, since actorder is stated")
        return
    if group.is_float and group.bits == 4:
        _add_fp4(finder, codes, scale, layer, group)
    elif name.endswith(".weight_packed"):
        _add_words(finder, codes, scale, layer, group)
    elif str(codes.dtype) != "i8" if group.is_float else str(codes.dtype) == "i8":
        _add_plain(finder, codes, scale, layer, group)
    else:
        kind = "floats" if group.is_float else "integers"
        finder.report(name, "dtype", f"is {codes.dtype}, and its group has {kind} of {group.bits} bits")


def _add_plain(finder: Finder, codes: Tensor, scale: Tensor, layer: str, group: _Group) -> None:
    """Add a weight whose codes are a tensor of its shape."""
    zero = finder.get(f"{layer}.weight_zero_point")  # also of symmetric codes, in older files: zeros
    unused = _list_unused(finder, layer)
    exponents = str(scale.dtype) == "u8"
    if not finder.has_form(scale, scale.name, codes.name, FLOATS | ({"u8"} if group.is_float else set()), None):
        return
    if zero is None and group.symmetric and group.strategy in ("tensor", "channel", "block"):
        add_scaled(finder, codes.name, codes, scale, group.block, unused)
        return
    rows, columns = codes.shape
    wide = _measure_group(finder, scale, rows, columns, group)
    if wide is None:
        return
    parts = [(codes, row_part(codes)), (scale, _scale_part(scale, rows))]
    if zero is not None or not group.symmetric:
        if not finder.has_form(zero, f"{layer}.weight_zero_point", codes.name, FLOATS | EIGHT_BITS, scale.shape):
            return
        assert zero is not None
        parts.append((zero, _scale_part(zero, rows)))
    high = 1 if scale.shape[:1] == (rows,) else max(1, rows)
    decoder = RowCodes(0, (high, wide), zeros="" if zero is None else "zero", exponents=exponents)
    kind = "int8" if str(codes.dtype) == "i8" else str(codes.dtype).removeprefix("f8_")
    plain = finder.choose_plain(scale.dtype)
    finder.add(codes.name, kind, codes.shape, parts, decoder, plain=plain, unused=unused)


def _add_words(finder: Finder, codes: Tensor, scale: Tensor, layer: str, group: _Group) -> None:
    """Add a weight whose codes are packed into words of 32 bits along each row."""
    shape = finder.get(f"{layer}.weight_shape")
    good = finder.has_form(codes, codes.name, layer, _WORDS, None)
    if not finder.has_form(shape, f"{layer}.weight_shape", codes.name, {"i64", "i32"}, (2,)) or not good:
        return
    assert shape is not None
    rows, columns = map(int, shape.numpy().tolist())
    if rows != codes.shape[0] or columns < 0 or codes.shape[1] != -(-columns * group.bits // 32):
        text = f"says {[rows, columns]}, and {codes.name!r} {list(codes.shape)} has no {group.bits} bits for each"
        finder.report(shape.name, "shape", text)
        return
    if not _is_dense(columns, group.bits):
        text = f"has {columns} columns, which older and newer versions pack into the same words in other places"
        finder.report(codes.name, "shape", text)
        return
    wide = _measure_group(finder, scale, rows, columns, group)
    if wide is None or not finder.has_form(scale, scale.name, codes.name, FLOATS | {"f8_e4m3"}, None):
        return
    order = finder.get(f"{layer}.weight_g_idx")
    if order is not None:
        finder.report(order.name, "part", "orders the columns of a packed weight, which is not known")
        return
    parts = [(codes, row_part(codes)), (scale, _scale_part(scale, rows))]
    unused = _list_unused(finder, layer)
    zero = finder.get(f"{layer}.weight_zero_point")
    half = 1 << (group.bits - 1)
    high = 1 if scale.shape[:1] == (rows,) else max(1, rows)
    if group.symmetric and zero is None:
        decoder = RowCodes(group.bits, (high, wide), half)
    elif group.symmetric:  # older files have zeros here, which are not packed
        if not finder.has_form(zero, f"{layer}.weight_zero_point", codes.name, {"i8"}, scale.shape):
            return
        assert zero is not None
        parts.append((zero, _scale_part(zero, rows)))
        decoder = RowCodes(group.bits, (high, wide), half, zeros="zero")
    else:
        packed = (-(-rows * group.bits // 32), scale.shape[1] if scale.ndim == 2 else 1)
        if not finder.has_form(zero, f"{layer}.weight_zero_point", codes.name, _WORDS, packed):
            return
        assert zero is not None
        unit = words_unit(group.bits) if 32 % group.bits == 0 else 0
        parts.append((zero, Part(row_part(zero).dtype, 1, zero.shape[0], zero.shape[1], unit)))
        decoder = RowCodes(group.bits, (high, wide), half, zeros="zero", zero_bits=group.bits, zero_unit=unit)
    plain = finder.choose_plain(scale.dtype)
    finder.add(
        f"{layer}.weight",
        f"int{group.bits}",
        (rows, columns),
        parts,
        decoder,
        plain=plain,
        extra=[shape.name],
        unused=unused,
    )


def _is_dense(columns: int, bits: int) -> bool:
    """Whether the number of words says that codes lie without gaps: older versions put no code into two words."""
    held = 32 // bits
    return 32 % bits == 0 or columns <= held or -(-columns * bits // 32) != -(-columns // held)


def _add_fp4(finder: Finder, codes: Tensor, scale: Tensor, layer: str, group: _Group) -> None:
    """Add a weight of floats of four bits: with scales of FP8 and one of all of them, or with exponents of two."""
    rows, columns = codes.shape[0], codes.shape[1] * 2
    exponents = str(scale.dtype) in ("u8", "f8_e8m0")
    wide = min(group.group, max(1, columns)) if group.group > 0 else 32 if exponents else 16
    good = finder.has_form(codes, codes.name, layer, {"u8"}, None)
    good &= finder.has_form(scale, scale.name, codes.name, {"u8", "f8_e8m0", "f8_e4m3"}, (rows, -(-columns // wide)))
    if not good:
        return
    parts = [(codes, row_part(codes)), (scale, row_part(scale))]
    decoder = RowCodes(4, (1, wide), table=FP4, exponents=str(scale.dtype) == "u8")
    if not exponents:
        outer = finder.get(f"{layer}.weight_global_scale")
        if not finder.has_form(outer, f"{layer}.weight_global_scale", codes.name, {"f32"}, None):
            return
        assert outer is not None
        if outer.count != 1:
            finder.report(outer.name, "shape", f"is {list(outer.shape)}, and should be one number")
            return
        parts.append((outer, whole_part(outer)))
        decoder = RowCodes(4, (1, wide), table=FP4, shared="divide")
    kind = "mxfp4" if exponents else "nvfp4"
    plain = finder.choose_plain(None)
    finder.add(
        f"{layer}.weight", kind, (rows, columns), parts, decoder, plain=plain, unused=_list_unused(finder, layer)
    )  # fmt: skip


def _measure_group(finder: Finder, scale: Tensor, rows: int, columns: int, group: _Group) -> int | None:
    """Return how many columns a scale is for; None, with a problem, if its shape fits neither weight nor settings."""
    if group.strategy == "tensor":
        wanted: tuple[tuple[int, ...], ...] = ((), (1,), (1, 1))
        wide = columns
    elif group.strategy == "channel":
        wanted, wide = ((rows,), (rows, 1)), columns
    else:
        wide = min(group.group, columns) if group.group > 0 else columns
        wide = max(1, wide)
        wanted = ((rows, -(-columns // wide)),)
    if scale.shape not in wanted:
        shapes = " or ".join(str(list(shape)) for shape in wanted)
        text = f"is {list(scale.shape)}, and the strategy {group.strategy!r} wants {shapes}"
        finder.report(scale.name, "shape", text)
        return None
    return max(1, wide)


def _scale_part(scale: Tensor, rows: int) -> Part:
    return row_part(scale) if scale.shape[:1] == (rows,) else whole_part(scale)


def _list_unused(finder: Finder, layer: str) -> list[str]:
    return [layer + ending for ending in _UNUSED if layer + ending in finder.model]
