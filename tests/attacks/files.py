"""Good small files of every format, their fields set to anything; and those that have to be put together by hand."""

from __future__ import annotations

import hashlib
import io
import json
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from blake3 import blake3

import holdall
from holdall.format.aero.layout import ENTRY, HEADER, TOC
from holdall.format.onnx.wire import field as proto_field
from holdall.operations.examine import examine
from holdall.operations.explain import expand, list_records

TENSORS = {"first": np.ones((2, 3), np.float32), "second": np.arange(6, dtype=np.float32)}

OPTIONS: dict[str, dict[str, Any]] = {"embd": {"checksums": False}}


@cache
def good(format: str) -> bytes:
    """A small file of two tensors."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "good"
        holdall.save(path, TENSORS, format=format, fsync=False, **OPTIONS.get(format, {}))
        return path.read_bytes()


@cache
def places(format: str) -> Mapping[tuple[str, str, int], tuple[int, int]]:
    """Where each field of the good file is, by table, name and row: its offset and size."""
    found = {}
    with examine(good(format), format=format) as seen:
        assert seen.report.ok
        for owner in seen.ledger.owners:
            for row, record in enumerate(list_records(owner)):
                for each in expand(record, seen.source):
                    found[owner.name, each.name, row] = (each.offset, each.size)
    return found


Change = tuple[str, str, int] | tuple[str, str, int, int]  # table, field, value, row


def patched(format: str, *changes: Change) -> bytes:
    """The good file with fields set; of texts and arrays the first eight bytes at most: counter, or first item."""
    data = bytearray(good(format))
    for table, name, value, *row in changes:
        at, size = places(format)[table, name, row[0] if row else 0]
        width = min(size, 8) if name not in _COUNTED else _COUNTED[name]
        data[at : at + width] = (value % (1 << 8 * width)).to_bytes(width, "little")
    return bytes(data)


_COUNTED = {"name": 4, "key": 4}  # texts that begin with a counter of so many bytes


# -- sets -------------------------------------------------------------------------------------------------------------


def hf_folder(folder: Path, weights: bytes, **files: bytes) -> Path:
    """A Hugging Face folder around one file of weights."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_bytes(weights)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def hf_index(folder: Path, weight_map: Mapping[str, str] | bytes, **files: bytes) -> Path:
    """A sharded Hugging Face folder."""
    folder.mkdir(parents=True, exist_ok=True)
    stored = weight_map if isinstance(weight_map, bytes) else json.dumps({"weight_map": dict(weight_map)}).encode()
    (folder / "model.safetensors.index.json").write_bytes(stored)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def member(path: str, data: bytes, **changes: Any) -> dict[str, Any]:
    """What the document of a set says of one part."""
    stated = {"path": path, "sha256": hashlib.sha256(data).hexdigest(), "size_bytes": len(data), "shards": [0]}
    return {**stated, **changes}


def aeroset(folder: Path, part: bytes, *members: dict[str, Any], **changes: Any) -> Path:
    """A set of one part, unless ``members`` say something else."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "part-000.aero").write_bytes(part)
    document = {"format": {"name": "AEROSET", "version": [0, 1]}, "model": {"name": "m"},
                "parts": list(members) or [member("part-000.aero", part)], **changes}  # fmt: skip
    (folder / "model.aeroset.json").write_text(json.dumps(document))
    return folder


# -- AERO -------------------------------------------------------------------------------------------------------------


def tidx_entry(**changes: Any) -> dict[str, Any]:
    """One tensor of the index, f32[4]; ``...`` takes a key away."""
    plain = {"name": "w", "dtype": 1, "shape": [4], "shard_id": 0, "data_off": 0, "data_len": 16, "flags": 0}
    return {key: value for key, value in {**plain, **changes}.items() if value is not ...}


def aero(*entries: dict[str, Any] | bytes, shard: bytes = bytes(64), chunks: Sequence[tuple[Any, ...]] = ()) -> bytes:
    """A file of these tensors, hashes right. ``chunks`` are more: fourcc, name, flags, stored bytes, and the size and
    hash of the content where they are not those of the stored bytes."""
    raw = entries[0] if len(entries) == 1 and isinstance(entries[0], bytes) else None
    index = raw if raw is not None else msgspec.msgpack.encode({"tensors": list(entries)})
    every = [(b"TIDX", b"tensors", 4, index), (b"WTSH", b"weights.shard0", 2, shard), *chunks]
    every = [
        entry for entry in every if not any(entry[0] == b"TIDX" == other[0] for other in chunks) or entry in chunks
    ]
    strings = b"".join(entry[1] + b"\0" for entry in every)
    strings += bytes(-len(strings) % 8)
    at = HEADER.size + TOC.size + len(every) * ENTRY.size
    cursor, name_off = -(-(at + len(strings)) // 16) * 16, 0
    table, payloads = b"", b""
    for fourcc, name, flags, data, *stated in every:
        size, digest = stated or (len(data), blake3(data).digest())
        table += ENTRY.pack(
            fourcc=fourcc, chunk_flags=flags, chunk_offset=cursor, chunk_length=len(data), chunk_ulen=size,
            name_off=name_off, name_len=len(name), reserved0=0, blake3=digest,
        )  # fmt: skip
        padded = data + bytes(-len(data) % 16)
        payloads, cursor, name_off = payloads + padded, cursor + len(padded), name_off + len(name) + 1
    head = HEADER.pack(magic=b"AERO", version_major=0, version_minor=1, header_size=96, toc_offset=96,
                       toc_length=TOC.size + len(every) * ENTRY.size, string_table_offset=at,
                       string_table_length=len(strings), file_flags=0, uuid=bytes(16), reserved=bytes(28))  # fmt: skip
    control = head + TOC.pack(entry_count=len(every), reserved0=0, reserved1=0) + table + strings
    return control + bytes(-len(control) % 16) + payloads


# -- zips -------------------------------------------------------------------------------------------------------------


def npy(shape: str = "(2,)", descr: str = "'<f4'", data: bytes = bytes(8), order: str = "False") -> bytes:
    """An array with a header of any text."""
    text = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}".encode("latin-1")
    text += b" " * (-(len(text) + 13) % 64) + b"\n"
    return b"\x93NUMPY\2\0" + len(text).to_bytes(4, "little") + text + data


def npz(*entries: tuple[str, bytes], deflate: bool = False) -> bytes:
    """A zip of these files, names as they are."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED if deflate else zipfile.ZIP_STORED) as archive:
        for name, data in entries:
            archive.writestr(zipfile.ZipInfo(name), data, archive.compression)
    return out.getvalue()


# -- ONNX -------------------------------------------------------------------------------------------------------------


def proto(name: bytes = b"w", dims: Sequence[int] = (2,), code: int = 1, rest: bytes | None = None) -> bytes:
    """A TensorProto."""
    raw = proto_field(9, bytes(8)) if rest is None else rest
    return b"".join(proto_field(1, dim) for dim in dims) + proto_field(2, code) + proto_field(8, name) + raw


def onnx(*tensors: bytes, props: Mapping[str, str] | None = None, around: bytes = b"") -> bytes:
    """A ModelProto with these initializers."""
    graph = proto_field(2, b"g") + b"".join(proto_field(5, tensor) for tensor in tensors)
    pairs = ((key.encode(), value.encode()) for key, value in (props or {}).items())
    entries = b"".join(proto_field(14, proto_field(1, key) + proto_field(2, value)) for key, value in pairs)
    return proto_field(1, 8) + proto_field(2, b"test") + proto_field(7, graph) + entries + around


def external(**entries: str) -> bytes:
    """The fields of a TensorProto whose bytes are elsewhere."""
    pairs = (
        proto_field(13, proto_field(1, key.encode()) + proto_field(2, value.encode())) for key, value in entries.items()
    )
    return b"".join(pairs) + proto_field(14, 1)
