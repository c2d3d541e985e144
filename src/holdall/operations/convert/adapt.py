"""Adapts a model to what the target format can hold, and lists what is lost, before anything is written."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from holdall.base.repeats import find_repeat
from holdall.base.text import list_text, plural
from holdall.errors import ContentError
from holdall.format import registry
from holdall.format.base import Format, Holds
from holdall.format.packed_weights import find_packed_weights
from holdall.model.dtypes import DTYPES, DType
from holdall.model.encodings import Encoding, Opaque
from holdall.model.metadata import Entry, Metadata
from holdall.model.model import Model
from holdall.model.payload import Computed
from holdall.model.table import ListTable, TensorTable
from holdall.model.tensor import Tensor
from holdall.operations.convert.report import Fate, Loss

__all__ = ["AdaptedModel", "adapt_metadata", "adapt_model", "refuse_tensors", "to_text"]


@dataclass(slots=True)
class AdaptedModel:
    """A model as the target can hold it. A carrying one has ``rows``: those of its tensors by their source's names."""

    model: Model
    losses: list[Loss] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)


def adapt_model(model: Model, target: Format, settings: Mapping[str, Any], *, carry: bool) -> AdaptedModel:
    """Return ``model`` as ``target`` can hold it when it is written with ``settings``.

    A tensor that the target cannot hold raises ContentError. With ``carry`` it is stored in another form, and the
    skeleton keeps its type. Metadata and assets without a place are left out and listed.
    """
    losses: list[Loss] = []
    holds = target.holds_with(settings)
    tensors, rows = model.tensors, dict[str, int]()
    if carry:
        tensors, rows = _carry_tensors(model.tensors, target, holds, losses)
    else:
        refuse_tensors(model, target, holds)
    same = model.format == target.name
    metadata = model.metadata if same else adapt_metadata(model.metadata, target, losses, source=model.format)
    assets = {}
    for name in model.assets:
        refused = holds.refuses_asset(name) if holds.assets else f"{target.name} has no place for assets"
        if refused:
            losses.append(Loss("asset", name, refused, "left out"))
        else:
            assets[name] = model.assets.payload(name)
    expressed = Model(
        tensors,
        metadata=metadata,
        assets=assets,
        native=model.native if same else None,
        format=model.format,
        version=model.version,
        sources=model.sources,
        origin=model,
    )
    return AdaptedModel(expressed, losses, rows)


def refuse_tensors(model: Model, target: Format, holds: Holds) -> None:
    """Raise ContentError that names the tensors which ``target`` cannot hold, and the ways out.

    A tensor whose values depend on parameters that only the source's format can store is refused too.
    """
    bound = {} if model.format in (None, target.name) else registry.find(model.format or "").bound_values(model)
    table = model.tensors
    forms = table.forms()
    refused = [holds.refuses_form(form) for form in forms.kinds]
    reasons = (
        refused[code] or holds.refuses_name(name) or bound.get(name)
        for name, code in zip(table.names, forms.codes.tolist(), strict=True)
    )
    found = [(table.tensor(row), why) for row, why in enumerate(reasons) if why is not None]
    if not found:
        return
    shown = list_text([f"{t.name!r} {t.dtype}{list(t.shape)} ({why})" for t, why in found], "; ")
    count = plural(len(found), "tensor")
    packed = find_packed_weights(model)  # they cannot be cast
    ways = ", ".join(_list_ways_out([tensor for tensor, _ in found], target, packed))
    raise ContentError(f"{target.name} cannot hold {count}: {shown}. Ways out with holdall convert: {ways}")


def _list_ways_out(tensors: list[Tensor], target: Format, packed: Collection[str]) -> list[str]:
    """List the options that help with at least one of ``tensors``."""
    holds = target.holds
    ways = []
    untyped = [t for t in tensors if not (holds.holds_type(t) and holds.holds_scalar(t))]
    missing = [tensor for tensor in untyped if tensor.name not in packed]
    encoded = any(isinstance(tensor.dtype, Encoding) and not isinstance(tensor.dtype, Opaque) for tensor in missing)
    if encoded or any(tensor.scaling is not None for tensor in tensors):
        ways.append("--dequantize")
    kinds = {tensor.dtype.kind for tensor in missing if isinstance(tensor.dtype, DType)}
    if "float" in kinds:
        ways.append(f"--cast {'f32' if 'f32' in holds.dtypes else 'f16'}")
    wider = ((t, _find_wider(t.dtype, holds.dtypes)) for t in missing if isinstance(t.dtype, DType))
    ways += [f"--cast {t.name}={dtype}" for t, dtype in wider if dtype is not None][:1]
    named = [tensor for tensor in tensors if holds.refuses_name(tensor.name)]
    if named:
        ways.append("--rename")
    if holds.max_name and any(len(tensor.name.encode(errors="replace")) > holds.max_name for tensor in named):
        ways.append("--shorten-names")
    return [*ways, "--exclude", *(["--carry"] if target.carries else [])]


def _find_wider(dtype: DType, held: Collection[str]) -> str | None:
    """Find the smallest of the ``held`` integer types that holds every value of ``dtype``; None if there is none."""
    if dtype.kind not in ("int", "uint", "bool"):
        return None
    signed = dtype.kind == "int"
    for name, bits in (("u8", 8), ("i8", 8), ("i16", 16), ("i32", 32), ("i64", 64)):
        room = bits if name[0] == "u" or signed else bits - 1
        if name in held and room >= dtype.bits and (name[0] == "i" or not signed):
            return name
    return None


def _carry_tensors(
    table: TensorTable, target: Format, holds: Holds, losses: list[Loss]
) -> tuple[TensorTable, dict[str, int]]:
    """Return the tensors as ``target`` can hold them, and the row of each by its name in the source.

    Empty tensors may be omitted.
    """
    if _holds_all(table, target, holds):
        return table, {name: row for row, name in enumerate(table.names)}
    taken: set[str] = set()
    forms: dict[str, Tensor] = {}
    for tensor in table:
        form = _carry_tensor(tensor, target, holds, taken, losses)
        if form is not None:
            taken.add(form.name)
            forms[tensor.name] = form
    return ListTable(forms.values()), {name: row for row, name in enumerate(forms)}


def _holds_all(table: TensorTable, target: Format, holds: Holds) -> bool:
    """Whether ``target`` holds every tensor as it is."""
    firsts = map(table.tensor, table.forms().firsts)
    if any(_carry_tensor(tensor, target, holds, set(), []) is not tensor for tensor in firsts):
        return False
    return find_repeat(table.names) is None and not any(map(holds.refuses_name, table.names))


def _carry_tensor(tensor: Tensor, target: Format, holds: Holds, taken: set[str], losses: list[Loss]) -> Tensor | None:
    """Return ``tensor`` as ``target`` can hold it; None if only the skeleton can describe it."""

    def lose(reason: str, fate: Fate) -> None:
        losses.append(Loss("tensor", tensor.name, reason, fate))

    if tensor.payload is None and not holds.declared:
        lose(f"{target.name} cannot declare a tensor without data", "carried")
        return None
    if tensor.payload is not None and not holds.zero_size and tensor.count == 0:
        lose(f"{target.name} cannot hold a tensor of zero elements", "carried")
        return None
    form = tensor
    if not holds.holds_type(tensor):
        if tensor.payload is None:
            lose(f"{target.name} has no {tensor.dtype}", "carried")
            return None
        lose(f"{target.name} has no {tensor.dtype}", "opaque")
        form = _make_opaque(tensor, target)
    elif holds.whole_bytes and isinstance(tensor.dtype, DType) and tensor.count * tensor.dtype.bits % 8:
        lose(f"{target.name} holds whole bytes, and {tensor.dtype}{list(tensor.shape)} ends inside one", "opaque")
        form = _make_opaque(tensor, target)
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
        name = _make_plain_name(form.name, taken, target)
        lose(f"{refused or 'the name is taken'}: travels as {name!r}", "renamed")
        form = form.replace(name=name)
    return form


def _make_opaque(tensor: Tensor, target: Format) -> Tensor:
    """Return the stored bytes as a tensor of u8, or of another integer type that the target has, padded with zeros."""
    payload = tensor.payload
    assert payload is not None
    name = next((name for name in ("u8", "i8", "u16", "i16", "u32", "i32") if name in target.holds.dtypes), "u8")
    width = DTYPES[name].bits // 8
    count = -(-payload.size // width)
    if count * width != payload.size:
        whole, fill = payload, bytes(count * width - payload.size)
        payload = Computed(count * width, lambda: chain(whole.chunks(), [fill]), (whole,))
    return Tensor(tensor.name, DTYPES[name], (count,), payload)


def _make_plain_name(name: str, taken: set[str], target: Format) -> str:
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)[:200] or "unnamed"
    while len(plain) > 8 and target.holds.refuses_name(f"{plain}.1000000"):  # too long, with room for a number
        plain = plain[: len(plain) * 3 // 4]
    number = 1
    candidate = plain
    while candidate in taken or target.holds.refuses_name(candidate):
        number += 1
        candidate = f"{plain}.{number}"
    return candidate


def adapt_metadata(
    metadata: Metadata, target: Format, losses: list[Loss], *, source: str | None = None, given: bool = False
) -> Metadata:
    """Return the entries that ``target`` can hold: unchanged, else as text, else not at all, which adds to ``losses``.

    A target without arrays holds them as lists, and none keeps the kind of a number, such as u8: this loses a type that
    the ``source`` format would not infer again.
    Entries ``given`` by the caller are also stored in a target that takes no metadata from other formats.
    """
    holds = target.holds
    entries = []
    for entry in metadata.entries:
        if not holds.takes_foreign(entry.key) and not (given and holds.metadata):
            free = "other than its own" if holds.foreign_keys is not None else "of its own"
            losses.append(Loss("metadata", entry.key, f"{target.name} has no metadata {free}", "left out"))
            continue
        refused = holds.refuses_metadata(entry.key, entry.value)
        if refused is None:
            entries.append(Entry(entry.key, entry.value))
            retyped = _describe_lost_kind(entry, source)
            losses += [Loss("metadata", entry.key, retyped, "changed")] if retyped else []
            continue
        items = _to_lists(entry.value)
        refused = holds.refuses_metadata(entry.key, items)
        if refused is None:
            entries.append(Entry(entry.key, items))
            untyped = None if given else _describe_lost_type(entry.value, items, source)
            losses += [Loss("metadata", entry.key, untyped, "changed")] if untyped else []
            continue
        text = to_text(entry.value)
        if text is not None and holds.refuses_metadata(entry.key, text) is None:
            losses.append(Loss("metadata", entry.key, f"{refused}: stored as text", "text"))
            entries.append(Entry(entry.key, text))
        else:
            losses.append(Loss("metadata", entry.key, refused, "left out"))
    return Metadata(entries)


def _to_lists(value: Any) -> Any:
    """Return ``value`` with lists in the place of arrays, inside it too."""
    match value:
        case np.ndarray() if value.ndim:
            return value.tolist()
        case list() | tuple():
            return [_to_lists(item) for item in value]
        case dict():
            return {key: _to_lists(item) for key, item in value.items()}
    return value


def _describe_lost_kind(entry: Entry, source: str | None) -> str | None:
    """Say which kind a value loses in another format; None if ``source`` infers it again, or has no kinds."""
    again = registry.find(source).infer_kind(entry.value) if source and entry.kind else None
    if again in (None, entry.kind):
        return None
    return f"stored without the type {entry.kind}: {source} would make {again} of it"


def _describe_lost_type(value: Any, items: Any, source: str | None) -> str | None:
    """Say what arrays lose that are stored as the lists ``items``; None if ``source`` makes them of these again."""
    if not isinstance(value, np.ndarray):
        return "the arrays in it are stored as lists, without their types"
    kind_of = registry.find(source).infer_kind if source else lambda value: None
    before, after = kind_of(value), kind_of(items)
    if value.size == 0 and value.ndim > 1:
        return f"stored as a list, without the shape {list(value.shape)}"
    if before is not None and before == after:
        return None
    again = f": {source} would make {after} of it" if after else ""
    return f"stored as a list, without the type {before or value.dtype}{again}"


def to_text(value: Any) -> str | None:
    """Return a value as JSON text, a string unchanged; None when JSON cannot express it."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value.tolist() if hasattr(value, "tolist") else value, ensure_ascii=False)
    except (TypeError, ValueError):
        return None
