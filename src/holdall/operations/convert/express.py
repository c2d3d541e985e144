"""What a target format can take of a model, and what becomes of the rest: known before anything is written."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from holdall import registry
from holdall.dtypes import DTYPES, DType
from holdall.encodings import Encoding, Opaque
from holdall.errors import ContentError
from holdall.format import Format
from holdall.metadata import Entry, Metadata
from holdall.model import Model
from holdall.operations.convert.report import Fate, Loss
from holdall.packed import packed_weights
from holdall.payload import Made
from holdall.tensor import Tensor

__all__ = ["Expressed", "as_text", "express", "express_metadata", "refuse_tensors"]

_NAMED = 10  # tensors that a refusal names


@dataclass(slots=True)
class Expressed:
    """A model in the target's terms. ``forms`` are its tensors by the names that they have in the source."""

    model: Model
    losses: list[Loss] = field(default_factory=list)
    forms: dict[str, Tensor] = field(default_factory=dict)


def express(model: Model, target: Format, *, carry: bool) -> Expressed:
    """``model`` as ``target`` can hold it.

    A tensor that the target cannot hold stops the conversion. With ``carry`` it travels as what the target can hold,
    since the skeleton says what it is. Metadata and assets without a place are left out and listed.
    """
    losses: list[Loss] = []
    if carry:
        forms = _carried_forms(model.tensors, target, losses)
    else:
        refuse_tensors(model, target)
        forms = {tensor.name: tensor for tensor in model.tensors}
    same = model.format == target.name
    metadata = model.metadata if same else express_metadata(model.metadata, target, losses)
    assets = {}
    for name in model.assets:
        refused = target.holds.refuses_asset(name) if target.holds.assets else f"{target.name} has no place for assets"
        if refused:
            losses.append(Loss("asset", name, refused, "left out"))
        else:
            assets[name] = model.assets.payload(name)
    expressed = Model(
        forms.values(),
        metadata=metadata,
        assets=assets,
        native=model.native if same else None,
        format=model.format,
        version=model.version,
        sources=model.sources,
        origin=model,
    )
    return Expressed(expressed, losses, forms)


# -- tensors that the target cannot hold ------------------------------------------------------------------------------


def refuse_tensors(model: Model, target: Format) -> None:
    """ContentError that names the tensors which ``target`` cannot hold, and the ways out.

    Nor does another format hold a tensor whose values depend on what only its own format keeps beside it.
    """
    bound = {} if model.format in (None, target.name) else registry.find(model.format or "").bound_values(model)
    reasons = ((tensor, target.holds.refuses(tensor) or bound.get(tensor.name)) for tensor in model.tensors)
    found = [(tensor, why) for tensor, why in reasons if why is not None]
    if not found:
        return
    shown = "; ".join(f"{t.name!r} {t.dtype}{list(t.shape)} ({why})" for t, why in found[:_NAMED])
    more = f"; and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    count = f"{len(found)} tensor{'s' if len(found) > 1 else ''}"
    packed = packed_weights(model)  # which are not cast
    ways = ", ".join(_ways_out([tensor for tensor, _ in found], target, packed))
    raise ContentError(f"{target.name} cannot hold {count}: {shown}{more}. Ways out with holdall convert: {ways}")


def _ways_out(tensors: list[Tensor], target: Format, packed: Collection[str]) -> list[str]:
    """The options that help with at least one of ``tensors``."""
    holds = target.holds
    ways = []
    untyped = [t for t in tensors if str(t.dtype) not in holds.dtypes or not holds.holds_scalar(t)]
    missing = [tensor for tensor in untyped if tensor.name not in packed]
    if any(isinstance(tensor.dtype, Encoding) and not isinstance(tensor.dtype, Opaque) for tensor in missing):
        ways.append("--dequantize")
    kinds = {tensor.dtype.kind for tensor in missing if isinstance(tensor.dtype, DType)}
    if "float" in kinds:
        ways.append(f"--cast {'f32' if 'f32' in holds.dtypes else 'f16'}")
    wider = ((t, _wider(t.dtype, holds.dtypes)) for t in missing if isinstance(t.dtype, DType))
    ways += [f"--cast {t.name}={dtype}" for t, dtype in wider if dtype is not None][:1]
    named = [tensor for tensor in tensors if holds.refuses_name(tensor.name)]
    if named:
        ways.append("--rename")
    if holds.max_name and any(len(tensor.name.encode(errors="replace")) > holds.max_name for tensor in named):
        ways.append("--shorten-names")
    return [*ways, "--exclude", *(["--carry"] if target.carries else [])]


def _wider(dtype: DType, held: Collection[str]) -> str | None:
    """The smallest of the ``held`` integer types that has every value of an integer ``dtype``; None without one."""
    if dtype.kind not in ("int", "uint", "bool"):
        return None
    signed = dtype.kind == "int"
    for name, bits in (("u8", 8), ("i8", 8), ("i16", 16), ("i32", 32), ("i64", 64)):
        room = bits if name[0] == "u" or signed else bits - 1
        if name in held and room >= dtype.bits and (name[0] == "i" or not signed):
            return name
    return None


def _carried_forms(tensors: Iterable[Tensor], target: Format, losses: list[Loss]) -> dict[str, Tensor]:
    """Each tensor as ``target`` can hold it, by its name in the source; some travel in the skeleton alone."""
    taken: set[str] = set()
    forms: dict[str, Tensor] = {}
    for tensor in tensors:
        form = _carried_form(tensor, target, taken, losses)
        if form is not None:
            taken.add(form.name)
            forms[tensor.name] = form
    return forms


def _carried_form(tensor: Tensor, target: Format, taken: set[str], losses: list[Loss]) -> Tensor | None:
    """``tensor`` as ``target`` can hold it; None when it cannot travel as a tensor at all."""
    holds = target.holds

    def lose(reason: str, fate: Fate) -> None:
        losses.append(Loss("tensor", tensor.name, reason, fate))

    if tensor.payload is None and not holds.declared:
        lose(f"{target.name} cannot declare a tensor without data", "carried")
        return None
    if tensor.payload is not None and not holds.zero_size and tensor.count == 0:
        lose(f"{target.name} cannot hold a tensor of zero elements", "carried")
        return None
    form = tensor
    if str(tensor.dtype) not in holds.dtypes:
        if tensor.payload is None:
            lose(f"{target.name} has no {tensor.dtype}", "carried")
            return None
        lose(f"{target.name} has no {tensor.dtype}", "opaque")
        form = _opaque(tensor, target)
    elif holds.whole_bytes and isinstance(tensor.dtype, DType) and tensor.count * tensor.dtype.bits % 8:
        lose(f"{target.name} holds whole bytes, and {tensor.dtype}{list(tensor.shape)} ends inside one", "opaque")
        form = _opaque(tensor, target)
    rank = len(form.shape)
    if holds.max_rank is not None and rank > holds.max_rank:
        lose(f"{target.name} holds at most {holds.max_rank} dimensions, not {rank}", "reshaped")
        form = form.replace(shape=(form.count,))
    if not holds.holds_scalar(form):
        lose(f"{target.name} holds no {form.dtype} without dimensions", "reshaped")
        form = form.replace(shape=(1,))
    if rank < holds.min_rank:
        lose(f"{target.name} holds no tensor of {rank} dimensions", "reshaped")
        form = form.replace(shape=(1,) * holds.min_rank)
    refused = holds.refuses_name(form.name)
    if refused or form.name in taken:
        name = _plain_name(form.name, taken, target)
        lose(f"{refused or 'the name is taken'}: travels as {name!r}", "renamed")
        form = form.replace(name=name)
    return form


def _opaque(tensor: Tensor, target: Format) -> Tensor:
    """The stored bytes as a tensor of u8, or of what integers the target has, filled up with zeros."""
    payload = tensor.payload
    assert payload is not None
    name = next((name for name in ("u8", "i8", "u16", "i16", "u32", "i32") if name in target.holds.dtypes), "u8")
    width = DTYPES[name].bits // 8
    count = -(-payload.size // width)
    if count * width != payload.size:
        whole, fill = payload, bytes(count * width - payload.size)
        payload = Made(count * width, lambda: chain(whole.chunks(), [fill]), (whole,))
    return Tensor(tensor.name, DTYPES[name], (count,), payload)


def _plain_name(name: str, taken: set[str], target: Format) -> str:
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)[:200] or "unnamed"
    while len(plain) > 8 and target.holds.refuses_name(f"{plain}.1000000"):  # too long, with room for a number
        plain = plain[: len(plain) * 3 // 4]
    number = 1
    candidate = plain
    while candidate in taken or target.holds.refuses_name(candidate):
        number += 1
        candidate = f"{plain}.{number}"
    return candidate


# -- metadata ---------------------------------------------------------------------------------------------------------


def express_metadata(metadata: Metadata, target: Format, losses: list[Loss], *, given: bool = False) -> Metadata:
    """Entries of another format as ``target`` takes them: as they are, else as text, else not at all.

    Those that are ``given`` by the caller go also where a conversion brings none along unasked.
    """
    holds = target.holds
    entries = []
    for entry in metadata.entries:
        if not holds.metadata or not (holds.foreign_metadata or given):
            losses.append(Loss("metadata", entry.key, f"{target.name} has no metadata of its own", "left out"))
            continue
        refused = holds.refuses_metadata(entry.key, entry.value)
        if refused is None:
            entries.append(Entry(entry.key, entry.value))
            continue
        text = as_text(entry.value)
        if text is not None and holds.refuses_metadata(entry.key, text) is None:
            losses.append(Loss("metadata", entry.key, f"{refused}: stored as text", "text"))
            entries.append(Entry(entry.key, text))
        else:
            losses.append(Loss("metadata", entry.key, refused, "left out"))
    return Metadata(entries)


def as_text(value: Any) -> str | None:
    """A value as the text that JSON would have for it; None for what has none."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value.tolist() if hasattr(value, "tolist") else value, ensure_ascii=False)
    except (TypeError, ValueError):
        return None
