"""The hashes of an AERO file that need payload bytes: shards, pages, tensors, and chunks of unknown kinds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from holdall.base.check import Check, Rule
from holdall.format.aero import rules
from holdall.format.aero.chunks import Chunk, iter_content
from holdall.format.aero.integrity import Pages, read_pages
from holdall.format.aero.layout import PHSH, WTSH
from holdall.format.aero.read import AeroNative, AeroTable
from holdall.model.model import Model
from holdall.source.digests import Tap
from holdall.source.range_hashing import digest_ranges

if TYPE_CHECKING:
    from holdall.format.base import OnProgress
    from holdall.source import Source

__all__ = ["Damage", "PayloadHashes", "audit", "collect_hashes", "find_hashed_ranges", "report_damage"]

HashedRanges = dict[int, tuple[int, int]]  # where the bytes of each tensor begin and end, by its row


@dataclass(frozen=True, slots=True)
class Damage:
    """A range of the file whose hash is not the stated one."""

    rule: Rule
    start: int
    size: int
    digest: bytes  # the stated one
    message: str


def audit(model: Model, check: Check, on_progress: OnProgress) -> None:
    """Check every hash that opening the file did not check, in one pass over the bytes."""
    hashes = collect_hashes(model, check)
    report_damage(hashes, digest_ranges(hashes.source, hashes.taps(), on_progress), check, on_progress)


class PayloadHashes:
    """The hashes that a file states of its shards, pages, tensors and chunks of unknown kinds."""

    def __init__(
        self, native: AeroNative, table: AeroTable | None, hashed: HashedRanges, pages: dict[str, Pages]
    ) -> None:
        self.native = native
        self.table = table
        self.pages = pages
        self.shards = native.chunks.all(WTSH)
        self.source = native.container.source
        # The hashes of shards are among those of weights, and page hashes are proven when they are read.
        weights = (WTSH.decode(), PHSH.decode())
        self.extras = [chunk for chunk in native.extras if chunk.fourcc not in weights]
        self._hashed = hashed

    def taps(self) -> list[Tap]:
        """The taps that compute all of them, but those of compressed chunks."""
        taps: list[Tap] = []
        for shard in self.shards:
            stop = shard.offset + shard.length
            taps.append(Tap(f"shard {shard.index}", "blake3", shard.offset, stop))
            if shard.name in self.pages and shard.length:
                every = self.pages[shard.name].page_size
                taps.append(Tap(f"pages {shard.index}", "blake3", shard.offset, stop, every=every))
        taps += [Tap(_name_tensor_tap(each), "blake3", *each) for each in sorted(set(self._hashed.values()))]
        for chunk in self.extras:
            if not chunk.compressed:
                taps.append(Tap(f"extra {chunk.index}", "blake3", chunk.offset, chunk.offset + chunk.length))
        return taps

    def find_damage(self, found: Mapping[str, Any]) -> Iterator[Damage]:
        """Compare the results of the taps with the hashes of weights; those of chunks of unknown kinds are left out."""
        for shard in self.shards:
            if found[f"shard {shard.index}"] != shard.blake3:
                yield _describe_damaged_shard(shard, found[f"shard {shard.index}"])
            if f"pages {shard.index}" in found:
                yield from _describe_damaged_pages(self.pages[shard.name], found[f"pages {shard.index}"], self.table)
        for row, each in self._hashed.items():
            assert self.table is not None, "no table has no rows"
            damage = _describe_damaged_tensor(self.table, row, found[_name_tensor_tap(each)])
            if damage is not None:
                yield damage


def collect_hashes(model: Model, check: Check) -> PayloadHashes:
    """Read where the hashes of an open file are, and which."""
    native = model.native
    assert isinstance(native, AeroNative)
    table = model.tensors if isinstance(model.tensors, AeroTable) else None
    pages = _read_all_pages(native, check)
    hashed: HashedRanges = {}
    with check.scope():
        hashed = find_hashed_ranges(native, table, check)
    return PayloadHashes(native, table, hashed, pages)


def report_damage(hashes: PayloadHashes, found: Mapping[str, Any], check: Check, on_progress: OnProgress) -> None:
    """Report every hash that is not the computed one, and the kinds of hashes that the file does not have."""
    for damage in hashes.find_damage(found):
        # A page is damaged somewhere in it. A shard or tensor may have pages that say where.
        check.note(damage.rule, damage.start, damage.message, size=damage.size if damage.rule is rules.PAGE else None)
    for chunk in hashes.extras:
        with check.scope():
            name = f"extra {chunk.index}"
            digest = found[name] if name in found else _digest_content(hashes.source, chunk, check, on_progress)
            if digest != chunk.blake3:
                message = f"aero: {chunk.what}: its BLAKE3 is {digest.hex()}, the TOC says {chunk.blake3.hex()}"
                check.note(rules.HASH_EXTRA, chunk.offset, message)
    shards, table = hashes.shards, hashes.table
    bare = [shard.name for shard in shards if shard.length and shard.name not in hashes.pages]
    if bare:
        check.note(rules.NO_PAGES, None, f"aero: {len(bare)} of {len(shards)} shards have no page hashes (PHSH)")
    if table is not None and not table.tidx.hashed.all():
        count = int((~table.tidx.hashed).sum())
        check.note(rules.NO_TENSOR_HASH, None, f"aero: {count} of {len(table)} tensors have no hash_b3")


def _digest_content(source: Source, chunk: Chunk, check: Check, on_progress: OnProgress) -> bytes:
    """The BLAKE3 of the uncompressed bytes of a chunk."""
    from blake3 import blake3

    running = blake3()
    for piece in iter_content(source, chunk, check):
        running.update(piece)
    on_progress(chunk.length)
    return running.digest()


def _read_all_pages(native: AeroNative, check: Check) -> dict[str, Pages]:
    """Read the page hashes by shard; chunks that break a rule are left out."""
    shards = {shard.name: shard for shard in native.chunks.all(WTSH)}
    found: dict[str, Pages] = {}
    for chunk in native.chunks.all(PHSH):
        with check.scope():
            pages = read_pages(native.container, chunk, shards, check)
            found[pages.shard.name] = pages
    return found


def find_hashed_ranges(native: AeroNative, table: AeroTable | None, check: Check) -> HashedRanges:
    """Find the places of all tensors that have hashes; the passes over bytes that tensors share are limited."""
    if table is None:
        return {}
    rows = (table.tidx.hashed & table.present).nonzero()[0]
    starts = table.offsets[rows]
    ranges = zip(starts.tolist(), (starts + table.tidx.stored[rows]).tolist(), strict=True)
    found = dict(zip(rows.tolist(), ranges, strict=True))
    size, total = native.container.source.size, sum(stop - start for start, stop in set(found.values()))
    if total > size:  # they share bytes, which is allowed
        check.limit_passes(total - size, size, "aero: passes over tensors that have hashes")
    return found


def _name_tensor_tap(range_: tuple[int, int]) -> str:
    """Return the name of the tap that hashes a tensor's bytes."""
    return f"tensor {range_[0]} {range_[1]}"


def _describe_damaged_shard(shard: Chunk, found: bytes) -> Damage:
    message = f"aero: {shard.what}: its BLAKE3 is {found.hex()}, the TOC says {shard.blake3.hex()}"
    return Damage(rules.HASH_WEIGHTS, shard.offset, shard.length, shard.blake3, message)


def _describe_damaged_pages(pages: Pages, found: bytes, table: AeroTable | None) -> Iterator[Damage]:
    shard, size = pages.shard, pages.page_size
    wrong = np.frombuffer(found, "V32") != np.frombuffer(pages.digests, "V32")
    for number in wrong.nonzero()[0].tolist():
        start = shard.offset + number * size
        length = min(size, shard.offset + shard.length - start)
        names = "no tensor" if table is None else table.names_between(start, start + length)
        message = f"aero: page {number} of {shard.name!r} is damaged ({length} bytes); it holds {names}"
        yield Damage(rules.PAGE, start, length, pages.digests[32 * number : 32 * number + 32], message)


def _describe_damaged_tensor(table: AeroTable, row: int, found: bytes) -> Damage | None:
    digest = table.tidx.digest(row)
    if digest is None or digest == found:
        return None
    message = f"{table.tidx.what(row)}: its BLAKE3 is {found.hex()}, hash_b3 says {digest.hex()}"
    start, size = int(table.offsets[row]), int(table.tidx.stored[row])
    return Damage(rules.TENSOR_HASH, start, size, digest, message)
