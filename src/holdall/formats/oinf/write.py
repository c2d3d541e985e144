"""Writing OINF: tables first, then metadata payloads, then each tensor's data and quant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from holdall.dtypes import DType
from holdall.errors import ContentError
from holdall.formats.oinf import quant, values
from holdall.formats.oinf.layout import (
    ALIGN,
    HAS_DATA,
    HAS_QUANT,
    HEADER,
    MAGIC,
    METADATA,
    SIZEVAR,
    TAG_OF,
    TENSOR,
)
from holdall.formats.oinf.quant import QuantParams
from holdall.formats.oinf.read import OinfNative
from holdall.model import Model
from holdall.payload import Held, Payload
from holdall.plan import Plan
from holdall.tables import build
from holdall.tensor import Tensor

__all__ = ["plan"]

_U64 = 1 << 64


def plan(model: Model, options: Mapping[str, Any]) -> Plan:
    """The OINF file that holds ``model``."""
    native = model.native if isinstance(model.native, OinfNative) else OinfNative()
    sizevars = list(native.sizevars.items())
    entries = list(model.metadata.entries)
    tensors = list(model.tensors)
    for name in (*native.sizevars, *(entry.key for entry in entries), *(tensor.name for tensor in tensors)):
        if not isinstance(name, str):
            raise ContentError(f"oinf: names are text, not {type(name).__name__}")
    if options["sort"]:
        sizevars.sort()
        entries.sort(key=lambda entry: entry.key)
        tensors.sort(key=lambda tensor: tensor.name)
    for table, names in (
        ("sizevar", [name for name, _ in sizevars]),
        ("metadata entry", [entry.key for entry in entries]),
        ("tensor", [tensor.name for tensor in tensors]),
    ):
        _check_names(table, names)
    version = _version(options["version"], model, tensors)
    encoded = [values.encode(entry.key, entry.value, entry.kind) for entry in entries]
    quants = [_quant_payload(tensor) for tensor in tensors]

    sizevar_table = build(
        SIZEVAR, name=[name.encode() for name, _ in sizevars], value=[_sizevar(name, n) for name, n in sizevars]
    )
    offset_metadata = HEADER.size + len(sizevar_table)
    offset_tensors = offset_metadata + sum(_string_size(entry.key) + 24 for entry in entries)
    tail = 28 if version == 1 else 44
    end = offset_tensors + sum(_string_size(t.name) + tail + 8 * len(t.shape) for t in tensors)
    offset_data = end + -end % ALIGN

    cursor = offset_data
    value_offsets = []
    for _, payload in encoded:
        value_offsets.append(cursor)
        cursor += len(payload) + -len(payload) % ALIGN
    metadata_table = build(
        METADATA,
        key=[entry.key.encode() for entry in entries],
        value_type=[tag for tag, _ in encoded],
        value_flags=[0] * len(entries),
        value_nbytes=[len(payload) for _, payload in encoded],
        value_offset=value_offsets,
    )
    tensor_table, cursor = _tensor_table(tensors, quants, version, cursor)

    out = Plan()
    out.put(
        HEADER.pack(
            magic=MAGIC,
            version=version,
            flags=0,
            n_sizevars=len(sizevars),
            n_metadata=len(entries),
            n_tensors=len(tensors),
            reserved=0,
            offset_sizevars=HEADER.size,
            offset_metadata=offset_metadata,
            offset_tensors=offset_tensors,
            offset_data=offset_data,
            file_size=cursor,
            padding=bytes(3),
        )
    )
    out.put(sizevar_table + metadata_table + tensor_table)
    out.align(ALIGN)
    for _, payload in encoded:
        out.put(payload)
        out.align(ALIGN)
    out.streams(_payloads(tensors, quants), ALIGN)
    assert out.cursor == cursor
    return out


def _tensor_table(tensors: Sequence[Tensor], quants: Sequence[bytes], version: int, cursor: int) -> tuple[bytes, int]:
    """The table of ``tensors`` whose payloads lie from ``cursor`` on, and the cursor after them."""
    flags, sizes, offsets, quant_offsets = [], [], [], []
    for tensor, quant_payload in zip(tensors, quants, strict=True):
        payload = tensor.payload
        size = 0 if payload is None else payload.size
        offsets.append(0 if payload is None else cursor)
        sizes.append(size)
        cursor += size + -size % ALIGN
        quant_offsets.append(cursor if quant_payload else 0)
        cursor += len(quant_payload)
        flags.append((HAS_DATA if payload is not None else 0) | (HAS_QUANT if quant_payload else 0))
    quant_columns = {"quant_nbytes": list(map(len, quants)), "quant_offset": quant_offsets} if version == 2 else {}
    table = build(
        TENSOR[version],
        name=[tensor.name.encode() for tensor in tensors],
        dtype=list(map(_tag, tensors)),
        ndim=[len(tensor.shape) for tensor in tensors],
        flags=flags,
        dims=[tensor.shape for tensor in tensors],
        data_nbytes=sizes,
        data_offset=offsets,
        **quant_columns,
    )
    return table, cursor


def _payloads(tensors: Sequence[Tensor], quants: Sequence[bytes]) -> Iterator[Payload]:
    """What follows in the data section: the data of a tensor, then its quant."""
    for tensor, quant_payload in zip(tensors, quants, strict=True):
        if tensor.payload is not None:
            yield tensor.payload
        if quant_payload:
            yield Held(quant_payload)


def _tag(tensor: Tensor) -> int:
    """The tag of the tensor's dtype, once it is certain that OINF can hold the tensor."""
    dtype, shape = tensor.dtype, tensor.shape
    if not isinstance(dtype, DType) or dtype.name not in TAG_OF:
        raise ContentError(f"oinf: tensor {tensor.name!r}: {dtype} is not an OINF type")
    if dtype.kind == "bitset":
        raise ContentError(f"oinf: tensor {tensor.name!r}: readers disagree on bitset tensors; store u8")
    if shape and not (min(shape) >= 0 and max(shape) < _U64):
        raise ContentError(f"oinf: tensor {tensor.name!r}: a dim of {list(shape)} does not fit u64")
    if tensor.payload is not None and tensor.payload.size != dtype.nbytes(shape):
        message = f"{dtype}{list(shape)} takes {dtype.nbytes(shape)} bytes, not {tensor.payload.size}"
        raise ContentError(f"oinf: tensor {tensor.name!r}: {message}")
    return TAG_OF[dtype.name]


def _version(asked: str | int, model: Model, tensors: list[Tensor]) -> int:
    """1 unless asked otherwise, or quantized, or read from a version 2 file."""
    quantized = next((t.name for t in tensors if isinstance(t.native, QuantParams)), None)
    if str(asked) == "auto":
        return 2 if quantized is not None or (model.format == "oinf" and model.version == (2,)) else 1
    if str(asked) == "1" and quantized is not None:
        raise ContentError(f"oinf: tensor {quantized!r} has quant parameters, which version 1 cannot hold")
    return int(asked)


def _quant_payload(tensor: Tensor) -> bytes:
    if not isinstance(tensor.native, QuantParams):
        return b""
    return quant.encode(tensor.native, tensor.name, tensor.shape)


def _check_names(table: str, names: list[str]) -> None:
    if not all(names) or values.name_breach("".join(names)):  # all at once; one by one only to say which
        wrong = next(filter(None, map(values.name_breach, names)), "")
        if wrong:
            raise ContentError(f"oinf: {table}: {wrong}")
    if len(set(names)) != len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise ContentError(f"oinf: two {table} names are {twice!r}")


def _sizevar(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _U64:
        raise ContentError(f"oinf: sizevar {name!r}: {value!r} is not an integer in 0..2^64-1")
    return value


def _string_size(name: str) -> int:
    size = 4 + len(name)
    return size + -size % ALIGN
