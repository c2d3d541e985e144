"""Writing ONNX: the tensors, in the graph that they came from or in an empty one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from holdall.base.buffer_sizes import buffer_size
from holdall.base.utf8 import utf8_breach
from holdall.binary.columns import measure_names, place
from holdall.errors import ContentError
from holdall.format.onnx import layout
from holdall.format.onnx.clashes import part_names
from holdall.format.onnx.data_file import DATA_NAME, MODEL_NAME, DataFile
from holdall.format.onnx.graph import describe_changes
from holdall.format.onnx.layout import CODE_OF, IR_OF, OLDEST, OPSET_OF
from holdall.format.onnx.places import Edit, Places, splice
from holdall.format.onnx.read import OnnxNative
from holdall.format.onnx.text_tensors import encode_text
from holdall.format.onnx.wire import BYTES, field, varint
from holdall.format.refusals import check_entries, check_payload, refuse_names, refuse_repeats
from holdall.model.arranged_table import ArrangedTable
from holdall.model.encodings import Opaque
from holdall.model.model import Model
from holdall.model.payload import Computed, InMemory, Payload, SourceRange
from holdall.model.tensor import Tensor
from holdall.sink.plan import FolderPlan, Plan

if TYPE_CHECKING:
    from holdall.model.table import TensorTable

__all__ = ["metadata_breach", "name_breach", "plan"]

MOST = (1 << 31) - 1  # bytes of a protobuf message
_LENGTH = 5  # bytes of every length, so that places do not depend on sizes
_ALIGN = 8
_BLOCK = buffer_size(1 << 12)  # initializers that are made at a time
_SMALL = buffer_size(1 << 16)  # bytes up to which a part in memory is put rather than streamed


def plan(model: Model, options: Mapping[str, Any]) -> Plan | FolderPlan:
    """Plan the ONNX file that holds ``model``; a folder with external data if it is asked for, or above 2 GiB."""
    if model.assets:
        raise ContentError(f"onnx has no place for assets: {', '.join(model.assets)}")
    table = model.tensors
    refuse_names("onnx", table.names, name_breach, MOST)
    refuse_repeats("onnx", table.names)
    notes = describe_changes(model.native, model) if isinstance(model.native, OnnxNative) else []
    if not options["external"]:
        content = _Content(model, DataFile(used=False))
        if content.protos.end <= MOST:
            return _plan_file(content, notes)
        size = content.protos.end
        notes.append(
            f"{size} bytes are above the {MOST} of a protobuf message: this is a folder, in which {MODEL_NAME} is the "
            f"model and {DATA_NAME} has its data"
        )
    return _plan_folder(_Content(model, DataFile(used=True)), notes)


class _Content:
    """What a model file has: the fields before the graph, those of the graph, and the initializers in ``table``."""

    def __init__(self, model: Model, values: DataFile) -> None:
        table = model.tensors
        native = model.native if isinstance(model.native, OnnxNative) else _make_container(table)
        edits: list[Edit] = []
        if native.places is not None and native.places.names:
            table, edits = _plan_places(table, native, native.places, values)
        table, texts = _part_texts(table)
        for row in table.forms().firsts:
            _check_form(table.tensor(row))
        self.native, self.values, self.table = native, values, table
        self.front = [*splice(native.model, edits), InMemory(_encode_metadata(model))]
        self.graph = [*splice(native.graph, edits), *texts]
        self.graph_start = sum(part.size for part in self.front) + 1 + _LENGTH
        self.protos = _Protos(table, self.graph_start + sum(part.size for part in self.graph))


def _plan_file(content: _Content, notes: list[str]) -> Plan:
    """Plan one file with all values inside."""
    out = _plan_model(content.front, content.graph, content.protos.end - content.graph_start)
    content.protos.put(out)
    external = content.native.external
    out.notes += notes + [f"external data are inside the file now, which needs {name} no more" for name in external]
    assert out.cursor == content.protos.end
    return out


def _plan_model(front: Iterable[Payload], graph: Iterable[Payload], size: int) -> Plan:
    """Plan a model up to its initializers; ``size`` is that of its graph with them."""
    out = Plan()
    for part in front:
        _put(out, part)
    out.put(varint(layout.GRAPH << 3 | BYTES) + varint(size, _LENGTH))
    for part in graph:
        _put(out, part)
    return out


def _plan_folder(content: _Content, notes: list[str]) -> FolderPlan:
    """Plan a folder with the model, and the file of its external data."""
    table, values = content.table, content.values
    forms, initializers = table.forms(), list[Payload]()
    for row, name in enumerate(table.names):
        payload, rest = table.payload(row) or InMemory(b""), field(layout.NAME, name.encode())
        initializers += values.encode(layout.INITIALIZER, forms[row].dtype, forms[row].shape, payload, rest)
    size = sum(part.size for part in content.graph) + sum(part.size for part in initializers)
    if size + content.graph_start > MOST:
        raise ContentError(f"onnx: a graph of {size} bytes without external data is above the {MOST} of a message")
    out = _plan_model(content.front, content.graph, size)
    for part in initializers:
        _put(out, part)
    out.notes += notes + [f"external data of {name} are in the folder now" for name in content.native.external]
    return FolderPlan({MODEL_NAME: out, DATA_NAME: values.plan})


def _plan_places(
    table: TensorTable, native: OnnxNative, places: Places, values: DataFile
) -> tuple[TensorTable, list[Edit]]:
    """Plan the tensors in nodes and functions; returns the others, which become initializers.

    A tensor is written anew if it has changed, if its values are in a file that the model leaves, or if they go into
    the data file. The messages of all others are copied.
    """
    nested = set(places.names)
    old_rows, rows = _find_rows(native.tensors, nested), _find_rows(table, nested)
    forms, looks = table.forms(), places.looks_for_external()
    anew: dict[str, Tensor | None] = {}
    for number, name in enumerate(places.names):
        if name not in rows:
            anew[name] = None
            continue
        row = rows[name]
        changed = native.tensors is None or not _is_same(native.tensors, old_rows[name], table, row)
        moves = places.external[number] or values.takes(forms[row].dtype, forms[row].size or 0, looks[number])
        if changed or moves:
            anew[name] = table.tensor(row)
            _check_form(table.tensor(row))
    outer = np.ones(len(table), np.bool_)
    outer[list(rows.values())] = False
    others = ArrangedTable(table, outer.nonzero()[0])
    _check_paths(others, [(name, path) for name, path in zip(places.names, places.paths, strict=True) if name in rows])
    return others, places.plan_edits(anew, values)


def _part_texts(table: TensorTable) -> tuple[TensorTable, list[Payload]]:
    """Part initializers of numbers from those of texts, which are returned as fields of the graph."""
    forms = table.forms()
    opaque = np.array([isinstance(form.dtype, Opaque) for form in forms.kinds], np.bool_)
    if not opaque.any():
        return table, []
    rows = opaque[forms.codes]
    texts = [part for row in rows.nonzero()[0].tolist() for part in encode_text(table.tensor(row))]
    return ArrangedTable(table, (~rows).nonzero()[0]), texts


def _check_paths(table: TensorTable, nested: list[tuple[str, str]]) -> None:
    """Raise ContentError if a tensor in a node, by name and path, would be read by another name than it has."""
    read = part_names(table.names, [path for _, path in nested])
    for (name, _), now in zip(nested, read, strict=True):
        if name != now:
            raise ContentError(
                f"onnx: tensor {name!r} would be called {now!r} in this file: its name is its place in the model, and "
                "ends with a number only beside another tensor of that name"
            )


def _find_rows(table: TensorTable | None, wanted: set[str]) -> dict[str, int]:
    names = () if table is None else table.names
    return {name: row for row, name in enumerate(names) if name in wanted}


def _is_same(old: TensorTable, before: int, new: TensorTable, after: int) -> bool:
    """Whether a tensor of one table is that of another: the same type and shape, and the same bytes of the file."""
    old_form, new_form = old.forms()[before], new.forms()[after]
    if (str(old_form.dtype), old_form.shape) != (str(new_form.dtype), new_form.shape):
        return False
    mine, its = old.payload(before), new.payload(after)
    if isinstance(mine, SourceRange) and isinstance(its, SourceRange):
        return mine.source is its.source and mine.reach == its.reach
    return mine is its


def _put(out: Plan, part: Payload) -> None:
    if isinstance(part, InMemory) and part.size <= _SMALL:
        out.put(bytes(part.data))
    elif part.size:
        out.stream(part)


def _make_container(table: TensorTable) -> OnnxNative:
    """Make a model with a graph without nodes, of the oldest version that has all the types."""
    version = max((IR_OF.get(str(form.dtype), OLDEST) for form in table.forms().kinds), default=OLDEST)
    opset = field(layout.OPSET, field(2, OPSET_OF[version]))
    front = field(layout.IR_VERSION, version) + field(2, b"holdall") + opset
    return OnnxNative((InMemory(front),), (InMemory(field(2, b"weights")),))


def _encode_metadata(model: Model) -> bytes:
    """Encode the metadata_props of the model."""
    found = check_entries("onnx", model.metadata.entries, metadata_breach).items()
    return b"".join(field(layout.PROPS, field(1, key.encode()) + field(2, value.encode())) for key, value in found)


class _Protos:
    """The initializers as columns: a TensorProto for each, from byte ``start`` on, whose raw data are aligned."""

    def __init__(self, table: TensorTable, start: int) -> None:
        self._table = table
        forms = table.forms()
        self._dims = [b"".join(field(layout.DIMS, dim) for dim in form.shape) for form in forms.kinds]
        self._raws = [varint(layout.RAW << 3 | BYTES) + varint(form.size or 0) for form in forms.kinds]
        names = measure_names(table.names)
        # The tags and lengths of the proto and its name, the tag of its type, and the least varint of that.
        heads = names + np.uint64(1 + _LENGTH + 1 + 1 + 1 + 1)
        for power in range(7, 32, 7):
            heads += names >= np.uint64(1 << power)
        heads += np.array([len(dims) + len(raw) for dims, raw in zip(self._dims, self._raws, strict=True)], np.uint64)[
            forms.codes
        ]
        # Raw data are aligned, so that the place of the next proto depends on the size of the one before alone.
        before = np.full(len(heads), start, np.uint64)
        before[1:] = forms.sizes()[:-1]
        self._fills = (-((before + heads) % np.uint64(_ALIGN)).astype(np.int8) % _ALIGN).astype(np.uint8)
        heads += self._fills
        heads += forms.sizes()
        self._starts, self.end = place(heads, start=start)

    def put(self, out: Plan) -> None:
        """Put all initializers: stretches of small ones in memory, and the others one by one."""
        start, count = 0, len(self._table)
        for row in [*filter(self._is_large, range(count)), count]:
            if row > start:
                end = int(self._starts[row]) if row < count else self.end
                out.stream(Computed(end - out.cursor, partial(self._make, start, row)))
            if row < count:
                payload = self._table.payload(row)
                out.put(self._encode_head(row))
                if payload is not None and payload.size:
                    out.stream(payload)
            start = row + 1

    def _is_large(self, row: int) -> bool:
        payload = self._table.payload(row)
        return not isinstance(payload, InMemory) or payload.size > _SMALL

    def _make(self, start: int, stop: int) -> Iterator[bytes]:
        """Make the initializers ``start..stop``, block by block."""
        for low in range(start, stop, _BLOCK):
            pieces: list[bytes | memoryview] = []
            for row in range(low, min(low + _BLOCK, stop)):
                payload = self._table.payload(row)
                assert isinstance(payload, InMemory)
                pieces += self._encode_head(row), payload.copy()
            yield b"".join(pieces)

    def _encode_head(self, row: int) -> bytes:
        """Encode a TensorProto up to its raw data; the varint of data_type is padded to align the data to 8 bytes."""
        forms = self._table.forms()
        number = int(forms.codes[row])
        form = forms.kinds[number]
        code = varint(CODE_OF[str(form.dtype)], 1 + int(self._fills[row]))
        name = field(layout.NAME, self._table.names[row].encode())
        body = self._dims[number] + varint(layout.DATA_TYPE << 3) + code + name + self._raws[number]
        return varint(layout.INITIALIZER << 3 | BYTES) + varint(len(body) + (form.size or 0), _LENGTH) + body


def _check_form(tensor: Tensor) -> None:
    """Raise ContentError for a type, shape or size that ONNX cannot hold."""
    if any(not 0 <= size < 1 << 63 for size in tensor.shape):
        raise ContentError(f"onnx: tensor {tensor.name!r}: a dim of {list(tensor.shape)} does not fit 63 bits")
    check_payload("onnx", tensor, "ONNX", CODE_OF)


def name_breach(name: str) -> str | None:
    """Why a tensor cannot be called ``name``; None when it can."""
    if not name:
        return "initializers have names"
    wrong = utf8_breach(name)
    return f"the tensor name {wrong}" if wrong else None


def metadata_breach(key: str, value: Any) -> str | None:
    """Why the entry cannot be stored; None when it can."""
    if not isinstance(value, str):
        return f"values are text, not {type(value).__name__}"
    return utf8_breach(key) or utf8_breach(value)
