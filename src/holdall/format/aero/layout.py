"""The tables of the AERO 0.1 document."""

from __future__ import annotations

from collections.abc import Mapping

from holdall.binary.layout import U16, U32, U64, Layout, raw

__all__ = ["ENTRY", "HEADER", "TOC"]

MAGIC = b"AERO"
VERSION = (0, 1)
ALIGN = 16  # every chunk starts on a multiple of this
TABLE_ALIGN = 8  # the string table starts on a multiple of this

HEADER = Layout(
    "header",
    magic=raw(4),
    version_major=U16,
    version_minor=U16,
    header_size=U32,
    toc_offset=U64,
    toc_length=U64,
    string_table_offset=U64,
    string_table_length=U64,
    file_flags=U64,
    uuid=raw(16),
    reserved=raw(28),
)

TOC = Layout("toc", entry_count=U32, reserved0=U32, reserved1=U64)

ENTRY = Layout(
    "toc entry",
    fourcc=raw(4),
    chunk_flags=U32,
    chunk_offset=U64,
    chunk_length=U64,
    chunk_ulen=U64,
    name_off=U32,
    name_len=U32,
    reserved0=U64,
    blake3=raw(32),
)

COMPRESSED, MMAP_CRITICAL, IS_INDEX, OPTIONAL = 1, 2, 4, 8

MJSN, MMSG, TIDX, WTSH, IHSH, PHSH = b"MJSN", b"MMSG", b"TIDX", b"WTSH", b"IHSH", b"PHSH"
KNOWN = (IHSH, MJSN, MMSG, TIDX, WTSH, PHSH)
NEVER_COMPRESSED = (WTSH, IHSH, PHSH)

# Names that writers give to chunks; readers use the fourcc, and names only for shards and their page hashes.
NAMES = {MJSN: "meta.json", MMSG: "manifest", TIDX: "tensors", IHSH: "control.integrity"}


def shard_name(number: int) -> str:
    """The name of a weight shard.

    >>> shard_name(3)
    'weights.shard3'
    """
    return f"weights.shard{number}"


PAGES = ".phsh"  # added to the name of a shard, this names its page hashes
IHSH_SIZE = 256  # bytes of the map, padded with zeros

MAX_METADATA = 2 << 30  # uncompressed bytes of a metadata chunk
MAX_RANK = 32
MAX_NAME = 4096  # bytes of a tensor's name

PACKED = 0x8000
DTYPES: Mapping[int, str] = {
    0: "f16", 1: "f32", 2: "bf16", 3: "f64", 4: "i8", 5: "u8", 6: "i16", 7: "u16",
    8: "i32", 9: "u32", 10: "i64", 11: "u64", 12: "bool",
}  # fmt: skip
CODE_OF = {name: code for code, name in DTYPES.items()}
