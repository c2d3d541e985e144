"""The optional hashes: IHSH over the control region, PHSH over the pages of a shard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from holdall.documents import msgpack
from holdall.documents.base import DocumentError
from holdall.formats.aero import rules
from holdall.formats.aero.chunks import Chunk, Container, content
from holdall.formats.aero.layout import ENTRY, HEADER, IHSH, IHSH_SIZE, PAGES, TOC
from holdall.source import CHUNK

if TYPE_CHECKING:
    from holdall.check import Check

__all__ = ["Pages", "check_control", "control_digest", "ihsh_payload", "phsh_payload", "phsh_size", "read_pages"]

ALGORITHM = "blake3-256"


# -- IHSH -------------------------------------------------------------------------------------------------------------


def check_control(container: Container, check: Check) -> None:
    """Prove the control region by IHSH; without that chunk, say so."""
    chunk = container.chunks.first(IHSH)
    if chunk is None:
        check.note(rules.NO_CONTROL, None, "aero: no IHSH chunk: header, TOC and string table have no hash")
        return
    data = content(container.source, chunk, check)
    try:
        document = msgpack.decode(data, depth=check.limits.nesting, padded=True)
    except DocumentError as error:
        check.fail(rules.CONTROL, chunk.offset + error.offset, f"aero: {chunk.what}: {error.message}")
    if not isinstance(document, dict):
        check.fail(rules.CONTROL, chunk.offset, f"aero: {chunk.what}: the document is not a map")
    if document.get("algo") != ALGORITHM:
        message = f"aero: {chunk.what}: algo is {document.get('algo')!r}, not {ALGORITHM!r}"
        check.fail(rules.CONTROL, chunk.offset, message)
    digest = document.get("digest")
    if not isinstance(digest, bytes) or len(digest) != 32:
        check.fail(rules.CONTROL, chunk.offset, f"aero: {chunk.what}: digest is not 32 bytes")
    ranges = _covered(container, chunk, document.get("covered_ranges"), check)
    found = _digest_of_ranges(container, ranges)
    if found != digest:
        message = (
            f"aero: header, TOC or string table were changed: their BLAKE3 is {found.hex()}, IHSH has {digest.hex()}"
        )
        check.fail(rules.CONTROL, chunk.offset, message)


def _covered(container: Container, chunk: Chunk, stored: Any, check: Check) -> list[tuple[int, int]]:
    """The ranges that IHSH covers: all of the control region, none of the payloads, nothing twice."""
    size = container.source.size
    ranges: list[tuple[int, int]] = []
    for pair in stored if isinstance(stored, list) else [None]:
        whole = isinstance(pair, list) and len(pair) == 2 and all(type(number) is int for number in pair)
        if pair is None or not whole or not 0 <= pair[0] < pair[1] <= size:
            message = f"aero: {chunk.what}: covered_ranges has {pair!r}, no range of the {size} bytes"
            check.fail(rules.CONTROL, chunk.offset, message)
        ranges.append((pair[0], pair[1]))
    merged: list[list[int]] = []
    for start, stop in sorted(ranges):
        if merged and start < merged[-1][1]:
            check.fail(rules.CONTROL, chunk.offset, f"aero: {chunk.what}: covered_ranges covers byte {start} twice")
        if merged and start == merged[-1][1]:
            merged[-1][1] = stop
        else:
            merged.append([start, stop])
    header = container.header
    needed = {
        "the header": (0, HEADER.size),
        "the TOC": (header.toc_offset, header.toc_offset + header.toc_length),
        "the string table": (header.string_table_offset, header.string_table_offset + header.string_table_length),
    }
    for what, (start, stop) in needed.items():
        if start < stop and not any(low <= start and stop <= high for low, high in merged):
            check.fail(rules.CONTROL, chunk.offset, f"aero: {chunk.what}: {what}, {start}..{stop}, is not covered")
    _outside_chunks(container, chunk, merged, check)
    return ranges


def _outside_chunks(container: Container, chunk: Chunk, merged: list[list[int]], check: Check) -> None:
    """No range has a byte of a chunk; both are in order and apart, so that only the next chunk can be in the way."""
    table = container.chunks.table
    rows = table["chunk_length"].nonzero()[0]
    rows = rows[np.argsort(table["chunk_offset"][rows], kind="stable")]
    starts = table["chunk_offset"][rows]
    lows, highs = np.array(merged, np.uint64).T
    following = np.searchsorted(starts + table["chunk_length"][rows], lows, side="right")
    covers = np.append(starts, np.uint64(container.source.size))[following] < highs
    if covers.any():
        first = int(covers.argmax())
        low, high = merged[first]
        other = container.chunks[int(rows[following[first]])]
        check.fail(rules.CONTROL, chunk.offset, f"aero: {chunk.what}: {low}..{high} covers bytes of {other.what}")


def _digest_of_ranges(container: Container, ranges: list[tuple[int, int]]) -> bytes:
    """The BLAKE3 of the ranges in their order, the hash fields of the TOC taken as zeros."""
    from blake3 import blake3

    running = blake3()
    for start, stop in ranges:
        for at in range(start, stop, CHUNK):
            running.update(_without_hashes(container, at, min(stop, at + CHUNK)))
    return running.digest()


def _without_hashes(container: Container, start: int, stop: int) -> bytearray:
    """The bytes of a range, the hash fields in it taken as zeros."""
    first = container.header.toc_offset + TOC.size + ENTRY.offset_of("blake3")
    data = bytearray(container.source.read(start, stop - start))
    rows = range(max(0, (start - first) // ENTRY.size), min(len(container.chunks), (stop - first) // ENTRY.size + 1))
    for row in rows:  # the field of the first may begin before the range, that of the last behind it
        at = first + row * ENTRY.size - start
        low, high = max(0, at), max(0, min(len(data), at + 32))
        data[low:high] = bytes(max(0, high - low))
    return data


def control_digest(control: bytes, entries: int) -> bytes:
    """The BLAKE3 of a control region in the standard order, the hash fields taken as zeros."""
    from blake3 import blake3

    data = bytearray(control)
    first = HEADER.size + TOC.size + ENTRY.offset_of("blake3")
    for row in range(entries):
        data[first + row * ENTRY.size : first + row * ENTRY.size + 32] = bytes(32)
    return blake3(data).digest()


def ihsh_payload(size: int, digest: bytes) -> bytes:
    """The content of IHSH for a control region of ``size`` bytes, padded as readers expect it."""
    document = {"algo": ALGORITHM, "covered_ranges": [[0, size]], "digest": digest}
    return msgpack.encode(document).ljust(IHSH_SIZE, b"\0")


# -- PHSH -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pages:
    """The page hashes of one shard."""

    shard: Chunk
    page_size: int
    digests: bytes  # 32 bytes a page


def read_pages(container: Container, chunk: Chunk, shards: dict[str, Chunk], check: Check) -> Pages:
    """The page hashes in a PHSH chunk, proven to fit their shard."""
    data = content(container.source, chunk, check)

    def fail(message: str, at: int = 0) -> NoReturn:
        check.fail(rules.PAGES, chunk.offset + at, f"aero: {chunk.what}: {message}")

    try:
        rows = msgpack.rows(data, 0, len(data), 1, ("shard_name", "page_size", "digests"), depth=check.limits.nesting)
        end = rows.stop
        document = msgpack.decode(data[:end], depth=check.limits.nesting)
    except DocumentError as error:
        fail(error.message, error.offset)
    if any(data[end:]):
        fail(f"{len(data) - end} more bytes follow the map", end)
    if end < len(data):
        check.note(rules.PAGES_TAIL, chunk.offset + end, f"aero: {chunk.what}: {len(data) - end} zeros follow the map")
    name, page, digests = (document.get(key) for key in ("shard_name", "page_size", "digests"))
    if not isinstance(name, str) or chunk.name != name + PAGES:
        fail(f"shard_name is {name!r}")
    shard = shards.get(name)
    if shard is None:
        fail(f"there is no shard {name!r}")
    if type(page) is not int or page <= 0:
        fail(f"page_size is {page!r}")
    if not isinstance(digests, list) or len(digests) != -(-shard.length // page):
        count = len(digests) if isinstance(digests, list) else "no"
        fail(f"{count} digests for {-(-shard.length // page)} pages of {page} bytes")
    for number, digest in enumerate(digests):
        if not isinstance(digest, bytes) or len(digest) != 32:
            fail(f"the digest of page {number} is not 32 bytes")
    return Pages(shard, page, b"".join(digests))


def phsh_payload(shard: str, page_size: int, digests: bytes) -> bytes:
    """The content of PHSH."""
    pages = [digests[at : at + 32] for at in range(0, len(digests), 32)]
    return msgpack.encode({"shard_name": shard, "page_size": page_size, "digests": pages})


def phsh_size(shard: str, page_size: int, pages: int) -> int:
    """Bytes of :func:`phsh_payload`, before the digests are known."""
    document = {"shard_name": shard, "page_size": page_size, "digests": [b""] * pages}
    return len(msgpack.encode(document)) + 32 * pages
