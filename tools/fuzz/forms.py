"""Forms of a format that its writer here does not write: older versions, other writers' habits, sets of files.

Those whose names begin with "refused" are for the refusal.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping

from holdall.format.onnx.wire import field
from tools.fuzz.aeroforms import aero
from tools.fuzz.framing import frame
from tools.fuzz.onnxforms import make_model, onnx_places
from tools.fuzz.torchforms import torch
from tools.fuzz.zipforms import npz

__all__ = ["FORMS"]

Forms = Iterator[tuple[str, bytes]]


# -- EMBD -------------------------------------------------------------------------------------------------------------


def _embd() -> Forms:
    yield "refused-draft", b"EMBD" + struct.pack("<III", 1, 1, 116) + bytes(100 + 4)


# -- GPTRS ------------------------------------------------------------------------------------------------------------

_LEGACY = b'{"vocab_size":2,"context_length":2,"embed_dim":2,"num_layers":1,"num_heads":1,"mlp_ratio":4,"dropout":0.5}'
_RUNTIME = (
    b'{"kind":"gpt","config":{},"runtime":{"functional_overrides":{"a":"benchmark(cache=2)","b":"force=x"},'
    b'"weight_streaming":{"enabled":true,"device_budget_bytes":9,"device_weights_percent":0.5}}}'
)


def _gptrs() -> Forms:
    """Yield version 1, whose tensors stand in the table, with many configurations."""
    name = struct.pack("<I", 1) + b"w"
    inline = name + struct.pack("<I2QIBQ", 2, 1, 2, 0, 1, 8) + bytes(8)
    tensors = struct.pack("<I", 1) + inline
    yield "archive-1", b"GPTRSTEN" + struct.pack("<I", 1) + tensors
    for title, config in (("legacy", _LEGACY), ("runtime", _RUNTIME)):
        head = b"GPTRSCHK%b" + struct.pack("<I", len(config)) + config
        yield f"checkpoint-1-{title}", head % struct.pack("<I", 1) + tensors
        yield f"checkpoint-2-{title}", head % struct.pack("<I", 2) + struct.pack("<II", 4, 0)


# -- safetensors ------------------------------------------------------------------------------------------------------

_ENTRY = b'"%b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}'


def _safetensors() -> Forms:
    """Yield escapes where no writer puts any, and dims whose product overflows 64 bits before a zero."""
    yield "escaped", _safetensors_file(rb'"w":{"dty\u0070e":"F\u00332","shape":[2],"data_offsets":[0,8]}', bytes(8))
    yield "empty", _safetensors_file(b'"w":{"dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}')


def _safetensors_file(members: bytes, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(members) + 2) + b"{%b}" % members + data


def _hf() -> Forms:
    """Yield files that disagree, more missing files than are reported, and numbers beyond any float."""
    files = {f"{name}.safetensors": name for name in ("a", "b")}
    shards = {
        file: _safetensors_file(b'"__metadata__":{"by":"%b"},' % name.encode() + _ENTRY % name.encode(), bytes(8))
        for file, name in files.items()
    }
    index = {name: file for file, name in files.items()}
    yield "metadata-differ", frame({**shards, **_hf_index(index)})
    for title, number in {"fraction": "1e999", "integer": "9" * 5000}.items():
        yield f"refused-{title}", frame({**shards, **_hf_index(index, f'{{"total_size":{number}}}')})
    yield "refused-missing", frame(_hf_index({f"{number}": f"{number}.safetensors" for number in range(150)}))


def _hf_index(files: Mapping[str, str], metadata: str = "{}") -> dict[str, bytes]:
    text = f'{{"metadata":{metadata},"weight_map":{json.dumps(files)}}}'
    return {"model.safetensors.index.json": text.encode()}


# -- GGUF -------------------------------------------------------------------------------------------------------------


def _gguf() -> Forms:
    """Yield every kind of value and of block, older versions, and a model in two files."""
    from holdall.model.ggml import BLOCKS

    numbers = [(tag, bytes([1]) + bytes(size - 1)) for tag, size in _SIZES.items()]
    values = [_entry(f"kind.{tag}", tag, data) for tag, data in numbers]
    arrays = [_entry(f"array.{tag}", 9, struct.pack("<IQ", tag, 2) + 2 * data) for tag, data in numbers]
    texts = struct.pack("<IQ", 8, 2) + _text("a") + _text("é")
    nested = struct.pack("<IQ", 9, 1) + struct.pack("<IQ", 4, 1) + bytes(4)
    yield "values", _gguf_file(values, [])
    yield "arrays", _gguf_file([*arrays, _entry("texts", 9, texts), _entry("nested", 9, nested)], [])
    tokens = [_entry("tokenizer.ggml.tokens", 9, texts), _entry("general.alignment", 4, struct.pack("<I", 8))]
    yield "tokens", _gguf_file(tokens, [_info("w", (1,), 0, 0)], bytes(4), 8)
    for number, kind in BLOCKS.items():
        size = kind.block_bytes
        yield f"type-{number}", _gguf_file([], [_info("w", (kind.elements, 1), number, 0)], bytes(size + -size % 32))
    one = _gguf_file([], [_info("w", (1,), 0, 0)], bytes(32))
    yield "version-2", one[:4] + b"\2" + one[5:]
    yield "refused-big-endian", one[:4] + b"\0\0\0\3" + one[8:]
    yield "split", frame({f"m-{number:05}-of-00002.gguf": _part(number - 1, 2) for number in (1, 2)})


_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def _text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def _entry(key: str, tag: int, value: bytes) -> bytes:
    return _text(key) + struct.pack("<I", tag) + value


def _info(name: str, dims: tuple[int, ...], kind: int, offset: int) -> bytes:
    return _text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def _gguf_file(entries: list[bytes], infos: list[bytes], data: bytes = b"", alignment: int = 32) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(entries)) + b"".join(entries) + b"".join(infos)
    return head + bytes(-len(head) % alignment if infos else 0) + data


def _part(number: int, count: int) -> bytes:
    entries = [_entry("split.no", 2, struct.pack("<H", number)), _entry("split.count", 2, struct.pack("<H", count))]
    entries.append(_entry("split.tensors.count", 5, struct.pack("<i", 2)))
    return _gguf_file(entries, [_info(f"w{number}", (8,), 0, 0)], bytes(32))


# -- ONNX -------------------------------------------------------------------------------------------------------------


def _onnx() -> Forms:
    """Yield values as repeated numbers, packed or not, of every kind; text; bytes in another file."""
    dims = field(1, 2)
    forms = {
        "floats": (1, field(4, struct.pack("<2f", 1, 2))),
        "floats-apart": (1, 2 * (b"\x25" + struct.pack("<f", 1))),
        "doubles": (11, field(10, struct.pack("<2d", 1, 2))),
        "int32s": (6, field(5, b"\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")),
        "int32s-apart": (2, field(5, 1) + field(5, 2)),
        "halves": (10, field(5, b"\x80\x78\x00")),
        "int64s": (7, field(7, b"\x01\x02")),
        "uint64s": (13, field(11, b"\x01\x02")),
        "bools": (9, field(5, b"\x01\x00")),
        "nibbles": (22, field(5, b"\x21")),
        "texts": (8, field(6, b"a") + field(6, b"b")),
    }
    for title, (code, values) in forms.items():
        yield title, make_model(dims + field(2, code) + field(8, b"w") + values)
    inside = {"location": "w.bin", "offset": "0", "length": "8", "checksum": "x"}
    pairs = b"".join(field(13, field(1, key.encode()) + field(2, value.encode())) for key, value in inside.items())
    outside = make_model(dims + field(2, 1) + field(8, b"w") + pairs + field(14, 1))
    yield "external", frame({"m.onnx": outside, "w.bin": bytes(8)})
    yield "refused-external", outside
    yield "packed-dims", make_model(field(1, b"\x01\x02") + field(2, 1) + field(8, b"w") + field(9, bytes(8)))
    yield from onnx_places()


FORMS: Mapping[str, Callable[[], Forms]] = {
    "embd": _embd, "gptrs": _gptrs, "safetensors": _safetensors, "hf": _hf, "gguf": _gguf, "onnx": _onnx,
    "aero": aero, "npz": npz, "torch": torch,
}  # fmt: skip
