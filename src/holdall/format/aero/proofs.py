"""The hashes that an AERO file states for its weights: of tensors, of pages and of shards."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from holdall.base.check import Check
from holdall.base.locks import make_lock
from holdall.base.once import computed_once
from holdall.errors import FormatError
from holdall.format.aero import rules
from holdall.format.aero.chunks import Chunk
from holdall.format.aero.container import Container
from holdall.format.aero.integrity import Pages, read_pages
from holdall.format.aero.layout import PAGES, PHSH, WTSH
from holdall.format.proof import Proof

if TYPE_CHECKING:
    from holdall.format.aero.read import AeroTable
    from holdall.model.payload import Span

__all__ = ["StatedHashes"]

_HELD = 64 << 20  # bytes of the largest page that is kept in memory until its hash is checked, of a remote source
_NEIGHBOURS = 64  # the most tensors that are compared for one range: a hostile file may have all at one place


class StatedHashes:
    """The hashes of one file, found by range. Page hashes are read when they are first needed."""

    def __init__(self, container: Container, table: AeroTable | None) -> None:
        self._container = container
        self._table = table
        self._read: dict[str, Pages] = {}
        self._lock = make_lock()

    def proofs(self, spans: Iterable[Span]) -> Iterator[Proof]:
        """The cheapest proof of each span: the hash of its tensor, of its pages, or of its shard.

        A local source that checks every read takes the pages wherever there are some.
        """
        reached = (0, 0)
        whole: set[int] = set()  # the shards that are proven as a whole, so that no part of them needs a proof
        for source, start, stop in spans:
            shard = self._find_shard(start, stop)
            if source is not self._container.source or shard is None or shard.offset in whole:
                continue
            for proof in self._find_proofs(shard, start, stop):
                if proof.every is None:
                    yield proof
                    if proof.wide and not self._has_hashes:
                        whole.add(shard.offset)
                    continue
                rest = proof.after(reached[1]) if reached[0] <= proof.start < reached[1] else proof
                if rest is not None:  # small tensors share their pages
                    yield rest
                    reached = (proof.start, proof.stop)

    def _find_proofs(self, shard: Chunk, start: int, stop: int) -> list[Proof]:
        source, row = self._container.source, None
        # A local source that checks every read remembers what is proven, so that a page serves other reads too.
        by_pages = source.is_checked and not source.is_remote and shard.name + PAGES in self._page_chunks
        if not by_pages:
            exact = self._rows_by_range.get((start, stop))
            if exact is not None:
                return [self._prove_tensor(row) for row in exact]
            row = self._find_around(start, stop)
        pages = self._prove_pages(shard, start, stop)
        if row is not None and (pages is None or self._size(row) <= pages.stop - pages.start):
            return [self._prove_tensor(row)]
        return [self._prove_shard(shard) if pages is None else pages]

    @property
    def has_tensor_hashes(self) -> bool:
        """Whether the file states the hash of any tensor."""
        return self._table is not None and bool(self._table.tidx.hashed.any())

    @computed_once
    def _has_hashes(self) -> bool:
        return self.has_tensor_hashes

    def find_page_size(self, otherwise: int) -> int:
        """The bytes of a page, 0 without page hashes. Of several sizes the largest: a smaller one may make many pages.

        It is ``otherwise`` if page hashes are damaged: they are made anew, not copied.
        """
        found = [0]
        for shard in self._shards[1]:
            try:
                pages = self._read_pages(shard)
            except FormatError:
                found.append(otherwise)
            else:
                found.append(0 if pages is None else pages.page_size)
        return max(found)

    def list_page_keys(self) -> list[tuple[str, str]]:
        """List the keys of page hashes that the format does not define, with the chunk; none of damaged ones."""
        found: list[tuple[str, str]] = []
        for shard in self._shards[1]:
            with suppress(FormatError):
                pages = self._read_pages(shard)
                found += [(shard.name + PAGES, key) for key in (pages.unknown if pages else ())]
        return found

    @computed_once
    def _rows_by_range(self) -> dict[tuple[int, int], list[int]]:
        """The rows of tensors that have a hash, by start and end of their payload; each hash once."""
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

    def _find_around(self, start: int, stop: int) -> int | None:
        """Find the row of the smallest tensor that has a hash and holds the range; None if there is none."""
        table = self._table
        if table is None or not self._has_hashes:
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

    def _prove_tensor(self, row: int) -> Proof:
        table = self._table
        assert table is not None
        digest = table.tidx.digest(row)
        assert digest is not None
        return table.proof(row, digest)

    @computed_once
    def _shards(self) -> tuple[list[int], list[Chunk]]:
        """The starts of all shards in order, and the shards."""
        shards = sorted(self._container.chunks.all(WTSH), key=lambda shard: shard.offset)
        return [shard.offset for shard in shards], shards

    def _find_shard(self, start: int, stop: int) -> Chunk | None:
        """Find the shard that holds the range; None if there is none."""
        starts, shards = self._shards
        place = bisect_right(starts, start) - 1
        return shards[place] if place >= 0 and start < stop <= starts[place] + shards[place].length else None

    def _prove_shard(self, shard: Chunk) -> Proof:
        where, what = (shard.offset, shard.offset + shard.length), f"aero: {shard.what}"
        return Proof(self._container.source, *where, "blake3", shard.blake3, rules.HASH_WEIGHTS.id, what,
                     stated="the TOC", holds=self._list_names, wide=True)  # fmt: skip

    @computed_once
    def _page_chunks(self) -> dict[str, Chunk]:
        return {chunk.name: chunk for chunk in self._container.chunks.all(PHSH)}

    def _prove_pages(self, shard: Chunk, start: int, stop: int) -> Proof | None:
        """The proof of the pages that hold the range; None if there are no page hashes, or pages are too large."""
        pages = self._read_pages(shard)
        if pages is None:
            return None
        size, source = pages.page_size, self._container.source
        if source.is_remote and size > _HELD:
            return None
        first, last = (start - shard.offset) // size, -(-(stop - shard.offset) // size)
        where = shard.offset + first * size, min(shard.offset + last * size, shard.offset + shard.length)
        digests = pages.digests[32 * first : 32 * last]
        return Proof(source, *where, "blake3", digests, rules.PAGE.id, f"aero: {shard.name!r}", size, first, "PHSH",
                     self._list_names)  # fmt: skip

    def _read_pages(self, shard: Chunk) -> Pages | None:
        """Read the page hashes of a shard once; None if there are none."""
        chunk = self._page_chunks.get(shard.name + PAGES)
        if chunk is None:
            return None
        with self._lock:
            pages = self._read.get(shard.name)
            if pages is None:
                pages = self._read[shard.name] = read_pages(self._container, chunk, {shard.name: shard}, Check())
            return pages

    def _list_names(self, start: int, stop: int) -> str:
        return "no tensor" if self._table is None else self._table.names_between(start, stop)
