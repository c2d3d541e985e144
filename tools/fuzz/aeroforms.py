"""Forms of AERO that its writer here does not write: see :mod:`tools.fuzz.forms`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdall.format.aero.integrity import encode_phsh
from holdall.format.aero.layout import ENTRY, HEADER, IS_INDEX, MAGIC, MJSN, MMSG, PAGES, PHSH, TIDX, TOC, WTSH
from tools.fuzz.framing import MAIN
from tools.fuzz.mend import MEND

__all__ = ["aero"]

_SHARD = "weights.shard0"
_DATA = bytes(range(24))

Chunk = tuple[bytes, str, bytes]


def aero() -> Iterator[tuple[str, bytes]]:
    """Yield files with an index that is not compressed, small pages, shared bytes, odd dims and odd values."""
    from blake3 import blake3
    from msgspec.msgpack import Ext

    shard = (WTSH, _SHARD, _DATA)
    yield (
        "plain",
        _file(_index(_entry("w", 0, 24)), (MJSN, "meta.json", b'{"a":1}'), (MMSG, "manifest", b"\x80"), shard),
    )
    digests = b"".join(blake3(_DATA[at : at + 5]).digest() for at in range(0, len(_DATA), 5))
    pages = (PHSH, _SHARD + PAGES, encode_phsh(_SHARD, 5, digests))
    yield "pages", _file(_index(_entry("a", 0, 8), _entry("b", 8, 16)), shard, pages)
    tied = [_entry(name, 4, 16, hash_b3=blake3(_DATA[4:20]).hexdigest(), quant_params={"a": [1]}) for name in "ab"]
    yield "tied", _file(_index(*tied, _entry("c", 0, 24, later={"x": None})), shard)
    yield "empty", _file(_index(_entry("w", 0, 0, shape=[0, 1 << 62]), _entry("v", 0, 0, shape=[1 << 40, 0, 7])), shard)
    yield "crowd", _file(_index(*(_entry(f"{number}", number % 20, 4) for number in range(110))), shard)
    many = _index(*(_entry(f"{number:02}", number, 4) for number in range(20)))
    yield "many", _file(many, shard)
    yield "damaged", _file(many, shard, (PHSH, _SHARD + PAGES, encode_phsh(_SHARD, 24, bytes(32))))
    never = Ext(-1, b"\xff" * 12)
    yield "refused-time", _file(_index(_entry("w", 0, 8, quant_params={"at": never})), shard)
    yield "refused-key", _file(_index(_entry("w", 0, 8, later=never)), shard)
    yield "refused-product", _file(_index(_entry("w", 0, 8, shape=[1 << 62] * 3)), shard)
    yield "refused-crowd", _file(_index(*(_entry(f"{number}", 99, 4) for number in range(110))), shard)
    yield "refused-kind", _file(_index(_entry("w", 0, 8, shard_id="0")), shard)


def _entry(name: str, offset: int, size: int, **more: Any) -> dict[str, Any]:
    place = {"shard_id": 0, "data_off": offset, "data_len": size}
    return {"name": name, "dtype": 1, "shape": [size // 4], **place, **more}


def _index(*entries: dict[str, Any]) -> Chunk:
    from holdall.binary.documents import msgpack

    return TIDX, "tensors", msgpack.encode({"tensors": list(entries)})


def _file(*chunks: Chunk) -> bytes:
    """Header, TOC, string table and the chunks, with right places and hashes."""
    strings = "\0".join(name for _, name, _ in chunks).encode() + b"\0"
    toc_size = TOC.size + len(chunks) * ENTRY.size
    table = HEADER.size + toc_size
    at = table + len(strings)
    toc, body, name_at = TOC.pack(entry_count=len(chunks), reserved0=0, reserved1=0), b"", 0
    for fourcc, name, data in chunks:
        gap = -at % 16
        toc += ENTRY.pack(
            fourcc=fourcc, chunk_flags=IS_INDEX if fourcc == TIDX else 0, chunk_offset=at + gap, chunk_length=len(data),
            chunk_ulen=len(data), name_off=name_at, name_len=len(name), reserved0=0, blake3=bytes(32),
        )  # fmt: skip
        body += bytes(gap) + data
        at += gap + len(data)
        name_at += len(name) + 1
    header = HEADER.pack(
        magic=MAGIC, version_major=0, version_minor=1, header_size=HEADER.size, toc_offset=HEADER.size,
        toc_length=toc_size, string_table_offset=table, string_table_length=len(strings), file_flags=0, uuid=bytes(16),
        reserved=bytes(28),
    )  # fmt: skip
    files = {MAIN: header + toc + strings + body}
    MEND["aero"](files)
    return files[MAIN]
