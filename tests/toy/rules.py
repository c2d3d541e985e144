"""The rules of the format, one row each."""

from __future__ import annotations

from holdall.plugin import Rule

SIZE = Rule("toy.size", "the file holds a header and a footer")
MAGIC = Rule("toy.magic", "the file begins with TOY1 and ends with YOT1")
VERSION = Rule("toy.version", "the version is 1")
PLACE = Rule("toy.place", "tables, payloads and index lie in their places, in this order")
TABLE = Rule("toy.table", "a table ends where the next begins")
NAME = Rule("toy.name", "names are UTF-8, not empty, and unique")
DTYPE = Rule("toy.dtype", "the dtype is one of the seven")
FLAGS = Rule("toy.flags", "flags are HAS_DATA and IN_SIDE; a tensor without data has no place")
DATA = Rule("toy.data", "a payload lies inside its file and has the size that its shape needs")
META = Rule("toy.meta", "metadata is pairs of UTF-8 texts")
SIDE = Rule("toy.side", "side.bin begins with its magic")
SEAL = Rule("toy.seal", "the seal is the SHA-256 of header, tables and payloads", "full")
DIGEST = Rule("toy.digest", "the digest is the BLAKE3 of the payloads", "full")
SIDE_CRC = Rule("toy.side_crc", "side_crc is the CRC-32 of side.bin", "full")
CRC = Rule("toy.crc", "the footer has the CRC-32 of the file", "full")
INDEX = Rule("toy.index", "the index has the CRC-32 of each payload", "full")

RULES = tuple(value for value in list(globals().values()) if isinstance(value, Rule))
