"""The hashes of an AERO file that need payload bytes: shards, pages, tensors, and chunks of unknown kinds."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
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

__all__ = ["Damage", "Survey", "audit", "survey"]


@dataclass(frozen=True, slots=True)
class Damage:
    """A range of the file whose bytes are not those that were hashed."""

    rule: Rule
    start: int
    size: int
    digest: bytes  # what the bytes should have
    message: str


@dataclass(frozen=True, slots=True)
class Survey:
    """What the hashes of the weights say."""

    damaged: list[Damage]


def audit(model: Model, check: Check, tick: Tick) -> None:
    """Prove every hash that the structure did not need."""
    native = model.native
    assert isinstance(native, AeroNative)
    table = model.tensors if isinstance(model.tensors, AeroTable) else None
    pages = _pages(native, check)
    for damage in survey(native, table, pages, tick).damaged:
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


def survey(native: AeroNative, table: AeroTable | None, pages: dict[str, Pages], tick: Tick) -> Survey:
    """One pass over all shards: which shards, pages and tensors are not what was hashed."""
    taps: list[Tap] = []
    shards = native.chunks.all(WTSH)
    for shard in shards:
        stop = shard.offset + shard.length
        taps.append(Tap(f"shard {shard.index}", "blake3", shard.offset, stop))
        if shard.name in pages and shard.length:
            taps.append(Tap(f"pages {shard.index}", "blake3", shard.offset, stop, every=pages[shard.name].page_size))
    rows: list[int] = [] if table is None else (table.tidx.hashed & table.present).nonzero()[0].tolist()
    if table is not None:
        starts, sizes = table.offsets, table.tidx.stored
        taps += [Tap(f"tensor {r}", "blake3", int(starts[r]), int(starts[r]) + int(sizes[r])) for r in rows]
    found = digest_ranges(native.container.source, taps, tick)
    hit = _Tensors(table)
    damaged: list[Damage] = []
    for shard in shards:
        if found[f"shard {shard.index}"] != shard.blake3:
            damaged.append(_damaged_shard(shard, found[f"shard {shard.index}"]))
        if f"pages {shard.index}" in found:
            damaged += _damaged_pages(pages[shard.name], found[f"pages {shard.index}"], hit)
    if table is not None:
        damaged += [damage for row in rows if (damage := _damaged_tensor(table, row, found[f"tensor {row}"]))]
    return Survey(damaged)


def _damaged_shard(shard: Chunk, found: bytes) -> Damage:
    message = f"aero: {shard.what}: its BLAKE3 is {found.hex()}, the TOC says {shard.blake3.hex()}"
    return Damage(rules.HASH_WEIGHTS, shard.offset, shard.length, shard.blake3, message)


def _damaged_pages(pages: Pages, found: bytes, hit: _Tensors) -> list[Damage]:
    shard, size = pages.shard, pages.page_size
    wrong = np.frombuffer(found, "V32") != np.frombuffer(pages.digests, "V32")
    damaged = []
    for number in wrong.nonzero()[0].tolist():
        start = shard.offset + number * size
        length = min(size, shard.offset + shard.length - start)
        names = hit.between(start, start + length)
        message = f"aero: page {number} of {shard.name!r} is damaged ({length} bytes); it holds {names}"
        damaged.append(Damage(rules.PAGE, start, length, pages.digests[32 * number : 32 * number + 32], message))
    return damaged


def _damaged_tensor(table: AeroTable, row: int, found: bytes) -> Damage | None:
    digest = table.tidx.digest(row)
    if digest is None or digest == found:
        return None
    message = f"{table.tidx.what(row)}: its BLAKE3 is {found.hex()}, hash_b3 says {digest.hex()}"
    start, size = int(table.offsets[row]), int(table.tidx.stored[row])
    return Damage(rules.TENSOR_HASH, start, size, digest, message)


class _Tensors:
    """Which tensors have bytes in a range of the file."""

    def __init__(self, table: AeroTable | None) -> None:
        self._names: list[str] = []
        self._starts: list[int] = []
        self._ends: list[int] = []
        if table is None:
            return
        used = (table.present & (table.tidx.stored > 0)).nonzero()[0]
        order = used[np.argsort(table.offsets[used], kind="stable")]
        ends = table.offsets[order] + table.tidx.stored[order]
        self._names = [table.names[row] for row in order.tolist()]
        self._starts = table.offsets[order].tolist()
        self._ends = np.maximum.accumulate(ends).tolist() if len(ends) else []

    def between(self, start: int, stop: int) -> str:
        names = self._names[bisect_right(self._ends, start) : bisect_left(self._starts, stop)]
        if not names:
            return "no tensor"
        shown = ", ".join(repr(name) for name in names[:8])
        return shown if len(names) <= 8 else f"{shown} and {len(names) - 8} more tensors"


def _extra(native: AeroNative, chunk: Chunk, check: Check) -> None:
    from blake3 import blake3

    running = blake3()
    for piece in pieces(native.container.source, chunk, check):
        running.update(piece)
    if running.digest() != chunk.blake3:
        message = f"aero: {chunk.what}: its BLAKE3 is {running.hexdigest()}, the TOC says {chunk.blake3.hex()}"
        check.note(rules.HASH_EXTRA, chunk.offset, message)
