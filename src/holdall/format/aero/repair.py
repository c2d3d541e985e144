"""Repairing a damaged AERO file from a good copy, by the smallest ranges that have hashes."""

from __future__ import annotations

from holdall.base.check import Check
from holdall.errors import FormatError
from holdall.format.aero import rules
from holdall.format.aero.audit import Damage, PayloadHashes, find_hashed_ranges
from holdall.format.aero.chunks import Chunk, iter_content, read_content
from holdall.format.aero.integrity import Pages, check_control, read_pages
from holdall.format.aero.layout import PHSH, TIDX, WTSH
from holdall.format.aero.read import AeroNative, AeroTable
from holdall.format.base import OnProgress, Patch
from holdall.model.model import Model
from holdall.model.payload import SourceRange
from holdall.source.digests import new_hash
from holdall.source.range_hashing import digest_ranges

__all__ = ["patches"]


def patches(model: Model, copy: Model, on_progress: OnProgress) -> list[Patch]:
    """The damaged ranges of ``model``, each with bytes of ``copy`` that have the hash stated by ``model``.

    Header, TOC and string table cannot be repaired, since they have or locate all other hashes.
    """
    native, other = model.native, copy.native
    assert isinstance(native, AeroNative)
    if not isinstance(other, AeroNative):
        raise FormatError(rules.MAGIC.id, None, "aero: the copy is not an AERO file")
    check_control(native.container, Check())
    found = [_patch_chunk(chunk, other) for chunk in native.chunks if not _is_whole(native, chunk)]
    table = model.tensors if isinstance(model.tensors, AeroTable) else None
    damaged_index = any(patch.start == chunk.offset for patch in found for chunk in native.chunks.all(TIDX))
    pages = _read_all_pages(native, other, {patch.start for patch in found})
    table = None if damaged_index else table
    hashes = PayloadHashes(native, table, find_hashed_ranges(native, table, Check()), pages)
    damages = list(hashes.find_damage(digest_ranges(hashes.source, hashes.taps(), on_progress)))
    return found + [_patch_weights(damage, native, other) for damage in _choose_smallest(damages, native)]


def _is_whole(native: AeroNative, chunk: Chunk) -> bool:
    """Whether a chunk has its stated hash; shards are not checked here and count as whole."""
    from blake3 import blake3

    if chunk.fourcc == WTSH.decode():
        return True
    running = blake3()
    try:
        for piece in iter_content(native.container.source, chunk, Check()):
            running.update(piece)
    except FormatError:
        return False
    return running.digest() == chunk.blake3


def _patch_chunk(chunk: Chunk, other: AeroNative) -> Patch:
    """A patch of a whole chunk."""
    twin = _find_twin(chunk, other)
    if (twin.flags, twin.length, twin.ulen, twin.blake3) != (chunk.flags, chunk.length, chunk.ulen, chunk.blake3):
        raise FormatError(rules.HASH.id, chunk.offset, f"aero: {chunk.what} is another one in the copy")
    read_content(other.container.source, twin, Check())
    payload = SourceRange(other.container.source, twin.offset, twin.length)
    return Patch(chunk.offset, payload, f"aero: {chunk.what} is damaged ({chunk.length} bytes)")


def _find_twin(chunk: Chunk, other: AeroNative) -> Chunk:
    for row in other.chunks.rows(chunk.fourcc.encode("latin-1")):
        if other.chunks.names[row] == chunk.name:
            return other.chunks[row]
    raise FormatError(rules.HASH.id, chunk.offset, f"aero: the copy has no {chunk.fourcc} {chunk.name!r}")


def _read_all_pages(native: AeroNative, other: AeroNative, damaged: set[int]) -> dict[str, Pages]:
    """Read the page hashes by shard; a damaged chunk is read from the copy, which has the same hash for it."""
    shards = {shard.name: shard for shard in native.chunks.all(WTSH)}
    found: dict[str, Pages] = {}
    for chunk in native.chunks.all(PHSH):
        home, stored = (other, _find_twin(chunk, other)) if chunk.offset in damaged else (native, chunk)
        pages = read_pages(home.container, stored, shards, Check())
        found[pages.shard.name] = pages
    return found


def _choose_smallest(damages: list[Damage], native: AeroNative) -> list[Damage]:
    """Choose for each shard its damaged pages or, if there are none, its damaged tensors, or else all of it."""
    chosen: list[Damage] = []
    for shard in native.chunks.all(WTSH):
        inside = [d for d in damages if shard.offset <= d.start and d.start + d.size <= shard.offset + shard.length]
        for rule in (rules.PAGE, rules.TENSOR_HASH, rules.HASH_WEIGHTS):
            of_kind = [damage for damage in inside if damage.rule is rule]
            if of_kind:
                chosen += of_kind
                break
    return chosen


def _patch_weights(damage: Damage, native: AeroNative, other: AeroNative) -> Patch:
    """A patch from the same range of the copy, which must have the hash that the damaged file states."""
    shard = next(s for s in native.chunks.all(WTSH) if s.offset <= damage.start < s.offset + max(1, s.length))
    twin = _find_twin(shard, other)
    start = twin.offset + damage.start - shard.offset
    if twin.length != shard.length:
        message = f"aero: {shard.name!r} has {shard.length} bytes, in the copy {twin.length}"
        raise FormatError(rules.HASH.id, damage.start, message)
    payload = SourceRange(other.container.source, start, damage.size)
    running = new_hash("blake3", damage.size)
    for piece in payload.chunks():
        running.update(piece)
    if running.digest() != damage.digest:
        message = f"{damage.message}; the copy does not have the right bytes there either"
        raise FormatError(damage.rule.id, damage.start, message)
    return Patch(damage.start, payload, damage.message)
