"""Reading npz and npy: the header of every array; elements stay in the file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING

import numpy as np

from holdall.base.check import Check, figure
from holdall.binary.columns import Shapes, product
from holdall.errors import UnsupportedError
from holdall.format.npz import metadata, rules
from holdall.format.npz.header import Array, find_text, name_encoding, parse
from holdall.format.npz.headers import HEAD, Headers
from holdall.format.npz.layout import MAGIC, METADATA, SUFFIX
from holdall.format.zip.archive import STORED, Archive, read_archive
from holdall.format.zip.inflate import read_part
from holdall.model.dtypes import DType
from holdall.model.encodings import Stored
from holdall.model.metadata import Entry, Metadata
from holdall.model.model import Model
from holdall.model.payload import Computed, Payload, SourceRange
from holdall.model.strided import Arrangement, contiguous_strides
from holdall.model.table import ColumnTable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.source import Source
    from holdall.source.ledger import Ledger

__all__ = ["LONE", "NpzNative", "read"]

LONE = "array"  # the name given to the one array of an npy file
_HEADER = 1 << 16  # the longest header that is read, in bytes
_FLOOR = 1 << 16  # bytes that all headers together may have beyond the size of the file


@dataclass(frozen=True, slots=True, eq=False)
class NpzNative:
    """What only npz has: the archive, which is None for a lone npy file."""

    archive: Archive | None = None


def read(source: Source, check: Check, ledger: Ledger) -> Model:
    """Read the arrays in ``source``."""
    entries, archive = Metadata(), None
    if source.read(0, min(len(MAGIC), source.size)) == MAGIC:
        table = _read_lone(source, check, ledger)
    else:
        headers = Headers()
        archive = read_archive(source, check, ledger, "npz", heads=HEAD, read_heads=headers.read_heads)
        arrays, codes = headers.resolve(archive, check)
        table, entries = _read_entries(archive, arrays, codes, check, ledger)
    return Model(
        table,
        metadata=entries,
        native=NpzNative(archive),
        format="npz",
        sources=[source],
        ledger=ledger,
    )


def _read_lone(source: Source, check: Check, ledger: Ledger) -> ColumnTable:
    """Read the one array of an npy file."""
    place = SourceRange(source, 0, source.size)
    array = _HeaderReader(source.size, check).array(place, "npz: the array")
    start, size = np.array([array.start], np.uint64), np.array([source.size - array.start], np.uint64)
    ledger.region("npy header", 0, array.start)
    ledger.payloads("array", start, size, lambda _: LONE)
    made = _compute_payload(array, place)
    return _make_table(source, [LONE], [array], np.zeros(1, np.intp), start, size, {} if made is None else {0: made})


def _read_entries(
    archive: Archive, arrays: list[Array], codes: NDArray[np.intp], check: Check, ledger: Ledger
) -> tuple[ColumnTable, Metadata]:
    """Read the tensors and the metadata. ``codes`` has the array of each entry; those with -1 are read one by one."""
    names = archive.names
    titles = list(map(str.removesuffix, names, repeat(SUFFIX)))
    _refuse_shadows(archive, titles, check)
    odd = (codes < 0) | ~archive.directory.ends_with(SUFFIX)
    if METADATA in titles:
        odd[titles.index(METADATA)] = True
    kept, documents = ~odd, np.zeros(len(names), np.bool_)
    payloads: dict[int, Payload] = {}
    found: list[Entry] = []
    headers = _HeaderReader(archive.source.size, check)
    for row in odd.nonzero()[0].tolist():
        start, payload = int(archive.starts[row]), archive.payload(row)
        if names[row].endswith("/") and not archive.stored[row]:
            continue
        with check.scope():
            if not names[row].endswith(SUFFIX):
                check.fail(rules.ENTRY, start, f"{archive.label(row)} is not an array: its name does not end in .npy")
            array = headers.array(payload, archive.label(row))
            codes[row] = len(arrays)
            arrays.append(array)
            documents[row] = titles[row] == METADATA and metadata.is_document(payload, array)
            if documents[row]:
                if archive.methods[row] == STORED:
                    ledger.region("metadata", start + array.start, payload.size - array.start)
                found += metadata.read(payload, array, start + array.start, check)
            else:
                kept[row] = True
                made = _compute_payload(array, payload)
                if made is not None:
                    payloads[row] = made
    rows = kept.nonzero()[0]
    fronts = np.array([array.start for array in arrays], np.uint64)
    starts, sizes = archive.starts[rows] + fronts[codes[rows]], archive.sizes[rows] - fronts[codes[rows]]
    _record_regions(archive, titles, fronts, codes, kept, documents, ledger)
    if len(rows) < len(names):
        titles = [titles[row] for row in rows.tolist()]
        payloads = {number: payloads[row] for number, row in enumerate(rows.tolist()) if row in payloads}
    return _make_table(archive.source, titles, arrays, codes[rows], starts, sizes, payloads), Metadata(found)


def _refuse_shadows(archive: Archive, titles: list[str], check: Check) -> None:
    """numpy looks for an entry of the given name before it adds .npy to that: ``w.npy.npy`` could not be reached."""
    rows = archive.directory.ends_with(2 * SUFFIX).nonzero()[0].tolist()
    known = set(archive.names) if rows else frozenset[str]()
    for row in rows:
        if titles[row] in known:
            message = f"{archive.label(row)} is the array {titles[row]!r}, which is the name of another entry"
            check.fail(rules.SHADOW, int(archive.starts[row]), message)


def _record_regions(
    archive: Archive, titles: list[str], fronts: NDArray[np.uint64], codes: NDArray[np.intp],
    kept: NDArray[np.bool_], documents: NDArray[np.bool_], ledger: Ledger,
) -> None:  # fmt: skip
    """Record headers, elements and deflated entries in the ledger."""
    plain = archive.methods == STORED
    deflated = (~plain & (archive.stored > 0)).nonzero()[0]
    headed = (plain & (kept | documents)).nonzero()[0]
    ledger.regions("npy header", archive.starts[headed], fronts[codes[headed]], lambda row: titles[headed[row]])
    ledger.regions("deflated", archive.starts[deflated], archive.stored[deflated], lambda row: titles[deflated[row]])
    rows = (plain & kept).nonzero()[0]
    fronts = fronts[codes[rows]]
    ledger.payloads("array", archive.starts[rows] + fronts, archive.sizes[rows] - fronts, lambda row: titles[rows[row]])


def _make_table(
    source: Source, names: list[str], arrays: list[Array], codes: NDArray[np.intp], starts: NDArray[np.uint64],
    sizes: NDArray[np.uint64], made: dict[int, Payload],
) -> ColumnTable:  # fmt: skip
    """Make the tensors ``names``; ``codes`` says which of ``arrays`` describes each."""
    dtypes: list[Stored] = []
    known: dict[str, int] = {}
    kinds = np.empty(len(arrays), np.uint32)
    for number, array in enumerate(arrays):
        size = product(array.shape) * array.width
        key = str(array.dtype) if isinstance(array.dtype, DType) else f"{array.dtype} {size}"
        kinds[number] = known.setdefault(key, len(dtypes))
        if kinds[number] == len(dtypes):
            dtypes.append(array.dtype)
    ranks = np.array([len(array.shape) for array in arrays], np.uint64)
    dims = np.array([size for array in arrays for size in array.shape], np.uint64)
    positions = (np.cumsum(ranks) - ranks) * np.uint64(8)
    shapes = Shapes(dims.astype("<u8").tobytes(), positions[codes], ranks[codes])
    return ColumnTable(source, names, dtypes, kinds[codes], shapes, starts, sizes, payloads=made)


def _compute_payload(array: Array, place: Payload) -> Payload | None:
    """Make the payload of the elements of the array in ``place``; None if they are simply a range of the file."""
    elements: Payload
    if isinstance(place, SourceRange):
        elements = SourceRange(place.source, place.offset + array.start, place.size - array.start)
    else:
        elements = Computed(place.size - array.start, partial(_skip, place, array.start), (place,))
    if elements.size and (array.is_fortran or array.swap):
        strides = contiguous_strides(array.shape)
        if array.is_fortran:
            strides = tuple(reversed(contiguous_strides(array.shape[::-1])))
        return Arrangement(elements, array.width, array.shape, strides, 0, array.swap).payload()
    return None if isinstance(elements, SourceRange) else elements


def _skip(place: Payload, start: int) -> Iterator[memoryview]:
    """The bytes of ``place`` after the first ``start``."""
    for piece in place.chunks():
        if start < len(piece):
            yield piece[start:]
        start = max(0, start - len(piece))


class _HeaderReader:
    """Reads headers one by one, up to a total: deflated, they could be many times as large as the file."""

    def __init__(self, file_size: int, check: Check) -> None:
        self._left = file_size + _FLOOR
        self._check = check

    def array(self, place: Payload, what: str) -> Array:
        """The header of the array in ``place``."""
        check = self._check
        at = place.offset if isinstance(place, SourceRange) else 0
        head = read_part(place, 0, min(HEAD, place.size))
        start, stop = find_text(head, at, check, what)
        if stop > place.size:
            check.fail(rules.SHORT, at, f"{what}: a header of {stop} bytes does not fit the {place.size} there are")
        check.limit("name_bytes", stop, at, f"{what}: bytes of header")
        if stop > _HEADER:
            raise UnsupportedError(f"{what}: a header of {stop} bytes is above the {_HEADER} that are read")
        self._left -= stop
        if self._left < 0:
            check.fail(rules.HEADERS, at, f"{what}: the headers so far come to more bytes than the file has")
        text = head[start:stop] if stop <= len(head) else read_part(place, start, stop)
        array = parse(text, stop, at + start, check, what, name_encoding(head))
        needed = product(array.shape) * array.width
        if needed != place.size - stop:
            shown = f"{array.dtype}{list(array.shape)} needs {figure(needed)} bytes"
            check.fail(rules.SIZE, at + stop, f"{what}: {shown}, and {place.size - stop} are there")
        return array
