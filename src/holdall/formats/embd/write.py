"""Writing EMBD, in either layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from holdall import kernels
from holdall.dtypes import DType
from holdall.errors import ContentError
from holdall.formats.embd import layout, sequential
from holdall.formats.embd.keys import NO_TIME, completed
from holdall.formats.embd.layout import (
    ALIGN,
    DTYPE_CODE,
    END_MAGIC,
    FOOTER,
    HEADER,
    MAGIC,
    METADATA,
    METADATA_HEAD,
    NO_TOKEN,
    SEQUENTIAL,
    SPECIAL,
    TENSOR,
    TOKEN,
    VOCAB_HEAD,
    VOCAB_SPECIAL,
)
from holdall.formats.embd.native import EmbdNative
from holdall.metadata import Entry
from holdall.model import Model
from holdall.payload import Payload
from holdall.plan import Plan, Results
from holdall.sink.digests import crc32_combine
from holdall.tensor import Tensor
from holdall.vocab import Vocab

__all__ = ["layout_of", "plan", "text_of"]

_U16 = (1 << 16) - 1
_U32 = (1 << 32) - 1


def plan(model: Model, options: Mapping[str, Any]) -> Plan:
    """The EMBD file that holds ``model``."""
    native = model.native if isinstance(model.native, EmbdNative) else EmbdNative()
    vocab = _vocab(model, options["vocab"])
    tensors = list(model.tensors)
    _check_names([tensor.name for tensor in tensors])
    if layout_of(model, options) == "sequential":
        return _sequential(tensors, vocab)
    same = native.layout == "spec"  # a sequential file says nothing of alignment and checksums
    aligned = (native.aligned if same else True) if options["align"] is None else bool(options["align"])
    summed = (native.checksums if same else True) if options["checksums"] is None else bool(options["checksums"])
    order, entries = _payload_order(tensors, native), _metadata(model, vocab, options)
    out = _spec(tensors, order, entries, vocab, aligned=aligned, summed=summed)
    if "created_at" not in model.metadata and any(entry == NO_TIME for entry in entries):
        out.notes.append(f"created_at is {NO_TIME.value}: no metadata and no SOURCE_DATE_EPOCH says otherwise")
    return out


def layout_of(model: Model, options: Mapping[str, Any]) -> str:
    """The layout to write: the one asked for, else that of the file the model came from while it can hold it."""
    if options["layout"] != "auto":
        return str(options["layout"])
    native = model.native
    return native.layout if isinstance(native, EmbdNative) and not model.metadata.entries else "spec"


# -- content ----------------------------------------------------------------------------------------------------------


def _vocab(model: Model, given: Any) -> Vocab | None:
    """The vocabulary to store: the one asked for, the model's own, or the ``vocab.txt`` that it carries."""
    if isinstance(given, str):
        raise ContentError("embd: vocab is a Vocab or a sequence of tokens, not a text")
    if given is not None:
        return given if isinstance(given, Vocab) else Vocab(given)
    facet = model.vocab
    if isinstance(facet, Vocab):
        return facet
    return Vocab.from_text(model.assets["vocab.txt"]) if "vocab.txt" in model.assets else None


def _metadata(model: Model, vocab: Vocab | None, options: Mapping[str, Any]) -> list[Entry]:
    entries = []
    for entry in model.metadata.entries:
        try:
            entries.append(Entry(entry.key, text_of(entry.value), "string"))
        except ContentError as error:
            raise ContentError(f"embd: metadata {entry.key!r}: {error}") from None
    config = model.config
    knows = isinstance(config, Mapping) and "hidden_size" in config
    if options["fill"] == "all" or (options["fill"] == "auto" and model.format != "embd" and knows):
        return completed(entries, config if knows else {}, vocab, model)
    return entries


def text_of(value: Any) -> str:
    """A metadata value as the text that is stored; numbers are decimal."""
    if isinstance(value, str):
        return value
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return str(int(value))
    raise ContentError(f"values are text, not {type(value).__name__}")


def _check_names(names: Sequence[str]) -> None:
    if len(set(names)) != len(names):
        seen: set[str] = set()
        for name in names:
            if name in seen:
                raise ContentError(f"embd: two tensors are called {name!r}")
            seen.add(name)


def _payload_order(tensors: list[Tensor], native: EmbdNative) -> list[Tensor]:
    """The order of the payloads: that of the file which the model came from, while it has the same tensors."""
    if native.payload_order is None or len(native.payload_order) != len(tensors):
        return tensors
    by_name = {tensor.name: tensor for tensor in tensors}
    found = [by_name.get(name) for name in native.payload_order]
    return tensors if None in found else [tensor for tensor in found if tensor is not None]


def _payload(tensor: Tensor) -> Payload:
    """The bytes of a tensor that both layouts can hold."""
    what = f"embd: tensor {tensor.name!r}"
    if tensor.payload is None:
        raise ContentError(f"{what} is declared without data")
    if not isinstance(tensor.dtype, DType) or tensor.dtype.name not in DTYPE_CODE:
        raise ContentError(f"{what}: {tensor.dtype} is not an EMBD type ({', '.join(DTYPE_CODE)})")
    if not tensor.shape:
        raise ContentError(f"{what} is a scalar; EMBD stores 1 to 4 dims: give it the shape [1]")
    if len(tensor.shape) > 4:
        raise ContentError(f"{what} has {len(tensor.shape)} dims; EMBD stores 1 to 4")
    if max(tensor.shape) > _U32:
        raise ContentError(f"{what}: a dim of {list(tensor.shape)} does not fit u32")
    needed = tensor.dtype.nbytes(tensor.shape)
    if tensor.nbytes != needed:
        raise ContentError(f"{what}: {tensor.dtype}{list(tensor.shape)} takes {needed} bytes, not {tensor.nbytes}")
    return tensor.payload


def _encoded(texts: Sequence[str], what: str, limit: int) -> list[bytes]:
    encoded = []
    for row, text in enumerate(texts):
        try:
            stored = text.encode()
        except UnicodeEncodeError:
            raise ContentError(f"embd: {what} {row}, {text!r}, cannot be written as UTF-8") from None
        if len(stored) > limit:
            raise ContentError(f"embd: {what} {row} takes {len(stored)} bytes; at most {limit} can be stored")
        encoded.append(stored)
    return encoded


# -- the layout of the document ---------------------------------------------------------------------------------------


def _spec(
    tensors: list[Tensor],
    order: list[Tensor],
    entries: list[Entry],
    vocab: Vocab | None,
    *,
    aligned: bool,
    summed: bool,
) -> Plan:
    step = ALIGN if aligned else 1
    payloads = {tensor.name: _payload(tensor) for tensor in tensors}
    places: dict[str, int] = {}
    data_size = 0
    for tensor in order:
        places[tensor.name] = data_size + -data_size % step
        data_size = places[tensor.name] + payloads[tensor.name].size
    metadata = _metadata_section(entries)
    vocab_at = HEADER.size + len(metadata)
    tokens = b"" if vocab is None else _vocab_section(vocab, vocab_at)
    index_at = vocab_at + len(tokens)
    index = _index_section(tensors, places)
    data_at = index_at + len(index)
    data_at += -data_at % step
    if data_at > _U32:
        raise ContentError(f"embd: metadata, vocabulary and index take {data_at} bytes; their offsets are 32 bits")
    flags = (layout.VOCAB if vocab is not None else 0) | (layout.ALIGNED if aligned else 0)
    fields: dict[str, Any] = {
        "magic": MAGIC,
        "version_major": 1,
        "version_minor": 0,
        "flags": flags | (layout.CHECKSUMS if summed else 0),
        "metadata_offset": HEADER.size,
        "metadata_size": len(metadata),
        "vocab_offset": 0 if vocab is None else vocab_at,
        "vocab_size": len(tokens),
        "tensor_index_offset": index_at,
        "tensor_index_count": len(tensors),
        "tensor_data_offset": data_at,
        "tensor_data_size": data_size,
        "total_file_size": data_at + data_size + FOOTER.size,
        "header_checksum": 0,
        "reserved": 0,
    }
    header = HEADER.pack(**fields)
    if summed:
        fields["header_checksum"] = _crc(header[: HEADER.offset_of("header_checksum")])
        header = HEADER.pack(**fields)

    out = Plan()
    head = header + metadata + tokens + index
    out.put(head + bytes(data_at - len(head)))
    for tensor in order:
        out.align(step)
        out.stream(payloads[tensor.name])
    assert out.cursor == data_at + data_size
    if not summed:
        out.put(_footer(0, 0))
        return out
    out.tap("head", "crc32", 0, data_at)
    out.tap("data", "crc32", data_at, data_at + data_size)

    def footer(results: Results) -> bytes:
        data: int = results["data"]
        return _footer(data, crc32_combine(results["head"], data, data_size))

    out.late("footer", FOOTER.size, ("head", "data"), footer)
    return out


def _footer(data_checksum: int, file_checksum: int) -> bytes:
    return FOOTER.pack(data_checksum=data_checksum, file_checksum=file_checksum, magic_end=END_MAGIC, reserved=0)


def _crc(data: bytes) -> int:
    from isal.isal_zlib import crc32

    value: int = crc32(data)
    return value


def _metadata_section(entries: list[Entry]) -> bytes:
    keys = _encoded([entry.key for entry in entries], "metadata key", _U16)
    values = _encoded([entry.value for entry in entries], "metadata value", _U16)
    stored = b"".join(
        METADATA.pack(key_length=len(key), value_length=len(value), key=key, value=value)
        for key, value in zip(keys, values, strict=True)
    )
    return METADATA_HEAD.pack(entry_count=len(entries), total_size=len(stored)) + stored


def _vocab_section(vocab: Vocab, start: int) -> bytes:
    stored = b"".join(TOKEN.pack(token=token) for token in _encoded(vocab.tokens, "token", _U16))
    head = VOCAB_HEAD.pack(token_count=len(vocab), total_size=len(stored), special_tokens=start + VOCAB_HEAD.size)
    ids = {f"{name}_id": vocab.special.get(name, NO_TOKEN) for name in SPECIAL}
    return head + VOCAB_SPECIAL.pack(**ids) + stored


def _index_section(tensors: list[Tensor], places: Mapping[str, int]) -> bytes:
    names = _encoded([tensor.name for tensor in tensors], "the name of tensor", _U16)
    lengths = np.array([len(name) for name in names], np.uint64)
    strings = b"".join(names)
    table = np.zeros(len(tensors), TENSOR.dtype)
    hashes = np.empty(len(tensors), np.uint32)
    kernels.fnv1a(strings, np.cumsum(lengths, dtype=np.uint64) - lengths, lengths, hashes)
    table["name_hash"] = hashes
    table["name_length"] = lengths
    table["dtype"] = [DTYPE_CODE[str(tensor.dtype)] for tensor in tensors]
    table["ndim"] = [len(tensor.shape) for tensor in tensors]
    table["data_offset"] = [places[tensor.name] for tensor in tensors]
    for axis in range(4):
        table[f"shape{axis}"] = [tensor.shape[axis] if axis < len(tensor.shape) else 0 for tensor in tensors]
    return table.tobytes() + strings


# -- the sequential layout --------------------------------------------------------------------------------------------


def _sequential(tensors: list[Tensor], vocab: Vocab | None) -> Plan:
    """Float32 tensors with their data inline; no metadata, no ids of special tokens."""
    names = _encoded([tensor.name for tensor in tensors], "the name of tensor", sequential.STRING_BYTES)
    tokens = _encoded(() if vocab is None else vocab.tokens, "token", sequential.STRING_BYTES)
    out = Plan()
    out.put(SEQUENTIAL.pack(magic=MAGIC, version=1, num_tensors=len(tensors)))
    for tensor, name in zip(tensors, names, strict=True):
        payload = _payload(tensor)
        if str(tensor.dtype) != "f32":
            raise ContentError(
                f"embd: tensor {tensor.name!r}: the sequential layout holds f32 only, not {tensor.dtype}"
            )
        out.put(layout.SEQ_TENSOR.pack(name=name, rank=len(tensor.shape), dims=tensor.shape, data=b""))
        out.stream(payload)
    out.put(len(tokens).to_bytes(4, "little") + b"".join(layout.SEQ_TOKEN.pack(token=token) for token in tokens))
    return out
