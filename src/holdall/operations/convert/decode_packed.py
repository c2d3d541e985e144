"""Plain weights in the place of packed ones, where a conversion asks for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from holdall.base.text import plural
from holdall.errors import ContentError
from holdall.format import registry
from holdall.model.casts import dequantize
from holdall.model.model import Model
from holdall.operations.convert.copied_packed import describe_packed, explain_other_weights
from holdall.operations.convert.refusals import refuse_packed
from holdall.packed import find_weights
from holdall.packed.packed_weights import PackedWeights
from holdall.packed.weight import PackedEncoding, Weight

if TYPE_CHECKING:
    from holdall.operations.convert.options import ConvertOptions

__all__ = ["Decoded", "decode_packed", "note_copied"]


class Decoded:
    """A model without packed weights: what was done is in ``changes``, and what is lost in ``dropped``."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.changes: list[str] = []
        self.dropped: list[str] = []
        self.copied: PackedWeights | None = None  # what stays packed
        self.is_plain = False  # its weights were decoded


def decode_packed(model: Model, options: ConvertOptions, on_warning: Callable[[str], None]) -> Decoded:
    """Decode the packed weights of ``model``, lazily, if ``options`` ask for plain numbers or quantize them anew.

    With another cast they become float32, so that they are rounded once. ``on_warning`` receives how many values are
    beyond their type, when they are read.
    """
    decoded = Decoded(model)
    found = find_weights(model)
    if found is None:
        if options.changes.dequantize:  # of several sources the configuration of this one may not stay
            refuse_packed(model, filter(options.changes.dequantizes, model.tensors.names))
        return decoded
    if not options.changes.dequantize and options.quantize is None:
        decoded.copied = found
        return decoded
    _refuse_some(found, options)
    joined = found.join()
    wide = bool(options.changes.cast)
    tensors, counts = [], Counter[tuple[str, str]]()
    for tensor in joined.tensors:
        if isinstance(tensor.dtype, PackedEncoding):
            plain = dequantize(tensor, "f32" if wide else None, on_warning)
            counts[str(tensor.dtype), str(plain.dtype)] += 1
            tensors.append(plain)
        else:
            tensors.append(tensor)
    decoded.is_plain = True
    decoded.model = found.describe_plain(joined.replace(tensors=tensors))
    _report(decoded, found, counts, joined)
    return decoded


def note_copied(sources: Sequence[Decoded], adapted: Model, target: str, options: ConvertOptions) -> list[str]:
    """Say what stays packed. A copy that would be decoded otherwise, or never, raises ContentError unless it is forced.

    ``adapted`` is what the format ``target`` stores: parts may be left out, and a configuration without a place there.
    """
    notes, contents = [], []
    for source in sources:
        if source.is_plain:
            continue
        found, kept = source.copied, list[Weight]()
        if found is not None and found.problems:
            notes.append(f"looks like {found.scheme.title} and is copied as it is stored, but {found.problems[0]}")
        elif found is not None:
            kept = [weight for weight in found.weights if _is_kept(weight, options)]
            notes.append(_note_kept(found, len(kept)))
        changes = options.changes
        contents.append(describe_packed(source.model, found, kept, changes.new_name, changes.chooses))
    if options.force or options.carry:
        return notes
    stored = Model(
        adapted.tensors, metadata=adapted.metadata, assets=adapted.assets, native=adapted.native, format=target
    )
    stored.resolve_facet = registry.resolve_facet
    reason = explain_other_weights(contents, stored)
    if reason:
        carry = "" if len(sources) > 1 else " --carry keeps the configuration of the original,"
        raise ContentError(
            f"{target}: {reason}: --dequantize writes plain weights of schemes that holdall decodes,{carry} and "
            "--force copies the parts alone"
        )
    return notes


def _note_kept(found: PackedWeights, count: int) -> str:
    what = f"{plural(count, 'weight')} of {found.scheme.title}"
    if not count:
        return f"no weight of {found.scheme.title} is among the tensors"
    return f"{what} copied with all parts, still packed: --dequantize makes plain ones"


def _is_kept(weight: Weight, options: ConvertOptions) -> bool:
    """Whether the parts of a weight are wanted; ContentError if some of them are, since these alone are no weight."""
    names = [*(tensor.name for tensor in weight.tensors), *weight.extra]
    wanted = [options.changes.chooses(name) for name in names]
    if any(wanted) and not all(wanted) and not options.force:
        left = names[wanted.index(False)]
        raise ContentError(
            f"tensor {left!r} would be left out, and {names[wanted.index(True)]!r} not: both are parts of the weight "
            f"{weight.name!r}. Include or exclude them together, or copy some of them with --force"
        )
    return all(wanted)


def _report(decoded: Decoded, found: PackedWeights, counts: Counter[tuple[str, str]], joined: Model) -> None:
    for (old, new), count in counts.items():
        decoded.changes.append(f"{plural(count, 'weight')} of {old} decoded to {new} ({found.scheme.title})")
        if new != "f32":
            decoded.dropped.append(f"{plural(count, 'weight')} of {old} rounded from float32 to {new}")
    unused = [name for weight in found.weights for name in weight.unused] + sorted(found.spare)
    if unused:
        decoded.dropped.append(f"{plural(len(unused), 'tensor')} that no weight needs left out, {unused[0]!r} first")
    gone = sorted(set(joined.assets) - set(decoded.model.assets))
    decoded.dropped += [f"{name}, which describes the scheme, left out" for name in gone]
    if found.is_stated:
        decoded.changes.append("the configuration no longer names the scheme")


def _refuse_some(found: PackedWeights, options: ConvertOptions) -> None:
    """Refuse to decode some weights and leave others packed: the configuration describes all of them."""
    changes = options.changes
    if options.quantize is not None or not changes.dequantize:
        return
    found.refuse_problems()
    left = [weight.name for weight in found.weights if not changes.dequantizes(weight.name)]
    if left:
        raise ContentError(
            f"{plural(len(left), 'packed weight')} would stay packed, {left[0]!r} first, and the configuration "
            "describes them all: --dequantize '*' decodes them together"
        )
