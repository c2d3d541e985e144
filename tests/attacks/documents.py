"""Documents inside files: nesting without end, bombs, JSON that readers disagree on."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import pack
from typing import Any
from zlib import compress

import msgspec
from blake3 import blake3

from holdall.binary.compression import compress as zstd
from holdall.format.onnx.wire import field
from tests.attacks.files import aero, aeroset, good, hf_index, npy, npz, onnx, proto, tidx_entry
from tests.attacks.kit import Attack, family
from tests.format.gguf import build as gguf
from tests.format.mcf.build import Entry, with_tensors
from tests.format.safetensors.files import build
from tests.format.torch.files import checkpoint, legacy, named, tensor

_FLAT = "nothing in it holds another of its kind"
_NO_JSON = "no JSON in it"


def _checkpoint_config(config: bytes) -> bytes:
    """A GPTRSCHK file with any configuration and no tensors."""
    return b"GPTRSCHK" + pack("<II", 2, len(config)) + config + pack("<II", 4, 0)


def _metadata_npz(document: bytes) -> bytes:
    """An npz whose metadata are ``document``."""
    return npz(("w.npy", npy()), ("__metadata__.npy", npy(f"({len(document)},)", "'|u1'", document)))


def _meta_aero(document: bytes) -> bytes:
    """An AERO file with this MJSN."""
    return aero(tidx_entry(), chunks=[(b"MJSN", b"meta.json", 0, document)])


def _asset_mcf(document: bytes) -> bytes:
    """An MCF file with this config.json."""
    return with_tensors([Entry(b"w", 1, (2,), bytes(8))], [(0x100, document)])


# -- nesting ----------------------------------------------------------------------------------------------------------

NESTING = family("nesting", "a document nested beyond the limit is refused, and nothing recurses by the file's will")
_DEEP = 100_000


def _deep_json() -> Iterator[tuple[str, bytes]]:
    for depth in (200, _DEEP):
        yield f"{depth} arrays", b"[" * depth + b"]" * depth
        yield f"{depth} objects", b'{"a":' * depth + b"1" + b"}" * depth
    yield "arrays that do not end", b"[" * _DEEP


@NESTING.on("gptrs-checkpoint")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for name, document in _deep_json():
        yield Attack(name, _checkpoint_config(b'{"x":' + document + b"}"))


@NESTING.on("safetensors")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for name, document in _deep_json():
        yield Attack(name, build(b'{"__metadata__":' + document + b"}"))
        yield Attack(f"a tensor of {name}", build(b'{"w":' + document + b"}"))


@NESTING.on("hf")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for number, (name, document) in enumerate(_deep_json()):
        yield Attack(name, hf_index(folder / f"{number}", b'{"weight_map":{},"metadata":' + document + b"}"))


@NESTING.on("aeroset")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for number, (name, document) in enumerate(_deep_json()):
        path = aeroset(folder / f"{number}", good("aero"))
        (path / "model.aeroset.json").write_bytes(b'{"format":' + document + b"}")
        yield Attack(name, path)


@NESTING.on("npz")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for name, document in _deep_json():
        yield Attack(name, _metadata_npz(b'{"x":' + document + b"}"), "read")
    for depth in (20, 30_000):
        yield Attack(f"a type of {depth} lists", npz(("w.npy", npy(descr="[" * depth + "]" * depth))))
        yield Attack(f"a shape of {depth} tuples", npz(("w.npy", npy(shape="(" * depth + "2" + ",)" * depth))))
        yield Attack(f"a type of {depth} types", npz(("w.npy", npy(descr="[('a', " * depth + "'<f4'" + ")]" * depth))))


@NESTING.on("aero")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for depth in (200, 2000, _DEEP):
        for name, head in (("arrays", b"\x91"), ("maps", b"\x81\xa1a")):
            yield Attack(f"{depth} {name}", aero(b"\x81\xa7tensors" + head * depth + b"\xc0"))
            row = msgspec.msgpack.encode(tidx_entry())
            more = b"\x81\xa7tensors\x91" + bytes([row[0] + 1]) + row[1:] + b"\xa1x" + head * depth + b"\xc0"
            yield Attack(f"{depth} {name} beside a tensor", aero(more))
            extra = (b"MMSG", b"manifest", 0, head * depth + b"\xc0")
            yield Attack(f"a manifest of {depth} {name}", aero(tidx_entry(), chunks=[extra]), "full")
    for name, document in _deep_json():
        yield Attack(f"MJSN of {name}", _meta_aero(b'{"x":' + document + b"}"), "full")


@NESTING.on("gguf")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for depth in (130, 5000, _DEEP):
        value = gguf.array(9, 1, b"") * depth + gguf.array(0, 1, b"\0")
        yield Attack(f"{depth} arrays", gguf.file((gguf.entry("a", 9, value),)))


@NESTING.on("torch")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for depth in (200, _DEEP):
        for name, opcodes in (("lists", b"]" * depth + b"a" * (depth - 1)), ("tuples", b"N" + b"\x85" * depth),
                              ("dicts", b"}X\1\0\0\0a" * depth + b"N" + b"s" * depth)):  # fmt: skip
            yield Attack(f"{depth} {name}", checkpoint(b"\x80\x02" + opcodes + b"."))
            yield Attack(f"{depth} {name} in an old file", legacy(b"\x80\x02" + opcodes + b"."))
    yield Attack("a list inside itself", checkpoint(b"\x80\x02]q\0h\0a."))
    yield Attack("a dict inside itself", checkpoint(b"\x80\x02}q\0X\1\0\0\0ah\0s."))


@NESTING.on("onnx")
def _(folder: Path, format: str) -> Iterator[Attack]:
    inner = b""
    for _ in range(2000):  # graphs in attributes of nodes of graphs
        inner = field(1, field(5, field(6, inner)))
    deep = field(1, 8) + field(7, field(2, b"g") + inner + field(5, proto()))
    yield Attack("graphs in nodes", deep, "never")  # stepped over, however deep: only initializers are looked at
    yield Attack("groups", onnx(proto(), around=b"\x0b" * 5000))


@NESTING.on("mcf")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for name, document in _deep_json():  # an asset: bytes that are carried along, decoded only when asked for
        yield Attack(name, _asset_mcf(b'{"x":' + document + b"}"), "never")


NESTING.spare(_FLAT, "oinf", "embd", "gptrs-archive")

# -- bombs ------------------------------------------------------------------------------------------------------------

BOMBS = family("bombs", "what inflates beyond its stated size or the limits is refused before it is inflated")
_GIGA = 1 << 30


def _zstd_zeros(size: int) -> bytes:
    """A frame of zeros: blocks of 128 KiB that repeat one byte, four bytes each."""
    blocks, left = [], size
    while left:
        take = min(left, 128 << 10)
        left -= take
        blocks.append(((take << 3) | 2 | (not left)).to_bytes(3, "little") + b"\0")
    return b"\x28\xb5\x2f\xfd\xe0" + size.to_bytes(8, "little") + b"".join(blocks)


@BOMBS.on("aero")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for size in (_GIGA, 65 << 20):
        bomb = _zstd_zeros(size)
        digest = bytes(32)
        yield Attack(f"an index of {size}", aero(chunks=[(b"TIDX", b"tensors", 5, bomb, size, digest)]))
        yield Attack(
            f"a manifest of {size}", aero(tidx_entry(), chunks=[(b"MMSG", b"manifest", 1, bomb, size, digest)]), "full"
        )
        lies = (b"TIDX", b"tensors", 5, bomb, 100, digest)
        yield Attack(f"{size} that are said to be 100", aero(chunks=[lies]))
    many = 20 << 20  # a byte each, that would become an object of 64
    lists = b"\x81\xa1a\xdd" + many.to_bytes(4, "big") + b"\x90" * many
    manifest = (b"MMSG", b"manifest", 1, zstd(lists), len(lists), blake3(lists).digest())
    yield Attack("a manifest of millions of lists", aero(tidx_entry(), chunks=[manifest]), "full")
    text = b'{"a":[' + b"[]," * (many // 3) + b"1]}"
    meta = (b"MJSN", b"meta.json", 1, zstd(text), len(text), blake3(text).digest())
    yield Attack("JSON of millions of lists", aero(tidx_entry(), chunks=[meta]), "full")
    row = msgspec.msgpack.encode(tidx_entry())
    same = b"\x81\xa7tensors\xdd" + (many // len(row)).to_bytes(4, "big") + row * (many // len(row))
    index = (b"TIDX", b"tensors", 5, zstd(same), len(same), blake3(same).digest())
    yield Attack("an index of the same tensor again and again", aero(chunks=[index]))
    zeros = 20 << 20
    large = (1, _zstd_zeros(zeros), zeros, blake3(bytes(zeros)).digest())
    extras = [(b"XTRA", b"%d" % number, *large) for number in range(40)]
    yield Attack("many chunks that grow", aero(tidx_entry(), chunks=extras), "full")
    small = zstd(b"\x81\xa7tensors\x90")
    digest = blake3(b"\x81\xa7tensors\x90").digest()
    yield Attack("two frames", aero(chunks=[(b"TIDX", b"tensors", 5, small + small, 10, digest)]))
    window = b"\x28\xb5\x2f\xfd\x00\xf8" + bytes(10)
    yield Attack("a window of 2^41", aero(chunks=[(b"TIDX", b"tensors", 5, window, 10, digest)]))
    yield Attack(
        "a frame that holds nothing",
        aero(chunks=[(b"TIDX", b"tensors", 5, b"\x50\x2a\x4d\x18" + bytes(12), 10, digest)]),
    )
    yield Attack("a bomb in a bomb", aero(chunks=[(b"TIDX", b"tensors", 5, zstd(_zstd_zeros(_GIGA)), _GIGA, digest)]))


def _zip_zeros(name: str, size: int, stated: int | None = None) -> bytes:
    """A zip with one deflated entry of ``size`` zeros that is said to have ``stated`` bytes."""
    data = npz((name, bytes(size)), deflate=True)
    if stated is None:
        return data
    return data.replace(pack("<I", size), pack("<I", stated))


@BOMBS.on("npz")
def _(folder: Path, format: str) -> Iterator[Attack]:
    size = 80 << 20
    yield Attack("an array of zeros", _deflated("w.npy", npy(f"({size >> 2},)", data=bytes(size))))
    yield Attack("no array at all", _zip_zeros("w.npy", size))
    yield Attack("said to be small", _zip_zeros("w.npy", size, 100))
    yield Attack("said to be larger", _zip_zeros("w.npy", 1000, 60 << 20))
    yield Attack(
        "metadata of zeros", npz(("__metadata__.npy", npy(f"({size},)", "'|u1'", b"{" + bytes(size - 1))), deflate=True)
    )
    text = b'{"a":[' + b"[]," * (8 << 20) + b"1]}"
    document = ("__metadata__.npy", npy(f"({len(text)},)", "'|u1'", text))
    yield Attack("metadata of millions of lists", npz(("w.npy", npy()), document, deflate=True))
    yield Attack("a zip in a zip", npz(("w.npy", _zip_zeros("w.npy", size)), deflate=True))
    zeros = npy(f"({size >> 3},)", "'|u1'", bytes(size >> 3))
    yield Attack("many arrays of zeros", npz(*((f"{row}.npy", zeros) for row in range(64)), deflate=True))
    header = npy("(1,)", "[('a', '<f4', (" + "1," * 30_000 + "))]", bytes(4))
    yield Attack("many headers", npz(*((f"{row}.npy", header) for row in range(100)), deflate=True))
    yield Attack("a header of a megabyte", npy("(1,)", "[('a', '<f4', (" + "1," * 500_000 + "))]", bytes(4)))
    yield Attack("a header of many keys", npy("(1,)", "{" + "".join(f"'{key}':1," for key in range(6000)) + "}"))


def _deflated(name: str, data: bytes) -> bytes:
    return npz((name, data), deflate=True)


@BOMBS.on("torch")
def _(folder: Path, format: str) -> Iterator[Attack]:
    size = 80 << 20
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", named(tensor(elements="J" + pack("<i", size // 4).decode("latin-1"))))
        archive.writestr("archive/data/0", bytes(size))
    yield Attack("a storage of zeros", out.getvalue())
    yield Attack("a pickle of zeros", _zip_zeros("archive/data.pkl", size))
    yield Attack("a pickle said to be small", _zip_zeros("archive/data.pkl", size, 100))
    dicts = b"\x80\x02]" + (b"(" + b"}" * 1000 + b"e") * 20_000 + b"."
    yield Attack("a pickle of millions of dicts", npz(("archive/data.pkl", dicts), deflate=True))
    memo = b"\x80\x02X\x64\0\0\0" + b"a" * 100 + b"q\0" + b"h\0\x86q\0".replace(b"\x86", b"h\0\x86") * 60 + b"."
    yield Attack("a memo that doubles sixty times", checkpoint(memo))
    yield from _remembered()


def _remembered() -> Iterator[Attack]:
    """Values that are remembered, and then called with, set or used again and again for a few bytes."""
    pairs, long = b"](" + b"K\0N\x86" * 10_000 + b"e\x85", b"X" + pack("<I", 100_000) + b"a" * 100_000
    functions = {
        "pairs": (b"ccollections\nOrderedDict\n", pairs),
        "text": (b"c_codecs\nencode\n", long + b"X\6\0\0\0latin1\x86"),
        "a device": (b"ctorch\ndevice\n", long + b"\x85"),
    }
    for name, (function, arguments) in functions.items():
        calls = b"q\0" + arguments + b"q\x0100(" + b"h\0h\1R" * 4000 + b"1}."
        yield Attack(f"{name} again", checkpoint(b"\x80\x02" + function + calls))
    state = b"".join(b"X\4\0\0\0%04xN" % number for number in range(5000))
    states = b"ccollections\nOrderedDict\n)R}(" + state + b"uq\x000" + b"h\0b" * 4000
    yield Attack("a state again", checkpoint(b"\x80\x02" + states + b"."))
    shape, strides = ("(" + what * 4096 + "t" for what in ("K\1", "K\0"))
    uses = b"".join(b"M" + pack("<H", number) + b"h\0" for number in range(2500))
    values = b"](" + b"N" * 200_000 + b"e"
    for name, value in (("a tensor of 4096 dims", tensor(shape, strides)), ("a list of 200,000", values)):
        data = b"\x80\x02" + value + b"q\x000}(" + uses + b"u."
        yield Attack(f"{name} again", checkpoint(data, {"0": bytes(16)}))


@BOMBS.on("embd")
def _(folder: Path, format: str) -> Iterator[Attack]:
    from tests.attacks.files import patched

    yield Attack("a file that says it is compressed", patched("embd", ("header", "flags", 8)))


@BOMBS.on("safetensors")
def _(folder: Path, format: str) -> Iterator[Attack]:
    yield Attack("a compressed header", build(compress(b"{}")))


BOMBS.spare("nothing in it is compressed", "oinf", "gptrs-checkpoint", "gptrs-archive", "mcf", "gguf", "onnx")

# -- JSON -------------------------------------------------------------------------------------------------------------

JSON = family("json", "JSON that readers disagree on is refused: one reader must not see what another does not")
_ODD = {
    "NaN": b'{"a":NaN}',
    "Infinity": b'{"a":-Infinity}',
    "half of a surrogate pair": b'{"a":"\\ud800"}',
    "half of a key": b'{"\\udc00x":1}',
    "an order mark": b'\xef\xbb\xbf{"a":1}',
    "UTF-16": '{"a":1}'.encode("utf-16"),
    "bytes that are no text": b'{"a":"\xff\xfe"}',
    "overlong bytes": b'{"a":"\xc0\x80"}',
    "a control character": b'{"a":"\x00"}',
    "a comma too many": b'{"a":1,}',
    "a comment": b'{"a":1}/* */',
    "single quotes": b"{'a':1}",
    "leading zeros": b'{"a":01}',
    "hex": b'{"a":0x1}',
    "two documents": b'{"a":1}{"b":2}',
    "nothing": b"",
    "cut": b'{"a":',
}


def _json(wrap: Callable[[bytes], Any], by: Any = "open") -> Iterator[Attack]:
    for name, document in _ODD.items():
        yield Attack(name, wrap(document), by)
    yield Attack("a number of 5,000 digits", wrap(b'{"a":' + b"9" * 5000 + b"}"), "never")
    yield Attack("a number of 500,000 digits", wrap(b'{"a":' + b"9" * 500_000 + b"}"), "never")
    yield Attack("a fraction of 500,000 digits", wrap(b'{"a":0.' + b"9" * 500_000 + b"}"), "never")
    yield Attack("an exponent of 10^9", wrap(b'{"a":1e999999999}'), "never")
    yield Attack("the same key", wrap(b'{"a":1,"a":2}'), "never" if by == "never" else "warning")


@JSON.on("gptrs-checkpoint")
def _(folder: Path, format: str) -> Iterator[Attack]:
    yield from _json(_checkpoint_config)


@JSON.on("safetensors")
def _(folder: Path, format: str) -> Iterator[Attack]:
    yield from _json(build)


@JSON.on("hf")
def _(folder: Path, format: str) -> Iterator[Attack]:
    made = iter(range(1000))
    yield from _json(lambda document: hf_index(folder / f"index{next(made)}", document))
    inside = (b'{"weight_map":{},"metadata":', b"}")
    yield from _json(lambda document: hf_index(folder / f"index{next(made)}", document.join(inside)))


@JSON.on("aeroset")
def _(folder: Path, format: str) -> Iterator[Attack]:
    made = iter(range(1000))

    def wrap(document: bytes) -> Path:
        path = aeroset(folder / f"set{next(made)}", good("aero"))
        (path / "model.aeroset.json").write_bytes(document)
        return path

    yield from _json(wrap)


@JSON.on("npz")
def _(folder: Path, format: str) -> Iterator[Attack]:
    starts = {name: document for name, document in _ODD.items() if document.startswith(b"{")}
    for name, document in starts.items():
        yield Attack(name, _metadata_npz(document), "read")
    yield Attack("the same key", _metadata_npz(b'{"a":1,"a":2}'), "read")
    yield Attack("a number of 500,000 digits", _metadata_npz(b'{"a":' + b"9" * 500_000 + b"}"), "never")


@JSON.on("aero")
def _(folder: Path, format: str) -> Iterator[Attack]:
    yield from _json(_meta_aero, "full")


@JSON.on("mcf")
def _(folder: Path, format: str) -> Iterator[Attack]:
    yield from _json(_asset_mcf, "never")  # an asset: bytes that are carried along, decoded only when asked for


JSON.spare(_NO_JSON, "oinf", "embd", "gptrs-archive", "gguf", "torch", "onnx")
