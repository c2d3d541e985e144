"""All tensors of a model as the columns of a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from holdall.base.check import Check
from holdall.base.repeats import find_repeats
from holdall.binary.columns import Shapes
from holdall.format.onnx import rules
from holdall.format.onnx.clashes import part_names
from holdall.format.onnx.layout import DTYPES
from holdall.format.onnx.tensor_proto import make_payload, read_proto
from holdall.model.dtypes import DTYPES as NAMED
from holdall.model.dtypes import DType
from holdall.model.payload import Payload, SourceRange
from holdall.model.table import ColumnTable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.format.onnx.external import ExternalFiles
    from holdall.format.onnx.records import Records
    from holdall.format.onnx.wire import Walker
    from holdall.model.encodings import Stored
    from holdall.source import Source
    from holdall.source.ledger import Ledger

__all__ = ["TableReader"]

_PALETTE = [NAMED[name] for name in DTYPES.values()]
_CODES = np.zeros(max(DTYPES) + 1, np.uint32)  # the place in the palette, by data_type
_CODES[list(DTYPES)] = np.arange(len(DTYPES))


class TableReader:
    """Makes the columns of all tensors: most are taken from the records, the others are read one by one."""

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
        self._inside = records.plain.copy()  # whose bytes are a range of the model's file
        self._kept = records.plain.copy()
        self.external = np.zeros(len(records), np.bool_)  # whose values are in files beside the model
        self._paths: dict[int, str] = {}  # of tensors that have other names
        self._read_others()
        self._part_names()
        records.check_sparse(check)

    @property
    def kept(self) -> NDArray[np.intp]:
        """The rows of the records that are rows of the table: all but those in which an error was recorded."""
        return self._kept.nonzero()[0]

    def list_paths(self, rows: Iterable[int]) -> tuple[str, ...]:
        """The paths of the tensors in ``rows``, which are their names unless another tensor is called that."""
        return tuple(self._paths.get(row, self._records.names[row]) for row in rows)

    def read(self, ledger: Ledger) -> ColumnTable:
        """Read the table; the ledger gets the places of payloads."""
        records, kept = self._records, self.kept
        self._record_regions(ledger)
        dims = np.concatenate([records.dims, np.array(self._more_dims, np.uint64)])
        return ColumnTable(
            self._source,
            records.names if len(kept) == len(records) else [records.names[row] for row in kept.tolist()],
            self._dtypes,
            self._codes[kept],
            Shapes(dims.data, self._dim_starts[kept] * np.uint64(8), records.ranks[kept]),
            records.places[kept],
            records.sizes[kept],
            payloads={int(np.searchsorted(kept, row)): payload for row, payload in self._made.items()},
        )

    def _read_others(self) -> None:
        """Read the tensors that are not plain."""
        starts = self._records.starts
        self._check.rows(
            self._records.stops > starts,
            rules.DTYPE,
            starts,
            lambda row: f"onnx: tensor {row} is empty: it has no type",
        )
        for row in (~self._records.plain).nonzero()[0].tolist():
            with self._check.scope():
                self._read_one(row)
                self._kept[row] = True

    def _part_names(self) -> None:
        """Give tensors with paths that clash names of their own; fail for those that state one name in one place."""
        records = self._records
        names, rows = records.names, self.kept.tolist()
        if not find_repeats(names if len(rows) == len(names) else [names[row] for row in rows]):
            return
        met: set[tuple[str, tuple[int, ...]]] = set()
        for row in rows:
            with self._check.scope():
                place = names[row], records.find_way(row)
                if place in met:
                    self._kept[row] = self._inside[row] = False
                    self._made.pop(row, None)
                    self._check.fail(
                        rules.NAME, int(records.starts[row]), f"onnx: the name {names[row]!r} is there twice"
                    )
                met.add(place)
        nested = records.find_nested()
        inner = [row for row in self.kept.tolist() if nested[row]]
        own = [names[row] for row in self.kept.tolist() if not nested[row]]
        for row, name in zip(inner, part_names(own, [names[row] for row in inner]), strict=True):
            if name != names[row]:
                self._paths[row], names[row] = names[row], name

    def _read_one(self, row: int) -> None:
        """Read a tensor into its row."""
        records, check, walker = self._records, self._check, self._walker
        start = int(records.starts[row])
        proto = read_proto(start, int(records.stops[row]), walker, check)
        own = "" if proto.name is None else walker.text(*proto.name, "the name of a tensor")
        name = records.name_row(row, own)
        if not name:
            check.fail(rules.NAME, start, f"onnx: initializer {int(records.ordinals[row])} of the graph has no name")
        dtype, payload = make_payload(name, proto, self._source, self._files, walker, check)
        records.names[row] = name
        self.external[row] = proto.location == 1
        self._codes[row] = self._find_code(dtype, payload.size)
        records.ranks[row] = len(proto.dims)
        self._dim_starts[row] = len(records.dims) + len(self._more_dims)
        self._more_dims += proto.dims
        records.places[row] = payload.offset if isinstance(payload, SourceRange) else 0
        records.sizes[row] = payload.size
        if isinstance(payload, SourceRange) and payload.source is self._source:
            self._inside[row] = True
        else:
            self._made[row] = payload

    def _find_code(self, dtype: Stored, size: int) -> int:
        """Find the place of a type in ``self._dtypes``; a new type is added."""
        key = str(dtype) if isinstance(dtype, DType) else f"{dtype} {size}"
        code = self._known.setdefault(key, len(self._dtypes))
        if code == len(self._dtypes):
            self._dtypes.append(dtype)
        return code

    def _record_regions(self, ledger: Ledger) -> None:
        """Record payloads, and as protobuf all bytes between them, which the walk has checked."""
        records, size = self._records, np.array([self._source.size], np.uint64)
        rows = self._inside.nonzero()[0]
        rows = rows[records.places[rows].argsort(kind="stable")]
        starts, sizes = records.places[rows], records.sizes[rows]
        reached = np.maximum.accumulate(np.concatenate([np.zeros(1, np.uint64), starts + sizes]))
        limits = np.concatenate([starts, size])
        gaps = limits > reached
        ledger.regions("protobuf", reached[gaps], limits[gaps] - reached[gaps])
        ledger.payloads("tensor", starts, sizes, lambda row: records.names[int(rows[row])])
        outside: dict[int, list[SourceRange]] = {}
        for payload in self._made.values():
            if isinstance(payload, SourceRange):
                outside.setdefault(id(payload.source), []).append(payload)
        for source in self._files.sources:
            spans = outside.get(id(source), [])
            ledger.member(source).payloads(
                "tensor", np.array([span.offset for span in spans], np.uint64),
                np.array([span.size for span in spans], np.uint64),
            )  # fmt: skip
