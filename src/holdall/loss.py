"""What a target format can take of a model, and what happens to the rest: known before anything is written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

from holdall.dtypes import DTYPES, DType
from holdall.format import Format
from holdall.metadata import Entry, Metadata
from holdall.model import Model
from holdall.payload import Made
from holdall.tensor import Tensor

__all__ = ["Fate", "Loss", "as_text", "express"]

# opaque: as u8 under its own name; renamed, reshaped: says itself; carried: in the skeleton alone; text: as text
Fate = Literal["opaque", "renamed", "reshaped", "carried", "text", "lost"]


@dataclass(frozen=True, slots=True)
class Loss:
    """One thing that the target cannot hold as it is."""

    part: Literal["tensor", "metadata", "asset", "native"]
    name: str
    reason: str
    fate: Fate

    def __str__(self) -> str:
        return f"{self.part} {self.name!r}: {self.reason} ({self.fate})"


def express(model: Model, tensors: Iterable[Tensor], target: Format) -> tuple[Model, list[Loss], dict[str, Tensor]]:
    """The part of ``model`` that ``target`` can hold natively, what is lost, and each tensor's travelling form."""
    losses: list[Loss] = []
    travelling: dict[str, Tensor] = {}
    taken: set[str] = set()
    for tensor in tensors:
        form = _tensor_form(tensor, target, taken, losses)
        if form is not None:
            taken.add(form.name)
            travelling[tensor.name] = form
    same = model.format == target.name
    metadata = model.metadata if same else _metadata_form(model.metadata, target, losses)
    assets = {}
    for name in model.assets:
        refused = target.holds.refuses_asset(name) if target.holds.assets else f"{target.name} has no place for assets"
        if refused:
            losses.append(Loss("asset", name, refused, "carried"))
        else:
            assets[name] = model.assets.payload(name)
    expressed = Model(
        travelling.values(),
        metadata=metadata,
        assets=assets,
        native=model.native if same else None,
        format=model.format,
        version=model.version,
        sources=model.sources,
        origin=model,
    )
    return expressed, losses, travelling


def _tensor_form(tensor: Tensor, target: Format, taken: set[str], losses: list[Loss]) -> Tensor | None:
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
        payload = Made(count * width, lambda: (bytes(piece) for piece in chain(whole.chunks(), [fill])))
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


def _metadata_form(metadata: Metadata, target: Format, losses: list[Loss]) -> Metadata:
    """Entries as they are where the target takes them, as text where it takes that."""
    entries = []
    for entry in metadata.entries:
        if not target.holds.metadata:
            losses.append(Loss("metadata", entry.key, f"{target.name} has no metadata", "carried"))
            continue
        refused = target.holds.refuses_metadata(entry.key, entry.value)
        if refused is None:
            entries.append(Entry(entry.key, entry.value))
            continue
        text = as_text(entry.value)
        if text is not None and target.holds.refuses_metadata(entry.key, text) is None:
            losses.append(Loss("metadata", entry.key, f"{refused}: stored as text", "text"))
            entries.append(Entry(entry.key, text))
        else:
            losses.append(Loss("metadata", entry.key, refused, "carried"))
    return Metadata(entries)


def as_text(value: Any) -> str | None:
    """A value as the text that JSON would have for it; None for what has none."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value.tolist() if hasattr(value, "tolist") else value, ensure_ascii=False)
    except (TypeError, ValueError):
        return None
