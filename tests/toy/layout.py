"""The tables of the toy format, as its document would have them. All integers little-endian."""

from __future__ import annotations

from holdall.plugin import U8, U16, U32, U64, Layout, array, blob, raw, text

MAGIC = b"TOY1"
SIDE_MAGIC = b"SIDE\0\0\0\0"
END_MAGIC = b"YOT1"
MAIN, SIDE = "main.toy", "side.bin"

HEADER = Layout(
    "header",
    magic=raw(4),
    version=U32,
    n_tensors=U32,
    n_sections=U32,
    table_size=U32,
    data_offset=U32,  # where sections end and payloads begin
    seal=raw(32),  # SHA-256 of everything from `digest` up to the index
    digest=raw(32),  # BLAKE3 of the payloads, data_offset up to the index
    side_crc=U32,  # CRC-32 of side.bin, 0 where there is none
)

ENTRY = Layout(
    "entry",
    name=text(U16, pad=4),
    dtype=U8,
    flags=U8,
    rank=U16,
    dims=array(U32, "rank"),
    offset=U64,  # in main.toy, or in side.bin
    size=U64,
)

SECTION = Layout("section", tag=raw(4), length=U32, body=blob("length"))

PAIR = Layout("pair", key=text(U16), value=text(U16))  # what a META section is made of

# The index: checksums of the payloads, each different one once, then which of them each payload has.
INDEX = Layout("index", n_payloads=U32, n_sums=U32)

FOOTER = Layout("footer", index_offset=U64, index_size=U64, crc=U32, magic=raw(4))  # crc: of all before the footer

HAS_DATA, IN_SIDE = 1, 2  # bits of an entry's flags
META = b"META"

DTYPES = ("f32", "bf16", "i64", "u8", "i4", "t1", "bool")  # by their codes
