"""The hashes that an AERO file states of its weights: of tensors, of pages, of shards."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from holdall.check import Check
from holdall.formats.aero import rules
from holdall.formats.aero.chunks import Chunk, Container
from holdall.formats.aero.integrity import Pages, read_pages
from holdall.formats.aero.layout import PAGES, PHSH, WTSH
from holdall.locks import Lock
from holdall.proof import Proof

if TYPE_CHECKING:
    from holdall.formats.aero.read import AeroTable
    from holdall.payload import Span

__all__ = ["Stated"]

_HELD = 64 << 20  # bytes of the largest page that a remote source can hold until it is proven
_NEIGHBOURS = 64  # tensors at one place that are looked at: hostile files have them all at one


class Stated:
    """What one file states, by place. Page hashes are read when they are first needed."""

    def __init__(self, container: Container, table: AeroTable | None) -> None:
        self._container = container
        self._table = table
        self._read: dict[str, Pages] = {}
        self._lock = Lock()

    def proofs(self, spans: Iterable[Span]) -> Iterator[Proof]:
        """For each span the cheapest proof: its tensor's hash, its pages, or the hash of its shard."""
        reached = (0, 0)
        for source, start, stop in spans:
            shard = self._shard(start, stop)
            if source is not self._container.source or shard is None:
                continue
            for proof in self._cover(shard, start, stop):
                if proof.every is None:
                    yield proof
                    continue
                rest = proof.after(reached[1]) if reached[0] <= proof.start < reached[1] else proof
                if rest is not None:  # small tensors share their pages
                    yield rest
                    reached = (proof.start, proof.stop)

    def _cover(self, shard: Chunk, start: int, stop: int) -> list[Proof]:
        exact = self._hashed.get((start, stop))
        if exact is not None:
            return [self._tensor(row) for row in exact]
        row = self._around(start, stop)
        pages = self._pages(shard, start, stop)
        if row is not None and (pages is None or self._size(row) <= pages.stop - pages.start):
            return [self._tensor(row)]
        return [self._whole(shard) if pages is None else pages]

    # -- tensors ----------------------------------------------------------------------------------------------------

    @cached_property
    def _hashed(self) -> dict[tuple[int, int], list[int]]:
        """The rows of tensors that have a hash, by where their payload begins and ends; equal hashes once."""
        table = self._table
        if table is None:
            return {}
        rows = (table.tidx.hashed & table.present).nonzero()[0]
        starts = table.offsets[rows]
        places = zip(starts.tolist(), (starts + table.tidx.sizes[rows]).tolist(), strict=True)
        found: dict[tuple[int, int], list[int]] = {}
        for place, row in zip(places, rows.tolist(), strict=True):
            others = found.setdefault(place, [])
            if len(others) < _NEIGHBOURS and all(
                table.tidx.digest(row) != table.tidx.digest(other) for other in others
            ):
                others.append(row)
        return found

    def _around(self, start: int, stop: int) -> int | None:
        """The row of the smallest tensor with a hash that holds the range."""
        table = self._table
        if table is None:
            return None
        around = [
            row
            for row in table.rows_between(start, stop, _NEIGHBOURS)
            if table.tidx.hashed[row]
            and table.offsets[row] <= start
            and stop <= int(table.offsets[row]) + self._size(row)
        ]
        return min(around, key=self._size, default=None)

    def _size(self, row: int) -> int:
        assert self._table is not None
        return int(self._table.tidx.stored[row])

    def _tensor(self, row: int) -> Proof:
        table = self._table
        assert table is not None
        digest = table.tidx.digest(row)
        assert digest is not None
        return table.proof(row, digest)

    # -- shards and pages -------------------------------------------------------------------------------------------

    @cached_property
    def _shards(self) -> tuple[list[int], list[Chunk]]:
        """Where shards begin, in order, and which they are."""
        shards = sorted(self._container.chunks.all(WTSH), key=lambda shard: shard.offset)
        return [shard.offset for shard in shards], shards

    def _shard(self, start: int, stop: int) -> Chunk | None:
        """The shard that holds the range."""
        starts, shards = self._shards
        place = bisect_right(starts, start) - 1
        return shards[place] if place >= 0 and start < stop <= starts[place] + shards[place].length else None

    def _whole(self, shard: Chunk) -> Proof:
        where, what = (shard.offset, shard.offset + shard.length), f"aero: {shard.what}"
        return Proof(self._container.source, *where, "blake3", shard.blake3, rules.HASH_WEIGHTS.id, what,
                     stated="the TOC", holds=self._names, wide=True)  # fmt: skip

    @cached_property
    def _page_chunks(self) -> dict[str, Chunk]:
        return {chunk.name: chunk for chunk in self._container.chunks.all(PHSH)}

    def _pages(self, shard: Chunk, start: int, stop: int) -> Proof | None:
        """The pages that hold the range."""
        chunk = self._page_chunks.get(shard.name + PAGES)
        if chunk is None:
            return None
        with self._lock:
            pages = self._read.get(shard.name)
            if pages is None:
                pages = self._read[shard.name] = read_pages(self._container, chunk, {shard.name: shard}, Check())
        size, source = pages.page_size, self._container.source
        if source.far and size > _HELD:
            return None
        first, last = (start - shard.offset) // size, -(-(stop - shard.offset) // size)
        where = shard.offset + first * size, min(shard.offset + last * size, shard.offset + shard.length)
        digests = pages.digests[32 * first : 32 * last]
        return Proof(source, *where, "blake3", digests, rules.PAGE.id, f"aero: {shard.name!r}", size, first, "PHSH",
                     self._names)  # fmt: skip

    def _names(self, start: int, stop: int) -> str:
        return "no tensor" if self._table is None else self._table.names_between(start, stop)
