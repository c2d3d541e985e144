"""Documents inside files: nesting without end, bombs, JSON that readers disagree on, pickles that would run code."""

from __future__ import annotations

import builtins
import io
import os
import pickle
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import pack
from typing import Any
from zlib import compress

import msgspec
from blake3 import blake3

from holdall.compression import compress as zstd
from holdall.formats.onnx.wire import field
from tests.attacks.files import aero, aeroset, good, hf_index, npy, npz, onnx, proto, tidx_entry
from tests.attacks.kit import Attack, family
from tests.formats.gguf import build as gguf
from tests.formats.mcf.build import Entry, with_tensors
from tests.formats.safetensors.files import build
from tests.formats.torch.files import Bomb, checkpoint, legacy, named, tensor, touch

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
    yield Attack("a zip in a zip", npz(("w.npy", _zip_zeros("w.npy", size)), deflate=True))


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
    memo = b"\x80\x02X\x64\0\0\0" + b"a" * 100 + b"q\0" + b"h\0\x86q\0".replace(b"\x86", b"h\0\x86") * 60 + b"."
    yield Attack("a memo that doubles sixty times", checkpoint(memo))


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

# -- pickles ----------------------------------------------------------------------------------------------------------

PICKLES = family("pickles", "no pickle is run: whatever is not plain values and tensors is refused by name")


def _opcodes(canary: Path) -> Iterator[tuple[str, bytes]]:
    """Pickles that would make the file ``canary``, were they run."""
    command = touch(canary)
    for protocol in range(6):
        yield f"os.system, protocol {protocol}", pickle.dumps({"w": Bomb(os.system, command)}, protocol)
        yield f"eval, protocol {protocol}", pickle.dumps(Bomb(builtins.eval, f"open({str(canary)!r}, 'w')"), protocol)
    text = command.encode()
    short = b"\x8c" + bytes([len(text)]) + text
    yield "STACK_GLOBAL", b"\x80\x04\x8c\x05posix\x8c\x06system\x93" + short + b"\x85R."
    yield (
        "a name with dots",
        b"\x80\x04\x8c\x02os\x8c\x0bpath.os.popen\x93".replace(b"\x0b", b"\x0d") + short + b"\x85R.",
    )
    yield "INST", b"(S'" + text + b"'\niposix\nsystem\n."
    yield "OBJ", b"(cposix\nsystem\nS'" + text + b"'\no."
    yield "NEWOBJ", b"\x80\x02cposix\nsystem\n" + b"U" + bytes([len(text)]) + text + b"\x85\x81."
    yield "NEWOBJ_EX", b"\x80\x04cposix\nsystem\n" + short + b"\x85}\x92."
    yield "BUILD with __setstate__", b"\x80\x02ccollections\nOrderedDict\n)R}X\x0c\0\0\0__setstate__cposix\nsystem\nsb."
    yield "a persistent id", b"\x80\x02cposix\nsystem\nQ."
    yield "a persistent id as text", b"Pposix.system\n."
    yield "a storage class that is none", b"\x80\x02(X\7\0\0\0storagecposix\nsystem\nX\1\0\0\x000X\3\0\0\0cpuK\1tQ."
    yield "a buffer out of band", b"\x80\x05\x97."
    yield "extension codes", b"\x80\x02\x82\x01."
    yield "REDUCE of what is remembered", b"\x80\x02cbuiltins\neval\nq\x000h\0X\x02\0\0\x0011\x85R."
    yield "torch.load in a pickle", b"\x80\x02ctorch\nload\nX\x01\0\0\0x\x85R."
    yield (
        "_rebuild_tensor with a function",
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(cposix\nsystem\nK\0K\1\x85K\1\x85\x89NtR.",
    )
    yield "a codec of its choosing", b"\x80\x02c_codecs\nencode\nX\x01\0\0\0xX\x03\0\0\0hex\x86R."
    yield "a module called like torch", b"\x80\x02ctorch.serialization\nos\n."


@PICKLES.on("torch")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for name, data in _opcodes(folder / "canary"):
        yield Attack(name, checkpoint(data))
        yield Attack(f"{name}, in an old file", legacy(data))
        yield Attack(f"{name}, as keys of an old file", legacy(pickle.dumps({}, 2))[: -len(pickle.dumps([], 2))] + data)
        yield Attack(f"{name}, alone", data)
        yield Attack(f"{name}, in a tar", _tar(data))
    yield Attack("two pickles", _two_pickles(folder / "canary"))


def _tar(data: bytes) -> bytes:
    """A checkpoint of the oldest kind, a tar of pickles."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name in ("sys_info", "pickle", "tensors", "storages"):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def _two_pickles(canary: Path) -> bytes:
    """A harmless pickle, and one that another reader may take instead."""
    evil = pickle.dumps(Bomb(os.system, touch(canary)), 2)
    return npz(("a/data.pkl", b"\x80\x02}."), ("b/data.pkl", evil))


@PICKLES.on("npz")
def _(folder: Path, format: str) -> Iterator[Attack]:
    evil = pickle.dumps(Bomb(os.system, touch(folder / "canary")), 2)
    for descr in ("'|O'", "'O'", "'O8'", "[('a', '|O')]", "[('a', [('b', '|O')])]", "'|O8'", "'<O'"):
        yield Attack(f"type {descr}", npz(("w.npy", npy("(1,)", descr, evil))))
        yield Attack(f"type {descr}, alone", npy("(1,)", descr, evil))
    for shape in ("(__import__('os').system('id'),)", "(lambda: 2)()", "[x for x in (2,)]", "(2 if 1 else 3,)"):
        yield Attack(f"shape {shape}", npz(("w.npy", npy(shape))))
    yield Attack("an entry that is a pickle", npz(("w.npy", evil)))


PICKLES.spare(
    "no pickle in it, and no other format's reader unpickles",
    "oinf", "embd", "gptrs-checkpoint", "gptrs-archive", "mcf", "aero", "aeroset", "safetensors", "hf", "gguf", "onnx",
)  # fmt: skip
