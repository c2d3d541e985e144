"""The local headers of a zip: each must agree with the directory, and no two entries may overlap.

Headers are read in ascending order, many at a time, and checked as columns. The first one that breaks a rule is then
examined alone, for the message.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NoReturn, Protocol

import numpy as np

from holdall.base.buffer_sizes import buffer_size
from holdall.base.check import Check
from holdall.format.zip.directory import Directory, gather
from holdall.format.zip.layout import (
    AGREE,
    DESCRIBED_FLAG,
    DESCRIPTOR,
    ENCRYPTED_FLAGS,
    LOCAL,
    LOCAL_FRONT,
    LOCAL_HEADER,
    LOCAL_SIGNATURE,
    OVERLAP,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.source import Source
    from holdall.source.ledger import Ledger

__all__ = ["HeadReader", "find_data"]

_DESCRIPTOR = 24  # the most bytes of a data descriptor, which has the sizes if the local header has not
_GAP = buffer_size(4096)  # bytes between two headers that are read rather than skipped
_PIECE = buffer_size(1 << 20)  # bytes of one read of headers, about
_BATCH = buffer_size(1 << 20)  # bytes that are checked together, about
_FULL = 0xFFFFFFFF


class HeadReader(Protocol):
    """Receives the first bytes of entries. It must not raise: a header further on may break a rule first."""

    def __call__(self, rows: NDArray[np.intp], data: bytes, at: NDArray[np.uint64], room: NDArray[np.uint64]) -> None:
        """``data[at : at + room]`` are the first bytes of the entry in each of ``rows``."""


@dataclass(frozen=True, slots=True)
class _Batch:
    """Some spans of the file, read: span ``first + i`` begins at ``data[at[i]]``, and data ends at ``ends[i]``."""

    first: int
    data: bytes
    at: NDArray[np.uint64]
    ends: NDArray[np.uint64]


def find_data(
    source: Source,
    directory: Directory,
    label: str,
    heads: int,
    read_heads: HeadReader | None,
    check: Check,
    ledger: Ledger,
) -> NDArray[np.uint64]:
    """Find where the data of every entry begins; ``read_heads`` receives about ``heads`` bytes of each."""
    offsets, end = directory.offsets, np.uint64(directory.start)
    order = np.argsort(offsets, kind="stable")
    reach = np.uint64(LOCAL.min_size + heads) + directory.name_size[order]
    spans = offsets[order], np.minimum(offsets[order] + reach, end)
    starts = np.empty(len(order), np.uint64)
    reached = np.uint64(0)
    described, lengths = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
    for batch in _read_batches(source, *spans):
        rows = order[batch.first : batch.first + len(batch.at)]
        front = gather(batch.data, LOCAL_FRONT.dtype, batch.at)
        size = np.uint64(LOCAL.min_size) + front["name_size"].astype(np.uint64) + front["extra_size"].astype(np.uint64)
        data_start = offsets[rows] + size
        stops = data_start + directory.stored[rows]
        agrees = (front["signature"] == LOCAL_SIGNATURE) & _compare_headers(front, batch, directory, rows)
        tails = _measure_descriptors(source, batch, directory, rows, size, stops)
        after = stops + tails
        before = np.concatenate([np.array([reached]), after[:-1]])
        sound = agrees & (offsets[rows] >= before) & (after <= end)
        if not sound.all():
            bad = int((~sound).argmax())
            places = int(before[bad]), int(stops[bad])
            _refuse_entry(directory, int(rows[bad]), front[bad], bool(agrees[bad]), *places, label, check)
        starts[rows] = data_start
        reached = after[-1]
        described.append(stops[tails > 0])
        lengths.append(tails[tails > 0])
        if read_heads is not None:
            at = batch.at + size
            room = np.minimum(directory.stored[rows], np.where(batch.ends > at, batch.ends - at, np.uint64(0)))
            read_heads(rows, batch.data, at, room)
    if any(map(len, described)):
        ledger.regions("data descriptor", np.concatenate(described), np.concatenate(lengths))
    ledger.add_scattered(LOCAL, offsets, starts - offsets, directory.names.__getitem__)
    return starts


def _compare_headers(
    front: NDArray[np.void], batch: _Batch, directory: Directory, rows: NDArray[np.intp]
) -> NDArray[np.bool_]:  # fmt: skip
    """Which local headers agree with the directory; sizes may follow the data, or be in the zip64 field."""
    flags = front["flags"].astype(np.uint64)
    described = flags & np.uint64(DESCRIBED_FLAG) != 0
    sizes = front["crc"] == directory.crcs[rows]
    for name, column in (("stored", directory.stored), ("size", directory.sizes)):
        sizes &= (front[name] == column[rows]) | (front[name] == _FULL)
    same: NDArray[np.bool_] = (front["method"] == directory.methods[rows]) & (described | sizes)
    same &= (flags ^ directory.flags[rows]) & np.uint64(ENCRYPTED_FLAGS | DESCRIBED_FLAG) == 0
    lengths = front["name_size"]
    same &= lengths == directory.name_size[rows]
    for length in sorted(set(lengths[same].tolist()) - {0}):
        places = (same & (lengths == length)).nonzero()[0]
        here = gather(batch.data, f"V{length}", batch.at[places] + np.uint64(LOCAL.min_size))
        there = gather(directory.data, f"V{length}", directory.name_at[rows[places]])
        if here.tobytes() != there.tobytes():
            letters = here.view(np.uint8) == there.view(np.uint8)
            same[places] = letters.reshape(-1, length).all(axis=1)
    return same


def _measure_descriptors(
    source: Source, batch: _Batch, directory: Directory, rows: NDArray[np.intp], size: NDArray[np.uint64],
    stops: NDArray[np.uint64],
) -> NDArray[np.uint64]:  # fmt: skip
    """Measure the data descriptor after each entry, 0 for none.

    A descriptor may begin with a signature, and has sizes of 32 or of 64 bits.
    """
    found = np.zeros(len(rows), np.uint64)
    end = np.uint64(directory.start)
    wanted = (directory.flags[rows] & np.uint64(DESCRIBED_FLAG) != 0) & (stops <= end)
    at = batch.at + size + directory.stored[rows]
    near = (wanted & (at + np.uint64(_DESCRIPTOR) <= batch.ends)).nonzero()[0]
    stored, sizes = directory.stored[rows], directory.sizes[rows]
    marked = gather(batch.data, "V4", at[near]).view("<u4") == int.from_bytes(DESCRIPTOR, "little")
    lead = np.where(marked, np.uint64(4), np.uint64(0))
    pair = gather(batch.data, "V16", at[near] + lead + np.uint64(4)).view("<u8").reshape(-1, 2)
    wide = (pair[:, 0] == stored[near]) & (pair[:, 1] == sizes[near])
    found[near] = lead + np.where(wide, np.uint64(20), np.uint64(12))
    wanted[near] = False
    for row in wanted.nonzero()[0].tolist():
        stop = int(stops[row])
        tail = source.read(stop, min(_DESCRIPTOR, directory.start - stop))
        skip = 4 if tail.startswith(DESCRIPTOR) else 0
        numbers = int(stored[row]).to_bytes(8, "little") + int(sizes[row]).to_bytes(8, "little")
        found[row] = skip + (20 if tail[skip + 4 : skip + 20] == numbers else 12)
    return found


def _refuse_entry(
    directory: Directory, row: int, front: np.void, agrees: bool, reached: int, stop: int, label: str, check: Check
) -> NoReturn:  # fmt: skip
    """Report what is wrong with one entry, whose data ends at ``stop``; entries before it end at ``reached``."""
    offset, what = int(directory.offsets[row]), f"{label}: entry {directory.names[row]!r}"
    if front["signature"] != LOCAL_SIGNATURE:
        check.fail(LOCAL_HEADER, offset, f"{what}: no local header at {offset}")
    if not agrees:
        check.fail(AGREE, offset, f"{what}: its local header says something else")
    if offset < reached or stop > directory.start:
        check.fail(OVERLAP, offset, f"{what} at {offset}..{stop} reaches into its neighbours")
    check.fail(OVERLAP, stop, f"{what} has no room for what follows its data")


def _read_batches(source: Source, starts: NDArray[np.uint64], stops: NDArray[np.uint64]) -> Iterator[_Batch]:
    """Read ascending spans of the file in a few large pieces; each piece holds whole spans."""
    if not len(starts):
        return
    gaps = starts[1:] > np.maximum.accumulate(stops)[:-1] + np.uint64(_GAP)
    cuts = gaps | (starts[1:] // np.uint64(_PIECE) != starts[:-1] // np.uint64(_PIECE))
    first = np.concatenate([np.zeros(1, np.intp), cuts.nonzero()[0] + 1])  # span of each piece
    starts_with, ends = starts[first], np.maximum.reduceat(stops, first)
    sizes = ends - starts_with
    places = np.cumsum(sizes) - sizes
    batch_of = places // np.uint64(_BATCH)
    edges = [0, *((batch_of[1:] != batch_of[:-1]).nonzero()[0] + 1).tolist(), len(first)]
    limits = np.append(first, len(starts))
    for low, high in pairwise(edges):
        data = bytearray(int(sizes[low:high].sum()))
        window, at = memoryview(data), 0
        for begin, size in zip(starts_with[low:high].tolist(), sizes[low:high].tolist(), strict=True):
            source.read_into(begin, window[at : at + size])
            at += size
        counts = np.diff(limits[low : high + 1])
        base = np.repeat(places[low:high] - places[low], counts)
        lo, hi = int(limits[low]), int(limits[high])
        inside = starts[lo:hi] - np.repeat(starts_with[low:high], counts) + base
        yield _Batch(lo, bytes(data), inside, base + np.repeat(sizes[low:high], counts))
