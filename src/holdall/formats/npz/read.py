"""Reading npz and npy: the header of every array, the elements where they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from holdall.arranged import Arrangement, contiguous_strides
from holdall.check import Check, figure
from holdall.dtypes import DType
from holdall.encodings import Stored
from holdall.formats.npz import metadata, rules
from holdall.formats.npz.header import Array, parse, span
from holdall.formats.npz.layout import MAGIC, METADATA, SUFFIX
from holdall.inflated import read_part
from holdall.metadata import Entry, Metadata
from holdall.model import ColumnTable, Model
from holdall.payload import Made, Payload, Range
from holdall.zipfiles import STORED, Archive, read_archive

if TYPE_CHECKING:
    from holdall.ledger import Ledger
    from holdall.source import Source

__all__ = ["LONE", "NpzNative", "read"]

LONE = "array"  # what the one array of an npy file is called
_HEAD = 320  # bytes of each entry that are read along with its zip header: nearly always the whole npy header


@dataclass(frozen=True, slots=True, eq=False)
class NpzNative:
    """What only npz has: the archive; None for a lone npy file."""

    archive: Archive | None = None


class _Rows:
    """The tensors found so far, as columns."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.dtypes: list[Stored] = []
        self.codes: list[int] = []
        self.shapes: list[tuple[int, ...]] = []
        self.starts: list[int] = []
        self.sizes: list[int] = []
        self.made: dict[int, Payload] = {}
        self._known: dict[str, int] = {}

    def add(self, name: str, array: Array, place: Payload, source: Source) -> None:
        """One array, whose file (header and elements) is ``place``."""
        size = place.size - array.start
        elements: Payload
        if isinstance(place, Range):
            elements = Range(source, place.offset + array.start, size)
        else:
            elements = Made(size, partial(_after, place, array.start))
        turned = array.fortran and sum(size > 1 for size in array.shape) > 1
        if turned or array.swap:
            strides = contiguous_strides(array.shape)
            if turned:
                strides = tuple(reversed(contiguous_strides(array.shape[::-1])))
            elements = Arrangement(elements, array.width, array.shape, strides, 0, array.swap).payload()
        if not isinstance(elements, Range):
            self.made[len(self.names)] = elements
        self.starts.append(elements.offset if isinstance(elements, Range) else 0)
        self.sizes.append(size)
        key = str(array.dtype) if isinstance(array.dtype, DType) else f"{array.dtype} {size}"
        code = self._known.setdefault(key, len(self.dtypes))
        if code == len(self.dtypes):
            self.dtypes.append(array.dtype)
        self.codes.append(code)
        self.shapes.append(array.shape)
        self.names.append(name)

    def table(self, source: Source) -> ColumnTable:
        """All of them."""
        return ColumnTable(
            source,
            self.names,
            self.dtypes,
            np.array(self.codes, np.uint32),
            self.shapes,
            np.array(self.starts, np.uint64),
            np.array(self.sizes, np.uint64),
            made=self.made,
        )


def read(source: Source, check: Check, ledger: Ledger) -> Model:
    """The arrays in ``source``."""
    rows, entries = _Rows(), Metadata()
    archive = None
    if source.read(0, min(len(MAGIC), source.size)) == MAGIC:
        place = Range(source, 0, source.size)
        array = _array(place, source.read(0, min(_HEAD, source.size)), "npz: the array", check)
        ledger.region("npy header", 0, array.start)
        ledger.payloads("array", np.array([array.start]), np.array([source.size - array.start]), lambda _: LONE)
        rows.add(LONE, array, place, source)
    else:
        archive = read_archive(source, check, ledger, "npz", heads=_HEAD)
        entries = _entries(archive, rows, check, ledger)
    return Model(
        rows.table(source),
        metadata=entries,
        native=NpzNative(archive),
        format="npz",
        sources=[source],
        ledger=ledger,
    )


def _entries(archive: Archive, rows: _Rows, check: Check, ledger: Ledger) -> Metadata:
    """Every entry into a row, or the metadata."""
    found: list[Entry] = []
    known: dict[tuple[bytes, int], Array] = {}  # most arrays of a model have a header that others have too
    headers: list[tuple[int, int]] = []
    payloads: list[tuple[str, int, int]] = []
    others: list[tuple[int, int]] = []
    for row, name in enumerate(archive.names):
        start, stored = archive.starts[row], archive.stored[row]
        payload = archive.payload(row)
        plain = archive.methods[row] == STORED
        if name.endswith("/") and not stored:
            continue
        with check.scope():
            others.append((start, 0 if plain else stored))
            if not name.endswith(SUFFIX):
                check.fail(rules.ENTRY, start, f"{archive.label(row)} is not an array: its name does not end in .npy")
            head = archive.heads[row]
            if not plain or len(head) < min(_HEAD, payload.size):
                head = read_part(payload, 0, min(_HEAD, payload.size))
            array = _array(payload, head, archive.label(row), check, known)
            if plain:
                headers.append((start, array.start))
            title = name.removesuffix(SUFFIX)
            if title == METADATA and metadata.is_document(payload, array):
                if plain:
                    ledger.region("metadata", start + array.start, payload.size - array.start)
                found += metadata.read(payload, array, start + array.start, check)
            else:
                if plain:
                    payloads.append((title, start + array.start, payload.size - array.start))
                rows.add(title, array, payload, archive.source)
    for kind, spans in (("npy header", headers), ("deflated", [place for place in others if place[1]])):
        ledger.regions(kind, [start for start, _ in spans], [size for _, size in spans])
    ledger.payloads(
        "array", np.array([at for _, at, _ in payloads], np.uint64), np.array([n for _, _, n in payloads], np.uint64),
        [name for name, _, _ in payloads].__getitem__,
    )  # fmt: skip
    return Metadata(found)


def _after(place: Payload, start: int) -> Iterator[memoryview]:
    """What follows the first ``start`` bytes."""
    for piece in place.chunks():
        if start < len(piece):
            yield piece[start:]
        start = max(0, start - len(piece))


def _array(
    place: Payload, head: bytes, what: str, check: Check, known: dict[tuple[bytes, int], Array] | None = None
) -> Array:
    """The header of the array in ``place``, which begins with ``head``; ``known`` are headers seen before."""
    at = place.offset if isinstance(place, Range) else 0
    start, stop = span(head, at, check, what)
    if stop > place.size:
        check.fail(rules.SHORT, at, f"{what}: a header of {stop} bytes does not fit the {place.size} there are")
    check.limit("name_bytes", stop, at, f"{what}: bytes of header")
    text = head[start:stop] if stop <= len(head) else read_part(place, start, stop)
    array = known.get((text, stop)) if known is not None else None
    if array is None:
        array = parse(text, stop, at + start, check, what)
        if known is not None:
            known[text, stop] = array
    needed = prod(array.shape) * array.width
    if needed != place.size - stop:
        shown = f"{array.dtype}{list(array.shape)} needs {figure(needed)} bytes"
        check.fail(rules.SIZE, at + stop, f"{what}: {shown}, and {place.size - stop} are there")
    return array
