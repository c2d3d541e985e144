"""Writes safetensors: the header, then the tensors one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from holdall.base.buffer_sizes import buffer_size
from holdall.binary.columns import place, sort_names
from holdall.errors import ContentError
from holdall.format.refusals import check_entries, parse_number, refuse, refuse_names, refuse_repeats
from holdall.format.safetensors.layout import CAP, HEADER, METADATA, ORDER, WORD_OF
from holdall.model.dtypes import DType
from holdall.model.metadata import Entry
from holdall.model.model import Model
from holdall.model.payload import Computed
from holdall.model.tensor import Tensor
from holdall.sink.plan import Plan

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.model.table import TensorTable

__all__ = ["add_framework", "check_tensors", "metadata_breach", "name_breach", "plan", "plan_file", "text_breach"]

_BLOCK = buffer_size(1 << 13)  # entries that are encoded at a time
_ALIGNMENTS = tuple(1 << power for power in range(13))
_FOR_TORCH = ("torch", "hf", "gguf")  # formats whose models people load with PyTorch
_FRAMEWORK = Entry("format", "pt")  # transformers before version 5 refuses a file that does not name its framework


def plan(model: Model, options: Mapping[str, Any]) -> Plan:
    """Plan the safetensors file that holds ``model``."""
    if model.assets:
        raise ContentError(f"safetensors has no place for assets: {', '.join(model.assets)}")
    entries = model.metadata.entries
    check_tensors(model.tensors)
    rows = np.arange(len(model.tensors), dtype=np.intp)
    return plan_file(model.tensors, rows, add_framework(entries) if model.format in _FOR_TORCH else entries, options)


def add_framework(entries: Sequence[Entry]) -> Sequence[Entry]:
    """Append ``format: pt`` to ``entries``, unless they already have a ``format``.

    >>> add_framework([])
    [Entry(key='format', value='pt', kind='')]
    """
    return entries if any(entry.key == _FRAMEWORK.key for entry in entries) else [*entries, _FRAMEWORK]


def plan_file(table: TensorTable, rows: NDArray[np.intp], entries: Sequence[Entry], options: Mapping[str, Any]) -> Plan:
    """Plan one file of the ``rows`` of a table, which :func:`check_tensors` accepts, with ``entries`` as metadata."""
    align = parse_number(options["align"])
    if align not in _ALIGNMENTS:
        raise ContentError(f"safetensors: align is a power of two up to {_ALIGNMENTS[-1]}, not {options['align']!r}")
    forms = table.forms()
    if options["order"] == "sorted":
        rows = rows[sort_names([table.names[row] for row in rows.tolist()])]
        order = forms.table(lambda form: ORDER[str(form.dtype)], np.int64)
        rows = rows[np.argsort(order[forms.codes[rows]], kind="stable")]
    starts, _ = place(forms.sizes()[rows])
    known = {METADATA: _check_metadata(entries, sort=options["metadata_order"] == "sorted")} if entries else {}
    front = msgspec.json.encode(known)[:-1]
    make = partial(_encode_entries, table, rows, starts, b"," if known else b"")
    size = sum(map(len, make()))
    length = len(front) + size + 1
    padding = b" " * (-(HEADER.size + length) % align)
    if length + len(padding) > CAP:
        raise ContentError(
            f"safetensors: a header of {length + len(padding)} bytes is above the {CAP} that readers open"
        )
    out = Plan()
    out.put(HEADER.pack(length=length + len(padding)))
    out.put(front)
    if size:
        out.stream(Computed(size, make))
    out.put(b"}" + padding)
    out.run(table, rows, starts + np.uint64(out.cursor))
    return out


def _encode_entries(
    table: TensorTable, rows: NDArray[np.intp], starts: NDArray[np.uint64], before: bytes
) -> Iterator[bytes]:
    """Encode the entries of ``rows``, block by block; ``before`` is put before the first."""
    forms, names = table.forms(), table.names
    kinds = [(WORD_OF[str(form.dtype)], form.shape, form.size or 0) for form in forms.kinds]
    for start in range(0, len(rows), _BLOCK):
        block = rows[start : start + _BLOCK]
        entries: dict[str, _Entry] = {}
        places = starts[start : start + _BLOCK].tolist()
        for row, code, at in zip(block.tolist(), forms.codes[block].tolist(), places, strict=True):
            word, shape, size = kinds[code]
            entries[names[row]] = _Entry(word, shape, (at, at + size))
        yield before + msgspec.json.encode(entries)[1:-1]
        before = b","


class _Entry(msgspec.Struct, gc=False):
    """The entry of a tensor in the header."""

    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


def check_tensors(table: TensorTable) -> None:
    """Raise ContentError for a tensor that the format cannot hold."""
    refuse_names("safetensors", table.names, name_breach, CAP)
    refuse("safetensors", name_breach(METADATA) if METADATA in table.names else None)
    for row in table.forms().firsts:
        _check_form(table.tensor(row))
    refuse_repeats("safetensors", table.names)


def _check_form(tensor: Tensor) -> None:
    """Raise ContentError for a type, shape or size that the format cannot hold."""
    if not isinstance(tensor.dtype, DType) or tensor.dtype.name not in WORD_OF:
        raise ContentError(f"safetensors: tensor {tensor.name!r}: {tensor.dtype} is not a safetensors type")
    if tensor.payload is None:
        raise ContentError(f"{_describe(tensor)} is declared without data, which safetensors cannot say")
    product, dtype = 1, tensor.dtype
    for dim in tensor.shape:  # from the left, as the format's own library: a later 0 does not undo an overflow
        product *= dim
        if not 0 <= product < 1 << 64 or dim >= 1 << 64:
            raise ContentError(f"{_describe(tensor)}: the dims do not multiply within 64 bits")
    if product * dtype.bits % 8:
        raise ContentError(f"{_describe(tensor)} takes {product * dtype.bits} bits, not whole bytes")
    needed = product * dtype.bits // 8
    if tensor.payload.size != needed:
        raise ContentError(f"{_describe(tensor)} takes {needed} bytes, not {tensor.nbytes}")


def _describe(tensor: Tensor) -> str:
    return f"safetensors: tensor {tensor.name!r}: {tensor.dtype}{list(tensor.shape)}"


def _check_metadata(entries: Sequence[Entry], *, sort: bool) -> dict[str, str]:
    ordered = sorted(entries, key=lambda entry: entry.key) if sort else entries
    return check_entries("safetensors", ordered, metadata_breach)


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
