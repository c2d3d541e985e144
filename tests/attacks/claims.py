"""Small files that claim much: lengths to be allocated, counts to be looped over, dims that no array has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from struct import pack

import msgspec

from holdall.format.onnx.wire import field, varint
from tests.attacks.files import (
    aero,
    aeroset,
    external,
    good,
    hf_index,
    member,
    npy,
    npz,
    onnx,
    patched,
    proto,
    tidx_entry,
)
from tests.attacks.kit import Attack, family
from tests.attacks.numbers import U32, U63, U64, long_opcode, shape_opcodes
from tests.format.gguf import build as gguf
from tests.format.mcf.build import Entry, with_tensors
from tests.format.safetensors.files import build, entry
from tests.format.torch.files import checkpoint, legacy, named, tensor

TERA = 1 << 43  # bytes

# -- lengths ----------------------------------------------------------------------------------------------------------

LENGTHS = family("lengths", "a length of terabytes in a small file is refused before anything is allocated by it")


@LENGTHS.on("oinf")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for name in ("offset_data", "file_size", "offset_tensors"):
        yield Attack(name, patched("oinf", ("header", name, TERA)))
    yield Attack("payload", patched("oinf", ("tensor", "data_nbytes", TERA), ("tensor", "dims", TERA // 12)))
    yield Attack("name", patched("oinf", ("tensor", "name", U32)))


@LENGTHS.on("embd")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for name in ("metadata_size", "tensor_data_offset", "tensor_data_size", "total_file_size"):
        yield Attack(name, patched("embd", ("header", name, TERA if name.endswith("_size") else U32)))
    sequential = b"EMBD" + pack("<II", 1, 1)
    yield Attack("a name of 4 GB in line", sequential + pack("<I", U32) + b"w")
    yield Attack("dims of terabytes in line", sequential + pack("<I1sIII", 1, b"w", 2, U32, U32))


@LENGTHS.on("gptrs-checkpoint")
def _(folder: Path, format: str) -> Iterator[Attack]:
    yield Attack("a configuration of 4 GB", patched("gptrs-checkpoint", ("configuration length", "config_len", U32)))
    yield from _gptrs("gptrs-checkpoint")


@LENGTHS.on("gptrs-archive")
def _(folder: Path, format: str) -> Iterator[Attack]:
    yield from _gptrs("gptrs-archive")
    yield Attack(
        "a payload in line", b"GPTRSTEN" + pack("<IIII", 1, 1, 1, 0x77) + pack("<IQIBQ", 1, TERA // 4, 0, 0, TERA)
    )


def _gptrs(format: str) -> Iterator[Attack]:
    yield Attack("an index of 4 GB", patched(format, ("index length", "index_len", U32)))
    yield Attack("a payload", patched(format, ("tensor", "byte_len", TERA), ("tensor", "dims", TERA // 12)))
    yield Attack("a name of 4 GB", patched(format, ("tensor", "name", U32)))


@LENGTHS.on("mcf")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for row in range(2):
        yield Attack(f"section {row}", patched("mcf", ("section", "size", TERA, row)))
    yield Attack("strings", patched("mcf", ("tensor index", "strings_size", TERA)))
    yield Attack("a name of 4 GB", patched("mcf", ("tensor", "name_len", U32)))
    yield Attack("a payload", patched("mcf", ("tensor", "data_size", TERA)))
    yield Attack("a header of 4 GB", patched("mcf", ("header", "header_size", U32)))


@LENGTHS.on("aero")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for row in range(2):
        yield Attack(f"chunk {row}", patched("aero", ("toc entry", "chunk_length", TERA, row)))
        yield Attack(f"chunk {row}, uncompressed", patched("aero", ("toc entry", "chunk_ulen", TERA, row)), "full")
    yield Attack("names", patched("aero", ("header", "string_table_length", TERA)))
    yield Attack("table", patched("aero", ("header", "toc_length", TERA)))
    yield Attack(
        "an index of terabytes once expanded", aero(chunks=[(b"TIDX", b"tensors", 5, bytes(32), TERA, bytes(32))])
    )
    yield Attack("text of 4 GB", aero(b"\x81\xa7tensors\x91\x81\xa4name\xdb\xff\xff\xff\xff"))
    yield Attack("bytes of 4 GB", aero(b"\x81\xa7tensors\xc6\xff\xff\xff\xff"))


@LENGTHS.on("aeroset")
def _(folder: Path, format: str) -> Iterator[Attack]:
    part = good("aero")
    for size in (TERA, (1 << 63) - 1):
        yield Attack(
            f"a part of {size}", aeroset(folder / str(size), part, member("part-000.aero", part, size_bytes=size))
        )


@LENGTHS.on("safetensors")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for length in (TERA, 1 << 31, 100 << 20, (1 << 63) - 1):
        yield Attack(f"a header of {length}", build(b"{}", length=length))
    yield Attack("a payload", build({"w": entry(shape=[TERA // 4], offsets=[0, TERA])}))


@LENGTHS.on("gguf")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for size in (TERA, 1 << 31):
        text = pack("<Q", size)
        yield Attack(f"a key of {size}", gguf.file((text,)))
        yield Attack(f"a text of {size}", gguf.file((gguf.entry("a", 8, text),)))
        yield Attack(f"a name of {size}", gguf.file((), (text,)))
    yield Attack("a payload", gguf.file((), (gguf.info(dims=(TERA // 4,)),), bytes(32)))


@LENGTHS.on("torch")
def _(folder: Path, format: str) -> Iterator[Attack]:
    wide = pack("<Q", TERA)
    for opcodes in (
        b"X\xff\xff\xff\xff", b"B\xff\xff\xff\xff", b"T\xff\xff\xff\x7f", b"\x8b\xff\xff\xff\x7f", b"\x8d" + wide,
        b"\x8e" + wide, b"\x95" + wide, b"\x96" + wide,
    ):  # fmt: skip
        yield Attack(f"opcode {opcodes[:1]!r}", checkpoint(b"\x80\x04" + opcodes + b"."))
        yield Attack(f"opcode {opcodes[:1]!r} in an old file", legacy(b"\x80\x04" + opcodes + b"."))
    yield Attack("a storage", checkpoint(named(tensor(elements=long_opcode(TERA))), {"0": bytes(16)}))
    yield Attack("an entry of 4 GB", patched("torch", ("central directory", "stored", U32 - 1)))


@LENGTHS.on("npz")
def _(folder: Path, format: str) -> Iterator[Attack]:
    yield Attack("a header of 4 GB", npz(("w.npy", b"\x93NUMPY\2\0\xff\xff\xff\xff{}")))
    yield Attack("an array", npz(("w.npy", npy(f"({TERA},)"))))
    yield Attack("an entry of 4 GB", patched("npz", ("central directory", "size", U32 - 1)))
    yield Attack("a comment of 64 kB", patched("npz", ("end of directory", "comment_size", 0xFFFF)))
    yield Attack("a lone array", npy(f"({TERA},)"))


@LENGTHS.on("onnx")
def _(folder: Path, format: str) -> Iterator[Attack]:
    yield Attack("a graph", b"\x08\x08" + varint(7 << 3 | 2) + varint(TERA) + b"g")
    yield Attack("an initializer", b"\x08\x08" + field(7, varint(5 << 3 | 2) + varint(TERA)))
    yield Attack("a payload", onnx(proto(dims=(TERA // 4,))))
    yield Attack("numbers of one byte each", onnx(proto(dims=(TERA,), code=7, rest=field(7, bytes(8)))))
    (folder / "w.bin").write_bytes(bytes(16))
    path = folder / "m.onnx"
    path.write_bytes(onnx(proto(dims=(TERA // 4,), rest=external(location="w.bin", length=str(TERA)))))
    yield Attack("a payload elsewhere", path)


# -- counts -----------------------------------------------------------------------------------------------------------

COUNTS = family("counts", "billions of entries in a small file are refused before anything is looped over")


@COUNTS.on("oinf")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for name in ("n_sizevars", "n_metadata", "n_tensors"):
        yield Attack(name, patched("oinf", ("header", name, U32)))


@COUNTS.on("embd")
def _(folder: Path, format: str) -> Iterator[Attack]:
    yield Attack("tensors", patched("embd", ("header", "tensor_index_count", U32)))
    yield Attack("metadata", patched("embd", ("metadata header", "entry_count", U32)))
    yield Attack("tensors in line", b"EMBD" + pack("<II", 1, U32) + bytes(100))
    yield Attack("tokens in line", b"EMBD" + pack("<III", 1, 0, U32) + bytes(100))
    yield Attack("tensors without bytes", b"EMBD" + pack("<II", 1, U32) + pack("<III", 0, 1, 0) * 1000)


@COUNTS.on("gptrs-checkpoint", "gptrs-archive")
def _(folder: Path, format: str) -> Iterator[Attack]:
    yield Attack("tensors", patched(format, ("index", "tensor_count", U32)))
    yield Attack("dims", patched(format, ("tensor", "rank", U32)))
    yield Attack("tensors in line", b"GPTRSTEN" + pack("<II", 1, U32) + bytes(1000))


@COUNTS.on("mcf")
def _(folder: Path, format: str) -> Iterator[Attack]:
    yield Attack("sections", patched("mcf", ("header", "section_count", U32)))
    yield Attack("tensors", patched("mcf", ("tensor index", "tensor_count", U32)))
    yield Attack("dims", patched("mcf", ("tensor", "rank", U32)))
    yield Attack("records", with_tensors([Entry(b"w", 1, (2,), bytes(8))], [(2, pack("<II", 1, U32))]))
    info = bytearray(88)
    info[:4], info[72:76] = pack("<I", 1), pack("<I", U32)
    yield Attack("entries", with_tensors([Entry(b"w", 1, (2,), bytes(8))], [(1, bytes(info))]), "full")


@COUNTS.on("aero")
def _(folder: Path, format: str) -> Iterator[Attack]:
    yield Attack("chunks", patched("aero", ("toc", "entry_count", U32)))
    for head in (b"\xdd", b"\xdf"):
        yield Attack(f"tensors {head!r}", aero(b"\x81\xa7tensors" + head + b"\xff\xff\xff\xff" + bytes(64)))
        yield Attack(f"the whole index {head!r}", aero(head + b"\xff\xff\xff\xff" + bytes(64)))
    row = msgspec.msgpack.encode(tidx_entry(shape=...))[1:]
    yield Attack("dims", aero(b"\x81\xa7tensors\x91\x88" + row + b"\xa5shape\xdd\xff\xff\xff\xff"))


@COUNTS.on("aeroset")
def _(folder: Path, format: str) -> Iterator[Attack]:
    part = good("aero")
    many = [member("part-000.aero", part, shards=[n]) for n in range(2000)]
    yield Attack("two thousand parts that are one file", aeroset(folder / "same", part, *many))
    shards = [member("part-000.aero", part, shards=list(range(100_000)))]
    yield Attack("a hundred thousand shards of one part", aeroset(folder / "shards", part, *shards), "never")


@COUNTS.on("gguf")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for count in (U64, U63, 1 << 33):
        yield Attack(f"{count} tensors", gguf.file(n_tensors=count))
        yield Attack(f"{count} entries", gguf.file(n_kv=count))
        for tag in (0, 8, 9):
            yield Attack(f"{count} of {tag}", gguf.file((gguf.entry("a", 9, gguf.array(tag, count, bytes(16))),)))
    yield Attack("dims", gguf.file((), (gguf.text("w") + pack("<I", U32) + bytes(64),)))
    empty = gguf.array(9, 60_000, gguf.array(0, 0, b"") * 60_000)
    yield Attack("sixty thousand empty arrays in an array", gguf.file((gguf.entry("a", 9, empty),)), "never")
    parts = (gguf.u16("split.no", 0), gguf.u16("split.count", 0xFFFF), gguf.entry("split.tensors.count", 5, bytes(4)))
    path = folder / "m-00001-of-65535.gguf"
    path.write_bytes(gguf.file(parts))
    yield Attack("parts", path)


@COUNTS.on("torch", "npz")
def _(folder: Path, format: str) -> Iterator[Attack]:
    data = patched(format, ("end of directory", "count", 0xFFFF), ("end of directory", "here", 0xFFFF))
    yield Attack("entries", data)
    yield Attack("torch: memo", checkpoint(b"\x80\x02Nr\xff\xff\xff\xff."), "never")
    yield Attack("torch: marks", checkpoint(b"\x80\x02" + b"(" * 900_000 + b"."))
    yield Attack("torch: values", checkpoint(b"\x80\x02" + b"N" * 900_000 + b"."), "never")
    spread = named(tensor(shape_opcodes(TERA), "(" + long_opcode(0) + "t"))
    yield Attack("torch: one element as terabytes", checkpoint(spread, {"0": bytes(16)}))


@COUNTS.on("hf")
def _(folder: Path, format: str) -> Iterator[Attack]:
    names = {f"w{n}": f"model-{n:05}.safetensors" for n in range(20_000)}
    yield Attack("twenty thousand files that are not there", hf_index(folder / "many", names))


_BY_BEING_THERE = "nothing in it counts its entries: they are counted by being there"
COUNTS.spare(_BY_BEING_THERE, "safetensors", "onnx")

# -- dims -------------------------------------------------------------------------------------------------------------

DIMS = family("dims", "dims that no array has are refused, or a tensor that numpy cannot hold says so")
_ODD = ((0, (1 << 63) - 1), ((1 << 63) - 1, 0), (0, U32, U32, U32), (1,) * 65, (1,) * 4096, (2,) * 65, (0,) * 65, (0,))


@DIMS.on("oinf")
def _(folder: Path, format: str) -> Iterator[Attack]:
    yield Attack("0 x 2^63", patched("oinf", ("tensor", "dims", 0), ("tensor", "data_nbytes", 0)), "never")
    for rank in (65, 4097, 1 << 20):
        yield Attack(f"rank {rank}", patched("oinf", ("tensor", "ndim", rank)))
    for rank, dim in ((65, 1), (4096, 1), (300, U64), (64, 0), (65, 0)):
        yield Attack(f"{rank} dims of {dim}", _oinf(rank, dim), "never")


def _oinf(rank: int, dim: int) -> bytes:
    from holdall.format.oinf.layout import HEADER, MAGIC, TENSOR

    size = 0 if dim == 0 else 4
    facts = {"name": b"w", "dtype": 10, "ndim": rank, "flags": 1, "dims": [dim] * rank, "data_nbytes": size}
    at = HEADER.size + len(TENSOR[1].pack(data_offset=0, **facts))
    at += -at % 8
    header = HEADER.pack(
        magic=MAGIC, version=1, flags=0, n_sizevars=0, n_metadata=0, n_tensors=1, reserved=0, offset_sizevars=72,
        offset_metadata=72, offset_tensors=72, offset_data=at, file_size=at + 8, padding=bytes(3),
    )  # fmt: skip
    return (header + TENSOR[1].pack(data_offset=at, **facts)).ljust(at + 8, b"\0")


@DIMS.on("embd")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for rank in (0, 5, 255):
        yield Attack(f"rank {rank}", patched("embd", ("tensor", "ndim", rank)))
    sides = (("tensor", "shape0", 0), ("tensor", "shape1", U32))
    yield Attack("0 x 2^32 - 1", patched("embd", *sides), "never")
    for rank in (0, 5, 65, U32):
        yield Attack(f"rank {rank} in line", b"EMBD" + pack("<III1sI", 1, 1, 1, b"w", rank) + bytes(400))


@DIMS.on("gptrs-checkpoint", "gptrs-archive")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for dims in _ODD:
        size = 0 if 0 in dims else 4
        head = pack("<I1sI", 1, b"w", len(dims)) + b"".join(pack("<Q", dim) for dim in dims) + pack("<IB", 0, 0)
        yield Attack(
            f"in line: {len(dims)} dims {dims[:3]}",
            b"GPTRSTEN" + pack("<II", 1, 1) + head + pack("<Q", size) + bytes(size),
            "never",
        )
    yield Attack("0 x", patched(format, ("tensor", "dims", 0), ("tensor", "byte_len", 0)), "never")
    yield Attack("rank 4097", patched(format, ("tensor", "rank", 4097)))


@DIMS.on("mcf")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for dims in _ODD:
        by = "open" if 0 in dims or dims[0] == 2 else "never"
        yield Attack(f"{len(dims)} dims {dims[:3]}", with_tensors([Entry(b"w", 1, dims, bytes(4))]), by)
    yield Attack("2^63", with_tensors([Entry(b"w", 1, (U63,), b"")]))


@DIMS.on("aero")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for dims in _ODD:
        size = 0 if 0 in dims else 4
        yield Attack(f"{len(dims)} dims {dims[:3]}", aero(tidx_entry(shape=list(dims), data_len=size)), "never")
    for shape in ([-1], [1.5], ["4"], [None], [U64], {"0": 4}, 4, [[4]], [True]):
        yield Attack(f"shape {shape}", aero(tidx_entry(shape=shape)))


@DIMS.on("safetensors")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for dims in _ODD:
        size = 0 if 0 in dims else 4
        by = "open" if dims[0] == 2 else "never"
        yield Attack(
            f"{len(dims)} dims {dims[:3]}", build({"w": entry(shape=list(dims), offsets=[0, size])}, bytes(size)), by
        )
    for shape in ([-1], [1.5], ["4"], [None], [U64 + 1], {"0": 4}, 4, [[4]], [True], [1e3]):
        yield Attack(f"shape {shape}", build({"w": entry(shape=shape)}, bytes(8)))
    yield Attack("4097 dims", build({"w": entry(shape=[1] * 5000, offsets=[0, 4])}, bytes(4)), "never")


@DIMS.on("gguf")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for dims in _ODD:
        by = "open" if dims[0] == 2 else "never"
        yield Attack(f"{len(dims)} dims {dims[:3]}", gguf.file((), (gguf.info(dims=dims),), bytes(32)), by)
    for kind in (2, 12, 14):
        yield Attack(
            f"a row that is no block of {kind}", gguf.file((), (gguf.info(dims=(31, 2), type=kind),), bytes(600))
        )


@DIMS.on("torch")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for dims in _ODD:
        data = named(tensor(shape_opcodes(*dims), shape_opcodes(*((1,) * len(dims)))))
        yield Attack(f"{len(dims)} dims {dims[:3]}", checkpoint(data, {"0": bytes(16)}), "never")
    for shape in ("K\x02", "(t", "(\x88t", "(Nt", "(G" + "\0" * 8 + "t", "(J\xff\xff\xff\xfft"):
        yield Attack(f"shape {shape!r}", checkpoint(named(tensor(shape)), {"0": bytes(16)}))


@DIMS.on("npz")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for dims in _ODD:
        size = 0 if 0 in dims else 4
        text = "(" + ", ".join(map(str, dims)) + ",)"
        by = "open" if dims[0] == 2 else "never"
        yield Attack(f"{len(dims)} dims {dims[:3]}", npz(("w.npy", npy(text, data=bytes(size)))), by)
    for shape in ("(-1,)", "(1.5,)", "('4',)", "(None,)", "[2]", "2", "(True,)", "((2,),)", "(2,", "(0x2,)", "(2L,)"):
        yield Attack(f"shape {shape}", npz(("w.npy", npy(shape))), "never" if "L" in shape else "open")


@DIMS.on("onnx")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for dims in _ODD:
        size = 0 if 0 in dims else 4
        by = "open" if dims[0] == 2 else "never"
        yield Attack(f"{len(dims)} dims {dims[:3]}", onnx(proto(dims=dims, rest=field(9, bytes(size)))), by)
    yield Attack("a negative dim", onnx(proto(dims=(U64,))))
    yield Attack("4097 dims", onnx(proto(dims=(1,) * 4097, rest=field(9, bytes(4)))))
