"""Writing GGUF, version 3: header, metadata, tensor table, and the payloads on multiples of the alignment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from holdall.errors import ContentError
from holdall.formats.gguf.encode import encode, entry_breach
from holdall.formats.gguf.layout import (
    ALIGNMENT,
    DEFAULT_ALIGNMENT,
    HEADER,
    MAGIC,
    MAX_DIMS,
    MAX_NAME,
    TENSOR,
)
from holdall.formats.gguf.part import TYPE_OF
from holdall.formats.gguf.read import GgufNative
from holdall.formats.gguf.splits import COUNT, KEYS, NUMBER, TENSORS
from holdall.ggml import Blocks
from holdall.metadata import Entry
from holdall.model import Model
from holdall.plan import Plan
from holdall.tables import build
from holdall.tensor import Tensor

__all__ = ["metadata_breach", "name_breach", "plan"]

VERSION = 3
_UNASKED = 1 << 16  # the largest alignment that is taken from a file
_MAX_ALIGNMENT = 1 << 31  # the largest power of two that the key can state


def plan(model: Model, options: Mapping[str, Any]) -> Plan:
    """The GGUF file that holds ``model``."""
    if model.assets:
        raise ContentError(f"gguf has no place for assets: {', '.join(model.assets)}")
    entries = _entries(model, options["alignment"])
    alignment = next((entry.value for entry in entries if entry.key == ALIGNMENT), DEFAULT_ALIGNMENT)
    tensors = list(model.tensors)
    _check_unique("tensors", [tensor.name for tensor in tensors])
    _check_unique("metadata entries", [entry.key for entry in entries])
    types = list(map(_type, tensors))
    offsets, at = [], 0
    for tensor in tensors:
        offsets.append(at)
        at += tensor.nbytes + -tensor.nbytes % alignment
    out = Plan()
    out.put(HEADER.pack(magic=MAGIC, version=VERSION, n_tensors=len(tensors), n_kv=len(entries)))
    for entry in entries:  # each apart: a vocabulary of many megabytes is not copied once more
        out.put(encode(entry.key, entry.value, entry.kind))
    out.put(
        build(
            TENSOR,
            name=[tensor.name.encode() for tensor in tensors],
            n_dims=[len(tensor.shape) for tensor in tensors],
            dims=[tensor.shape[::-1] for tensor in tensors],
            type=types,
            offset=offsets,
        )
    )
    data = out.align(alignment)
    out.streams((tensor.payload for tensor in tensors if tensor.payload is not None), alignment)
    assert out.cursor == data + at
    if model.format == "gguf" and model.version not in ((), (VERSION,)):
        out.notes.append(f"was of GGUF version {model.version[0]}: written as version {VERSION}")
    return out


def _entries(model: Model, asked: str | int) -> list[Entry]:
    """The metadata, with the alignment that was asked for, and with what a part of several files must state."""
    entries = list(model.metadata.entries)
    native = model.native if isinstance(model.native, GgufNative) else GgufNative()
    if native.part is not None:
        number, count, tensors = native.part
        kept = [entry for entry in entries if entry.key not in KEYS] if number == 0 else []
        kept += [Entry(NUMBER, number, "u16"), Entry(COUNT, count, "u16"), Entry(TENSORS, tensors, "i32")]
        stated = next((entry for entry in entries if entry.key == ALIGNMENT), None)
        entries = kept if number == 0 or stated is None else [stated, *kept]
    for entry in entries:
        wrong = None if native.part is not None else _reserved(entry.key, entry.value)
        if wrong:
            raise ContentError(f"gguf: {wrong}")
    if str(asked) == "auto":
        stated = next((entry for entry in entries if entry.key == ALIGNMENT), None)
        if stated is not None and stated.value > _UNASKED:  # three small tensors would become gigabytes
            raise ContentError(
                f"gguf: {ALIGNMENT} is {stated.value}: ask for it by the option alignment, if it is meant"
            )
        return [Entry(ALIGNMENT, entry.value, "u32") if entry.key == ALIGNMENT else entry for entry in entries]
    try:
        alignment = int(asked)
    except ValueError:
        alignment = 0
    wrong = _alignment_breach(alignment)
    if wrong:
        raise ContentError(f"gguf: {wrong}")
    stated = Entry(ALIGNMENT, alignment, "u32")
    if any(entry.key == ALIGNMENT for entry in entries):
        return [stated if entry.key == ALIGNMENT else entry for entry in entries]
    return entries if alignment == DEFAULT_ALIGNMENT else [*entries, stated]


def _alignment_breach(value: Any) -> str | None:
    if type(value) is int and 8 <= value <= _MAX_ALIGNMENT and not value & (value - 1):
        return None
    return f"the alignment is a power of two from 8 to 2^31, not {value!r}"


def _reserved(key: str, value: Any) -> str | None:
    """Why an entry that says something of the file itself cannot be written; None when it can."""
    if key == ALIGNMENT:
        return _alignment_breach(value)
    if key == COUNT and not (type(value) is int and 0 <= value <= 1):
        return f"{COUNT} {value!r} would make the file a part of several"
    return None


def metadata_breach(key: str, value: Any) -> str | None:
    """Why the entry cannot be stored; None when it can."""
    return _reserved(key, value) or entry_breach(key, value)


def name_breach(name: str) -> str | None:
    """Why a tensor cannot be called ``name``; None when it can."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return f"the name {name!r} holds half of a surrogate pair, which is no text"
    if not size:
        return "a tensor's name is empty"
    if size > MAX_NAME:
        return f"the name {name!r} has {size} bytes, and ggml reads at most {MAX_NAME}"
    return f"the name {name!r} holds a NUL, at which ggml ends it" if "\0" in name else None


def _type(tensor: Tensor) -> int:
    """The ggml type of the tensor, once it is certain that GGUF can hold it."""
    wrong = name_breach(tensor.name)
    if wrong:
        raise ContentError(f"gguf: {wrong}")
    dtype, shape = tensor.dtype, tensor.shape
    if str(dtype) not in TYPE_OF:
        raise ContentError(f"{_what(tensor)}: {dtype} is not a ggml type")
    if tensor.payload is None:
        raise ContentError(f"{_what(tensor)} is declared without data, which GGUF cannot say")
    if len(shape) > MAX_DIMS:
        raise ContentError(f"{_what(tensor)} has {len(shape)} dimensions, more than {MAX_DIMS}")
    if any(not 0 <= dim < 1 << 63 for dim in shape):
        raise ContentError(f"{_what(tensor)}: a dimension does not fit 63 bits")
    if isinstance(dtype, Blocks) and (shape[-1] if shape else 1) % dtype.elements:
        raise ContentError(f"{_what(tensor)}: rows are not whole blocks of {dtype.elements} elements")
    if tensor.nbytes != dtype.nbytes(shape):
        raise ContentError(f"{_what(tensor)} takes {dtype.nbytes(shape)} bytes, not {tensor.nbytes}")
    return TYPE_OF[str(dtype)]


def _what(tensor: Tensor) -> str:
    return f"gguf: tensor {tensor.name!r}: {tensor.dtype}{list(tensor.shape)}"


def _check_unique(what: str, names: list[str]) -> None:
    if len(set(names)) != len(names):
        raise ContentError(f"gguf: two {what} are called {Counter(names).most_common(1)[0][0]!r}")
