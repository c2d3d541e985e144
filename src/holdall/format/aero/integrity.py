"""The optional hashes: IHSH over the control region, PHSH over the pages of a shard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from holdall.base.check import Check
from holdall.binary.documents import msgpack
from holdall.binary.documents.base import DocumentError
from holdall.errors import FormatError
from holdall.format.aero import rules
from holdall.format.aero.chunks import Chunk, read_content
from holdall.format.aero.container import Container
from holdall.format.aero.layout import ENTRY, HEADER, IHSH, IHSH_SIZE, PAGES, TOC
from holdall.source import CHUNK

__all__ = ["Pages", "check_control", "digest_control", "encode_ihsh", "encode_phsh", "list_control_keys"]
__all__ += ["measure_phsh", "read_pages"]

ALGORITHM = "blake3-256"
_CONTROL_KEYS = ("algo", "covered_ranges", "digest")
_PAGE_KEYS = ("shard_name", "page_size", "digests")


def check_control(container: Container, check: Check) -> None:
    """Check the control region by its hash in IHSH; a missing IHSH is noted."""
    chunk = container.chunks.first(IHSH)
    if chunk is None:
        check.note(rules.NO_CONTROL, None, "aero: no IHSH chunk: header, TOC and string table have no hash")
        return
    _check_digest(container, chunk, check)
    others = container.chunks.all(IHSH)[1:] if check.wants("strict") else []
    for other in others:
        # Each covers the whole control region: a file may have thousands of them.
        check.limit_passes(_measure_control(container), container.source.size, "aero: passes over what IHSH covers")
        try:
            _check_digest(container, other, Check(limits=check.limits))
        except FormatError as error:
            check.note(rules.CONTROL_AGAIN, other.offset, error.message)


def _measure_control(container: Container) -> int:
    header = container.header
    size: int = HEADER.size + header.toc_length + header.string_table_length
    return size


def _check_digest(container: Container, chunk: Chunk, check: Check) -> None:
    """Check the digest in one IHSH."""
    document = _read_control(container, chunk, check)
    if document.get("algo") != ALGORITHM:
        message = f"aero: {chunk.what}: algo is {document.get('algo')!r}, not {ALGORITHM!r}"
        check.fail(rules.CONTROL, chunk.offset, message)
    digest = document.get("digest")
    if not isinstance(digest, bytes) or len(digest) != 32:
        check.fail(rules.CONTROL, chunk.offset, f"aero: {chunk.what}: digest is not 32 bytes")
    ranges = _read_covered_ranges(container, chunk, document.get("covered_ranges"), check)
    found = _digest_ranges(container, ranges)
    if found != digest:
        message = (
            f"aero: header, TOC or string table were changed: their BLAKE3 is {found.hex()}, "
            f"IHSH {chunk.name!r} has {digest.hex()}"
        )
        check.fail(rules.CONTROL, chunk.offset, message)


def _read_control(container: Container, chunk: Chunk, check: Check) -> dict[str, Any]:
    """Read the map in IHSH."""
    data = read_content(container.source, chunk, check)
    try:
        document = msgpack.decode(data, depth=check.limits.nesting, padded=True)
    except DocumentError as error:
        check.fail(rules.CONTROL, chunk.offset + error.offset, f"aero: {chunk.what}: {error.message}")
    if not isinstance(document, dict):
        check.fail(rules.CONTROL, chunk.offset, f"aero: {chunk.what}: the document is not a map")
    return document


def list_control_keys(container: Container) -> list[tuple[str, str]]:
    """List the keys of the first IHSH that the format does not define, with the chunk; none of a damaged one."""
    chunk = container.chunks.first(IHSH)
    if chunk is None:
        return []
    try:
        document = _read_control(container, chunk, Check())
    except FormatError:
        return []  # it is made anew
    return [(chunk.what, key) for key in document if key not in _CONTROL_KEYS]


def _read_covered_ranges(container: Container, chunk: Chunk, stored: Any, check: Check) -> list[tuple[int, int]]:
    """Read the ranges that IHSH covers: all of the control region, no chunk, and no byte twice."""
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
    _check_outside_chunks(container, chunk, merged, check)
    return ranges


def _check_outside_chunks(container: Container, chunk: Chunk, merged: list[list[int]], check: Check) -> None:
    """Check that no range has a byte of a chunk.

    Ranges and chunks are sorted and do not overlap, so that each range is compared with the next chunk only.
    """
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


def _digest_ranges(container: Container, ranges: list[tuple[int, int]]) -> bytes:
    """The BLAKE3 of the ranges in their order, with zeros in the hash fields of the TOC."""
    from blake3 import blake3

    running = blake3()
    for start, stop in ranges:
        for at in range(start, stop, CHUNK):
            running.update(_read_without_hashes(container, at, min(stop, at + CHUNK)))
    return running.digest()


def _read_without_hashes(container: Container, start: int, stop: int) -> bytearray:
    """Read the bytes of a range, with zeros in the hash fields of the TOC."""
    first = container.header.toc_offset + TOC.size + ENTRY.offset_of("blake3")
    data = bytearray(container.source.read(start, stop - start))
    rows = range(max(0, (start - first) // ENTRY.size), min(len(container.chunks), (stop - first) // ENTRY.size + 1))
    # The field of the first entry may begin before the range, that of the last may end after it.
    for row in rows:
        at = first + row * ENTRY.size - start
        low, high = max(0, at), max(0, min(len(data), at + 32))
        data[low:high] = bytes(max(0, high - low))
    return data


def digest_control(control: bytes, entries: int) -> bytes:
    """The BLAKE3 of a control region that holdall writes, with zeros in the hash fields of the TOC."""
    from blake3 import blake3

    data = bytearray(control)
    first = HEADER.size + TOC.size + ENTRY.offset_of("blake3")
    for row in range(entries):
        data[first + row * ENTRY.size : first + row * ENTRY.size + 32] = bytes(32)
    return blake3(data).digest()


def encode_ihsh(size: int, digest: bytes) -> bytes:
    """Encode the content of IHSH for a control region of ``size`` bytes, padded to its fixed size."""
    document = {"algo": ALGORITHM, "covered_ranges": [[0, size]], "digest": digest}
    return msgpack.encode(document).ljust(IHSH_SIZE, b"\0")


@dataclass(frozen=True, slots=True)
class Pages:
    """The page hashes of one shard."""

    shard: Chunk
    page_size: int
    digests: bytes  # 32 bytes a page
    unknown: tuple[str, ...] = ()  # keys of the map that the format does not define


def read_pages(container: Container, chunk: Chunk, shards: dict[str, Chunk], check: Check) -> Pages:
    """Read the page hashes in a PHSH chunk, checked against the size of their shard."""
    data = read_content(container.source, chunk, check)

    def fail(message: str, at: int = 0) -> NoReturn:
        check.fail(rules.PAGES, chunk.offset + at, f"aero: {chunk.what}: {message}")

    try:
        rows = msgpack.rows(data, 0, len(data), 1, _PAGE_KEYS, depth=check.limits.nesting)
        end = rows.stop
        document = msgpack.decode(data[:end], depth=check.limits.nesting)
    except DocumentError as error:
        fail(error.message, error.offset)
    if any(data[end:]):
        fail(f"{len(data) - end} more bytes follow the map", end)
    if end < len(data):
        check.note(rules.PAGES_TAIL, chunk.offset + end, f"aero: {chunk.what}: {len(data) - end} zeros follow the map")
    name, page, digests = (document.get(key) for key in _PAGE_KEYS)
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
    return Pages(shard, page, b"".join(digests), tuple(key for key in document if key not in _PAGE_KEYS))


def encode_phsh(shard: str, page_size: int, digests: bytes) -> bytes:
    """Encode the content of PHSH."""
    pages = [digests[at : at + 32] for at in range(0, len(digests), 32)]
    return msgpack.encode({"shard_name": shard, "page_size": page_size, "digests": pages})


def measure_phsh(shard: str, page_size: int, pages: int) -> int:
    """Measure the size of :func:`encode_phsh`, which does not depend on the digests."""
    document = {"shard_name": shard, "page_size": page_size, "digests": [b""] * pages}
    return len(msgpack.encode(document)) + 32 * pages
