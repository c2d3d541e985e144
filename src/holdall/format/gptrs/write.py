"""Plans GPTRSCHK and GPTRSTEN files of version 2: tensors sorted by name, payloads aligned to 64 or packed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from holdall.base.text import plural
from holdall.binary.columns import measure_names, place, sort_names
from holdall.binary.documents.json import decode
from holdall.binary.layout import Layout
from holdall.binary.tables import build_rows
from holdall.errors import ContentError
from holdall.format.gptrs import config
from holdall.format.gptrs.layout import (
    ARCHIVE_ENTRY,
    ARCHIVE_MAGIC,
    CHECKPOINT_ENTRY,
    CHECKPOINT_MAGIC,
    CONFIG_LENGTH,
    COUNT,
    DTYPE_TAG,
    HEADER,
    INDEX_LENGTH,
    MEMBERS,
    NEW_DTYPES,
)
from holdall.format.gptrs.native import GptrsNative, GptrsTensor
from holdall.format.refusals import check_payload, parse_texts, refuse, refuse_names, refuse_repeats
from holdall.model import identity
from holdall.model.model import Model
from holdall.model.payload import Computed
from holdall.model.tensor import Tensor
from holdall.sink.plan import Plan

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.model.forms import Form
    from holdall.model.table import TensorTable

__all__ = ["choose_config", "name_breach", "plan"]

_U32 = (1 << 32) - 1
_U64 = (1 << 64) - 1


def plan(model: Model, options: Mapping[str, Any], *, checkpoint: bool) -> Plan:
    """Plan the file that holds ``model``."""
    step = int(options["align"])
    table = model.tensors
    _check_names(table.names, checkpoint)
    if model.metadata and not checkpoint:
        refuse("gptrs", f"an archive has no place for metadata, such as {next(iter(model.metadata))!r}")
    for row in table.forms().firsts:
        _check_form(table.tensor(row))
    rows = sort_names(table.names)
    flags = _choose_flags(table, options["requires_grad"])
    head = HEADER.pack(magic=CHECKPOINT_MAGIC if checkpoint else ARCHIVE_MAGIC, version=2)
    if checkpoint:
        stored = choose_config(model, options["config"])
        head += CONFIG_LENGTH.pack(config_len=_check_length(len(stored), "the configuration")) + stored
    layout = CHECKPOINT_ENTRY if checkpoint else ARCHIVE_ENTRY
    shape_of = _vector_shape if options["scalars"] == "as-vector" else _shape
    ranks = table.forms().column(lambda form: len(shape_of(form)), np.uint64)
    size = int(measure_names(table.names).sum() + np.uint64(8) * ranks.sum()) + layout.min_size * len(table)
    cursor = len(head) + INDEX_LENGTH.size + _check_length(COUNT.size + size, "the index")
    starts, _ = place(table.forms().sizes()[rows], step, cursor + -cursor % step)
    out = Plan()
    out.notes += _list_notes(table, rows, options["scalars"])
    if options["requires_grad"] is not None:
        out.notes += _list_marks(table, rows, flags)
    out.put(head + INDEX_LENGTH.pack(index_len=COUNT.size + size) + COUNT.pack(tensor_count=len(table)))
    if size:
        ids = checkpoint and bool(options["ids"])
        out.stream(Computed(size, partial(_build_index, layout, table, rows, starts, flags, shape_of, ids)))
    out.run(table, rows, starts)
    return out


def _shape(form: Form) -> tuple[int, ...]:
    return form.shape


def _vector_shape(form: Form) -> tuple[int, ...]:
    return form.shape or (1,)


def _build_index(
    layout: Layout,
    table: TensorTable,
    rows: NDArray[np.intp],
    starts: NDArray[np.uint64],
    flags: NDArray[np.uint8],
    shape_of: Callable[[Form], tuple[int, ...]],
    ids: bool,
) -> Iterator[bytes]:
    """Build the entries of ``rows``, block by block. Without ``ids`` the ids of a checkpoint are 0."""
    forms = table.forms()
    tags = forms.table(lambda form: DTYPE_TAG[str(form.dtype)], np.uint32)
    shapes = list(map(shape_of, forms.kinds))
    ranks = np.array(list(map(len, shapes)), np.uint32)
    sizes = forms.table(lambda form: form.size or 0, np.uint64)

    def columns_of(start: int, stop: int) -> dict[str, Any]:
        chosen = rows[start:stop]
        names, codes = [table.names[row] for row in chosen.tolist()], forms.codes[chosen]
        columns = {
            "name": [name.encode() for name in names],
            "rank": ranks[codes],
            "dims": [shapes[code] for code in codes.tolist()],
            "dtype": tags[codes],
            "flag": flags[chosen],
            "offset": starts[start:stop],
            "byte_len": sizes[codes],
        }
        if "id_low" in layout.fields:
            base = identity.base_ids(names) if ids else [0] * len(names)
            columns |= {"id_low": [id & _U64 for id in base], "id_high": [id >> 64 for id in base]}
        return columns

    return build_rows(layout, len(rows), columns_of)


def _list_notes(table: TensorTable, rows: NDArray[np.intp], scalars: str) -> list[str]:
    """List what is in the format and what some of its readers do not take all the same."""
    notes = []
    halves = _find(table, rows, lambda form: str(form.dtype) in NEW_DTYPES)
    if halves.size:
        names = f"{plural(len(halves), 'tensor')} of f16 or bf16, {table.names[int(halves[0])]!r} first"
        notes.append(f"{names}: older gpt-rs readers refuse these types; --cast f32 writes what all of them read")
    flat = _find(table, rows, lambda form: not form.shape)
    if flat.size:
        names = f"{plural(len(flat), 'tensor')} without dimensions, {table.names[int(flat[0])]!r} first"
        if scalars == "as-vector":
            notes.append(f"{names}: written with the shape [1]")
        else:
            notes.append(f"{names}: the Rust reader panics on it; -o scalars=as-vector writes [1]")
    return notes


def _list_marks(table: TensorTable, rows: NDArray[np.intp], flags: NDArray[np.uint8]) -> list[str]:
    """List the marks that an option changes: those of the tensors are not what is written."""
    before, after = table.find_trained()[rows], flags[rows] != 0
    changes = {"marked as trained": ~before & after, "no longer marked as trained": before & ~after}
    return [
        f"{plural(int(found.sum()), 'tensor')} {what}, {table.names[int(rows[found.argmax()])]!r} first: requires_grad"
        for what, found in changes.items()
        if found.any()
    ]


def _find(table: TensorTable, rows: NDArray[np.intp], test: Callable[[Form], bool]) -> NDArray[np.intp]:
    """Those of ``rows`` whose form passes the test."""
    found: NDArray[np.intp] = rows[table.forms().column(test, np.bool_)[rows]]
    return found


def _choose_flags(table: TensorTable, given: Any) -> NDArray[np.uint8]:
    """Return the flag byte of each tensor: whether it is marked as trained, and the byte of the file if that agrees."""
    flags = _choose_trained(table, given).astype(np.uint8)
    for row, native in table.natives(GptrsTensor):
        if flags[row]:
            flags[row] = native.flag
    return flags


def _choose_trained(table: TensorTable, given: Any) -> NDArray[np.bool_]:
    """Return for each tensor whether it is marked as trained."""
    if given is None:
        return table.find_trained()
    if isinstance(given, int):
        return np.full(len(table), bool(given))
    globs = [part.strip() for part in given.split(",")] if isinstance(given, str) else parse_texts(given)
    if globs is None:
        raise ContentError(f"gptrs: requires_grad is true, false, or names and globs, not {given!r:.80}")
    trained = np.zeros(len(table), np.bool_)
    for glob in globs:
        found = [row for row, name in enumerate(table.names) if fnmatchcase(name, glob)]
        if not found:
            raise ContentError(f"gptrs: requires_grad: no tensor is called {glob!r}")
        trained[found] = True
    return trained


def _check_length(size: int, what: str) -> int:
    if size > _U32:
        raise ContentError(f"gptrs: {what} takes {size} bytes; its length is 32 bits")
    return size


def choose_config(model: Model, given: Any) -> bytes:
    """Choose the bytes of the configuration: of ``given``, or else with the metadata of the model as members.

    If the metadata is unchanged since the model was read, the bytes are unchanged too. For a model of another format
    the member ``config`` is its configuration, and ``kind`` the ``model_type`` in it.
    """
    if given is not None:
        value = _decode_config(given) if isinstance(given, (bytes, str)) else given
        stored = config.encode(value)  # raises if the configuration is not valid
        if config.is_legacy(value):  # current programs refuse a version 2 file without a kind
            return config.encode(config.normalize(value))
        return given if isinstance(given, bytes) else stored
    refuse_repeats("gptrs", [entry.key for entry in model.metadata.entries], "metadata entries")
    members = {entry.key: _to_json_value(entry.value) for entry in model.metadata.entries}
    native = model.native
    if isinstance(native, GptrsNative) and native.config is not None:
        was = decode(native.config).value
        if members == (config.normalize(was) if native.legacy else was):
            # Current programs refuse a version 2 file without a kind, so a legacy configuration of a version 1 file
            # gets one; a version 2 file that already lacked it stays as it was.
            return config.encode(members) if native.legacy and model.version == (1,) else native.config
    elif isinstance(members.get("kind"), str):
        if model.format is not None:
            members = {key: _parse_member(key, value) for key, value in members.items()}
    else:
        own = model.config
        kind = own.get("model_type") if isinstance(own, Mapping) else None
        tagged = {"kind": kind if isinstance(kind, str) else "unknown", "config": own}
        members = {**tagged, **{key: value for key, value in members.items() if key not in tagged}}
    return config.encode(members)


def _decode_config(data: bytes | str) -> Any:
    try:
        return decode(data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data).value
    except ValueError as error:
        raise ContentError(f"gptrs: the configuration: {error}") from None


def _parse_member(key: str, value: Any) -> Any:
    """Return a member of the configuration that a format with text metadata alone stored as JSON text."""
    if key not in MEMBERS or key == "kind" or not isinstance(value, str):
        return value
    try:
        return decode(value.encode("utf-8", "surrogatepass")).value
    except ValueError:
        return value


def _to_json_value(value: Any) -> Any:
    """Return a metadata value with numpy scalars as Python numbers, which JSON can hold."""
    return value.item() if isinstance(value, np.generic) else value


def name_breach(name: str, *, checkpoint: bool) -> str | None:
    """Why ``name`` cannot be the name of a tensor; None when it can."""
    if not name:
        return "a name is empty"
    if checkpoint and not name.isascii():
        return f"the name {name!r} is not ASCII, so that it has no base id"
    try:
        name.encode()
    except UnicodeEncodeError:
        return f"the name {name!r} cannot be written as UTF-8"
    return None


def _check_names(names: Sequence[str], checkpoint: bool) -> None:
    refuse_names("gptrs", names, partial(name_breach, checkpoint=checkpoint), _U32)
    refuse_repeats("gptrs", names)


def _check_form(tensor: Tensor) -> None:
    """Raise ContentError for a type, shape or size that gpt-rs cannot hold."""
    if any(dim > _U64 for dim in tensor.shape):
        raise ContentError(f"gptrs: tensor {tensor.name!r}: a dim of {list(tensor.shape)} does not fit u64")
    check_payload("gptrs", tensor, "gpt-rs", DTYPE_TAG)
