"""Tensors inside of nodes and functions: what a model is written with where some of them have new values.

All messages around a changed tensor get a new length; every other byte is copied.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from holdall.base.check import Check
from holdall.binary.kernels.protobuf_tokens import FIELD, NUMBER, PARENT, START, STOP
from holdall.format.onnx import layout
from holdall.format.onnx.wire import BYTES, Walker, varint
from holdall.model.payload import InMemory, Payload, SourceRange
from holdall.model.tensor import Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.format.onnx.data_file import DataFile
    from holdall.format.onnx.records import Records
    from holdall.format.onnx.tensor_table import TableReader
    from holdall.source import Source

__all__ = ["Edit", "Places", "splice"]

Edit: TypeAlias = tuple[int, int, tuple[Payload, ...]]  # a range of the file, and what stands there instead
_VALUES = (layout.DIMS, layout.DATA_TYPE, *layout.NUMBERS, layout.RAW, layout.EXTERNAL, layout.LOCATION)
_DEFAULT = layout.FUNCTION, layout.ATTRIBUTE_OF_FUNCTION


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Where the tensors in nodes and functions are: rows of the old table, and columns of their messages."""

    source: Source
    names: tuple[str, ...]
    paths: tuple[str, ...]  # their names, unless another tensor is called that
    tensors: NDArray[np.uint64]  # the field, start, stop, message around, number and ordinal of each
    external: NDArray[np.bool_]  # whose values are in a file beside the model
    frames: NDArray[np.uint64]  # the same of the messages around, from number 1 on
    graph: int  # the message that is the graph of the model

    @classmethod
    def of(cls, source: Source, records: Records, reader: TableReader) -> Places:
        """The places of those tensors that are no initializers of the graph."""
        rows = reader.kept[records.find_nested()[reader.kept]]
        columns = (records.fields, records.starts, records.stops, records.parents, records.numbers, records.ordinals)
        tensors = np.stack([column[rows] for column in columns], axis=1)
        names = tuple(records.names[row] for row in rows.tolist())
        paths = reader.list_paths(rows.tolist())
        return cls(source, names, paths, tensors, reader.external[rows], records.frames, records.paths.graph)

    def list_cuts(self) -> list[Edit]:
        """The edits that take out the tensors, and the lengths of the messages around them."""
        cuts = np.concatenate([self.tensors[:, [FIELD, STOP]], self.frames[:, [FIELD, START]]])
        return [(first, last, ()) for first, last in cuts[cuts[:, 0].argsort(kind="stable")].tolist()]

    def looks_for_external(self) -> list[bool]:
        """For each tensor whether the onnx library loads external data there.

        It leaves out sparse tensors, training graphs, defaults of functions, and initializers of graphs in functions.
        """
        kinds, looks, functions = [layout.MODEL], [True], [False]  # by number of a message
        for parent, number in self.frames[:, [PARENT, NUMBER]].tolist():
            kind, above = layout.INSIDE[kinds[parent], number], kinds[parent]
            left_out = kind in (layout.SPARSE, layout.TRAINING_INFO) or (above, number) == _DEFAULT
            kinds.append(kind)
            looks.append(looks[parent] and not left_out)
            functions.append(functions[parent] or kind == layout.FUNCTION)
        parents = self.tensors[:, PARENT].tolist()
        return [looks[parent] and not (functions[parent] and kinds[parent] == layout.GRAPH_PROTO) for parent in parents]

    def plan_edits(self, now: Mapping[str, Tensor | None], values: DataFile) -> list[Edit]:
        """Plan what stands where: ``now`` has the tensors to write anew, and None for one that is gone."""
        edits: list[Edit] = []
        grown = dict.fromkeys(range(len(self.frames) + 1), 0) if now else {}  # bytes, by number of the message
        looks = self.looks_for_external() if now else []
        for row, name in enumerate(self.names if now else ()):
            if name in now:
                first, start, stop, parent, number, _ = self.tensors[row].tolist()
                tensor = now[name]
                parts: tuple[Payload, ...] = ()
                if tensor is not None:
                    payload = tensor.payload if tensor.payload is not None else InMemory(b"")
                    rest = self._read_rest(start, stop)
                    parts = values.encode(number, tensor.dtype, tensor.shape, payload, rest, looks[row])
                edits.append((first, stop, parts))
                grown[parent] += sum(part.size for part in parts) - (stop - first)
        for frame in range(len(grown) - 1, 0, -1):  # a message has a higher number than the one around it
            first, start, stop, parent, number, _ = self.frames[frame - 1].tolist()
            if grown[frame] and frame != self.graph:  # the writer makes the length of the graph itself
                head = varint(number << 3 | BYTES) + varint(stop - start + grown[frame])
                edits.append((first, start, (InMemory(head),)))
                grown[parent] += grown[frame] + len(head) - (start - first)
        return sorted(edits, key=lambda edit: edit[0])

    def _read_rest(self, start: int, stop: int) -> bytes:
        """Read those fields of the message of a tensor that do not say its values, such as its name."""
        kept, at = b"", start
        for found, _, _, last in Walker(self.source, Check()).fields(start, stop):
            if found not in _VALUES:
                kept += self.source.read(at, last - at)
            at = last
        return kept


def splice(parts: Iterable[Payload], edits: Sequence[Edit]) -> Iterator[Payload]:
    """Yield ``parts``, ranges of one file, with those of the sorted ``edits`` made that lie in them."""
    starts = [first for first, _, _ in edits]
    for part in parts:
        if not isinstance(part, SourceRange) or not edits:
            yield part
            continue
        at, end = part.offset, part.offset + part.size
        for first, last, pieces in edits[bisect_left(starts, at) : bisect_left(starts, end)]:
            if first > at:
                yield SourceRange(part.source, at, first - at)
            yield from pieces
            at = last
        if end > at:
            yield SourceRange(part.source, at, end - at)
