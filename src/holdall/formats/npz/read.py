"""Reading npz and npy: the header of every array, the elements where they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING

import numpy as np

from holdall.arranged import Arrangement, contiguous_strides
from holdall.check import Check, figure
from holdall.columns import Shapes, product
from holdall.dtypes import DType
from holdall.encodings import Stored
from holdall.errors import UnsupportedError
from holdall.formats.npz import metadata, rules
from holdall.formats.npz.header import Array, parse, span
from holdall.formats.npz.headers import HEAD, Headers
from holdall.formats.npz.layout import MAGIC, METADATA, SUFFIX
from holdall.inflated import read_part
from holdall.metadata import Entry, Metadata
from holdall.model import ColumnTable, Model
from holdall.payload import Made, Payload, Range
from holdall.zipfiles import STORED, Archive, read_archive

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.ledger import Ledger
    from holdall.source import Source

__all__ = ["LONE", "NpzNative", "read"]

LONE = "array"  # what the one array of an npy file is called
_HEADER = 1 << 16  # bytes of one header that are read
_FLOOR = 1 << 16  # bytes of all headers that are read whatever the file has; beyond it, as many as the file has


@dataclass(frozen=True, slots=True, eq=False)
class NpzNative:
    """What only npz has: the archive; None for a lone npy file."""

    archive: Archive | None = None


def read(source: Source, check: Check, ledger: Ledger) -> Model:
    """The arrays in ``source``."""
    entries, archive = Metadata(), None
    if source.read(0, min(len(MAGIC), source.size)) == MAGIC:
        table = _lone(source, check, ledger)
    else:
        headers = Headers()
        archive = read_archive(source, check, ledger, "npz", heads=HEAD, look=headers.look)
        arrays, codes = headers.settle(archive, check)
        table, entries = _entries(archive, arrays, codes, check, ledger)
    return Model(
        table,
        metadata=entries,
        native=NpzNative(archive),
        format="npz",
        sources=[source],
        ledger=ledger,
    )


def _lone(source: Source, check: Check, ledger: Ledger) -> ColumnTable:
    """The one array of an npy file."""
    place = Range(source, 0, source.size)
    array = _Fronts(source.size, check).array(place, "npz: the array")
    start, size = np.array([array.start], np.uint64), np.array([source.size - array.start], np.uint64)
    ledger.region("npy header", 0, array.start)
    ledger.payloads("array", start, size, lambda _: LONE)
    made = _made(array, place)
    return _table(source, [LONE], [array], np.zeros(1, np.intp), start, size, {} if made is None else {0: made})


def _entries(
    archive: Archive, arrays: list[Array], codes: NDArray[np.intp], check: Check, ledger: Ledger
) -> tuple[ColumnTable, Metadata]:
    """Every entry into a row, or the metadata. Those without a code are looked at one by one."""
    names = archive.names
    titles = list(map(str.removesuffix, names, repeat(SUFFIX)))
    odd = (codes < 0) | ~archive.directory.ends(SUFFIX)
    if METADATA in titles:
        odd[titles.index(METADATA)] = True
    kept, documents = ~odd, np.zeros(len(names), np.bool_)
    payloads: dict[int, Payload] = {}
    found: list[Entry] = []
    headers = _Fronts(archive.source.size, check)
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
                made = _made(array, payload)
                if made is not None:
                    payloads[row] = made
    rows = kept.nonzero()[0]
    fronts = np.array([array.start for array in arrays], np.uint64)
    starts, sizes = archive.starts[rows] + fronts[codes[rows]], archive.sizes[rows] - fronts[codes[rows]]
    _own(archive, titles, fronts, codes, kept, documents, ledger)
    if len(rows) < len(names):
        titles = [titles[row] for row in rows.tolist()]
        payloads = {number: payloads[row] for number, row in enumerate(rows.tolist()) if row in payloads}
    return _table(archive.source, titles, arrays, codes[rows], starts, sizes, payloads), Metadata(found)


def _own(
    archive: Archive, titles: list[str], fronts: NDArray[np.uint64], codes: NDArray[np.intp],
    kept: NDArray[np.bool_], documents: NDArray[np.bool_], ledger: Ledger,
) -> None:  # fmt: skip
    """Tell the ledger of headers, elements and what is deflated."""
    plain = archive.methods == STORED
    deflated = (~plain & (archive.stored > 0)).nonzero()[0]
    headed = (plain & (kept | documents)).nonzero()[0]
    ledger.regions("npy header", archive.starts[headed], fronts[codes[headed]])
    ledger.regions("deflated", archive.starts[deflated], archive.stored[deflated])
    rows = (plain & kept).nonzero()[0]
    fronts = fronts[codes[rows]]
    ledger.payloads("array", archive.starts[rows] + fronts, archive.sizes[rows] - fronts, lambda row: titles[rows[row]])


def _table(
    source: Source, names: list[str], arrays: list[Array], codes: NDArray[np.intp], starts: NDArray[np.uint64],
    sizes: NDArray[np.uint64], made: dict[int, Payload],
) -> ColumnTable:  # fmt: skip
    """Tensors by the array that each of them is."""
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
    return ColumnTable(source, names, dtypes, kinds[codes], shapes, starts, sizes, made=made)


def _made(array: Array, place: Payload) -> Payload | None:
    """The elements of the array in ``place``, where they are not a range of the file as it stands."""
    elements: Payload
    if isinstance(place, Range):
        elements = Range(place.source, place.offset + array.start, place.size - array.start)
    else:
        elements = Made(place.size - array.start, partial(_after, place, array.start), (place,))
    if elements.size and (array.turned or array.swap):
        strides = contiguous_strides(array.shape)
        if array.turned:
            strides = tuple(reversed(contiguous_strides(array.shape[::-1])))
        return Arrangement(elements, array.width, array.shape, strides, 0, array.swap).payload()
    return None if isinstance(elements, Range) else elements


def _after(place: Payload, start: int) -> Iterator[memoryview]:
    """What follows the first ``start`` bytes."""
    for piece in place.chunks():
        if start < len(piece):
            yield piece[start:]
        start = max(0, start - len(piece))


class _Fronts:
    """Headers read one by one. Deflated ones can be many times as large as their file: together they have a bound."""

    def __init__(self, file_size: int, check: Check) -> None:
        self._left = file_size + _FLOOR
        self._check = check

    def array(self, place: Payload, what: str) -> Array:
        """The header of the array in ``place``."""
        check = self._check
        at = place.offset if isinstance(place, Range) else 0
        head = read_part(place, 0, min(HEAD, place.size))
        start, stop = span(head, at, check, what)
        if stop > place.size:
            check.fail(rules.SHORT, at, f"{what}: a header of {stop} bytes does not fit the {place.size} there are")
        check.limit("name_bytes", stop, at, f"{what}: bytes of header")
        if stop > _HEADER:
            raise UnsupportedError(f"{what}: a header of {stop} bytes is above the {_HEADER} that are read")
        self._left -= stop
        if self._left < 0:
            check.fail(rules.HEADERS, at, f"{what}: the headers so far come to more bytes than the file has")
        text = head[start:stop] if stop <= len(head) else read_part(place, start, stop)
        array = parse(text, stop, at + start, check, what)
        needed = product(array.shape) * array.width
        if needed != place.size - stop:
            shown = f"{array.dtype}{list(array.shape)} needs {figure(needed)} bytes"
            check.fail(rules.SIZE, at + stop, f"{what}: {shown}, and {place.size - stop} are there")
        return array
