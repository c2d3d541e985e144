"""Reading ONNX: initializers and the tensors in nodes and functions; their values stay in the file."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from holdall.base.check import Check
from holdall.errors import ForeignError
from holdall.format.onnx import layout, rules
from holdall.format.onnx.external import ExternalFiles
from holdall.format.onnx.places import Places
from holdall.format.onnx.records import Records, read_records
from holdall.format.onnx.tensor_proto import read_pair
from holdall.format.onnx.tensor_table import TableReader
from holdall.format.onnx.wire import BYTES, VARINT, Walker
from holdall.model.metadata import Entry, Metadata
from holdall.model.model import Model
from holdall.model.payload import Payload, SourceRange
from holdall.model.table import TensorTable
from holdall.source.ranges import ByteRange

if TYPE_CHECKING:
    from holdall.source import Source
    from holdall.source.ledger import Ledger

__all__ = ["OnnxNative", "read"]

_COREML = range(200, 3001)  # the fields of Core ML's message for the kinds of model


@dataclass(frozen=True, slots=True, eq=False)
class OnnxNative:
    """What only ONNX has: the bytes of the ``model`` outside its graph, and of the ``graph`` without initializers.

    ``tensors`` are those that the graph was written for, ``external`` the files beside the model that hold their data,
    ``places`` says which tensors are no initializers of the graph, and where they are, and ``checksums`` how many
    tensors state the checksum of external data.
    """

    model: tuple[Payload, ...] = ()
    graph: tuple[Payload, ...] = ()
    tensors: TensorTable | None = None
    external: tuple[str, ...] = ()
    places: Places | None = None
    checksums: int = 0


def read(source: Source, check: Check, ledger: Ledger) -> Model:
    """Read the model in ``source``; a folder stands for the one ``.onnx`` file in it."""
    home = source
    if source.is_folder:
        found = [name for name in source.names() if name.endswith(".onnx")]
        if len(found) != 1:
            check.fail(rules.GRAPH, None, f"onnx: the folder has {len(found)} files called *.onnx, not one")
        source = home.sibling(found[0])
    try:
        return _read_model(home, source, check, ledger)
    except Exception:
        if not ledger.owners:  # explain shows what can be read of a broken message
            ledger.region("protobuf", 0, source.size)
        raise


def _read_model(home: Source, source: Source, check: Check, ledger: Ledger) -> Model:
    walker = Walker(source, check)
    version = 0
    graphs: list[ByteRange] = []
    entries: list[ByteRange] = []
    others: list[ByteRange] = []  # runs of all other fields
    numbers: set[int] = set()
    at = 0
    for number, kind, start, stop in walker.fields(0, source.size):
        numbers.add(number)
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
        if not graphs:
            _refuse_others(source, numbers)
        check.fail(rules.GRAPH, 0, f"onnx: the model has {len(graphs)} graphs, not one")
    metadata = _read_metadata(entries, walker, check)
    records = read_records(source, walker, check)
    files = ExternalFiles(home, check)
    reader = TableReader(records, source, files, walker, check)
    table = reader.read(ledger)
    native = OnnxNative(
        tuple(SourceRange(source, start, stop - start) for start, stop in others),
        _find_rest(source, records, *graphs[0]),
        table,
        tuple(file.name for file in files.sources),
        Places.of(source, records, reader),
        files.checksums,
    )
    sources = [*([home] if home is not source else []), source, *files.sources]
    return Model(
        table, metadata=metadata, native=native, format="onnx", version=(version,), sources=sources, ledger=ledger
    )


def _refuse_others(source: Source, numbers: Collection[int]) -> None:
    """Refuse the models of other programs whose files begin like ONNX, by the numbers of their fields."""
    if any(number in _COREML for number in numbers):
        what = "a Core ML model: open the model that it was converted from"
    elif numbers == {1, 2}:
        what = "no ONNX model: a TensorFlow SavedModel has the same fields. Export it to ONNX"
    else:
        return
    raise ForeignError(rules.GRAPH.id, 0, f"{source.name}: is {what}")


def _find_rest(source: Source, records: Records, start: int, stop: int) -> tuple[SourceRange, ...]:
    """Find the ranges of the graph between its initializers."""
    outer = ~records.find_nested()
    starts = np.concatenate([np.array([start], np.uint64), records.stops[outer]])
    stops = np.concatenate([records.fields[outer], np.array([stop], np.uint64)])
    rows = (stops > starts).nonzero()[0]
    spans = zip(starts[rows].tolist(), (stops - starts)[rows].tolist(), strict=True)
    return tuple(SourceRange(source, at, size) for at, size in spans)


def _read_metadata(entries: list[ByteRange], walker: Walker, check: Check) -> Metadata:
    found: dict[str, Entry] = {}
    for start, stop in entries:
        key, value = read_pair(start, stop, walker)
        if key is None or key in found:
            check.fail(rules.PROPS, start, f"onnx: the metadata key {key!r} is missing, or there twice")
        found[key] = Entry(key, value or "", "string")
    return Metadata(found.values())
