"""Bytes that two parts of a file claim, that none claims, or that are another format; names that come twice."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from struct import pack

from holdall.format.onnx.wire import field
from tests.attacks.files import (
    aero,
    aeroset,
    external,
    good,
    hf_folder,
    hf_index,
    member,
    npy,
    npz,
    onnx,
    patched,
    places,
    proto,
    tidx_entry,
)
from tests.attacks.kit import Attack, family
from tests.format.gguf import build as gguf
from tests.format.mcf.build import Entry, mcf, with_tensors
from tests.format.safetensors.files import build, entry
from tests.format.torch.files import checkpoint, named, tensor

# -- overlap ----------------------------------------------------------------------------------------------------------

OVERLAP = family("overlap", "payloads that share bytes are refused, or reported where the format lets tensors be tied")


def _place(format: str, name: str, row: int) -> int:
    """The number in a field of the good file."""
    at, size = places(format)["tensor", name, row]
    return int.from_bytes(good(format)[at : at + size], "little")


@OVERLAP.on("oinf")
def _(folder: Path, format: str) -> Iterator[Attack]:
    first = _place("oinf", "data_offset", 0)
    yield Attack("the same bytes twice", patched("oinf", ("tensor", "data_offset", first, 1)), "warning")
    yield Attack("half of the other", patched("oinf", ("tensor", "data_offset", first + 8, 1)), "warning")
    yield Attack("the table itself", patched("oinf", ("tensor", "data_offset", 72, 1)))


@OVERLAP.on("embd")
def _(folder: Path, format: str) -> Iterator[Attack]:
    yield Attack(
        "half of the other", patched("embd", ("tensor", "data_offset", 8, 1), ("header", "flags", 0)), "strict"
    )
    yield Attack("sections", patched("embd", ("header", "metadata_offset", 0)))
    yield Attack("data over the index", patched("embd", ("header", "tensor_data_offset", 64)))


@OVERLAP.on("gptrs-checkpoint", "gptrs-archive")
def _(folder: Path, format: str) -> Iterator[Attack]:
    first = _place(format, "offset", 0)
    yield Attack("the same bytes", patched(format, ("tensor", "offset", first, 1)), "strict")
    yield Attack("half of the other", patched(format, ("tensor", "offset", first + 8, 1)), "strict")
    yield Attack("the header", patched(format, ("tensor", "offset", 0, 1)), "strict")


@OVERLAP.on("mcf")
def _(folder: Path, format: str) -> Iterator[Attack]:
    same = [Entry(b"a", 1, (4,), bytes(16)), Entry(b"b", 1, (4,), bytes(16), offset=64)]
    yield Attack("the same bytes", with_tensors(same), "never")  # the format's own packer ties weights so
    yield Attack("outside of the data", with_tensors([Entry(b"a", 1, (4,), bytes(16), offset=0)]))
    first = _place("mcf", "data_off", 0)
    for row in range(2):
        yield Attack(f"section {row} over the header", patched("mcf", ("section", "offset", 0, row)))
        yield Attack(f"section {row} over the data", patched("mcf", ("section", "offset", first & ~7, row)))


@OVERLAP.on("aero")
def _(folder: Path, format: str) -> Iterator[Attack]:
    yield Attack("the same bytes", aero(tidx_entry(), tidx_entry(name="v")), "strict")
    yield Attack("half of the other", aero(tidx_entry(), tidx_entry(name="v", data_off=8)), "strict")
    at, size = places("aero")["toc entry", "chunk_offset", 0]
    where = int.from_bytes(good("aero")[at : at + size], "little")
    yield Attack("a chunk over the header", patched("aero", ("toc entry", "chunk_offset", 0)), "full")
    yield Attack("a chunk over another", patched("aero", ("toc entry", "chunk_offset", where, 1)), "full")


@OVERLAP.on("safetensors")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for offsets in ([0, 8], [4, 12], [0, 8]):
        yield Attack(f"{offsets}", build({"a": entry(), "b": entry(offsets=offsets)}, bytes(16)))
    yield Attack("a hole", build({"a": entry(), "b": entry(offsets=[16, 24])}, bytes(24)))


@OVERLAP.on("gguf")
def _(folder: Path, format: str) -> Iterator[Attack]:
    yield Attack("the same bytes", gguf.file((), (gguf.info("a"), gguf.info("b")), bytes(64)), "strict")
    long = (gguf.info("a", dims=(16,)), gguf.info("b", offset=32))
    yield Attack("half of the other", gguf.file((), long, bytes(64)), "strict")
    yield Attack("no multiple of the alignment", gguf.file((), (gguf.info("a"), gguf.info("b", offset=8)), bytes(64)))


@OVERLAP.on("torch")
def _(folder: Path, format: str) -> Iterator[Attack]:
    yield Attack(
        "tensors of one storage", checkpoint(named(tensor() + b"X\1\0\0\0v" + tensor()), {"0": bytes(16)}), "never"
    )
    yield Attack("one entry over another", _entries_meet("torch"))


@OVERLAP.on("npz")
def _(folder: Path, format: str) -> Iterator[Attack]:
    yield Attack("one entry over another", _entries_meet("npz"))


def _entries_meet(format: str) -> bytes:
    """The good file whose second entry is said to be where the first one is."""
    at, size = places(format)["central directory", "offset", 0]
    first = int.from_bytes(good(format)[at : at + size], "little")
    return patched(format, ("central directory", "offset", first, 1))


@OVERLAP.on("onnx")
def _(folder: Path, format: str) -> Iterator[Attack]:
    (folder / "w.bin").write_bytes(bytes(16))
    place = external(location="w.bin", offset="4", length="8")
    path = folder / "m.onnx"
    path.write_bytes(onnx(proto(b"a", rest=external(location="w.bin", length="8")), proto(b"b", rest=place)))
    yield Attack("ranges of another file", path, "never")  # tied weights share them
    yield Attack("values in two places", onnx(proto(rest=field(9, bytes(8)) + field(4, bytes(8)))))
    path = folder / "both.onnx"
    path.write_bytes(onnx(proto(rest=field(4, bytes(8)) + place)))
    yield Attack("values here and elsewhere", path)


# -- bytes that nothing owns, and files of two formats ----------------------------------------------------------------

POLYGLOT = family(
    "polyglot", "bytes that belong to nothing are reported, and a file that is valid as two formats is one"
)

_ZIP = npz(("evil.npy", npy()))
_TAILS = (b"\1", b"MZ" + bytes(62), _ZIP, good("safetensors"), gguf.GOOD, b"<html><script>", b"\x80\4N.")


@POLYGLOT.on("oinf", "embd", "gptrs-checkpoint", "gptrs-archive", "mcf", "aero", "safetensors", "gguf", "npz", "torch")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for tail in _TAILS:
        yield Attack(f"and {tail[:4]!r}", good(format) + tail, "strict")
    for front in (b"\1", b"MZ" + bytes(62), good("safetensors"), b"#!/bin/sh\n", good("oinf")):
        yield Attack(f"{front[:4]!r} before it", front + good(format), "strict")
        if format in ("npz", "torch"):
            yield Attack(
                f"{front[:4]!r} before it, offsets right", front + _shifted(good(format), len(front)), "strict"
            )


def _shifted(data: bytes, by: int) -> bytes:
    """The zip ``data`` with offsets for ``by`` bytes before it."""
    out = io.BytesIO(bytes(by) + data)
    with zipfile.ZipFile(out, "a") as archive:
        archive.comment = b""
        archive._didModify = True  # type: ignore[attr-defined]  # so that the directory is written again
    return out.getvalue()[by:]


@POLYGLOT.on("onnx")
def _(folder: Path, format: str) -> Iterator[Attack]:
    data = onnx(proto())
    for tail in _TAILS[1:]:
        yield Attack(f"and {tail[:4]!r}", data + tail, "open")
    yield Attack("a zip in an unknown field", data + field(1000, _ZIP), "never")  # protobuf lets others extend it
    yield Attack("two models in one file", data + data)


@POLYGLOT.on("hf")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for number, tail in enumerate(_TAILS):
        yield Attack(f"and {tail[:4]!r}", hf_folder(folder / f"tail{number}", good("safetensors") + tail))
    yield Attack("weights and an index", hf_folder(folder / "both", good("safetensors"), **{
        "model.safetensors.index.json": b'{"weight_map": {"first": "x.safetensors"}}'}), "warning")  # fmt: skip


@POLYGLOT.on("aeroset")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for number, tail in enumerate(_TAILS):
        part = good("aero") + tail
        yield Attack(f"a part and {tail[:4]!r}", aeroset(folder / f"tail{number}", part), "strict")
    path = aeroset(folder / "json", good("aero"))
    document = path / "model.aeroset.json"
    document.write_bytes(document.read_bytes() + _ZIP)
    yield Attack("a document and a zip", path)


# -- names that come twice --------------------------------------------------------------------------------------------

DUPLICATES = family("duplicates", "a name or key that comes twice is refused: two readers would take different ones")


@DUPLICATES.on("oinf")
def _(folder: Path, format: str) -> Iterator[Attack]:
    at = good("oinf").index(pack("<I", 6) + b"second")
    data = bytearray(good("oinf"))
    data[at : at + 10] = pack("<I", 5) + b"first\0"
    yield Attack("tensors", bytes(data))


@DUPLICATES.on("embd")
def _(folder: Path, format: str) -> Iterator[Attack]:
    twice = b"EMBD" + pack("<II", 1, 2) + 2 * (pack("<I1sII", 1, b"w", 1, 1) + bytes(4)) + bytes(4)
    yield Attack("tensors in line", twice)
    data = good("embd").replace(b"second", b"first\0")
    yield Attack("tensors", data.replace(b"first\0", b"firsta").replace(b"firstf", b"firsta"), "full")


@DUPLICATES.on("gptrs-checkpoint", "gptrs-archive")
def _(folder: Path, format: str) -> Iterator[Attack]:
    row = pack("<I1sIQIB", 1, b"w", 1, 1, 0, 0) + pack("<Q", 4) + bytes(4)
    yield Attack("archive, in line", b"GPTRSTEN" + pack("<II", 1, 2) + row + row)
    data = good(format).replace(pack("<I", 6) + b"second", pack("<I", 5) + b"first")
    changed = patched(format, ("index length", "index_len", int.from_bytes(
        good(format)[slice(*_span(format))], "little") - 1))  # fmt: skip
    assert len(data) == len(changed) - 1
    at = _span(format)[0]
    yield Attack("tensors", data[:at] + changed[at : at + 4] + data[at + 4 :] + b"\0")


def _span(format: str) -> tuple[int, int]:
    at, size = places(format)["index length", "index_len", 0]
    return at, at + size


@DUPLICATES.on("mcf")
def _(folder: Path, format: str) -> Iterator[Attack]:
    yield Attack(
        "tensors", with_tensors([Entry(b"w", 1, (2,), bytes(8)), Entry(b"w", 1, (2,), bytes(8))], index_flags=2)
    )
    yield Attack("sections", mcf([(1, bytes(96)), (1, bytes(96))]), "strict")


@DUPLICATES.on("aero")
def _(folder: Path, format: str) -> Iterator[Attack]:
    yield Attack("tensors", aero(tidx_entry(), tidx_entry(data_off=16)))
    yield Attack("keys", aero(b"\x81\xa7tensors\x91\x83\xa4name\xa1a\xa4name\xa1b\xa5dtype\x01"))
    yield Attack("indexes", aero(b"\x82\xa7tensors\x90\xa7tensors\x90"))


@DUPLICATES.on("aeroset")
def _(folder: Path, format: str) -> Iterator[Attack]:
    part = good("aero")
    two = [member("part-000.aero", part), member("part-001.aero", part, shards=[0])]
    yield Attack("shards", aeroset(folder / "shards", part, *two))
    yield Attack(
        "parts",
        aeroset(folder / "parts", part, member("part-000.aero", part), member("part-000.aero", part, shards=[1])),
    )


@DUPLICATES.on("safetensors")
def _(folder: Path, format: str) -> Iterator[Attack]:
    one = b'"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}'
    yield Attack("tensors", build(b"{" + one + b"," + one + b"}", bytes(8)))
    other = b'"\\u0077":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}'
    yield Attack("tensors, one of them in escapes", build(b"{" + one + b"," + other + b"}", bytes(16)))
    yield Attack("fields", build(b'{"w":{"dtype":"F32","dtype":"F16","shape":[2],"data_offsets":[0,8]}}', bytes(8)))
    yield Attack("metadata", build(b'{"__metadata__":{"a":"1","a":"2"},' + one + b"}", bytes(8)))
    yield Attack("metadata as a whole", build(b'{"__metadata__":{},"__metadata__":{"a":"2"},' + one + b"}", bytes(8)))


@DUPLICATES.on("hf")
def _(folder: Path, format: str) -> Iterator[Attack]:
    data = build({"w": entry()}, bytes(8))
    both = {"a.safetensors": data, "b.safetensors": data}
    yield Attack("in two files", hf_index(folder / "two", {"w": "a.safetensors", "v": "b.safetensors"}, **both))
    index = b'{"weight_map": {"w": "a.safetensors", "w": "b.safetensors"}}'
    yield Attack("in the index", hf_index(folder / "index", index, **both))
    index = b'{"weight_map": {}, "weight_map": {"w": "a.safetensors"}}'
    yield Attack("two maps", hf_index(folder / "maps", index, **both))


@DUPLICATES.on("gguf")
def _(folder: Path, format: str) -> Iterator[Attack]:
    yield Attack("tensors", gguf.file((), (gguf.info("w"), gguf.info("w", offset=32)), bytes(64)))
    yield Attack("keys", gguf.file((gguf.u32("a.b", 1), gguf.u32("a.b", 2))))
    yield Attack(
        "alignments",
        gguf.file((gguf.u32("general.alignment", 32), gguf.u32("general.alignment", 64)), (gguf.info(),), bytes(64)),
    )


@DUPLICATES.on("torch")
def _(folder: Path, format: str) -> Iterator[Attack]:
    nested = b"\x80\x02}(X\3\0\0\0a.b" + tensor() + b"X\1\0\0\0a}X\1\0\0\0b" + tensor() + b"su."
    yield Attack("tensors once they are flattened", checkpoint(nested, {"0": bytes(16)}), "never")
    yield Attack("entries", _entry_twice("torch"))


@DUPLICATES.on("npz")
def _(folder: Path, format: str) -> Iterator[Attack]:
    yield Attack("entries", _entry_twice("npz"))
    yield Attack("arrays with and without their suffix", npz(("w.npy", npy()), ("w", npy())), "never")


def _entry_twice(format: str) -> bytes:
    """The good file whose directory has its first entry again."""
    out = io.BytesIO(good(format))
    with zipfile.ZipFile(out, "a") as archive:
        first = archive.infolist()[0]
        archive.filelist.append(first)
        archive._didModify = True  # type: ignore[attr-defined]
    return out.getvalue()


@DUPLICATES.on("onnx")
def _(folder: Path, format: str) -> Iterator[Attack]:
    yield Attack("tensors", onnx(proto(), proto()))
    pair = field(14, field(1, b"key") + field(2, b"value"))
    yield Attack("metadata", onnx(proto(), around=pair + pair))
    yield Attack("fields of a tensor", onnx(proto() + field(8, b"v")))
    yield Attack("graphs", onnx(proto(), around=field(7, field(2, b"h"))))
