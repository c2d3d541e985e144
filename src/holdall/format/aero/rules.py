"""What an AERO file must obey: one row a rule."""

from __future__ import annotations

from typing import Final

from holdall.base.check import Rule

__all__ = ["RULES"]

SIZE: Final = Rule("aero.header.size", "the file holds at least the 96-byte header, and header_size says so")
MAGIC: Final = Rule("aero.header.magic", "the file begins with AERO")
VERSION: Final = Rule("aero.header.version", "the version is 0.1")
FLAGS: Final = Rule("aero.header.flags", "file_flags is 0")
RESERVED: Final = Rule("aero.reserved", "reserved fields are 0", "strict")

TOC: Final = Rule(
    "aero.toc.place", "the table of contents lies inside the file, after the header, and holds its entries"
)
STRINGS: Final = Rule("aero.strings.place", "the string table lies inside the file, apart from header and TOC")
NAME: Final = Rule("aero.chunk.name", "chunk names are UTF-8 without NUL, inside the string table, of reasonable size")
PLACE: Final = Rule("aero.chunk.place", "chunks lie inside the file")
OVERLAP: Final = Rule("aero.chunk.overlap", "chunks share bytes neither with each other nor with header, TOC, strings")
FOURCC: Final = Rule("aero.chunk.fourcc", "a fourcc is four ASCII characters", "strict")
TWICE: Final = Rule("aero.chunk.duplicate", "fourcc and name together are unique")
RAW: Final = Rule("aero.chunk.length", "length and ulen of a chunk that is not compressed are equal")
COMPRESSED: Final = Rule("aero.chunk.compressed", "WTSH, IHSH and PHSH are never compressed")
ULEN: Final = Rule("aero.chunk.ulen", "metadata chunks are at most 2 GiB uncompressed")
ZSTD: Final = Rule("aero.chunk.zstd", "a compressed chunk is one zstd frame of ulen bytes and nothing else")
HASH: Final = Rule("aero.chunk.blake3", "the BLAKE3 of a chunk is the one in the TOC")
HASH_WEIGHTS: Final = Rule("aero.shard.blake3", "the BLAKE3 of a shard is the one in the TOC", "full")
HASH_EXTRA: Final = Rule("aero.extra.blake3", "the BLAKE3 of any other chunk is the one in the TOC", "full")
ALIGNED: Final = Rule("aero.chunk.align", "chunks lie on multiples of 16", "strict")
TAIL: Final = Rule("aero.tail", "nothing follows the last chunk", "strict")

JSON: Final = Rule("aero.mjsn", "MJSN is one JSON object without duplicate keys")
MANIFEST: Final = Rule("aero.mmsg", "MMSG is one MessagePack map without duplicate keys")

DOCUMENTS_AGREE: Final = Rule("aero.document.agree", "MJSN and MMSG beyond the first say the same as it", "strict")

INDEX: Final = Rule("aero.tidx.missing", "the file has a TIDX chunk")
AGREE: Final = Rule("aero.tidx.agree", "TIDX chunks beyond the first say the same of the same tensors")
MSGPACK: Final = Rule("aero.tidx.msgpack", "TIDX is one MessagePack map with a list of maps called tensors")
FIELD: Final = Rule(
    "aero.tidx.field", "TIDX entries have name, dtype, shape, shard_id, data_off and data_len, typed so"
)
TENSOR_NAME: Final = Rule("aero.tidx.name", "tensor names are 1 to 4096 bytes and unique")
RANK: Final = Rule("aero.tidx.rank", "tensors have at most 32 dimensions")
DTYPE: Final = Rule("aero.tidx.dtype", "dtype is 0 to 12 or 0x8000", "structure")
RANGE: Final = Rule("aero.tidx.range", "tensors lie inside their shard")
SHORT: Final = Rule("aero.tidx.short", "data_len is at least what dtype and shape need")
LONG: Final = Rule("aero.tidx.long", "data_len is what dtype and shape need", "strict")
HASH_FIELD: Final = Rule("aero.tidx.hash_b3", "hash_b3 is absent, empty or 64 hex digits")
SHARD: Final = Rule("aero.tidx.shard", "every tensor's shard is in the file")
ELSEWHERE: Final = Rule("aero.tidx.index", "the shards of a set's index are in its parts", "structure", "note")
TENSORS_OVERLAP: Final = Rule("aero.tidx.overlap", "tensors do not share bytes", "strict")
TENSOR_HASH: Final = Rule("aero.tensor.blake3", "the BLAKE3 of a tensor is its hash_b3", "full")

CONTROL: Final = Rule("aero.ihsh", "IHSH covers header, TOC and string table, no payload, and its digest is right")
CONTROL_AGAIN: Final = Rule("aero.ihsh.others", "IHSH chunks beyond the first are right as well", "strict")
PAGES: Final = Rule("aero.phsh", "PHSH belongs to a shard and has a 32-byte digest for each of its pages", "full")
PAGES_TAIL: Final = Rule("aero.phsh.tail", "nothing follows the map in PHSH", "strict")
PAGE: Final = Rule("aero.page.blake3", "the BLAKE3 of a page is the one in PHSH", "full")

NO_CONTROL: Final = Rule("aero.ihsh.absent", "the control region has a hash", "structure", "note")
NO_PAGES: Final = Rule("aero.phsh.absent", "shards have page hashes", "full", "note")
NO_TENSOR_HASH: Final = Rule("aero.hash_b3.absent", "tensors have hashes", "full", "note")

RULES: Final = tuple(value for value in list(globals().values()) if isinstance(value, Rule))
