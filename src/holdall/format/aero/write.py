"""Writing AERO in one pass over the payloads; the control region, which has every hash, is made last.

The standard order of chunks is [IHSH] MJSN MMSG, chunks that are copied, TIDX, and then each shard with its page
hashes. An index with tensor hashes is complete only after the weights are written: it keeps its place in the table
of contents, while its bytes follow the last shard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from holdall.binary.compression import compress
from holdall.binary.documents import msgpack
from holdall.errors import ContentError
from holdall.format.aero import caps, integrity
from holdall.format.aero.compressing import NewIndex, find_refused, weigh_document
from holdall.format.aero.content import Documents, documents_of
from holdall.format.aero.layout import (
    ALIGN,
    COMPRESSED,
    ENTRY,
    HEADER,
    IHSH,
    IHSH_SIZE,
    IS_INDEX,
    MAGIC,
    MJSN,
    MMAP_CRITICAL,
    MMSG,
    NAMES,
    OPTIONAL,
    PAGES,
    PHSH,
    TABLE_ALIGN,
    TIDX,
    TOC,
    VERSION,
    WTSH,
    shard_name,
)
from holdall.format.aero.own_content import gather_own
from holdall.format.aero.placing import Placements, place_tensors
from holdall.format.aero.planned_chunks import PlannedChunk, plan_extras, rename_extras
from holdall.format.aero.read import list_files
from holdall.format.aero.settings import Settings, settings_of
from holdall.limits import DEFAULT_LIMITS, Limits
from holdall.model.model import Model
from holdall.sink.plan import Placed, Plan, Results
from holdall.source.digests import Parts

__all__ = ["plan", "plan_index", "plan_weights"]

_ROLES = {IHSH: "control_integrity", MJSN: "json", MMSG: "manifest", TIDX: "tensors", WTSH: "weights",
          PHSH: "page_hashes"}  # fmt: skip
_FLAGS = {IHSH: OPTIONAL, MJSN: 0, MMSG: 0, TIDX: IS_INDEX, WTSH: MMAP_CRITICAL, PHSH: OPTIONAL}


def plan(model: Model, options: Mapping[str, Any]) -> Plan:
    """Plan the AERO file that holds ``model``."""
    settings = settings_of(model, options)
    own = gather_own(list_files(model))
    documents = documents_of(model, settings, own)
    extras = plan_extras(settings, own)
    placed = place_tensors(model, settings, documents.quants, own.index)
    return plan_weights(placed, settings, documents, extras)


def plan_weights(
    placed: Placements,
    settings: Settings,
    documents: Documents,
    extras: Sequence[PlannedChunk] = (),
    limits: Limits = DEFAULT_LIMITS,
) -> Plan:
    """Plan a file with its weights and ``extras``, chunks that are copied or given; it opens under ``limits``."""
    if documents.pending and MJSN in settings.compressed:
        message = "mjsn=compressed is not possible with metadata that is known only after writing (--carry)"
        raise ContentError(f"aero: {message}")
    return _settle(partial(_plan_weights, placed, documents, extras), settings, limits)


def _settle(
    make: Callable[[Settings], tuple[Plan, NewIndex]], settings: Settings, limits: Limits, elsewhere: int = 0
) -> Plan:
    """Plan until a reader would take the file, each time with one more document that is not compressed.

    ``elsewhere`` are the bytes of other files that the index describes.
    """
    notes: list[str] = []
    while True:
        out, index = make(settings)
        index.beside, index.limits = out.cursor + elsewhere, limits
        refused = find_refused(index.weighed, index.beside, limits)
        if refused is None:
            out.notes += notes
            return out
        settings = replace(settings, compressed=settings.compressed - {refused})
        notes.append(f"{refused.decode()} is not compressed: readers refuse what grows so much in a file of this size")


def _plan_weights(
    placed: Placements, documents: Documents, extras: Sequence[PlannedChunk], settings: Settings
) -> tuple[Plan, NewIndex]:
    shards = placed.bounds()
    planned, notes = _list_chunks(placed, settings, documents, extras)
    hashes = [f"tensors.{shard}" for shard in range(len(shards))] if settings.tensor_hash else []
    index = NewIndex(placed, hashes, TIDX in settings.compressed)
    out = _begin_plan(planned, settings, index, ("json",) if documents.pending else ())
    out.notes += notes
    for row, item in enumerate(planned):
        out.align(ALIGN)
        if item.extra is not None:
            caps.check_metadata(item.fourcc, item.ulen)
            item.offset, item.length = out.stream(item.extra), item.extra.size
            if not item.digest:
                out.tap(f"extra.{row}", "blake3", item.offset, item.offset + item.length)
        elif item.fourcc == MJSN:
            _put(out, item, documents.json or b"", index)
            if documents.pending:
                out.tap("json", "blake3", item.offset, item.offset + item.length, reread=True)
        elif item.fourcc == MMSG:
            _put(out, item, _encode_manifest(documents, planned, shards), index)
        elif item.fourcc == TIDX and not hashes:
            _put_index(out, item, index)
        elif item.fourcc == WTSH:
            out.align(max(ALIGN, settings.align))
            _put_shard(out, item, placed, *shards[item.shard], settings.tensor_hash)
        elif item.fourcc == PHSH:
            _put_pages(out, item, settings.page)
    return out, index


def _list_chunks(
    placed: Placements, settings: Settings, documents: Documents, extras: Sequence[PlannedChunk]
) -> tuple[list[PlannedChunk], list[str]]:
    """List all chunks of a file with weights, in the standard order, and say which were renamed."""
    planned = [_plan_chunk(IHSH, settings)] if settings.control_hash else []
    planned += [_plan_chunk(MJSN, settings)] if documents.json is not None else []
    planned.append(_plan_chunk(MMSG, settings))
    before = len(planned)
    planned.append(_plan_chunk(TIDX, settings))
    ends = placed.ends()
    pages = sum(map(bool, ends)) if settings.page else 0
    names = sum(len(item.name) for item in (*planned, *extras))
    caps.check_table(len(planned) + len(extras) + len(ends) + pages, names)
    for number, size in enumerate(ends):
        planned.append(PlannedChunk(WTSH, shard_name(number), _FLAGS[WTSH], number, length=size))
        if settings.page and size:
            planned.append(PlannedChunk(PHSH, shard_name(number) + PAGES, _FLAGS[PHSH], number))
    named, notes = rename_extras(extras, planned)
    return [*planned[:before], *named, *planned[before:]], notes


def plan_index(
    placed: Placements, settings: Settings, documents: Documents, hashes: Sequence[str], part_bytes: int
) -> Plan:
    """Plan the global index of a set, without weights. ``hashes`` name the taps of the parts that hash tensors.

    ``part_bytes`` are the bytes of all parts, or fewer.
    """
    return _settle(partial(_plan_index, placed, documents, hashes), settings, DEFAULT_LIMITS, part_bytes)


def _plan_index(
    placed: Placements, documents: Documents, hashes: Sequence[str], settings: Settings
) -> tuple[Plan, NewIndex]:
    planned = [_plan_chunk(IHSH, settings)] if settings.control_hash else []
    planned += [_plan_chunk(MMSG, settings), _plan_chunk(TIDX, settings)]
    index = NewIndex(placed, hashes, TIDX in settings.compressed)
    out = _begin_plan(planned, settings, index)
    for item in planned:
        out.align(ALIGN)
        if item.fourcc == MMSG:
            _put(out, item, _encode_manifest(documents, planned, []), index)
        elif item.fourcc == TIDX and not hashes:
            _put_index(out, item, index)
    return out, index


def _plan_chunk(fourcc: bytes, settings: Settings) -> PlannedChunk:
    compressed = COMPRESSED if fourcc in settings.compressed else 0
    return PlannedChunk(fourcc, NAMES[fourcc], _FLAGS[fourcc] | compressed)


def _begin_plan(
    planned: list[PlannedChunk], settings: Settings, index: NewIndex, pending: tuple[str, ...] = ()
) -> Plan:
    """A plan that begins with the control region, made last, and ends with the index if that has hashes."""
    strings = b"".join(item.name.encode() + b"\0" for item in planned)
    strings += bytes(-len(strings) % TABLE_ALIGN)
    caps.check_table(len(planned), len(strings))
    size = HEADER.size + TOC.size + ENTRY.size * len(planned) + len(strings)
    size += -size % ALIGN
    own = [item for item in planned if item.extra is None]
    needs = [f"shard.{item.shard}" for item in own if item.fourcc == WTSH]
    needs += [f"pages.{item.shard}" for item in own if item.fourcc == PHSH]
    needs += [f"extra.{row}" for row, item in enumerate(planned) if item.extra is not None and not item.digest]
    needs += ["tidx"] if index.hashes else []
    out = Plan()

    def control(results: Results) -> bytes:
        return _encode_control(_complete(planned, results, index), strings, size, settings)

    out.late("control", size + (IHSH_SIZE if settings.control_hash else 0), (*needs, *pending), control)
    if index.hashes:
        out.tail("tidx", tuple(index.hashes), index.make, ALIGN)
    return out


def _put(out: Plan, item: PlannedChunk, content: bytes, index: NewIndex) -> None:
    """Put a document whose content is known; one that is compressed is weighed beside ``index``."""
    from blake3 import blake3

    caps.check_metadata(item.fourcc, len(content))
    stored = content
    if item.flags & COMPRESSED:
        stored = compress(content)
        index.weighed.append(weigh_document(item.fourcc, content))
    item.offset = out.put(stored)
    item.length, item.ulen, item.digest = len(stored), len(content), blake3(content).digest()


def _put_index(out: Plan, item: PlannedChunk, index: NewIndex) -> None:
    """Put an index without hashes of tensors."""
    stored = index.make({})
    item.offset = out.put(stored)
    item.length, item.ulen, item.digest = len(stored), index.size, index.digest


def _put_shard(out: Plan, item: PlannedChunk, placed: Placements, first: int, last: int, tensor_hash: bool) -> None:
    """Put the tensors ``first..last``, which fill a shard, and hash it; if ``tensor_hash``, hash each of them too."""
    item.offset = start = out.cursor
    item.ulen = item.length
    starts = placed.offsets[first:last] + np.uint64(start)
    out.run(placed.table, placed.rows[first:last], starts)
    assert out.cursor == start + item.length
    out.tap(f"shard.{item.shard}", "blake3", start, out.cursor)
    if tensor_hash:
        parts = Parts(starts, starts + placed.sizes(first, last))
        out.tap(f"tensors.{item.shard}", "blake3", start, out.cursor, parts=parts)


def _put_pages(out: Plan, item: PlannedChunk, page: int) -> None:
    """Put the page hashes of the shard before."""
    tap = next(tap for tap in reversed(out.taps) if tap.name == f"shard.{item.shard}")
    assert isinstance(tap.stop, int)
    pages = f"digests.{item.shard}"
    out.tap(pages, "blake3", tap.start, tap.stop, every=page)
    name = shard_name(item.shard)
    caps.check_pages(-(-(tap.stop - tap.start) // page))
    item.length = item.ulen = integrity.measure_phsh(name, page, -(-(tap.stop - tap.start) // page))
    make = partial(_make_pages, name, page, pages)
    item.offset = out.late(f"pages.{item.shard}", item.length, (pages,), make)


def _make_pages(name: str, page: int, digests: str, results: Results) -> bytes:
    return integrity.encode_phsh(name, page, results[digests])


def _encode_manifest(documents: Documents, planned: Sequence[PlannedChunk], shards: Sequence[tuple[int, int]]) -> bytes:
    """Encode the content of MMSG."""
    chunks, held = [], []
    for row, item in enumerate(planned):
        if item.extra is not None:
            continue
        entry: dict[str, Any] = {"role": _ROLES[item.fourcc], "fourcc": item.fourcc.decode(), "toc_index": row}
        if item.fourcc in (WTSH, PHSH):
            entry["shard_id"] = item.shard
        chunks.append(entry)
        if item.fourcc == WTSH:
            first, last = shards[item.shard]
            held.append({"shard_id": item.shard, "toc_index": row, "size_bytes": item.length,
                         "tensor_count": last - first, "mmap_critical": True})  # fmt: skip
    own = {"format": {"name": "AERO", "version": list(VERSION)}, "model": documents.model}
    return msgpack.encode({**own, "chunks": chunks, "shards": held, **documents.manifest})


def _complete(planned: Sequence[PlannedChunk], results: Results, index: NewIndex) -> Iterator[PlannedChunk]:
    """The planned chunks, with the hashes and places that are known after writing."""
    from blake3 import blake3

    for row, item in enumerate(planned):
        if f"extra.{row}" in results:
            yield replace(item, digest=results[f"extra.{row}"])
        elif item.extra is not None:
            yield item
        elif item.fourcc == WTSH:
            yield replace(item, digest=results[f"shard.{item.shard}"])
        elif item.fourcc == MJSN and "json" in results:
            yield replace(item, digest=results["json"])
        elif item.fourcc == PHSH:
            yield replace(item, digest=blake3(results[f"pages.{item.shard}"].data).digest())
        elif item.fourcc == TIDX and index.hashes:
            placed: Placed = results["tidx"]
            flags = item.flags if index.compressed else item.flags & ~COMPRESSED
            yield replace(
                item, flags=flags, offset=placed.offset, length=len(placed.data), ulen=index.size, digest=index.digest
            )
        else:
            yield item


def _encode_control(settled: Iterator[PlannedChunk], strings: bytes, size: int, settings: Settings) -> bytes:
    """Header, TOC and string table, followed by IHSH if the settings ask for it."""
    from blake3 import blake3

    planned = list(settled)
    uuid = settings.uuid if settings.uuid is not None else _derive_uuid(planned)
    if settings.control_hash:
        planned[0] = replace(planned[0], offset=size, length=IHSH_SIZE, ulen=IHSH_SIZE, digest=bytes(32))
        digest = integrity.digest_control(_encode_region(planned, strings, size, uuid), len(planned))
        payload = integrity.encode_ihsh(size, digest)
        planned[0] = replace(planned[0], digest=blake3(payload).digest())
        return _encode_region(planned, strings, size, uuid) + payload
    return _encode_region(planned, strings, size, uuid)


def _encode_region(planned: Sequence[PlannedChunk], strings: bytes, size: int, uuid: bytes) -> bytes:
    toc = TOC.size + ENTRY.size * len(planned)
    out = HEADER.pack(
        magic=MAGIC, version_major=VERSION[0], version_minor=VERSION[1], header_size=HEADER.size,
        toc_offset=HEADER.size, toc_length=toc, string_table_offset=HEADER.size + toc,
        string_table_length=len(strings), file_flags=0, uuid=uuid, reserved=bytes(28),
    )  # fmt: skip
    out += TOC.pack(entry_count=len(planned), reserved0=0, reserved1=0)
    entries, name_off = [], 0
    for item in planned:
        length = len(item.name.encode())
        entries.append(ENTRY.pack(
            fourcc=item.fourcc, chunk_flags=item.flags, chunk_offset=item.offset, chunk_length=item.length,
            chunk_ulen=item.ulen, name_off=name_off, name_len=length, reserved0=0, blake3=item.digest,
        ))  # fmt: skip
        name_off += length + 1
    return (out + b"".join(entries) + strings).ljust(size, b"\0")


def _derive_uuid(planned: Sequence[PlannedChunk]) -> bytes:
    """A UUID of version 8 from the hashes of all chunks, so that files of equal content have the same."""
    from blake3 import blake3

    running = blake3(derive_key_context="holdall 2025 aero content uuid")
    for item in planned:
        if item.fourcc != IHSH:  # its content depends on the uuid
            running.update(item.fourcc + item.ulen.to_bytes(8, "little") + item.digest + item.name.encode() + b"\0")
    found = bytearray(running.digest()[:16])
    found[6] = found[6] & 0x0F | 0x80
    found[8] = found[8] & 0x3F | 0x80
    return bytes(found)
