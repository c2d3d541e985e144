"""Documents made to be slow to walk: explain opens them within two seconds and 200 MB, wherever it begins."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import struct
import zipfile
import zlib

import numpy as np
import pytest
from click.testing import CliRunner

from holdall.cli import main
from holdall.format.onnx.wire import field, varint
from tests.attacks.kit import MIB, SECONDS, cost_of

MANY = 1_000_000


def header(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def archive(pickle: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as packed:
        packed.writestr("a/data.pkl", pickle)
        packed.writestr("a/version", "3")
    return out.getvalue()


def graph(content: bytes) -> bytes:
    return b"\x08\x08" + field(7, content)


def nested_graphs() -> bytes:
    content = b""
    for _ in range(300):
        content = field(1, field(5, field(6, content)))
    return graph(content)


def entry(tag: int, count: int, values: bytes) -> bytes:
    return b"GGUF" + struct.pack("<IQQQ1sIIQ", 3, 0, 1, 1, b"k", 9, tag, count) + values


def bombs() -> bytes:
    out = io.BytesIO()
    np.savez_compressed(out, **{f"w{n}": np.zeros(4 << 20, np.uint8) for n in range(30)})
    return out.getvalue()


def random_bytes(count: int) -> bytes:
    return np.random.default_rng(1).bytes(count)


def node(name: bytes) -> bytes:
    """The first node of a graph of TensorFlow."""
    return field(1, field(1, name) + field(2, b"Placeholder"))


def nested_fields(size: int) -> bytes:
    """Messages in messages, as many as there is room for."""
    heads, length = [], 0
    while length < size:
        heads.append(b"\x0a" + varint(length))
        length += len(heads[-1])
    return b"".join(reversed(heads))


FILES = {
    "numbers.safetensors": lambda: header(b'{"a":[' + b"1," * (MANY // 2) + b"1]}"),
    "arrays.safetensors": lambda: header(b'{"a":[' + b",".join([b"[" * 60 + b"]" * 60] * 8000) + b"]}"),
    "keys.safetensors": lambda: header(b"{" + b",".join(b'"%d":{}' % n for n in range(80_000)) + b"}"),
    "escapes.safetensors": lambda: header(b'{"a":["' + b"\\u0000" * 160_000 + b'"]}'),
    "opcodes.pt": lambda: archive(b"\x80\x02" + b"N0" * (MANY // 2) + b"N."),
    "marks.pt": lambda: archive(b"\x80\x02" + b"(" * MANY + b"N."),
    "lines.pt": lambda: archive(b"\x80\x02" + b"I1\n0" * (MANY // 4) + b"N."),
    "number.pt": lambda: archive(b"\x80\x02L" + b"1" * MANY + b"L\n."),
    "legacy.pt": lambda: b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02" + b"N0" * (MANY // 2) + b"N.",
    "nodes.onnx": lambda: graph(field(1, b"") * (MANY // 2)),
    "graphs.onnx": nested_graphs,
    "tensors.onnx": lambda: graph(field(5, b"\x08\x01\x10\x02B\x01aJ\x01x") * (MANY // 14)),
    "texts.gguf": lambda: entry(8, 110_000, struct.pack("<Q1s", 1, b"x") * 110_000),
    "bytes.gguf": lambda: entry(0, MANY, b"x" * MANY),
    "bombs.npz": bombs,
    "zeros.pkl.gz": lambda: gzip.compress(bytes(100 * MANY), 9),
    "opcodes.pkl.gz": lambda: gzip.compress(b"\x80\x02" + b"N0" * (100 * MANY), 1),
    "value.pkl.gz": lambda: gzip.compress(b"\x80\x02B\0\0\0\x7f" + bytes(100 * MANY), 1),
    "random.pkl.gz": lambda: gzip.compress(b"\x80\x02" + random_bytes(MANY)),
    "marks.pkl.z": lambda: zlib.compress(b"\x80\x02" + b"(" * (100 * MANY), 1),
    "zeros.pkl.bz2": lambda: bz2.compress(b"\x80\x02" + bytes(100 * MANY)),
    "random.pkl.bz2": lambda: bz2.compress(b"\x80\x02" + random_bytes(MANY)),
    "opcodes.pkl.xz": lambda: lzma.compress(b"\x80\x02" + b"N0" * (100 * MANY), preset=0),
    "dictionary.pkl.xz": lambda: lzma.compress(b"\x80\x02" + random_bytes(MANY), preset=9),
    "lines.txt.gz": lambda: gzip.compress(b"\n" * (100 * MANY), 1),
    "cut.pkl.gz": lambda: gzip.compress(b"\x80\x02" + random_bytes(MANY))[: MANY // 2],
    "fields.pb": lambda: node(b"x") + field(1, b"") * (MANY // 2),
    "numbers.pb": lambda: node(b"x") + b"\x08\x01" * (MANY // 2),
    "nested.pb": lambda: node(b"x") + nested_fields(MANY),
    "texts.pb": lambda: node(b"x") + field(1, b"a" * 4090) * 244,
    "breaks.pb": lambda: node(b"x") + field(1, b"\n" * 4090) * 244,
    "huge.pb": lambda: node(b"x") + b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01" + bytes(MANY),
    "varint.pb": lambda: node(b"x") + b"\x80" * MANY,
    "raw.pkl": lambda: b"\x80\x02" + b"N0" * (MANY // 2) + b"N.",
}


@pytest.mark.parametrize("name", FILES)
def test_explain_is_quick_from_every_byte_on(name, tmp_path):
    path = tmp_path / name
    path.write_bytes(FILES[name]())
    size = path.stat().st_size
    outputs = []
    for more in ([], ["--json"], ["--at", str(size - 300)], ["--at", str(size // 2)]):
        arguments = ["explain", str(path), *more]
        cost = cost_of(lambda arguments=arguments: outputs.append(CliRunner().invoke(main, arguments).output))
        assert cost.seconds < SECONDS and cost.peak_bytes < 200 * MIB, (more, cost)
    assert all(output and "should not happen" not in output for output in outputs)
    assert max(map(len, outputs)) < 100_000
