"""Writing PyTorch checkpoints: a flat dict as ``torch.save(state_dict)`` writes it, or nested as in the source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, cast
from zlib import crc32

import numpy as np

from holdall.binary.compression import compress, expand
from holdall.errors import ContentError
from holdall.format.refusals import check_payload, refuse, refuse_repeats
from holdall.format.torch.encode import Pickler, breach
from holdall.format.torch.layout import ALIGN, TYPE_OF
from holdall.format.torch.native import TorchNative
from holdall.format.torch.nesting import ATTRIBUTE, METADATA, Branch, Nesting, TensorSlot, arrange
from holdall.format.torch.pickle_objects import Ordered
from holdall.format.zip.writer import ZipPlan
from holdall.model.metadata import Entry
from holdall.model.model import Model
from holdall.model.payload import Computed, Payload
from holdall.model.strided import contiguous_strides
from holdall.model.tensor import Tensor
from holdall.sink.plan import Plan

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.model.table import TensorTable

__all__ = ["MAX_RANK", "metadata_breach", "name_breach", "plan"]

ROOT = "archive"
MAX_RANK = 64
_LARGE = 1 << 20  # bytes of a piece that is worth compressing
_QUICK = 1  # the level of compression of what is held in memory only


def plan(model: Model, options: Mapping[str, Any]) -> Plan:
    """Plan the zip checkpoint that holds ``model``."""
    if model.assets:
        raise ContentError(f"torch has no place for assets: {', '.join(model.assets)}")
    table = model.tensors
    for name in table.names:
        refuse("torch", name_breach(name))
    strides = [_check_form(table.tensor(row)) for row in table.forms().firsts]
    refuse_repeats("torch", table.names)
    keys, rows = _number_storages(table)
    content, notes = _arrange_content(table.names, model)
    archive = ZipPlan(ALIGN)
    pending, held = model.metadata.pending, _Held()
    pickler = Pickler() if pending else Pickler(held)
    _pickle_content(pickler, content, table, keys, strides)
    archive.add(f"{ROOT}/data.pkl", *pickler.finish(), pending=pending, crc=None if pending else held.crc)
    archive.add(f"{ROOT}/byteorder", b"little")
    archive.add_rows(table, rows, lambda number: f"{ROOT}/data/{number}", lambda row: b"")
    archive.add(f"{ROOT}/version", b"3\n")
    out = archive.finish()
    out.notes += notes
    return out


class _Held:
    """Holds large pieces compressed until they are written, since the opcodes of tensors repeat. Sums their CRC-32."""

    def __init__(self) -> None:
        self.crc = 0

    def __call__(self, piece: bytes) -> bytes | Payload:
        self.crc = crc32(piece, self.crc)
        if len(piece) < _LARGE:
            return piece
        return Computed(len(piece), partial(expand, [compress(piece, _QUICK)], len(piece)))


def _number_storages(table: TensorTable) -> tuple[Sequence[int], NDArray[np.intp]]:
    """The number of each tensor's storage, and for each storage the row of the first tensor in it.

    Tensors of one type that have the same payload share a storage.
    """
    count = len(table)
    hashes = np.fromiter((hash(table.identify(row)) for row in range(count)), np.int64, count)
    hashes.sort()
    if not (hashes[1:] == hashes[:-1]).any():  # all differ, and their keys need no memory
        return range(count), np.arange(count, dtype=np.intp)
    storages: dict[tuple[Any, ...], int] = {}
    keys: list[int] = []
    rows: list[int] = []
    for row, form in enumerate(table.forms()):
        key = storages.setdefault((table.identify(row), str(form.dtype)), len(rows))
        if key == len(rows):
            rows.append(row)
        keys.append(key)
    return keys, np.array(rows, np.intp)


class _FlatItems:
    """The tensors of a flat dict by name, made when they are asked for, and the ``values`` after them."""

    def __init__(self, names: Sequence[str], values: Mapping[str, Any]) -> None:
        self._names, self._values = names, values

    def items(self) -> Iterator[tuple[str, Any]]:
        """The names with the numbers of the tensors, and the keys of the values."""
        yield from ((name, TensorSlot(number)) for number, name in enumerate(self._names))
        yield from self._values.items()


def _arrange_content(names: Sequence[str], model: Model) -> tuple[Any, list[str]]:
    """Arrange the content of the pickle: nested as in the file that the model comes from, else flat. Adds notes."""
    for entry in model.metadata.entries:
        wrong = metadata_breach(entry.key, entry.value)
        refuse("torch", wrong and f"metadata {entry.key!r}: {wrong}")
    native = model.native if isinstance(model.native, TorchNative) else None
    notes = [] if native is None else native.notes
    if native is None and model.format == "torch" and len(model.sources) > 1:
        notes = ["several checkpoints become one flat dict of tensors, and their values an attribute of it"]
    nesting = Nesting((), flat=Ordered) if native is None or native.nesting is None else native.nesting
    if nesting.flat is not None:
        entries = [nesting.original(entry) for entry in model.metadata.entries]
        attributes = _collect_attributes(entries) if nesting.flat is Ordered else {}
        values = _collect_values(entries, names) if nesting.flat is not Ordered else {}
        return Branch(nesting.flat, items=cast(Any, _FlatItems(names, values)), attributes=attributes), notes
    content, more = arrange(nesting, names, model.metadata.entries)
    return content, notes + more


def _collect_values(entries: Sequence[Entry], names: Sequence[str]) -> dict[str, Any]:
    """Collect the values that stand beside the tensors of a plain dict, which has no attributes."""
    taken = set(names) if entries else set()
    values: dict[str, Any] = {}
    for entry in entries:
        if entry.key in taken or entry.key in values:
            raise ContentError(f"torch: two things would be called {entry.key!r}")
        values[entry.key] = entry.value
    return values


def _collect_attributes(entries: Sequence[Entry]) -> dict[str, Any]:
    """Collect the attributes of the dict: those that it had in its file, and METADATA with all other entries."""
    metadata: dict[str, Any] = {}
    attributes: dict[str, Any] = {}
    own = any(entry.kind != ATTRIBUTE for entry in entries)
    for entry in entries:
        home = attributes if entry.kind == ATTRIBUTE and not (own and entry.key == METADATA) else metadata
        if entry.key in home:
            raise ContentError(f"torch: two metadata entries are called {entry.key!r}")
        home[entry.key] = entry.value
    return {**attributes, **({METADATA: metadata} if metadata else {})}


def _pickle_content(
    pickler: Pickler, content: Any, table: TensorTable, keys: Sequence[int], strides: Sequence[tuple[int, ...]]
) -> None:
    forms, codes = table.forms().kinds, memoryview(cast(Any, table.forms().codes))
    dtypes = [str(form.dtype) for form in forms]
    counts = [prod(form.shape) if str(form.dtype) not in _UNTYPED else form.size or 0 for form in forms]

    def put(item: Any) -> None:
        if isinstance(item, TensorSlot):
            code = codes[item.number]
            pickler.put_tensor(str(keys[item.number]), dtypes[code], forms[code].shape, strides[code], counts[code])
        elif isinstance(item, Branch):
            pickler.put_container(item.kind, item.items.items(), put)
            if item.attributes:
                pickler.put_attributes(item.attributes)
        else:
            pickler.put_value(item)

    put(content)


_UNTYPED = frozenset(("f8_e4m3", "f8_e5m2", "f8_e4m3fnuz", "f8_e5m2fnuz", "f8_e8m0", "u64", "u32", "u16"))


def _check_form(tensor: Tensor) -> tuple[int, ...]:
    """Return the strides of a tensor; ContentError for a type, shape or size that torch cannot hold."""
    what = f"torch: tensor {tensor.name!r}: {tensor.dtype}{list(tensor.shape)}"
    if len(tensor.shape) > MAX_RANK or any(not 0 <= size < 1 << 63 for size in tensor.shape):
        raise ContentError(f"{what}: torch cannot hold this shape")
    steps = contiguous_strides(tensor.shape)
    if steps[:1] > (1 << 63,):
        raise ContentError(f"{what}: its strides do not fit 64 bits")
    check_payload("torch", tensor, "torch", TYPE_OF)
    return steps


def name_breach(name: str) -> str | None:
    """Why a tensor cannot be called ``name``; None when it can."""
    wrong = breach(name)
    return None if wrong is None else f"the tensor name: {wrong}"


def metadata_breach(key: str, value: Any) -> str | None:
    """Why the entry cannot be stored; None when it can."""
    return breach(key) or breach(value)
