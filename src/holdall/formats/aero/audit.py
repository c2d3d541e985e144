"""The hashes of an AERO file that need payload bytes: shards, pages, tensors, and chunks of unknown kinds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from holdall.check import Check, Rule
from holdall.formats.aero import rules
from holdall.formats.aero.chunks import Chunk, pieces
from holdall.formats.aero.integrity import Pages, read_pages
from holdall.formats.aero.layout import PHSH, WTSH
from holdall.formats.aero.read import AeroNative, AeroTable
from holdall.hashing import digest_ranges
from holdall.model import Model
from holdall.plan import Tap

if TYPE_CHECKING:
    from holdall.format import Tick

__all__ = ["Damage", "audit", "hashed_ranges", "survey"]

Hashed = dict[int, tuple[int, int]]  # where the bytes of a tensor begin and end, by its row


@dataclass(frozen=True, slots=True)
class Damage:
    """A range of the file whose bytes are not those that were hashed."""

    rule: Rule
    start: int
    size: int
    digest: bytes  # what the bytes should have
    message: str


def audit(model: Model, check: Check, tick: Tick) -> None:
    """Prove every hash that the structure did not need."""
    native = model.native
    assert isinstance(native, AeroNative)
    table = model.tensors if isinstance(model.tensors, AeroTable) else None
    pages = _pages(native, check)
    hashed: Hashed = {}
    with check.scope():
        hashed = hashed_ranges(native, table, check)
    for damage in survey(native, table, hashed, pages, tick):
        check.note(damage.rule, damage.start, damage.message)
    for chunk in native.extras:
        with check.scope():
            _extra(native, chunk, check)
        tick(chunk.length)
    shards = native.chunks.all(WTSH)
    bare = [shard.name for shard in shards if shard.length and shard.name not in pages]
    if bare:
        check.note(rules.NO_PAGES, None, f"aero: {len(bare)} of {len(shards)} shards have no page hashes (PHSH)")
    if table is not None and not table.tidx.hashed.all():
        count = int((~table.tidx.hashed).sum())
        check.note(rules.NO_TENSOR_HASH, None, f"aero: {count} of {len(table)} tensors have no hash of their own")


def _pages(native: AeroNative, check: Check) -> dict[str, Pages]:
    """The page hashes by shard, as far as they can be used."""
    shards = {shard.name: shard for shard in native.chunks.all(WTSH)}
    found: dict[str, Pages] = {}
    for chunk in native.chunks.all(PHSH):
        with check.scope():
            pages = read_pages(native.container, chunk, shards, check)
            found[pages.shard.name] = pages
    return found


def hashed_ranges(native: AeroNative, table: AeroTable | None, check: Check) -> Hashed:
    """Where the tensors are that have hashes, by row. Those of the same bytes have one range."""
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


def survey(
    native: AeroNative, table: AeroTable | None, hashed: Hashed, pages: dict[str, Pages], tick: Tick
) -> Iterator[Damage]:
    """One pass over all shards: which shards, pages and ``hashed`` tensors are not what was hashed."""
    taps: list[Tap] = []
    shards = native.chunks.all(WTSH)
    for shard in shards:
        stop = shard.offset + shard.length
        taps.append(Tap(f"shard {shard.index}", "blake3", shard.offset, stop))
        if shard.name in pages and shard.length:
            taps.append(Tap(f"pages {shard.index}", "blake3", shard.offset, stop, every=pages[shard.name].page_size))
    taps += [Tap(_tensor_tap(each), "blake3", *each) for each in sorted(set(hashed.values()))]
    found = digest_ranges(native.container.source, taps, tick)
    for shard in shards:
        if found[f"shard {shard.index}"] != shard.blake3:
            yield _damaged_shard(shard, found[f"shard {shard.index}"])
        if f"pages {shard.index}" in found:
            yield from _damaged_pages(pages[shard.name], found[f"pages {shard.index}"], table)
    for row, each in hashed.items():
        assert table is not None, "no table has no rows"
        damage = _damaged_tensor(table, row, found[_tensor_tap(each)])
        if damage is not None:
            yield damage


def _tensor_tap(range_: tuple[int, int]) -> str:
    """What the digest of a tensor's bytes is called while it is taken."""
    return f"tensor {range_[0]} {range_[1]}"


def _damaged_shard(shard: Chunk, found: bytes) -> Damage:
    message = f"aero: {shard.what}: its BLAKE3 is {found.hex()}, the TOC says {shard.blake3.hex()}"
    return Damage(rules.HASH_WEIGHTS, shard.offset, shard.length, shard.blake3, message)


def _damaged_pages(pages: Pages, found: bytes, table: AeroTable | None) -> Iterator[Damage]:
    shard, size = pages.shard, pages.page_size
    wrong = np.frombuffer(found, "V32") != np.frombuffer(pages.digests, "V32")
    for number in wrong.nonzero()[0].tolist():
        start = shard.offset + number * size
        length = min(size, shard.offset + shard.length - start)
        names = "no tensor" if table is None else table.names_between(start, start + length)
        message = f"aero: page {number} of {shard.name!r} is damaged ({length} bytes); it holds {names}"
        yield Damage(rules.PAGE, start, length, pages.digests[32 * number : 32 * number + 32], message)


def _damaged_tensor(table: AeroTable, row: int, found: bytes) -> Damage | None:
    digest = table.tidx.digest(row)
    if digest is None or digest == found:
        return None
    message = f"{table.tidx.what(row)}: its BLAKE3 is {found.hex()}, hash_b3 says {digest.hex()}"
    start, size = int(table.offsets[row]), int(table.tidx.stored[row])
    return Damage(rules.TENSOR_HASH, start, size, digest, message)


def _extra(native: AeroNative, chunk: Chunk, check: Check) -> None:
    from blake3 import blake3

    running = blake3()
    for piece in pieces(native.container.source, chunk, check):
        running.update(piece)
    if running.digest() != chunk.blake3:
        message = f"aero: {chunk.what}: its BLAKE3 is {running.hexdigest()}, the TOC says {chunk.blake3.hex()}"
        check.note(rules.HASH_EXTRA, chunk.offset, message)
