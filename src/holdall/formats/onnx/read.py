"""Reading ONNX: the initializers of the graph, their values where they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from holdall.check import Check, figure
from holdall.columns import Shapes
from holdall.dtypes import DTYPES as NAMED
from holdall.dtypes import DType
from holdall.encodings import Opaque, Stored
from holdall.formats.onnx import layout, rules
from holdall.formats.onnx.external import ExternalFiles
from holdall.formats.onnx.layout import DTYPES
from holdall.formats.onnx.records import Records, read_records
from holdall.formats.onnx.values import Numbers
from holdall.formats.onnx.wire import BYTES, VARINT, Walker
from holdall.metadata import Entry, Metadata
from holdall.model import ColumnTable, Model, TensorTable
from holdall.payload import Held, Made, Payload, Range

if TYPE_CHECKING:
    from holdall.ledger import Ledger
    from holdall.source import Source

__all__ = ["OnnxNative", "read"]

Span = tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class OnnxNative:
    """What only ONNX has: all of the model and its graph but initializers and metadata, as ranges of the file; and the
    ``tensors`` that this graph was written for. ``external`` are the files beside it that hold data of theirs."""

    model: tuple[Range, ...] = ()
    graph: tuple[Range, ...] = ()
    tensors: TensorTable | None = None
    external: tuple[str, ...] = ()


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
    others: list[Span] = []  # stretches of fields that are neither
    at = 0
    for number, kind, start, stop in walker.fields(0, source.size):
        if number == layout.GRAPH and kind == BYTES:
            graphs.append((start, stop))
        elif number == layout.PROPS and kind == BYTES:
            entries.append((start, stop))
        else:
            if number == layout.IR_VERSION and kind == VARINT:
                version = start
            if others and others[-1][1] == at:
                others[-1] = (others[-1][0], stop)
            else:
                others.append((at, stop))
        at = stop
    if len(graphs) != 1:
        check.fail(rules.GRAPH, 0, f"onnx: the model has {len(graphs)} graphs, not one")
    metadata = _metadata(entries, walker, check)
    records = read_records(source, *graphs[0], walker, check)
    files = ExternalFiles(home, check)
    table = _Tensors(records, source, files, walker, check).table(ledger)
    native = OnnxNative(
        tuple(Range(source, start, stop - start) for start, stop in others),
        _between(source, records, *graphs[0]),
        table,
        tuple(file.name for file in files.sources),
    )
    sources = [*([home] if home is not source else []), source, *files.sources]
    return Model(
        table, metadata=metadata, native=native, format="onnx", version=(version,), sources=sources, ledger=ledger
    )


def _between(source: Source, records: Records, start: int, stop: int) -> tuple[Range, ...]:
    """The stretches of the graph that are no initializers."""
    starts = np.concatenate([np.array([start], np.uint64), records.stops])
    stops = np.concatenate([records.fields, np.array([stop], np.uint64)])
    rows = (stops > starts).nonzero()[0]
    spans = zip(starts[rows].tolist(), (stops - starts)[rows].tolist(), strict=True)
    return tuple(Range(source, at, size) for at, size in spans)


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


class _Tensors:
    """The columns of all tensors: most are as their records have them, the others are looked at one by one."""

    def __init__(self, records: Records, source: Source, files: ExternalFiles, walker: Walker, check: Check) -> None:
        self._records = records
        self._source = source
        self._files = files
        self._walker = walker
        self._check = check
        self._dtypes: list[Stored] = list(_PALETTE)
        self._known = {str(dtype): code for code, dtype in enumerate(_PALETTE)}
        self._codes = _CODES[np.minimum(records.codes, np.uint64(len(_CODES) - 1))]
        self._dim_starts = np.cumsum(records.ranks, dtype=np.uint64) - records.ranks
        self._more_dims: list[int] = []
        self._made: dict[int, Payload] = {}
        self._inside = records.plain.copy()  # whose bytes are in the file as they are
        self._kept = records.plain.copy()
        self._others()

    def table(self, ledger: Ledger) -> ColumnTable:
        """The tensors, and in the ledger where their bytes are."""
        records, kept = self._records, self._kept.nonzero()[0]
        self._own(ledger)
        dims = np.concatenate([records.dims, np.array(self._more_dims, np.uint64)])
        return ColumnTable(
            self._source,
            records.names if len(kept) == len(records) else [records.names[row] for row in kept.tolist()],
            self._dtypes,
            self._codes[kept],
            Shapes(dims.data, self._dim_starts[kept] * np.uint64(8), records.ranks[kept]),
            records.places[kept],
            records.sizes[kept],
            made={int(np.searchsorted(kept, row)): payload for row, payload in self._made.items()},
        )

    def _others(self) -> None:
        """Those that are not plain, in the order of the file; a plain one that shares its name with one of them too."""
        names, plain, starts = self._records.names, self._records.plain, self._records.starts
        self._check.rows(
            self._records.stops > starts,
            rules.NAME,
            starts,
            lambda row: f"onnx: initializer {row} is empty: it has no name",
        )
        waiting = (~plain).nonzero()[0].tolist()
        if not waiting:
            return
        rows = {names[row]: row for row in plain.nonzero()[0].tolist()}
        while waiting:
            row = heappop(waiting)
            self._kept[row] = self._inside[row] = False
            with self._check.scope():
                name = self._look_at(row, rows)
                later = rows.setdefault(name, row)
                if later > row:
                    heappush(waiting, later)
                    rows[name] = row
                self._kept[row] = True

    def _look_at(self, row: int, rows: Mapping[str, int]) -> str:
        records, check, walker = self._records, self._check, self._walker
        start = int(records.starts[row])
        proto = _proto(start, int(records.stops[row]), walker, check)
        name = "" if proto.name is None else walker.text(*proto.name, "the name of a tensor")
        if not name or rows.get(name, row) < row:
            check.fail(rules.NAME, start, f"onnx: the name {name!r} of an initializer is empty, or there twice")
        dtype, payload = _payload(name, proto, self._source, self._files, walker, check)
        records.names[row] = name
        self._codes[row] = self._code(dtype, payload.size)
        records.ranks[row] = len(proto.dims)
        self._dim_starts[row] = len(records.dims) + len(self._more_dims)
        self._more_dims += proto.dims
        records.places[row] = payload.offset if isinstance(payload, Range) else 0
        records.sizes[row] = payload.size
        if isinstance(payload, Range) and payload.source is self._source:
            self._inside[row] = True
        else:
            self._made[row] = payload
        return name

    def _code(self, dtype: Stored, size: int) -> int:
        """The place of a type in the palette."""
        key = str(dtype) if isinstance(dtype, DType) else f"{dtype} {size}"
        code = self._known.setdefault(key, len(self._dtypes))
        if code == len(self._dtypes):
            self._dtypes.append(dtype)
        return code

    def _own(self, ledger: Ledger) -> None:
        """Payloads, and everything between them, which the walk has been through."""
        records, size = self._records, np.array([self._source.size], np.uint64)
        rows = self._inside.nonzero()[0]
        rows = rows[records.places[rows].argsort(kind="stable")]
        starts, sizes = records.places[rows], records.sizes[rows]
        reached = np.maximum.accumulate(np.concatenate([np.zeros(1, np.uint64), starts + sizes]))
        limits = np.concatenate([starts, size])
        gaps = limits > reached
        ledger.regions("protobuf", reached[gaps], limits[gaps] - reached[gaps])
        ledger.payloads("tensor", starts, sizes, lambda row: records.names[int(rows[row])])
        outside: dict[int, list[Range]] = {}
        for payload in self._made.values():
            if isinstance(payload, Range):
                outside.setdefault(id(payload.source), []).append(payload)
        for source in self._files.sources:
            spans = outside.get(id(source), [])
            ledger.member(source).payloads(
                "tensor", np.array([span.offset for span in spans], np.uint64),
                np.array([span.size for span in spans], np.uint64),
            )  # fmt: skip


_PALETTE = [NAMED[name] for name in DTYPES.values()]
_CODES = np.zeros(max(DTYPES) + 1, np.uint32)  # of data_type, places in the palette
_CODES[list(DTYPES)] = np.arange(len(DTYPES))


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
        elif number in layout.NUMBERS:
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
        return dtype, Made(size, partial(_packed_codes, codes, dtype.bits, size), (codes,))
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
