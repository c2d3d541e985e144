"""Plans OINF files: the tables, then the metadata values, then the data and the quant parameters of each tensor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from holdall.binary.columns import place, sort_names
from holdall.binary.tables import build, build_rows
from holdall.errors import ContentError
from holdall.format.oinf import quant, values
from holdall.format.oinf.elements import can_break, check_while_read
from holdall.format.oinf.layout import (
    ALIGN,
    HAS_DATA,
    HAS_QUANT,
    HEADER,
    MAGIC,
    METADATA,
    SIZEVAR,
    TAG_OF,
    TENSOR,
    align_up,
)
from holdall.format.oinf.quant import QuantParams
from holdall.format.oinf.read import OinfNative
from holdall.format.refusals import refuse, refuse_repeats
from holdall.model.dtypes import DType
from holdall.model.gather import read_together
from holdall.model.metadata import Entry
from holdall.model.model import Model
from holdall.model.payload import Computed, InMemory, Payload
from holdall.model.tensor import Tensor
from holdall.sink.plan import Plan

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.model.table import TensorTable
    from holdall.source import Source

__all__ = ["plan"]

_U64 = 1 << 64
_BLOCK = 1 << 13  # names that are tested together


def plan(model: Model, options: Mapping[str, Any]) -> Plan:
    """Plan the OINF file that holds ``model``."""
    native = model.native if isinstance(model.native, OinfNative) else OinfNative()
    sizevars, entries, rows = _order_content(native, model, options["sort"])
    table = model.tensors
    params = dict(table.natives(QuantParams))
    version = _choose_version(options["version"], model, [table.names[row] for row in params])
    encoded = [values.encode(entry.key, entry.value, entry.kind) for entry in entries]
    quants = {row: quant.encode(found, table.names[row], table.forms()[row].shape) for row, found in params.items()}
    for row in table.forms().firsts:
        _check_form(table.tensor(row), options["bitsets"] == "write")

    sizevar_table = build(
        SIZEVAR, name=[name.encode() for name, _ in sizevars], value=[_check_sizevar(name, n) for name, n in sizevars]
    )
    offset_metadata = HEADER.size + len(sizevar_table)
    offset_tensors = offset_metadata + sum(_name_size(entry.key) + 24 for entry in entries)
    ranks = table.forms().column(lambda form: len(form.shape), np.int64)
    # Names are ASCII, so that their letters are their bytes.
    names = np.fromiter(map(_name_size, table.names), np.int64, len(rows))
    size = int((names + 8 * ranks).sum()) + (28 if version == 1 else 44) * len(rows)
    end = offset_tensors + size
    offset_data = align_up(end)

    cursor = offset_data
    value_offsets = []
    for _, payload in encoded:
        value_offsets.append(cursor)
        cursor += align_up(len(payload))
    metadata_table = build(
        METADATA,
        key=[entry.key.encode() for entry in entries],
        value_type=[tag for tag, _ in encoded],
        value_flags=[0] * len(entries),
        value_nbytes=[len(payload) for _, payload in encoded],
        value_offset=value_offsets,
    )
    data = _Data(table, rows, quants, cursor, checked=model.format != "oinf")  # its own bytes stay what they are

    out = Plan()
    out.put(
        HEADER.pack(
            magic=MAGIC,
            version=version,
            flags=0,
            n_sizevars=len(sizevars),
            n_metadata=len(entries),
            n_tensors=len(rows),
            reserved=0,
            offset_sizevars=HEADER.size,
            offset_metadata=offset_metadata,
            offset_tensors=offset_tensors,
            offset_data=offset_data,
            file_size=data.end,
            padding=bytes(3),
        )
    )
    out.put(sizevar_table + metadata_table)
    if size:
        out.stream(Computed(size, partial(_build_table, data, version)))
    out.align(ALIGN)
    for _, payload in encoded:
        out.put(payload)
        out.align(ALIGN)
    data.put(out)
    out.align(ALIGN)
    assert out.cursor == data.end
    return out


def _order_content(
    native: OinfNative, model: Model, sort: bool
) -> tuple[list[tuple[str, int]], list[Entry], NDArray[np.intp]]:
    """Return sizevars, metadata and the rows of tensors, sorted by name if ``sort``, after their names are checked."""
    sizevars = list(native.sizevars.items())
    entries = list(model.metadata.entries)
    tensors = model.tensors.names
    for name in chain(native.sizevars, (entry.key for entry in entries), tensors):
        if not isinstance(name, str):
            raise ContentError(f"oinf: names are text, not {type(name).__name__}")
    if sort:
        sizevars.sort()
        entries.sort(key=lambda entry: entry.key)
    for table, names in (
        ("sizevar", [name for name, _ in sizevars]),
        ("metadata key", [entry.key for entry in entries]),
        ("tensor", tensors),
    ):
        _check_names(table, names)
    if not sort:
        return sizevars, entries, np.arange(len(tensors), dtype=np.intp)
    # A field of a dataclass keeps its place when its tensor has another name.
    fields = native.fields
    return sizevars, entries, sort_names([fields.get(name, name) for name in tensors] if fields else tensors)


class _Data:
    """The payloads of tensors from ``start`` on: the data of each, and after it the quant parameters that it has.

    It is a table of two rows a tensor, of which the second is None for tensors without quant parameters.
    """

    def __init__(
        self, table: TensorTable, rows: NDArray[np.intp], quants: Mapping[int, bytes], start: int, *, checked: bool
    ) -> None:
        self.table, self.rows, self.quants = table, rows, quants
        self.forms = table.forms()
        self.checked = checked and any(can_break(form.dtype) for form in self.forms.kinds)
        sizes = self.forms.sizes()[rows]
        self.quant_sizes = np.zeros(len(rows), np.uint64)
        for at in np.isin(rows, list(quants)).nonzero()[0].tolist() if quants else ():
            self.quant_sizes[at] = len(quants[int(rows[at])])
        step = np.uint64(ALIGN)
        padded = (sizes + (step - np.uint64(1))) // step * step
        self.starts, self.end = place(padded + self.quant_sizes, start=start)
        self.quant_starts = self.starts + padded

    def put(self, out: Plan) -> None:
        """Put all payloads."""
        if not self.quants and not self.checked:
            out.run(self.table, self.rows, self.starts)
            return
        both = np.stack([self.starts, self.quant_starts], axis=1).reshape(-1)
        out.run(self, range(2 * len(self.rows)), both)

    def payload(self, row: int) -> Payload | None:
        """The payload in ``row``."""
        tensor = int(self.rows[row // 2])
        if row % 2 == 0:
            return self._find_data(tensor)
        return InMemory(self.quants[tensor]) if tensor in self.quants else None

    def read(self, rows: NDArray[np.intp]) -> Sequence[bytes | memoryview]:
        """The bytes of the payloads in ``rows``."""
        return read_together([self.payload(row) for row in rows.tolist()])

    def _find_data(self, row: int) -> Payload | None:
        payload, dtype = self.table.payload(row), self.forms[row].dtype
        if payload is None or not self.checked or not can_break(dtype):
            return payload
        assert isinstance(dtype, DType)
        return check_while_read(self.table.names[row], dtype, payload)

    def sources(self) -> Sequence[Source]:
        """The sources of the data."""
        return self.table.sources()


def _build_table(data: _Data, version: int) -> Iterator[bytes]:
    """Build the table of tensors, block by block."""
    forms, names = data.table.forms(), data.table.names
    tags = forms.table(lambda form: TAG_OF[str(form.dtype)], np.uint32)
    ranks = forms.table(lambda form: len(form.shape), np.uint32)
    sizes = forms.table(lambda form: form.size or 0, np.uint64)
    stored = forms.table(lambda form: HAS_DATA if form.size is not None else 0, np.uint32)

    def columns_of(start: int, stop: int) -> dict[str, Any]:
        rows = data.rows[start:stop]
        codes, quants = forms.codes[rows], data.quant_sizes[start:stop]
        columns = {
            "name": [names[row].encode() for row in rows.tolist()],
            "dtype": tags[codes],
            "ndim": ranks[codes],
            "flags": stored[codes] | np.where(quants > 0, HAS_QUANT, 0).astype(np.uint32),
            "dims": [forms.kinds[code].shape for code in codes.tolist()],
            "data_nbytes": sizes[codes],
            "data_offset": data.starts[start:stop] * (stored[codes] > 0),
        }
        if version == 2:
            columns |= {"quant_nbytes": quants, "quant_offset": data.quant_starts[start:stop] * (quants > 0)}
        return columns

    return build_rows(TENSOR[version], len(data.rows), columns_of)


def _check_form(tensor: Tensor, bitsets: bool) -> None:
    """Raise ContentError for a type, shape or size that OINF cannot hold."""
    dtype, shape = tensor.dtype, tensor.shape
    if not isinstance(dtype, DType) or dtype.name not in TAG_OF:
        raise ContentError(f"oinf: tensor {tensor.name!r}: {dtype} is not an OINF type")
    if dtype.kind == "bitset" and not bitsets:
        message = "readers disagree on bitset tensors; store u8, or write it with bitsets=write"
        raise ContentError(f"oinf: tensor {tensor.name!r}: {message}")
    if shape and not (min(shape) >= 0 and max(shape) < _U64):
        raise ContentError(f"oinf: tensor {tensor.name!r}: a dim of {list(shape)} does not fit u64")
    if tensor.payload is not None and tensor.payload.size != dtype.nbytes(shape):
        message = f"{dtype}{list(shape)} takes {dtype.nbytes(shape)} bytes, not {tensor.payload.size}"
        raise ContentError(f"oinf: tensor {tensor.name!r}: {message}")


def _choose_version(asked: str | int, model: Model, quantized: Sequence[str]) -> int:
    """Choose the version asked for; by default 1, or 2 for a model that is quantized or comes from a version 2 file."""
    if str(asked) == "auto":
        return 2 if quantized or (model.format == "oinf" and model.version == (2,)) else 1
    if str(asked) == "1" and quantized:
        raise ContentError(f"oinf: tensor {quantized[0]!r} has quant parameters, which version 1 cannot hold")
    return int(asked)


def _check_names(table: str, names: Sequence[str]) -> None:
    for start in range(0, len(names), _BLOCK):  # one test for many names; the message needs each alone
        block = [names[row] for row in range(start, min(start + _BLOCK, len(names)))]
        if not all(block) or values.name_breach("".join(block)):
            for name in block:
                refuse(f"oinf: {table}", values.name_breach(name))
    refuse_repeats("oinf", names, f"{table}s")


def _check_sizevar(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _U64:
        raise ContentError(f"oinf: sizevar {name!r}: {value!r} is not an integer in 0..2^64-1")
    return value


def _name_size(name: str) -> int:
    return align_up(4 + len(name))
