"""Writing AERO: one pass over the payloads; the control region, made last, holds every hash.

The standard order of chunks is [IHSH] MJSN MMSG, chunks carried along, TIDX, and then each shard with its page
hashes. An index with tensor hashes is not known before the weights have passed: it keeps its place in the table
of contents, while its bytes follow the last shard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

from holdall.compression import compress
from holdall.documents import msgpack
from holdall.formats.aero import integrity
from holdall.formats.aero.chunks import Chunk
from holdall.formats.aero.content import Documents, Placement, documents_of, place
from holdall.formats.aero.layout import (
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
from holdall.formats.aero.read import AeroNative
from holdall.formats.aero.settings import Settings, settings_of
from holdall.model import Model
from holdall.payload import Range
from holdall.plan import Placed, Plan, Results

__all__ = ["plan", "plan_index", "plan_weights"]

_ROLES = {IHSH: "control_integrity", MJSN: "json", MMSG: "manifest", TIDX: "tensors", WTSH: "weights",
          PHSH: "page_hashes"}  # fmt: skip
_FLAGS = {IHSH: OPTIONAL, MJSN: 0, MMSG: COMPRESSED, TIDX: COMPRESSED | IS_INDEX, WTSH: MMAP_CRITICAL, PHSH: OPTIONAL}


_MakeIndex = Callable[[Sequence[str]], bytes]  # the content of TIDX, given the hashes of its tensors in hex


@dataclass(slots=True)
class _Part:
    """One row of the table of contents in the making. What writing must tell is filled in by :func:`_settled`."""

    fourcc: bytes
    name: str
    flags: int
    shard: int = 0
    offset: int = 0
    length: int = 0
    ulen: int = 0
    digest: bytes = b""
    carried: Chunk | None = None


def plan(model: Model, options: Mapping[str, Any]) -> Plan:
    """The AERO file that holds ``model``."""
    settings = settings_of(model, options)
    documents = documents_of(model, settings)
    native = model.native if isinstance(model.native, AeroNative) else None
    return plan_weights(place(model, settings, documents.quants), settings, documents, native)


def plan_weights(
    placed: Sequence[Placement], settings: Settings, documents: Documents, native: AeroNative | None = None
) -> Plan:
    """A file with its weights; chunks of unknown kinds are carried along from ``native``."""
    shards = [list(group) for _, group in groupby(placed, key=lambda one: one.shard)]
    parts = [_part(IHSH)] if settings.control_hash else []
    parts += [_part(MJSN)] if documents.json is not None else []
    parts += [_part(MMSG)]
    for chunk in native.extras if native else []:
        parts.append(_Part(chunk.fourcc.encode("latin-1"), chunk.name, chunk.flags, carried=chunk))
    parts.append(_part(TIDX))
    for number, shard in enumerate(shards):
        size = max(one.offset + one.payload.size for one in shard)
        parts.append(_Part(WTSH, shard_name(number), _FLAGS[WTSH], number, length=size))
        if settings.page and size:
            parts.append(_Part(PHSH, shard_name(number) + PAGES, _FLAGS[PHSH], number))
    hashes = [f"tensor.{number}" for number in range(len(placed))] if settings.tensor_hash else []
    index = partial(_index, placed)
    out = _begin(parts, settings, hashes, index, ("json",) if documents.pending else ())
    number = 0
    for part in parts:
        out.align(ALIGN)
        if part.fourcc == MJSN:
            _put(out, part, documents.json or b"")
            if documents.pending:
                out.tap("json", "blake3", part.offset, part.offset + part.length, reread=True)
        elif part.fourcc == MMSG:
            _put(out, part, _manifest(documents, parts, shards))
        elif part.fourcc == TIDX and not hashes:
            _put(out, part, index([]))
        elif part.fourcc == WTSH:
            out.align(max(ALIGN, settings.align))
            _put_shard(out, part, shards[part.shard], number if hashes else None)
            number += len(shards[part.shard])
        elif part.fourcc == PHSH:
            _put_pages(out, part, settings.page)
        elif part.carried is not None and native is not None:
            chunk = part.carried
            part.offset = out.stream(Range(native.container.source, chunk.offset, chunk.length))
            part.length, part.ulen, part.digest = chunk.length, chunk.ulen, chunk.blake3
    return out


def plan_index(placed: Sequence[Placement], settings: Settings, documents: Documents, hashes: Sequence[str]) -> Plan:
    """The global index of a set: no weights. ``hashes`` are the results, of other files, that are tensor hashes."""
    parts = [*([_part(IHSH)] if settings.control_hash else []), _part(MMSG), _part(TIDX)]
    index = partial(_index, placed)
    out = _begin(parts, settings, hashes, index)
    for part in parts:
        out.align(ALIGN)
        if part.fourcc == MMSG:
            _put(out, part, _manifest(documents, parts, []))
        elif part.fourcc == TIDX and not hashes:
            _put(out, part, index([]))
    return out


def _part(fourcc: bytes) -> _Part:
    return _Part(fourcc, NAMES[fourcc], _FLAGS[fourcc])


# -- pieces -----------------------------------------------------------------------------------------------------------


def _begin(
    parts: list[_Part], settings: Settings, hashes: Sequence[str], index: _MakeIndex, pending: tuple[str, ...] = ()
) -> Plan:
    """A plan that begins with the control region, made last, and ends with the index where that holds hashes."""
    strings = b"".join(part.name.encode() + b"\0" for part in parts)
    strings += bytes(-len(strings) % TABLE_ALIGN)
    size = HEADER.size + TOC.size + ENTRY.size * len(parts) + len(strings)
    size += -size % ALIGN
    needs = [f"shard.{part.shard}" for part in parts if part.fourcc == WTSH]
    needs += [f"pages.{part.shard}" for part in parts if part.fourcc == PHSH]
    needs += [*hashes, "tidx"] if hashes else []
    out = Plan()

    def control(results: Results) -> bytes:
        return _control(_settled(parts, results, hashes, index), strings, size, settings)

    out.late("control", size + (IHSH_SIZE if settings.control_hash else 0), (*needs, *pending), control)
    if hashes:
        out.tail("tidx", tuple(hashes), lambda results: compress(index(_hex(results, hashes))), ALIGN)
    return out


def _hex(results: Results, hashes: Sequence[str]) -> list[str]:
    return [results[name].hex() for name in hashes]


def _put(out: Plan, part: _Part, content: bytes) -> None:
    """A chunk that is known now."""
    from blake3 import blake3

    stored = compress(content) if part.flags & COMPRESSED else content
    part.offset = out.put(stored)
    part.length, part.ulen, part.digest = len(stored), len(content), blake3(content).digest()


def _put_shard(out: Plan, part: _Part, shard: Sequence[Placement], first: int | None) -> None:
    """The tensors of a shard, hashed as they pass; from number ``first`` on each of them too."""
    part.offset = start = out.cursor
    part.ulen = part.length
    for number, one in enumerate(shard):
        out.cursor = start + one.offset
        at = out.stream(one.payload)
        if first is not None:
            out.tap(f"tensor.{first + number}", "blake3", at, at + one.payload.size)
    assert out.cursor == start + part.length
    out.tap(f"shard.{part.shard}", "blake3", start, out.cursor)


def _put_pages(out: Plan, part: _Part, page: int) -> None:
    """The page hashes of the shard before."""
    tap = next(tap for tap in reversed(out.taps) if tap.name == f"shard.{part.shard}")
    assert isinstance(tap.stop, int)
    pages = f"digests.{part.shard}"
    out.tap(pages, "blake3", tap.start, tap.stop, every=page)
    name = shard_name(part.shard)
    part.length = part.ulen = integrity.phsh_size(name, page, -(-(tap.stop - tap.start) // page))
    make = partial(_pages, name, page, pages)
    part.offset = out.late(f"pages.{part.shard}", part.length, (pages,), make)


def _pages(name: str, page: int, digests: str, results: Results) -> bytes:
    return integrity.phsh_payload(name, page, results[digests])


# -- content ----------------------------------------------------------------------------------------------------------


def _index(placed: Sequence[Placement], hashes: Sequence[str]) -> bytes:
    """The content of TIDX."""
    entries = []
    for number, one in enumerate(placed):
        entry = {**one.entry, "shard_id": one.shard, "data_off": one.offset, "data_len": one.payload.size}
        if hashes:
            entry["hash_b3"] = hashes[number]
        entries.append(entry)
    return msgpack.encode({"tensors": entries})


def _manifest(documents: Documents, parts: Sequence[_Part], shards: Sequence[Sequence[Placement]]) -> bytes:
    """The content of MMSG."""
    chunks, held = [], []
    for row, part in enumerate(parts):
        role = _ROLES.get(part.fourcc)
        if role is None:
            continue
        entry: dict[str, Any] = {"role": role, "fourcc": part.fourcc.decode(), "toc_index": row}
        if part.fourcc in (WTSH, PHSH):
            entry["shard_id"] = part.shard
        chunks.append(entry)
        if part.fourcc == WTSH:
            held.append({"shard_id": part.shard, "toc_index": row, "size_bytes": part.length,
                         "tensor_count": len(shards[part.shard]), "mmap_critical": True})  # fmt: skip
    own = {"format": {"name": "AERO", "version": list(VERSION)}, "model": documents.model}
    return msgpack.encode({**own, "chunks": chunks, "shards": held, **documents.manifest})


def _settled(parts: Sequence[_Part], results: Results, hashes: Sequence[str], index: _MakeIndex) -> Iterator[_Part]:
    """The parts with everything that writing has told."""
    from dataclasses import replace

    from blake3 import blake3

    for part in parts:
        if part.fourcc == WTSH:
            yield replace(part, digest=results[f"shard.{part.shard}"])
        elif part.fourcc == MJSN and "json" in results:
            yield replace(part, digest=results["json"])
        elif part.fourcc == PHSH:
            yield replace(part, digest=blake3(results[f"pages.{part.shard}"].data).digest())
        elif part.fourcc == TIDX and hashes:
            placed: Placed = results["tidx"]
            content = index(_hex(results, hashes))
            yield replace(part, offset=placed.offset, length=len(placed.data), ulen=len(content),
                          digest=blake3(content).digest())  # fmt: skip
        else:
            yield part


def _control(settled: Iterator[_Part], strings: bytes, size: int, settings: Settings) -> bytes:
    """Header, TOC, names, and IHSH behind them where it is wanted."""
    from dataclasses import replace

    from blake3 import blake3

    parts = list(settled)
    uuid = settings.uuid if settings.uuid is not None else _content_uuid(parts)
    if settings.control_hash:
        parts[0] = replace(parts[0], offset=size, length=IHSH_SIZE, ulen=IHSH_SIZE, digest=bytes(32))
        digest = integrity.control_digest(_region(parts, strings, size, uuid), len(parts))
        payload = integrity.ihsh_payload(size, digest)
        parts[0] = replace(parts[0], digest=blake3(payload).digest())
        return _region(parts, strings, size, uuid) + payload
    return _region(parts, strings, size, uuid)


def _region(parts: Sequence[_Part], strings: bytes, size: int, uuid: bytes) -> bytes:
    toc = TOC.size + ENTRY.size * len(parts)
    out = HEADER.pack(
        magic=MAGIC, version_major=VERSION[0], version_minor=VERSION[1], header_size=HEADER.size,
        toc_offset=HEADER.size, toc_length=toc, string_table_offset=HEADER.size + toc,
        string_table_length=len(strings), file_flags=0, uuid=uuid, reserved=bytes(28),
    )  # fmt: skip
    out += TOC.pack(entry_count=len(parts), reserved0=0, reserved1=0)
    entries, name_off = [], 0
    for part in parts:
        length = len(part.name.encode())
        entries.append(ENTRY.pack(
            fourcc=part.fourcc, chunk_flags=part.flags, chunk_offset=part.offset, chunk_length=part.length,
            chunk_ulen=part.ulen, name_off=name_off, name_len=length, reserved0=0, blake3=part.digest,
        ))  # fmt: skip
        name_off += length + 1
    return (out + b"".join(entries) + strings).ljust(size, b"\0")


def _content_uuid(parts: Sequence[_Part]) -> bytes:
    """An identity that equal content has in common: from the hashes of all chunks, as a UUID of version 8."""
    from blake3 import blake3

    running = blake3(derive_key_context="holdall 2025 aero content uuid")
    for part in parts:
        if part.fourcc != IHSH:  # its content depends on the uuid
            running.update(part.fourcc + part.ulen.to_bytes(8, "little") + part.digest + part.name.encode() + b"\0")
    found = bytearray(running.digest()[:16])
    found[6] = found[6] & 0x0F | 0x80
    found[8] = found[8] & 0x3F | 0x80
    return bytes(found)
