"""Writing GGUF, version 3: header, metadata, tensor table, and the payloads on multiples of the alignment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from holdall.base.utf8 import utf8_breach
from holdall.binary.columns import measure_names, place
from holdall.binary.tables import build_rows
from holdall.errors import ContentError
from holdall.format.gguf.encode import encode, entry_breach
from holdall.format.gguf.layout import ALIGNMENT, DEFAULT_ALIGNMENT, HEADER, MAGIC, MAX_DIMS, MAX_NAME, TENSOR
from holdall.format.gguf.read import GgufNative
from holdall.format.gguf.splits import COUNT, KEYS, NUMBER, TENSORS
from holdall.format.gguf.tensor_table import TYPE_OF, TYPES
from holdall.format.gguf.unknown_types import check_ids, check_padding, find_unknown_id
from holdall.format.refusals import check_payload, parse_number, refuse, refuse_names, refuse_repeats
from holdall.model.ggml import Blocks
from holdall.model.metadata import Entry
from holdall.model.model import Model
from holdall.model.payload import Computed
from holdall.model.tensor import Tensor
from holdall.sink.plan import Plan

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.model.forms import Form
    from holdall.model.table import TensorTable

__all__ = ["metadata_breach", "name_breach", "plan"]

VERSION = 3
_UNASKED = 1 << 16  # the largest alignment taken from metadata: a larger one has to be an option
_MAX_ALIGNMENT = 1 << 31  # the largest power of two that the key can state


def plan(model: Model, options: Mapping[str, Any]) -> Plan:
    """Plan the GGUF file that holds ``model``."""
    if model.assets:
        raise ContentError(f"gguf has no place for assets: {', '.join(model.assets)}")
    entries = _collect_entries(model, options["alignment"])
    alignment = next((entry.value for entry in entries if entry.key == ALIGNMENT), DEFAULT_ALIGNMENT)
    table = model.tensors
    refuse_repeats("gguf", table.names)
    refuse_repeats("gguf", [entry.key for entry in entries], "metadata entries")
    refuse_names("gguf", table.names, name_breach, MAX_NAME)
    for row in table.forms().firsts:
        _check_form(table.tensor(row))
    check_ids(table, TYPES)
    check_padding(table, alignment)
    starts, end = place(table.forms().sizes(), alignment)
    out = Plan()
    out.put(HEADER.pack(magic=MAGIC, version=VERSION, n_tensors=len(table), n_kv=len(entries)))
    # Entries are put one by one, so that a vocabulary of many megabytes is not copied once more.
    for entry in entries:
        out.put(encode(entry.key, entry.value, entry.kind))
    ranks = table.forms().column(lambda form: len(form.shape), np.uint64)
    size = int(measure_names(table.names).sum() + np.uint64(8) * ranks.sum()) + TENSOR.min_size * len(table)
    if size:
        out.stream(Computed(size, partial(_build_table, table, starts)))
    data = out.align(alignment)
    out.run(table, range(len(table)), starts + np.uint64(data))
    last = table.tensor(len(table) - 1).dtype if len(table) else None
    if last is None or find_unknown_id(last) is None:  # padding would belong to such a tensor, which ends with the file
        out.align(alignment)
        assert out.cursor == data + end
    if model.format == "gguf" and model.version not in ((), (VERSION,)):
        out.notes.append(f"was of GGUF version {model.version[0]}: written as version {VERSION}")
    return out


def _build_table(table: TensorTable, starts: NDArray[np.uint64]) -> Iterator[bytes]:
    """Build the table of tensors, block by block."""
    forms, names = table.forms(), table.names
    types = forms.table(_type_id, np.uint32)
    ranks = forms.table(lambda form: len(form.shape), np.uint32)
    dims = [form.shape[::-1] for form in forms.kinds]

    def columns_of(start: int, stop: int) -> dict[str, Any]:
        codes = forms.codes[start:stop]
        return {
            "name": [names[row].encode() for row in range(start, stop)],
            "n_dims": ranks[codes],
            "dims": [dims[code] for code in codes.tolist()],
            "type": types[codes],
            "offset": starts[start:stop],
        }

    return build_rows(TENSOR, len(table), columns_of)


def _type_id(form: Form) -> int:
    unknown = find_unknown_id(form.dtype)
    return TYPE_OF[str(form.dtype)] if unknown is None else unknown


def _collect_entries(model: Model, asked: str | int) -> list[Entry]:
    """Collect the metadata, with the alignment ``asked`` for, and with the split.* entries of a part."""
    entries = list(model.metadata.entries)
    native = model.native if isinstance(model.native, GgufNative) else GgufNative()
    if native.part is not None:
        number, count, tensors = native.part
        kept = [entry for entry in entries if entry.key not in KEYS] if number == 0 else []
        kept += [Entry(NUMBER, number, "u16"), Entry(COUNT, count, "u16"), Entry(TENSORS, tensors, "i32")]
        stated = next((entry for entry in entries if entry.key == ALIGNMENT), None)
        entries = kept if number == 0 or stated is None else [stated, *kept]
    for entry in entries if native.part is None else ():
        refuse("gguf", _reserved_breach(entry.key, entry.value))
    if str(asked) == "auto":
        stated = next((entry for entry in entries if entry.key == ALIGNMENT), None)
        if stated is not None and stated.value > _UNASKED:
            # Three small tensors would become gigabytes.
            raise ContentError(
                f"gguf: {ALIGNMENT} is {stated.value}: ask for it by the option alignment, if it is meant"
            )
        return [Entry(ALIGNMENT, entry.value, "u32") if entry.key == ALIGNMENT else entry for entry in entries]
    alignment = parse_number(asked)
    refuse("gguf", _alignment_breach(alignment))
    stated = Entry(ALIGNMENT, alignment, "u32")
    if any(entry.key == ALIGNMENT for entry in entries):
        return [stated if entry.key == ALIGNMENT else entry for entry in entries]
    return entries if alignment == DEFAULT_ALIGNMENT else [*entries, stated]


def _alignment_breach(value: Any) -> str | None:
    if type(value) is int and 8 <= value <= _MAX_ALIGNMENT and not value & (value - 1):
        return None
    return f"the alignment is a power of two from 8 to 2^31, not {value!r}"


def _reserved_breach(key: str, value: Any) -> str | None:
    """Why an entry about the file itself, its alignment or its parts, cannot be written; None when it can."""
    if key == ALIGNMENT:
        return _alignment_breach(value)
    if key == COUNT and not (type(value) is int and 0 <= value <= 1):
        return f"{COUNT} {value!r} would make the file a part of several"
    return None


def metadata_breach(key: str, value: Any) -> str | None:
    """Why the entry cannot be stored; None when it can."""
    return _reserved_breach(key, value) or entry_breach(key, value)


def name_breach(name: str) -> str | None:
    """Why a tensor cannot be called ``name``; None when it can."""
    wrong = utf8_breach(name)
    if wrong:
        return f"the name {wrong}"
    size = len(name.encode())
    if not size:
        return "a tensor's name is empty"
    if size > MAX_NAME:
        return f"the name {name!r} has {size} bytes, and ggml reads at most {MAX_NAME}"
    return f"the name {name!r} holds a NUL, at which ggml ends it" if "\0" in name else None


def _check_form(tensor: Tensor) -> None:
    """Raise ContentError for a type, shape or size that GGUF cannot hold."""
    dtype, shape = tensor.dtype, tensor.shape
    if len(shape) > MAX_DIMS:
        raise ContentError(f"{_what(tensor)} has {len(shape)} dimensions, more than {MAX_DIMS}")
    if any(not 0 <= dim < 1 << 63 for dim in shape):
        raise ContentError(f"{_what(tensor)}: a dimension does not fit 63 bits")
    if isinstance(dtype, Blocks) and (shape[-1] if shape else 1) % dtype.elements:
        raise ContentError(f"{_what(tensor)}: rows are not whole blocks of {dtype.elements} elements")
    check_payload("gguf", tensor, "ggml", TYPE_OF if find_unknown_id(dtype) is None else [str(dtype)])


def _what(tensor: Tensor) -> str:
    return f"gguf: tensor {tensor.name!r}: {tensor.dtype}{list(tensor.shape)}"
