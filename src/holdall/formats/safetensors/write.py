"""Writing safetensors: the header first, then every tensor after the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from holdall.dtypes import DType
from holdall.errors import ContentError
from holdall.formats.safetensors.layout import CAP, HEADER, METADATA, ORDER, WORD_OF
from holdall.metadata import Entry
from holdall.model import Model
from holdall.plan import Plan
from holdall.tensor import Tensor

__all__ = ["metadata_breach", "name_breach", "plan", "plan_file", "text_breach", "with_framework"]

_ALIGNMENTS = tuple(1 << power for power in range(13))
_FOR_TORCH = ("torch", "hf", "gguf")  # formats whose models people load with PyTorch
_FRAMEWORK = Entry("format", "pt")  # transformers before version 5 refuses a file that does not name its framework


def plan(model: Model, options: Mapping[str, Any]) -> Plan:
    """The safetensors file that holds ``model``."""
    if model.assets:
        raise ContentError(f"safetensors has no place for assets: {', '.join(model.assets)}")
    entries = model.metadata.entries
    return plan_file(model.tensors, with_framework(entries) if model.format in _FOR_TORCH else entries, options)


def with_framework(entries: Sequence[Entry]) -> Sequence[Entry]:
    """``entries`` with ``format: pt`` at the end, unless they name a ``format`` themselves.

    >>> with_framework([])
    [Entry(key='format', value='pt', kind='')]
    """
    return entries if any(entry.key == _FRAMEWORK.key for entry in entries) else [*entries, _FRAMEWORK]


def plan_file(tensors: Iterable[Tensor], entries: Sequence[Entry], options: Mapping[str, Any]) -> Plan:
    """One file of ``tensors`` with ``entries`` as its metadata."""
    align = int(options["align"])
    if align not in _ALIGNMENTS:
        raise ContentError(f"safetensors: align is a power of two up to {_ALIGNMENTS[-1]}, not {align}")
    chosen = list(tensors)
    if options["order"] == "sorted":
        for tensor in chosen:
            _word(tensor)
        chosen.sort(key=lambda tensor: (ORDER[str(tensor.dtype)], tensor.name))
    header: dict[str, Any] = {}
    if entries:
        header[METADATA] = _metadata(entries, sort=options["metadata_order"] == "sorted")
    at = 0
    for tensor in chosen:
        size = _size(tensor)
        if tensor.name in header:
            raise ContentError(f"safetensors: two tensors are called {tensor.name!r}")
        header[tensor.name] = _Entry(_word(tensor), tensor.shape, (at, at + size))
        at += size
    text = msgspec.json.encode(header)
    padding = b" " * (-(HEADER.size + len(text)) % align)
    length = len(text) + len(padding)
    if length > CAP:
        raise ContentError(f"safetensors: a header of {length} bytes is above the {CAP} that readers open")
    out = Plan()
    for piece in filter(None, (HEADER.pack(length=length), text, padding)):  # not joined: may be large
        out.put(piece)
    out.streams((tensor.payload for tensor in chosen if tensor.payload is not None), align=1)
    return out


class _Entry(msgspec.Struct, gc=False):
    """What the header says of a tensor."""

    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


def _word(tensor: Tensor) -> str:
    if not isinstance(tensor.dtype, DType) or tensor.dtype.name not in WORD_OF:
        raise ContentError(f"safetensors: tensor {tensor.name!r}: {tensor.dtype} is not a safetensors type")
    return WORD_OF[tensor.dtype.name]


def _size(tensor: Tensor) -> int:
    """Bytes of a tensor that the format can hold."""
    wrong = name_breach(tensor.name)
    if wrong:
        raise ContentError(f"safetensors: {wrong}")
    _word(tensor)
    assert isinstance(tensor.dtype, DType)
    if tensor.payload is None:
        raise ContentError(f"{_what(tensor)} is declared without data, which safetensors cannot say")
    product, dtype = 1, tensor.dtype
    for dim in tensor.shape:  # as the format's own library does: a 0 that comes too late does not help
        product *= dim
        if not 0 <= product < 1 << 64 or dim >= 1 << 64:
            raise ContentError(f"{_what(tensor)}: the dims do not multiply within 64 bits")
    if product * dtype.bits % 8:
        raise ContentError(f"{_what(tensor)} takes {product * dtype.bits} bits, not whole bytes")
    needed = product * dtype.bits // 8
    if tensor.payload.size != needed:
        raise ContentError(f"{_what(tensor)} takes {needed} bytes, not {tensor.nbytes}")
    return needed


def _what(tensor: Tensor) -> str:
    return f"safetensors: tensor {tensor.name!r}: {tensor.dtype}{list(tensor.shape)}"


def _metadata(entries: Sequence[Entry], *, sort: bool) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in sorted(entries, key=lambda entry: entry.key) if sort else entries:
        wrong = metadata_breach(entry.key, entry.value)
        if wrong:
            raise ContentError(f"safetensors: metadata {entry.key!r}: {wrong}")
        if entry.key in found:
            raise ContentError(f"safetensors: two metadata entries are called {entry.key!r}")
        found[entry.key] = entry.value
    return found


def name_breach(name: str) -> str | None:
    """Why a tensor cannot be called ``name``; None when it can."""
    if name == METADATA:
        return f"no tensor can be called {METADATA}"
    return text_breach("the tensor name", name)


def metadata_breach(key: str, value: object) -> str | None:
    """Why the entry cannot be stored; None when it can."""
    if not isinstance(value, str):
        return f"values are text, not {type(value).__name__}"
    return text_breach("the key", key) or text_breach("the value", value)


def text_breach(what: str, text: str) -> str | None:
    """Why ``text`` is not Unicode; None when it is."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return f"{what} {text!r} holds half of a surrogate pair, which is no text"
    return None
