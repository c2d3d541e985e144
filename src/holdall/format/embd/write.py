"""Plans EMBD files in either layout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from holdall.base.buffer_sizes import buffer_size
from holdall.base.check import figure
from holdall.base.moments import NO_TIME
from holdall.binary import kernels
from holdall.binary.columns import place
from holdall.binary.crc32 import crc32_combine
from holdall.errors import ContentError
from holdall.format.embd import layout, sequential
from holdall.format.embd.keys import add_required_keys
from holdall.format.embd.layout import (
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
from holdall.format.embd.native import EmbdNative
from holdall.format.refusals import check_payload, parse_texts, refuse_repeats
from holdall.model.metadata import Entry
from holdall.model.model import Model
from holdall.model.payload import Computed, Payload
from holdall.model.tensor import Tensor
from holdall.model.vocab import Vocab
from holdall.sink.plan import Plan, Results

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.model.table import TensorTable

__all__ = ["layout_of", "plan"]

_BLOCK = buffer_size(1 << 13)  # entries that are made at a time

_U16 = (1 << 16) - 1
_U32 = (1 << 32) - 1


def plan(model: Model, options: Mapping[str, Any]) -> Plan:
    """Plan the EMBD file that holds ``model``."""
    native = model.native if isinstance(model.native, EmbdNative) else EmbdNative()
    vocab = _choose_vocab(model, options["vocab"])
    table = model.tensors
    refuse_repeats("embd", table.names)
    if layout_of(model, options) == "sequential":
        tensors = list(table)
        if options["layout"] == "sequential":  # a copy of a file that already is so stays as it is
            _refuse_for_loader(tensors, vocab)
        return _plan_sequential(tensors, vocab)
    same = native.layout == "spec"  # a sequential file has neither alignment nor checksums to keep
    aligned = (native.aligned if same else True) if options["align"] is None else bool(options["align"])
    checksums = (native.checksums if same else True) if options["checksums"] is None else bool(options["checksums"])
    order, entries = _order_payloads(table.names, native), _encode_metadata(model, vocab, options)
    out = _plan_indexed(table, order, entries, vocab, aligned=aligned, checksums=checksums)
    is_copy = model.format == "embd" and bool(model.version)
    if not is_copy and ("created_at", NO_TIME) in ((entry.key, entry.value) for entry in entries):
        out.notes.append(f"created_at is {NO_TIME}: no metadata and no SOURCE_DATE_EPOCH says otherwise")
    return out


def layout_of(model: Model, options: Mapping[str, Any]) -> str:
    """The layout asked for, or else that of the file the model came from, unless it now has metadata."""
    if options["layout"] != "auto":
        return str(options["layout"])
    native = model.native
    return native.layout if isinstance(native, EmbdNative) and not model.metadata.entries else "spec"


def _choose_vocab(model: Model, given: Any) -> Vocab | None:
    """Choose the vocabulary asked for, or else the one of the model, or the one in its asset ``vocab.txt``."""
    if isinstance(given, bytes):
        return Vocab.from_text(given)
    if isinstance(given, Vocab):
        return given
    if given is not None:
        tokens = None if isinstance(given, str) else parse_texts(given)
        if tokens is None:
            wrong = "a text" if isinstance(given, str) else f"{given!r:.80}"
            raise ContentError(
                f"embd: vocab is a Vocab, a sequence of tokens or @FILE on the command line, not {wrong}"
            )
        return Vocab(tokens)
    facet = model.vocab
    if isinstance(facet, Vocab):
        return facet
    return Vocab.from_text(model.assets["vocab.txt"]) if "vocab.txt" in model.assets else None


def _encode_metadata(model: Model, vocab: Vocab | None, options: Mapping[str, Any]) -> list[Entry]:
    entries = []
    for entry in model.metadata.entries:
        try:
            entries.append(Entry(entry.key, _to_text(entry.value), "string"))
        except ContentError as error:
            raise ContentError(f"embd: metadata {entry.key!r}: {error}") from None
    return add_required_keys(entries, vocab, model) if options["fill"] == "all" else entries


def _to_text(value: Any) -> str:
    """Return a metadata value as text, with numbers in decimal."""
    if isinstance(value, str):
        return value
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        try:
            return str(int(value))
        except ValueError:  # Python writes no more than some thousand digits
            raise ContentError(f"the number {figure(int(value))} is too long") from None
    raise ContentError(f"values are text, not {type(value).__name__}")


def _order_payloads(names: Sequence[str], native: EmbdNative) -> NDArray[np.intp]:
    """Return the rows in the order of payloads of the file the model came from, if it still has the same tensors."""
    given = np.arange(len(names), dtype=np.intp)
    if native.payload_order is None or len(native.payload_order) != len(names):
        return given
    by_name = {name: row for row, name in enumerate(names)}
    found = [by_name.get(name, -1) for name in native.payload_order]
    return given if -1 in found else np.array(found, np.intp)


def _check_payload(tensor: Tensor) -> Payload:
    """Return the payload of a tensor; raises ContentError for a tensor that neither layout can hold."""
    what = f"embd: tensor {tensor.name!r}"
    if not tensor.shape:
        raise ContentError(f"{what} is a scalar; EMBD stores 1 to 4 dims: give it the shape [1]")
    if len(tensor.shape) > 4:
        raise ContentError(f"{what} has {len(tensor.shape)} dims; EMBD stores 1 to 4")
    if max(tensor.shape) > _U32:
        raise ContentError(f"{what}: a dim of {list(tensor.shape)} does not fit u32")
    return check_payload("embd", tensor, "EMBD", DTYPE_CODE)


def _encode_texts(texts: Sequence[str], what: str, limit: int, first: int = 0) -> list[bytes]:
    encoded = []
    for row, text in enumerate(texts, first):
        try:
            stored = text.encode()
        except UnicodeEncodeError:
            raise ContentError(f"embd: {what} {row}, {text!r}, cannot be written as UTF-8") from None
        if len(stored) > limit:
            raise ContentError(f"embd: {what} {row} takes {len(stored)} bytes; at most {limit} can be stored")
        encoded.append(stored)
    return encoded


def _plan_indexed(
    table: TensorTable,
    order: NDArray[np.intp],
    entries: list[Entry],
    vocab: Vocab | None,
    *,
    aligned: bool,
    checksums: bool,
) -> Plan:
    step = ALIGN if aligned else 1
    for row in table.forms().firsts:
        _check_payload(table.tensor(row))
    sizes = table.forms().sizes()[order]
    starts, _ = place(sizes, step)
    data_size = int(starts[-1] + sizes[-1]) if len(starts) else 0
    metadata = _build_metadata(entries)
    vocab_at = HEADER.size + len(metadata)
    tokens = b"" if vocab is None else _build_vocab(vocab, vocab_at)
    index_at = vocab_at + len(tokens)
    index_size = _measure_index(table)
    data_at = index_at + index_size
    data_at += -data_at % step
    if data_at > _U32:
        raise ContentError(f"embd: metadata, vocabulary and index take {data_at} bytes; their offsets are 32 bits")
    flags = (layout.VOCAB if vocab is not None else 0) | (layout.ALIGNED if aligned else 0)
    fields: dict[str, Any] = {
        "magic": MAGIC,
        "version_major": 1,
        "version_minor": 0,
        "flags": flags | (layout.CHECKSUMS if checksums else 0),
        "metadata_offset": HEADER.size,
        "metadata_size": len(metadata),
        "vocab_offset": 0 if vocab is None else vocab_at,
        "vocab_size": len(tokens),
        "tensor_index_offset": index_at,
        "tensor_index_count": len(table),
        "tensor_data_offset": data_at,
        "tensor_data_size": data_size,
        "total_file_size": data_at + data_size + FOOTER.size,
        "header_checksum": 0,
        "reserved": 0,
    }
    if checksums:
        fields["header_checksum"] = _compute_crc(HEADER.pack(**fields)[: HEADER.offset_of("header_checksum")])
    out = Plan()
    out.put(HEADER.pack(**fields) + metadata + tokens)
    places = np.empty(len(starts), np.uint64)
    places[order] = starts
    if index_size:
        out.stream(Computed(index_size, partial(_build_index, table, places)))
    out.cursor = data_at
    out.run(table, order, starts + np.uint64(data_at))
    assert out.cursor == data_at + data_size
    if checksums:
        _add_footer(out, data_at, data_size)
    else:
        out.put(_pack_footer(0, 0))
    return out


def _add_footer(out: Plan, data_at: int, data_size: int) -> None:
    """Add the footer with the checksums of the data and of the file, which are known after writing."""
    out.tap("head", "crc32", 0, data_at)
    out.tap("data", "crc32", data_at, data_at + data_size)

    def footer(results: Results) -> bytes:
        data: int = results["data"]
        return _pack_footer(data, crc32_combine(results["head"], data, data_size))

    out.late("footer", FOOTER.size, ("head", "data"), footer)


def _pack_footer(data_checksum: int, file_checksum: int) -> bytes:
    return FOOTER.pack(data_checksum=data_checksum, file_checksum=file_checksum, magic_end=END_MAGIC, reserved=0)


def _compute_crc(data: bytes) -> int:
    from isal.isal_zlib import crc32

    value: int = crc32(data)
    return value


def _build_metadata(entries: list[Entry]) -> bytes:
    keys = _encode_texts([entry.key for entry in entries], "metadata key", _U16)
    values = _encode_texts([entry.value for entry in entries], "metadata value", _U16)
    stored = b"".join(
        METADATA.pack(key_length=len(key), value_length=len(value), key=key, value=value)
        for key, value in zip(keys, values, strict=True)
    )
    return METADATA_HEAD.pack(entry_count=len(entries), total_size=len(stored)) + stored


def _build_vocab(vocab: Vocab, start: int) -> bytes:
    stored = b"".join(TOKEN.pack(token=token) for token in _encode_texts(vocab.tokens, "token", _U16))
    head = VOCAB_HEAD.pack(token_count=len(vocab), total_size=len(stored), special_tokens=start + VOCAB_HEAD.size)
    ids = {f"{name}_id": vocab.special.get(name, NO_TOKEN) for name in SPECIAL}
    return head + VOCAB_SPECIAL.pack(**ids) + stored


def _measure_index(table: TensorTable) -> int:
    """Measure the index; ContentError for a name that it cannot hold."""
    size = TENSOR.size * len(table)
    for start in range(0, len(table), _BLOCK):
        size += sum(map(len, _encode_names(table, start)))
    return size


def _encode_names(table: TensorTable, start: int) -> list[bytes]:
    """Encode the names of a block of tensors."""
    names = [table.names[row] for row in range(start, min(start + _BLOCK, len(table)))]
    return _encode_texts(names, "the name of tensor", _U16, start)


def _build_index(table: TensorTable, places: NDArray[np.uint64]) -> Iterator[bytes]:
    """Build the index block by block: the records, then the names."""
    forms = table.forms()
    dtypes = forms.table(lambda form: DTYPE_CODE[str(form.dtype)], np.uint8)
    ranks = forms.table(lambda form: len(form.shape), np.uint8)
    shapes = np.array([[*form.shape, 0, 0, 0, 0][:4] for form in forms.kinds], np.uint64)
    for start in range(0, len(table), _BLOCK):
        names, codes = _encode_names(table, start), forms.codes[start : start + _BLOCK]
        lengths = np.array([len(name) for name in names], np.uint64)
        records = np.zeros(len(names), TENSOR.dtype)
        hashes = np.empty(len(names), np.uint32)
        kernels.fnv1a(b"".join(names), np.cumsum(lengths, dtype=np.uint64) - lengths, lengths, hashes)
        records["name_hash"] = hashes
        records["name_length"] = lengths
        records["dtype"], records["ndim"] = dtypes[codes], ranks[codes]
        records["data_offset"] = places[start : start + _BLOCK]
        for axis in range(4):
            records[f"shape{axis}"] = shapes[codes, axis]
        yield records.tobytes()
    for start in range(0, len(table), _BLOCK):
        yield b"".join(_encode_names(table, start))


def _refuse_for_loader(tensors: list[Tensor], vocab: Vocab | None) -> None:
    """Raise ContentError for a file that the C++ loader refuses: only that program reads the sequential layout."""
    empty = next((tensor for tensor in tensors if 0 in tensor.shape), None)
    if empty is not None:
        wrong = f"tensor {empty.name!r} has a dim of 0, {list(empty.shape)}"
    elif vocab is not None and len(vocab) > sequential.LOADER_TOKENS:
        wrong = f"the vocabulary has {len(vocab)} tokens, more than {sequential.LOADER_TOKENS}"
    else:
        return
    raise ContentError(f"embd: {wrong}: the loader of the sequential layout refuses such a file; layout=spec holds it")


def _plan_sequential(tensors: list[Tensor], vocab: Vocab | None) -> Plan:
    """Plan the sequential layout, which has f32 tensors and tokens, but no metadata and no ids of special tokens."""
    names = _encode_texts([tensor.name for tensor in tensors], "the name of tensor", sequential.STRING_BYTES)
    tokens = _encode_texts(() if vocab is None else vocab.tokens, "token", sequential.STRING_BYTES)
    out = Plan()
    out.put(SEQUENTIAL.pack(magic=MAGIC, version=1, num_tensors=len(tensors)))
    for tensor, name in zip(tensors, names, strict=True):
        payload = _check_payload(tensor)
        if str(tensor.dtype) != "f32":
            raise ContentError(
                f"embd: tensor {tensor.name!r}: the sequential layout holds f32 only, not {tensor.dtype}"
            )
        out.put(layout.SEQ_TENSOR.pack(name=name, rank=len(tensor.shape), dims=tensor.shape, data=b""))
        out.stream(payload)
    out.put(len(tokens).to_bytes(4, "little") + b"".join(layout.SEQ_TOKEN.pack(token=token) for token in tokens))
    return out
