"""What of a good copy makes a damaged AERO file whole: the smallest ranges that have a hash of their own."""

from __future__ import annotations

from holdall.check import Check
from holdall.errors import FormatError
from holdall.format import Patch, Tick
from holdall.formats.aero import rules
from holdall.formats.aero.audit import Damage, hashed_ranges, survey
from holdall.formats.aero.chunks import Chunk, content, pieces
from holdall.formats.aero.integrity import Pages, check_control, read_pages
from holdall.formats.aero.layout import PHSH, TIDX, WTSH
from holdall.formats.aero.read import AeroNative, AeroTable
from holdall.model import Model
from holdall.payload import Range
from holdall.sink.digests import new_hash

__all__ = ["patches"]


def patches(model: Model, copy: Model, tick: Tick) -> list[Patch]:
    """Every damaged range of ``model`` with the bytes of ``copy`` that its own hashes ask for.

    Header, TOC and string table are what everything else is judged by, and are not repaired.
    """
    native, other = model.native, copy.native
    assert isinstance(native, AeroNative)
    if not isinstance(other, AeroNative):
        raise FormatError(rules.MAGIC.id, None, "aero: the copy is not an AERO file")
    check_control(native.container, Check())
    found = [_chunk_patch(chunk, other) for chunk in native.chunks if not _whole(native, chunk)]
    table = model.tensors if isinstance(model.tensors, AeroTable) else None
    damaged_index = any(patch.start == chunk.offset for patch in found for chunk in native.chunks.all(TIDX))
    pages = _pages(native, other, {patch.start for patch in found})
    table = None if damaged_index else table
    damages = list(survey(native, table, hashed_ranges(native, table, Check()), pages, tick))
    return found + [_weights_patch(damage, native, other) for damage in _smallest(damages, native)]


def _whole(native: AeroNative, chunk: Chunk) -> bool:
    """Whether a chunk other than a shard is what was hashed."""
    from blake3 import blake3

    if chunk.fourcc == WTSH.decode():
        return True
    running = blake3()
    try:
        for piece in pieces(native.container.source, chunk, Check()):
            running.update(piece)
    except FormatError:
        return False
    return running.digest() == chunk.blake3


def _chunk_patch(chunk: Chunk, other: AeroNative) -> Patch:
    """A whole chunk from the copy."""
    twin = _twin(chunk, other)
    if (twin.flags, twin.length, twin.ulen, twin.blake3) != (chunk.flags, chunk.length, chunk.ulen, chunk.blake3):
        raise FormatError(rules.HASH.id, chunk.offset, f"aero: {chunk.what} is another one in the copy")
    content(other.container.source, twin, Check())
    payload = Range(other.container.source, twin.offset, twin.length)
    return Patch(chunk.offset, payload, f"aero: {chunk.what} is damaged ({chunk.length} bytes)")


def _twin(chunk: Chunk, other: AeroNative) -> Chunk:
    for row in other.chunks.rows(chunk.fourcc.encode("latin-1")):
        if other.chunks.names[row] == chunk.name:
            return other.chunks[row]
    raise FormatError(rules.HASH.id, chunk.offset, f"aero: the copy has no {chunk.fourcc} {chunk.name!r}")


def _pages(native: AeroNative, other: AeroNative, damaged: set[int]) -> dict[str, Pages]:
    """The page hashes by shard; those of a damaged chunk as the copy has them, which were proven equal."""
    shards = {shard.name: shard for shard in native.chunks.all(WTSH)}
    found: dict[str, Pages] = {}
    for chunk in native.chunks.all(PHSH):
        home, stored = (other, _twin(chunk, other)) if chunk.offset in damaged else (native, chunk)
        pages = read_pages(home.container, stored, shards, Check())
        found[pages.shard.name] = pages
    return found


def _smallest(damages: list[Damage], native: AeroNative) -> list[Damage]:
    """Damaged pages where there are any, else damaged tensors, else whole shards."""
    chosen: list[Damage] = []
    for shard in native.chunks.all(WTSH):
        inside = [d for d in damages if shard.offset <= d.start and d.start + d.size <= shard.offset + shard.length]
        for rule in (rules.PAGE, rules.TENSOR_HASH, rules.HASH_WEIGHTS):
            of_kind = [damage for damage in inside if damage.rule is rule]
            if of_kind:
                chosen += of_kind
                break
    return chosen


def _weights_patch(damage: Damage, native: AeroNative, other: AeroNative) -> Patch:
    """The same range of the same shard of the copy, proven by the hash that the damaged file has for it."""
    shard = next(s for s in native.chunks.all(WTSH) if s.offset <= damage.start < s.offset + max(1, s.length))
    twin = _twin(shard, other)
    start = twin.offset + damage.start - shard.offset
    if twin.length != shard.length:
        message = f"aero: {shard.name!r} has {shard.length} bytes, in the copy {twin.length}"
        raise FormatError(rules.HASH.id, damage.start, message)
    payload = Range(other.container.source, start, damage.size)
    running = new_hash("blake3", damage.size)
    for piece in payload.chunks():
        running.update(piece)
    if running.digest() != damage.digest:
        message = f"{damage.message}; the copy does not have the right bytes there either"
        raise FormatError(damage.rule.id, damage.start, message)
    return Patch(damage.start, payload, damage.message)
