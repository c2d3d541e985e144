"""Documents as trees: each kind is a pair of functions, and what one reads the other writes.

JSON, msgpack, protobuf, pickles, npy arrays and zip archives become nested lists, numbers, texts and bytes; written
again, lengths and checksums around a changed node are right.
"""

from __future__ import annotations

import ast
import io
import json
import pickletools
import struct
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

import msgspec

from holdall.format.onnx.wire import varint
from tools.fuzz.trees import Pairs

__all__ = ["GGUF", "JSON", "MSGPACK", "NPY", "NPZ", "PICKLE", "PROTOBUF", "TORCH", "Kind"]

Kind = tuple[Callable[[bytes], Any], Callable[[Any], bytes]]


# -- JSON -------------------------------------------------------------------------------------------------------------


def _read_json(data: bytes) -> Any:
    return json.loads(data, object_pairs_hook=lambda pairs: Pairs([key, value] for key, value in pairs))


def _write_json(tree: Any) -> bytes:
    return _json(tree).encode("utf-8", "surrogatepass")


_INFINITE = float("inf")


def _json(tree: Any) -> str:
    if isinstance(tree, Pairs):
        return "{" + ",".join(f"{_json(key)}:{_json(value)}" for key, value in _pairs(tree)) + "}"
    if isinstance(tree, (list, tuple)):
        return "[" + ",".join(map(_json, tree)) + "]"
    if isinstance(tree, float) and tree in (_INFINITE, -_INFINITE):
        return "1e999" if tree > 0 else "-1e999"  # valid JSON, beyond any float
    return json.dumps(tree if not isinstance(tree, bytes) else tree.decode("latin-1"), ensure_ascii=False)


def _pairs(tree: Pairs) -> list[Any]:
    """Return the pairs of a tree; a changed tree may hold items that are no pair."""
    return [pair if isinstance(pair, list) and len(pair) == 2 else ["", pair] for pair in tree]


JSON: Kind = (_read_json, _write_json)


# -- msgpack ----------------------------------------------------------------------------------------------------------


def _read_msgpack(data: bytes) -> Any:
    return _to_lists(msgspec.msgpack.decode(data.rstrip(b"\0") if data[:1] != b"\0" else data))


def _to_lists(value: Any) -> Any:
    if isinstance(value, dict):
        return Pairs([key, _to_lists(item)] for key, item in value.items())
    return [_to_lists(item) for item in value] if isinstance(value, list) else value


def _write_msgpack(tree: Any) -> bytes:
    if isinstance(tree, Pairs):
        pairs = _pairs(tree)
        return _count(0x80, 0xDE, len(pairs)) + b"".join(_write_msgpack(item) for pair in pairs for item in pair)
    if isinstance(tree, (list, tuple)):
        return _count(0x90, 0xDC, len(tree)) + b"".join(map(_write_msgpack, tree))
    if isinstance(tree, int) and not isinstance(tree, bool):
        tree = max(-(1 << 63), min(tree, (1 << 64) - 1))
    return msgspec.msgpack.encode(tree.encode("utf-8", "replace").decode() if isinstance(tree, str) else tree)


def _count(small: int, wide: int, count: int) -> bytes:
    return bytes([small | count]) if count < 16 else bytes([wide]) + struct.pack(">H", count & 0xFFFF)


MSGPACK: Kind = (_read_msgpack, _write_msgpack)


# -- protobuf ---------------------------------------------------------------------------------------------------------


def _read_protobuf(data: bytes) -> Any:
    tree = _message(data)
    if tree is None:
        raise ValueError("no message")
    return tree


_BEGINNINGS = b"\x08\x0a\x10\x12"  # fields 1 and 2, with which the messages of a model begin


def _message(data: bytes) -> list[Any] | None:
    """Return fields as [number, kind, value]. Bytes that look like a message are read as one."""
    fields, at = [], 0
    while at < len(data):
        tag, at = _varint(data, at)
        value: Any
        if tag & 7 == 0:
            value, at = _varint(data, at)
        elif tag & 7 in (1, 5):
            size = 8 if tag & 7 == 1 else 4
            value, at = data[at : at + size], at + size
        elif tag & 7 == 2:
            size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
            inner = _message(value) if len(value) > 2 and value[0] in _BEGINNINGS else None
            value = inner if inner else value
        else:
            return None
        if not 0 < tag >> 3 < 64 or at > len(data):
            return None
        fields.append([tag >> 3, tag & 7, value])
    return fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            return value, at
    return 0, len(data) + 1


def _write_protobuf(tree: Any) -> bytes:
    if not isinstance(tree, list):
        return _plain(tree)
    return b"".join(_field(item) for item in tree)


def _field(item: Any) -> bytes:
    if not (isinstance(item, list) and len(item) == 3 and all(type(part) is int for part in item[:2])):
        return _write_protobuf(item) if isinstance(item, list) else _plain(item)
    number, kind, value = item
    tag = varint((number << 3 | kind & 7) & (1 << 64) - 1)
    if kind == 2:
        data = _write_protobuf(value)
        return tag + varint(len(data)) + data
    return tag + (varint(value & (1 << 64) - 1) if isinstance(value, int) else _plain(value))


def _plain(value: Any) -> bytes:
    """Return bytes for any value that a changed tree has in the place of bytes."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace")
    if isinstance(value, int):
        return varint(value & 0xFFFF)
    return value if isinstance(value, bytes) else b""


PROTOBUF: Kind = (_read_protobuf, _write_protobuf)


# -- pickles ----------------------------------------------------------------------------------------------------------


def _read_pickle(data: bytes) -> Any:
    """Return opcodes as [bytes of the opcode, argument]. Several pickles in a row are one list, then the rest."""
    tokens: list[Any] = []
    at = 0
    while at < len(data) and data[at : at + 1] == b"\x80":
        found = [(at + (place or 0), op, arg) for op, arg, place in pickletools.genops(data[at:])]
        ends = [place for place, _, _ in found[1:]] + [found[-1][0] + 1]
        for (place, _op, arg), end in zip(found, ends, strict=True):
            tokens.append([data[place : place + 1], _argument(arg, data[place + 1 : end])])
        at = ends[-1]
    return [tokens, data[at:]]


def _argument(arg: Any, stored: bytes) -> Any:
    return arg if isinstance(arg, (int, str)) and not isinstance(arg, bool) and len(stored) > 1 else stored


_INTS = {
    b"K": "<B",
    b"M": "<H",
    b"J": "<i",
    b"h": "<B",
    b"j": "<I",
    b"q": "<B",
    b"r": "<I",
    b"\x80": "<B",
    b"\x95": "<Q",
}
_TEXTS = {b"X": "<I", b"\x8c": "<B", b"\x8d": "<Q", b"U": "<B", b"T": "<I"}


def _write_pickle(tree: Any) -> bytes:
    tokens, rest = tree if isinstance(tree, list) and len(tree) == 2 else (tree, b"")
    out = []
    for token in tokens if isinstance(tokens, list) else []:
        code, arg = token if isinstance(token, list) and len(token) == 2 else (b"N", b"")
        code = code[:1] if isinstance(code, bytes) and code else b"N"
        out.append(code + _store(code, arg))
    return b"".join(out) + (rest if isinstance(rest, bytes) else b"")


def _store(code: bytes, arg: Any) -> bytes:
    if isinstance(arg, bytes):
        return arg
    if isinstance(arg, bool) or not isinstance(arg, (int, str)):
        return b""
    if isinstance(arg, int):
        if code == b"\x8a":
            data = arg.to_bytes(arg.bit_length() // 8 + 1, "little", signed=True)[:255]
            return bytes([len(data)]) + data
        form = _INTS.get(code, "<B")
        return (arg & (1 << 8 * struct.calcsize(form)) - 1).to_bytes(struct.calcsize(form), "little")
    data = arg.encode("utf-8", "replace")
    if code in (b"c", b"i"):
        return data.replace(b" ", b"\n") + b"\n"
    form = _TEXTS.get(code, "<B")
    return (len(data) & (1 << 8 * struct.calcsize(form)) - 1).to_bytes(struct.calcsize(form), "little") + data


PICKLE: Kind = (_read_pickle, _write_pickle)


# -- npy and zip ------------------------------------------------------------------------------------------------------


def _read_npy(data: bytes) -> Any:
    width = 2 if data[6] == 1 else 4
    size = int.from_bytes(data[8 : 8 + width], "little")
    header = ast.literal_eval(data[8 + width : 8 + width + size].decode("latin-1"))
    return [data[:8], Pairs([key, value] for key, value in header.items()), data[8 + width + size :]]


def _write_npy(tree: Any) -> bytes:
    prefix, header, rest = tree if isinstance(tree, list) and len(tree) == 3 else (b"\x93NUMPY\1\0", tree, b"")
    prefix = prefix if isinstance(prefix, bytes) else b"\x93NUMPY\2\0"
    text = (
        "{" + "".join(f"{_literal(k)}: {_literal(v)}, " for k, v in _pairs(header)) + "}"
        if isinstance(header, Pairs)
        else repr(header)
    )
    width = 2 if prefix[6:7] == b"\1" else 4
    stored = text.encode("utf-8", "replace")
    size = len(stored) & (1 << 8 * width) - 1
    return prefix + size.to_bytes(width, "little") + stored + (rest if isinstance(rest, bytes) else b"")


def _literal(value: Any) -> str:
    return (
        "{" + "".join(f"{_literal(k)}: {_literal(v)}, " for k, v in _pairs(value)) + "}"
        if isinstance(value, Pairs)
        else repr(value)
    )


NPY: Kind = (_read_npy, _write_npy)


def _zip(inner: Callable[[str], Kind | None]) -> Kind:
    """Return the kind of archives: lists of [name, method, content]; ``inner`` gives the kind of some contents."""

    def read(data: bytes) -> Any:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return [
                [info.filename, info.compress_type, _content(archive.read(info), inner(info.filename))]
                for info in archive.infolist()
            ]

    def write(tree: Any) -> bytes:
        entries = [item for item in tree if isinstance(item, list) and len(item) == 3] if isinstance(tree, list) else []
        out, central = bytearray(), bytearray()
        for name, method, content in entries:
            stored_name = _plain(name)[:1000] if isinstance(name, (str, bytes)) else b"x"
            kind = inner(stored_name.decode("utf-8", "replace"))
            plain = content if isinstance(content, bytes) else kind[1](content) if kind is not None else b""
            packed, method = plain, method & 0xFFFF if type(method) is int else 0
            if method == 8:
                deflate = zlib.compressobj(6, wbits=-15)
                packed = deflate.compress(plain) + deflate.flush()
            facts = struct.pack(
                "<HHHHIIIHH", 0x800, method, 0, 0x21, zlib.crc32(plain), len(packed), len(plain), len(stored_name), 0
            )
            central += b"PK\1\2\x14\0\x14\0" + facts + struct.pack("<HHHII", 0, 0, 0, 0, len(out)) + stored_name
            out += b"PK\3\4\x14\0" + facts + stored_name + packed
        end = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, len(entries), len(entries), len(central), len(out), 0)
        return bytes(out + central) + end

    return read, write


def _content(data: bytes, kind: Kind | None) -> Any:
    try:
        return data if kind is None else kind[0](data)
    except Exception:  # the input was damaged before
        return data


NPZ = _zip(lambda name: NPY if name.endswith(".npy") else None)
TORCH = _zip(lambda name: PICKLE if name.endswith("data.pkl") else None)


# -- GGUF -------------------------------------------------------------------------------------------------------------

_SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def _read_gguf(data: bytes) -> Any:
    """[head, entries as [key, tag, value], tensors as [name, dims, type, offset], the rest]."""
    at = 24
    tensors, entries = struct.unpack_from("<QQ", data, 8)
    if max(tensors, entries) > 1000:
        raise ValueError("no counts")

    def take(size: int) -> int:
        nonlocal at
        at += size
        return int.from_bytes(data[at - size : at], "little")

    def text() -> bytes:
        nonlocal at
        size = take(8)
        at += size
        return data[at - size : at]

    def value(tag: int) -> Any:
        if tag == 8:
            return text()
        if tag == 9:
            kind, count = take(4), take(8)
            return [kind, [value(kind) for _ in range(min(count, 1000))]]
        return take(_SCALARS.get(tag, 1))

    kv = []
    for _ in range(entries):
        key, tag = text(), take(4)
        kv.append([key, tag, value(tag)])
    table = []
    for _ in range(tensors):
        name, rank = text(), take(4)
        table.append([name, [take(8) for _ in range(min(rank, 100))], take(4), take(8)])
    return [data[:8], kv, table, data[at + -at % 32 :]]


def _write_gguf(tree: Any) -> bytes:
    head, kv, table, rest = tree
    assert isinstance(rest, bytes)
    out = bytearray(head + struct.pack("<QQ", len(table), len(kv)))

    def put(value: Any, size: int) -> None:
        out.extend((int(value) & (1 << 8 * size) - 1).to_bytes(size, "little"))

    def text(value: Any) -> None:
        data = _plain(value)
        put(len(data), 8)
        out.extend(data)

    def write(tag: int, value: Any) -> None:
        if tag == 8:
            text(value)
        elif tag == 9 and isinstance(value, list):
            kind, items = value
            put(kind, 4)
            put(len(items), 8)
            for item in items:
                write(kind, item)
        else:
            put(value if isinstance(value, (int, float)) else 0, _SCALARS.get(tag, 1))

    for key, tag, value in kv:
        text(key)
        put(tag, 4)
        write(tag, value)
    for name, dims, kind, offset in table:
        text(name)
        put(len(dims), 4)
        for dim in dims:
            put(dim, 8)
        put(kind, 4)
        put(offset, 8)
    return bytes(out) + bytes(-len(out) % 32) + rest


GGUF: Kind = (_read_gguf, _write_gguf)
