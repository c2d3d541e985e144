"""Corrects what a change leaves wrong around it: sizes, checksums and hashes, by format.

A fuzzer that only ever breaks the checksum finds nothing behind it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any
from zlib import crc32

from holdall.binary.layout import Layout
from holdall.format.aero import layout as aero
from holdall.format.embd import layout as embd
from holdall.format.mcf import layout as mcf
from holdall.format.oinf import layout as oinf
from tools.fuzz.documents import JSON
from tools.fuzz.trees import Pairs

__all__ = ["COUNTS", "MEND", "SPANS"]

# Fields that say where something is and how long: shifted and stretched when bytes are put in or taken out. Without the
# name of an offset, what is measured begins where the record ends.
SPANS: Mapping[str, Mapping[str, tuple[tuple[str, str], ...]]] = {
    "oinf": {
        "header": (("offset_sizevars", ""), ("offset_metadata", ""), ("offset_tensors", ""), ("offset_data", "")),
        "metadata": (("value_offset", "value_nbytes"),),
        "tensor": (("data_offset", "data_nbytes"), ("quant_offset", "quant_nbytes")),
    },
    "embd": {
        "header": (
            ("metadata_offset", "metadata_size"), ("vocab_offset", "vocab_size"), ("tensor_index_offset", ""),
            ("tensor_data_offset", "tensor_data_size"),
        ),
        "metadata header": (("", "total_size"),),
        "vocabulary header": (("special_tokens", "total_size"),),
    },
    "gptrs": {
        "configuration length": (("", "config_len"),),
        "index length": (("", "index_len"),),
        "tensor": (("offset", "byte_len"),),
    },
    "mcf": {
        "header": (("section_dir_offset", ""),),
        "section": (("offset", "size"),),
        "tensor": (("data_off", "data_size"),),
    },
    "aero": {
        "header": (("toc_offset", "toc_length"), ("string_table_offset", "string_table_length")),
        "toc entry": (("chunk_offset", "chunk_length"),),
    },
    "safetensors": {"header": (("", "length"),)},
    "torch": {"end of directory": (("offset", "size"),), "central directory": (("offset", ""),)},
    "npz": {"end of directory": (("offset", "size"),), "central directory": (("offset", ""),)},
}  # fmt: skip

# Tables whose entries are counted: by a field of another record.
COUNTS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "oinf": {
        "sizevar": ("header", "n_sizevars"), "metadata": ("header", "n_metadata"), "tensor": ("header", "n_tensors"),
    },
    "embd": {
        "metadata": ("metadata header", "entry_count"), "token": ("vocabulary header", "token_count"),
        "tensor": ("header", "tensor_index_count"),
    },
    "gptrs": {"tensor": ("index", "tensor_count")},
    "mcf": {
        "section": ("header", "section_count"), "tensor": ("tensor index", "tensor_count"),
        "quant record": ("quant info", "record_count"), "model info entry": ("model info", "kv_count"),
    },
    "aero": {"toc entry": ("toc", "entry_count")},
    "gguf": {"tensor": ("header", "n_tensors"), "metadata": ("header", "n_kv")},
    "torch": {"central directory": ("end of directory", "count")},
    "npz": {"central directory": ("end of directory", "count")},
}  # fmt: skip


_CHUNKS = 64  # of an AERO file that are mended


def _put(data: bytearray, layout: Layout, field: str, value: int, start: int = 0) -> None:
    """Set one integer field of the record at ``start``, if the value fits."""
    at, size = start + layout.offset_of(field), layout.fields[field].fixed_size
    if at + size <= len(data):
        data[at : at + size] = (value & (1 << 8 * size) - 1).to_bytes(size, "little")


def _oinf(data: bytearray) -> None:
    _put(data, oinf.HEADER, "file_size", len(data))


def _mcf(data: bytearray) -> None:
    _put(data, mcf.HEADER, "file_size", len(data))


def _embd(data: bytearray) -> None:
    footer = len(data) - embd.FOOTER.size
    if footer < embd.HEADER.size or data[4:8] != b"\1\0\0\0":
        return
    header = embd.HEADER.read(data, 0)
    _put(data, embd.HEADER, "total_file_size", len(data))
    _put(data, embd.HEADER, "tensor_data_size", max(0, footer - header.tensor_data_offset))
    _put(data, embd.HEADER, "header_checksum", crc32(data[: embd.HEADER.offset_of("header_checksum")]))
    start = min(header.tensor_data_offset, footer)
    _put(data, embd.FOOTER, "data_checksum", crc32(data[start:footer]), footer)
    _put(data, embd.FOOTER, "file_checksum", crc32(data[: footer + 4]), footer)


def _aero(data: bytearray) -> None:
    """Correct the hash of every chunk; that of the control region first, since it is in a chunk itself."""
    from blake3 import blake3

    if len(data) < aero.HEADER.size:
        return
    header = aero.HEADER.read(data, 0)
    first = header.toc_offset + aero.TOC.size
    if first > len(data):
        return
    count = min(aero.TOC.read(data, header.toc_offset).entry_count, (len(data) - first) // aero.ENTRY.size)
    for row in range(min(count, _CHUNKS)):
        at = first + row * aero.ENTRY.size
        entry = aero.ENTRY.read(data, at)
        stored = bytes(data[entry.chunk_offset : entry.chunk_offset + entry.chunk_length])
        if entry.fourcc == aero.IHSH:
            control = bytearray(data[: header.string_table_offset + header.string_table_length])
            for place in range(
                first + aero.ENTRY.offset_of("blake3"), first + count * aero.ENTRY.size, aero.ENTRY.size
            ):
                control[place : place + 32] = bytes(len(control[place : place + 32]))
            place = stored.find(b"\xc4\x20")  # the digest: bytes, 32 of them
            if place >= 0:
                stored = stored[: place + 2] + blake3(control).digest() + stored[place + 34 :]
                data[entry.chunk_offset : entry.chunk_offset + entry.chunk_length] = stored
        if entry.chunk_flags & aero.COMPRESSED:
            stored = inflate(stored)
        place = at + aero.ENTRY.offset_of("blake3")
        data[place : place + 32] = blake3(stored).digest()


def inflate(stored: bytes) -> bytes:
    """Decompress a zstd frame of any size that a fuzzer makes; return a broken frame unchanged."""
    from holdall.binary.compression import import_zstd

    try:
        found: bytes = import_zstd().ZstdDecompressor().decompress(stored, 1 << 16)
    except Exception:
        return stored
    return found


def _aeroset(files: dict[str, bytes]) -> None:
    main = next((name for name in files if name.endswith(".aeroset.json")), None)
    if main is None:
        return
    try:
        tree = JSON[0](files[main])
    except ValueError:
        return

    def right(node: Any) -> None:
        if isinstance(node, Pairs):
            fields = {pair[0]: pair for pair in node if isinstance(pair[0], str)}
            name = fields.get("path", ["", ""])[1]
            if isinstance(name, str) and name in files and "sha256" in fields and "size_bytes" in fields:
                fields["sha256"][1] = hashlib.sha256(files[name]).hexdigest()
                fields["size_bytes"][1] = len(files[name])
        if isinstance(node, list):
            for item in node:
                right(item)

    right(tree)
    files[main] = JSON[1](tree)


def _single(mend: Callable[[bytearray], None]) -> Callable[[dict[str, bytes]], None]:
    def all_files(files: dict[str, bytes]) -> None:
        for name, data in files.items():
            out = bytearray(data)
            mend(out)
            files[name] = bytes(out)

    return all_files


def _set(files: dict[str, bytes]) -> None:
    parts = {name: data for name, data in files.items() if name.endswith(".aero")}
    _single(_aero)(parts)
    files.update(parts)
    _aeroset(files)


MEND: Mapping[str, Callable[[dict[str, bytes]], None]] = {
    "oinf": _single(_oinf),
    "mcf": _single(_mcf),
    "embd": _single(_embd),
    "aero": _single(_aero),
    "aeroset": _set,
}
