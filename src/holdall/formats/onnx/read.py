"""Reading ONNX: the initializers of the graph, their values where they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from holdall.check import Check, figure
from holdall.dtypes import DTYPES as NAMED
from holdall.dtypes import DType
from holdall.encodings import Opaque, Stored
from holdall.formats.onnx import layout, rules
from holdall.formats.onnx.external import ExternalFiles
from holdall.formats.onnx.layout import DTYPES
from holdall.formats.onnx.values import Numbers
from holdall.formats.onnx.wire import BYTES, VARINT, Walker
from holdall.metadata import Entry, Metadata
from holdall.model import ColumnTable, Model
from holdall.payload import Held, Made, Payload, Range

if TYPE_CHECKING:
    from holdall.ledger import Ledger
    from holdall.source import Source

__all__ = ["OnnxNative", "read"]

Span = tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class OnnxNative:
    """What only ONNX has: all of the model and its graph but initializers and metadata, as ranges of the file."""

    model: tuple[Range, ...] = ()
    graph: tuple[Range, ...] = ()


@dataclass(slots=True)
class _Proto:
    """A TensorProto as it is on the wire."""

    start: int
    stop: int
    name: Span | None = None
    dims: list[int] = field(default_factory=list)
    code: int | None = None
    raw: Span | None = None
    numbers: dict[int, list[Span]] = field(default_factory=dict)
    external: list[Span] = field(default_factory=list)
    location: int | None = None


def read(source: Source, check: Check, ledger: Ledger) -> Model:
    """The model in ``source``; a folder stands for the one ``.onnx`` file in it."""
    home = source
    if source.is_folder:
        found = [name for name in source.names() if name.endswith(".onnx")]
        if len(found) != 1:
            check.fail(rules.GRAPH, None, f"onnx: the folder has {len(found)} files called *.onnx, not one")
        source = home.sibling(found[0])
    walker = Walker(source, check)
    version = 0
    graphs: list[Span] = []
    entries: list[Span] = []
    for number, kind, start, stop in walker.fields(0, source.size):
        if number == layout.GRAPH and kind == BYTES:
            graphs.append((start, stop))
        elif number == layout.PROPS and kind == BYTES:
            entries.append((start, stop))
        elif number == layout.IR_VERSION and kind == VARINT:
            version = start
    if len(graphs) != 1:
        check.fail(rules.GRAPH, 0, f"onnx: the model has {len(graphs)} graphs, not one")
    metadata = _metadata(entries, walker, check)
    protos: list[tuple[int, int]] = []
    for number, kind, start, stop in walker.fields(*graphs[0]):
        if number == layout.INITIALIZER and kind == BYTES:
            protos.append((start, stop))
    check.limit("tensors", len(protos), graphs[0][0], "onnx: initializers")
    files = ExternalFiles(home, check)
    table, held = _table(protos, source, files, walker, check)
    _own(source, held, table, ledger)
    native = OnnxNative(
        _others(source, walker, 0, source.size, (layout.GRAPH, layout.PROPS)),
        _others(source, walker, *graphs[0], (layout.INITIALIZER,)),
    )
    for other in files.sources:
        own = ledger.member(other)
        spans = [t.payload for t in table if isinstance(t.payload, Range) and t.payload.source is other]
        starts = np.array([span.offset for span in spans], np.uint64)
        own.payloads("tensor", starts, np.array([span.size for span in spans], np.uint64))
    sources = [*([home] if home is not source else []), source, *files.sources]
    return Model(
        table, metadata=metadata, native=native, format="onnx", version=(version,), sources=sources, ledger=ledger
    )


def _others(source: Source, walker: Walker, start: int, stop: int, left_out: tuple[int, ...]) -> tuple[Range, ...]:
    """The stretches of a message that are other fields than those."""
    ranges: list[Range] = []
    at = start
    for number, kind, _, end in walker.fields(start, stop):
        if number not in left_out or kind != BYTES:
            if ranges and ranges[-1].offset + ranges[-1].size == at:
                ranges[-1] = Range(source, ranges[-1].offset, end - ranges[-1].offset)
            else:
                ranges.append(Range(source, at, end - at))
        at = end
    return tuple(ranges)


def _own(source: Source, held: list[tuple[str, int, int]], table: ColumnTable, ledger: Ledger) -> None:
    """Payloads, and everything between them, which the walk has been through."""
    held.sort(key=lambda span: span[1])
    starts, sizes, at = [], [], 0
    for _, start, stop in [*held, ("", source.size, source.size)]:
        if start > at:
            starts.append(at)
            sizes.append(start - at)
        at = max(at, stop)
    ledger.regions("protobuf", starts, sizes)
    ledger.payloads(
        "tensor", np.array([start for _, start, _ in held], np.uint64),
        np.array([stop - start for _, start, stop in held], np.uint64), [name for name, _, _ in held].__getitem__,
    )  # fmt: skip


def _metadata(entries: list[Span], walker: Walker, check: Check) -> Metadata:
    found: dict[str, Entry] = {}
    for start, stop in entries:
        key, value = _pair(start, stop, walker)
        if key is None or key in found:
            check.fail(rules.PROPS, start, f"onnx: the metadata key {key!r} is missing, or there twice")
        found[key] = Entry(key, value or "", "string")
    return Metadata(found.values())


def _pair(start: int, stop: int, walker: Walker) -> tuple[str | None, str | None]:
    """Key and value of a StringStringEntryProto."""
    parts: dict[int, str] = {}
    for number, kind, first, last in walker.fields(start, stop):
        if kind == BYTES and number in (1, 2):
            parts[number] = walker.text(first, last, "metadata")
    return parts.get(1), parts.get(2)


# -- tensors ----------------------------------------------------------------------------------------------------------


def _table(
    protos: list[Span], source: Source, files: ExternalFiles, walker: Walker, check: Check
) -> tuple[ColumnTable, list[tuple[str, int, int]]]:
    names: dict[str, None] = {}
    dtypes: list[Stored] = []
    known: dict[str, int] = {}
    codes: list[int] = []
    shapes: list[tuple[int, ...]] = []
    made: dict[int, Payload] = {}
    held: list[tuple[str, int, int]] = []
    places: list[tuple[int, int]] = []
    for start, stop in protos:
        with check.scope():
            proto = _proto(start, stop, walker, check)
            name = "" if proto.name is None else walker.text(*proto.name, "the name of a tensor")
            if not name or name in names:
                check.fail(rules.NAME, start, f"onnx: the name {name!r} of an initializer is empty, or there twice")
            dtype, payload = _payload(name, proto, source, files, walker, check)
            key = str(dtype) if isinstance(dtype, DType) else f"{dtype} {payload.size}"
            code = known.setdefault(key, len(dtypes))
            if code == len(dtypes):
                dtypes.append(dtype)
            inside = isinstance(payload, Range) and payload.source is source
            if isinstance(payload, Range) and inside:
                held.append((name, payload.offset, payload.offset + payload.size))
            else:
                made[len(names)] = payload
            places.append((payload.offset if isinstance(payload, Range) else 0, payload.size))
            codes.append(code)
            shapes.append(tuple(proto.dims))
            names[name] = None
    columns = np.array(places, np.uint64).reshape(-1, 2)
    table = ColumnTable(
        source, list(names), dtypes, np.array(codes, np.uint32), shapes, columns[:, 0], columns[:, 1], made=made
    )  # fmt: skip
    return table, held


def _proto(start: int, stop: int, walker: Walker, check: Check) -> _Proto:
    proto = _Proto(start, stop)
    seen: set[int] = set()
    for number, kind, first, last in walker.fields(start, stop):
        if number == layout.DIMS:
            if kind == BYTES:
                proto.dims += _packed(first, last, walker)
            else:
                proto.dims.append(first)
            check.limit("rank", len(proto.dims), first, "onnx: dimensions of a tensor")
        elif number in _NUMBERS:
            spans = proto.numbers.setdefault(number, [])
            low = walker.value_at if kind == VARINT else first
            if spans and spans[-1][1] == low:
                spans[-1] = (spans[-1][0], last)
            elif last > low:
                spans.append((low, last))
        elif number == layout.EXTERNAL and kind == BYTES:
            proto.external.append((first, last))
        elif number in _SINGLE:
            if number in seen or (kind == BYTES) != (number in (layout.NAME, layout.RAW)):
                check.fail(rules.ONCE, start, f"onnx: field {number} of a tensor is there twice, or of a wrong kind")
            seen.add(number)
            match number:
                case layout.NAME:
                    proto.name = (first, last)
                case layout.RAW:
                    proto.raw = (first, last)
                case layout.DATA_TYPE:
                    proto.code = first
                case layout.LOCATION:
                    proto.location = first
    if any(dim >> 63 for dim in proto.dims):
        check.fail(rules.DIMS, start, "onnx: a dim is negative")
    return proto


_NUMBERS = (layout.FLOATS, layout.INT32S, layout.STRINGS, layout.INT64S, layout.DOUBLES, layout.UINT64S)
_SINGLE = (layout.NAME, layout.RAW, layout.DATA_TYPE, layout.LOCATION)


def _packed(start: int, stop: int, walker: Walker) -> list[int]:
    numbers = []
    while start < stop:
        value, start = walker.varint(start, stop)
        numbers.append(value)
    return numbers


def _payload(
    name: str, proto: _Proto, source: Source, files: ExternalFiles, walker: Walker, check: Check
) -> tuple[Stored, Payload]:
    """The type of a tensor, and its values: raw, external, or repeated numbers."""
    what = f"onnx: tensor {name!r}"
    if proto.code == layout.STRING:  # no numbers: carried as it is on the wire
        texts = sum(number == layout.STRINGS for number, *_ in walker.fields(proto.start, proto.stop))
        if texts != prod(proto.dims):
            message = f"{what}: string{proto.dims} needs {figure(prod(proto.dims))} texts, and {texts} are there"
            check.fail(rules.SIZE, proto.start, message)
        size = proto.stop - proto.start
        return Opaque("onnx.string", size), Range(source, proto.start, size)
    if proto.code not in DTYPES:
        check.fail(rules.DTYPE, proto.start, f"{what}: data_type {proto.code} is unknown")
    dtype = NAMED[DTYPES[proto.code]]
    size = dtype.nbytes(proto.dims)
    shown = f"{what}: {dtype}{proto.dims} needs {figure(size)} bytes"
    numbers = {number: spans for number, spans in proto.numbers.items() if spans}
    external = proto.location == 1
    if external + (proto.raw is not None and not external) + len(numbers) > 1 or proto.location not in (None, 0, 1):
        check.fail(rules.DATA, proto.start, f"{what} has values in several places")
    if external:
        pairs = (_pair(*span, walker) for span in proto.external)
        entries = {key: value for key, value in pairs if key is not None and value is not None}
        return dtype, files.place(entries, size, proto.start, what)
    if proto.raw is not None:
        start, stop = proto.raw
        if stop - start != size:
            check.fail(rules.SIZE, start, f"{shown}, and {stop - start} are there")
        return dtype, Range(source, start, size)
    if not numbers:
        if size:
            check.fail(rules.DATA, proto.start, f"{shown}, and it has no values")
        return dtype, Held(b"")
    number, spans = next(iter(numbers.items()))
    if number != _field_of(dtype):
        check.fail(rules.DATA, proto.start, f"{what}: values of {dtype} are not in field {number}")
    width = max(1, dtype.bits // 8)
    if dtype.bits == 6:  # one element a number, where 4 and 2 bits come several at a time
        codes = _numbers(what, shown, prod(proto.dims), 1, number, spans, source, check)
        return dtype, Made(size, partial(_packed_codes, codes, dtype.bits, size))
    return dtype, _numbers(what, shown, size, width, number, spans, source, check)


def _numbers(
    what: str, shown: str, size: int, width: int, number: int, spans: list[Span], source: Source, check: Check
) -> Payload:
    """The values of a repeated field as ``size`` bytes, ``width`` for each."""
    total = sum(stop - start for start, stop in spans)
    varints = number in (layout.INT32S, layout.INT64S, layout.UINT64S)
    count = size // width
    if (varints and not count <= total <= 10 * count) or (not varints and total != size):
        check.fail(rules.SIZE, spans[0][0], f"{shown}, and {total} bytes of numbers are there")
    return Numbers(source, tuple(spans), size, width, varints, what).payload()


def _packed_codes(codes: Payload, bits: int, size: int) -> Iterator[memoryview]:
    from holdall import kernels

    out = np.empty(size, np.uint8)
    kernels.pack(np.frombuffer(codes.view(), np.uint8), bits, out)
    yield out.data


def _field_of(dtype: DType) -> int:
    """The field that holds the values of a type where they are not raw."""
    if dtype.name in ("f32", "c64"):
        return layout.FLOATS
    if dtype.name in ("f64", "c128"):
        return layout.DOUBLES
    if dtype.name == "i64":
        return layout.INT64S
    return layout.UINT64S if dtype.name in ("u32", "u64") else layout.INT32S
