"""Numbers that lie: products and sums that wrap, lengths and counts of what is not there, dims that are none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from struct import pack

from holdall.format.mcf.layout import METHODS
from tests.attacks.files import aero, external, npy, npz, onnx, patched, proto, tidx_entry
from tests.attacks.kit import Attack, family
from tests.format.gguf import build as gguf
from tests.format.mcf.build import Entry, with_tensors
from tests.format.safetensors.files import build, entry
from tests.format.torch.files import checkpoint, legacy, named, tensor

U32, U63, U64 = (1 << 32) - 1, 1 << 63, (1 << 64) - 1


def long_opcode(value: int) -> str:
    """The opcode of a pickled integer."""
    return "\x8a\x0a" + value.to_bytes(10, "little").decode("latin-1")


def shape_opcodes(*dims: int) -> str:
    return "(" + "".join(map(long_opcode, dims)) + "t"


# -- count x size -----------------------------------------------------------------------------------------------------

OVERFLOW = family("overflow", "a count times a size that does not fit 64 bits is refused, not wrapped")


@OVERFLOW.on("oinf")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for dim in (1 << 32, 1 << 62, U63):  # times another, times 4: 0 modulo 2^64
        data = bytearray(patched("oinf", ("tensor", "data_nbytes", 0), ("tensor", "dims", dim)))
        at = data.index(dim.to_bytes(8, "little")) + 8
        data[at : at + 8] = (1 << 32).to_bytes(8, "little")
        yield Attack(f"dims {dim} x 2^32", bytes(data))
    yield Attack("2^29 dims of 8 bytes", patched("oinf", ("tensor", "ndim", 1 << 29)))
    yield Attack("a rank of 2^32 - 1", patched("oinf", ("tensor", "ndim", U32)))


@OVERFLOW.on("embd")
def _(folder: Path, format: str) -> Iterator[Attack]:
    sides = [("tensor", f"shape{axis}", U32) for axis in range(4)]
    yield Attack("four dims of 2^32 - 1", patched("embd", ("tensor", "ndim", 4), *sides))
    yield Attack("2^31 x 2^31 x 4 x 4", patched("embd", ("tensor", "ndim", 4), *(
        ("tensor", f"shape{axis}", value) for axis, value in enumerate((1 << 31, 1 << 31, 4, 4)))))  # fmt: skip
    yield Attack("more tensors than 32 bits of bytes", patched("embd", ("header", "tensor_index_count", 1 << 27)))


@OVERFLOW.on("gptrs-checkpoint", "gptrs-archive")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for dim in (1 << 32, 1 << 62, U63):
        yield Attack(f"a dim of {dim}", patched(format, ("tensor", "dims", dim), ("tensor", "byte_len", 0)))
    yield Attack("2^29 dims of 8 bytes", patched(format, ("tensor", "rank", 1 << 29)))


@OVERFLOW.on("mcf")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for dims in ((1 << 32, 1 << 32), (1 << 62, 4), ((1 << 63) - 1, 2), (1 << 31, 1 << 31, 4)):
        for dtype in (1, *METHODS):
            yield Attack(f"dims {dims}, type {dtype}", with_tensors([Entry(b"w", dtype, dims, b"")]))
    yield Attack("more entries than 64 bits of bytes", patched("mcf", ("tensor index", "tensor_count", U32)))
    yield Attack("more dims than there are", patched("mcf", ("tensor index", "dims_count", U32)))
    yield Attack("more sections than there are", patched("mcf", ("header", "section_count", U32)))


@OVERFLOW.on("aero")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for shape in ([1 << 32, 1 << 32], [1 << 62, 4], [(1 << 63) - 1, 2], [3, 1 << 62, 1 << 62]):
        yield Attack(f"shape {shape}", aero(tidx_entry(shape=shape, data_len=0)))
    yield Attack("2^32 - 1 chunks", patched("aero", ("toc", "entry_count", U32)))


@OVERFLOW.on("safetensors")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for shape in ([1 << 32, 1 << 32], [1 << 62, 4], [U63, 2], [U64, U64], [1 << 64], [3, 1 << 62, 1 << 62]):
        yield Attack(f"shape {shape}", build({"w": entry(shape=shape, offsets=[0, 0])}))
    yield Attack("a shape of 1,000 dims of 2^64 - 1", build({"w": entry(shape=[U64] * 1000, offsets=[0, 0])}))


@OVERFLOW.on("gguf")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for dims in ((1 << 32, 1 << 32), (1 << 62, 4), (U63, 2), (1 << 31, 1 << 31, 4)):
        for kind in (0, 2, 12):
            yield Attack(f"dims {dims}, type {kind}", gguf.file((), (gguf.info(dims=dims, type=kind),), bytes(32)))
    for tag, size in ((0, 1), (5, 4), (12, 8), (8, 8), (9, 12)):
        count = (1 << 64) // size + 1 if size > 1 else U64
        value = gguf.array(tag, count % (1 << 64), b"")
        yield Attack(f"an array of {count} x {size}", gguf.file((gguf.entry("a", 9, value),)))
    yield Attack("2^61 tensors", gguf.file(n_tensors=1 << 61))
    yield Attack("2^61 entries", gguf.file(n_kv=1 << 61))


@OVERFLOW.on("torch")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for dims in ((1 << 32, 1 << 32), (1 << 62, 4), (U63, 2), (1 << 70, 1)):
        data = named(tensor(shape_opcodes(*dims), shape_opcodes(1, 1)))
        yield Attack(f"shape {dims}", checkpoint(data, {"0": bytes(16)}))
        yield Attack(
            f"strides {dims}", checkpoint(named(tensor(shape_opcodes(2, 2), shape_opcodes(*dims))), {"0": bytes(16)})
        )
    for elements in (1 << 62, 1 << 64, U63):
        yield Attack(
            f"{elements} elements", checkpoint(named(tensor(elements=long_opcode(elements))), {"0": bytes(16)})
        )
        old = legacy(named(tensor(elements=long_opcode(elements))), ["0"], pack("<q", (1 << 62)) + bytes(16))
        yield Attack(f"{elements} elements in an old file", old)


@OVERFLOW.on("npz")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for shape in (f"({1 << 32}, {1 << 32})", f"({1 << 62}, 4)", f"({U64},)", f"({'9' * 25},)", f"({U63 - 1}, 2, 0, 5)"):
        yield Attack(f"shape {shape}", npz(("w.npy", npy(shape))), "open" if "0" not in shape.split(", ") else "never")
    for descr in (f"'<V{U32}'", "'<U999999999'", "[('a', '<f4', (4294967296, 4294967296))]"):
        yield Attack(f"type {descr}", npz(("w.npy", npy("(4294967296, 4294967296)", descr))))


@OVERFLOW.on("onnx")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for dims in ((1 << 32, 1 << 32), (1 << 62, 4), ((1 << 63) - 1, 2), (U64, 1), (U64,) * 300):
        for code in (1, 22, 8):
            yield Attack(f"dims {dims[:3]}, type {code}", onnx(proto(dims=dims, code=code)))


# -- offset + length --------------------------------------------------------------------------------------------------

SUMS = family("sums", "an offset and a length whose sum passes 2^63 or 2^64 are outside of the file")
_PAIRS = ((U64, 1), (U64 - 7, 8), (U64 - 23, 48), (U63, U63), (U63 - 8, 24), (8, U64), (U64, U64))


@SUMS.on("oinf")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for offset, size in _PAIRS:
        yield Attack(
            f"{size} at {offset}", patched("oinf", ("tensor", "data_offset", offset), ("tensor", "data_nbytes", size))
        )
    for name in ("offset_sizevars", "offset_metadata", "offset_tensors", "offset_data", "file_size"):
        yield Attack(f"{name} at the end of 64 bits", patched("oinf", ("header", name, U64 - 7)))
    yield Attack("a name of 2^32 - 1", patched("oinf", ("tensor", "name", U32)))


@SUMS.on("embd")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for offset, _ in _PAIRS:
        if offset > 8:
            yield Attack(f"a tensor at {offset}", patched("embd", ("tensor", "data_offset", offset)))
    for name in ("metadata_offset", "metadata_size", "vocab_offset", "tensor_index_offset", "tensor_data_offset"):
        spared = "full" if name == "vocab_offset" else "open"  # there is no vocabulary: its place means nothing
        yield Attack(
            f"{name} at the end of 32 bits",
            patched("embd", ("header", name, U32)),
            "never" if spared == "full" else "open",
        )
    for value in (U64, U63, U64 - 100):
        yield Attack(f"{value} bytes of data", patched("embd", ("header", "tensor_data_size", value)))
        yield Attack(f"{value} bytes in all", patched("embd", ("header", "total_file_size", value)))


@SUMS.on("gptrs-checkpoint", "gptrs-archive")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for offset, size in _PAIRS:
        data = patched(format, ("tensor", "offset", offset), ("tensor", "byte_len", size))
        yield Attack(f"{size} at {offset}", data)
    for offset, _ in _PAIRS:
        if offset > 8:
            yield Attack(f"a tensor at {offset}", patched(format, ("tensor", "offset", offset)))


@SUMS.on("mcf")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for offset, size in _PAIRS:
        yield Attack(
            f"{size} at {offset}", patched("mcf", ("tensor", "data_off", offset), ("tensor", "data_size", size))
        )
        for row in range(2):
            sections = (("section", "offset", offset, row), ("section", "size", size, row))
            yield Attack(f"section {row}: {size} at {offset}", patched("mcf", *sections))
    for name in ("entries_off", "dims_off", "strings_off", "strings_size"):
        yield Attack(f"{name} at the end of 64 bits", patched("mcf", ("tensor index", name, U64 - 7)))
    for name in ("name_off", "dim_off"):
        yield Attack(f"{name} at the end of 32 bits", patched("mcf", ("tensor", name, U32)))
    yield Attack("the directory at the end of 64 bits", patched("mcf", ("header", "section_dir_offset", U64 - 7)))


@SUMS.on("aero")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for offset, size in _PAIRS:
        for row in range(2):
            chunk = (("toc entry", "chunk_offset", offset, row), ("toc entry", "chunk_length", size, row))
            yield Attack(f"chunk {row}: {size} at {offset}", patched("aero", *chunk))
        yield Attack(f"tensor: {size} at {offset}", aero(tidx_entry(data_off=offset, data_len=size)))
        yield Attack(f"tensor: 16 at {offset}", aero(tidx_entry(data_off=max(offset, 64))))
    for name in ("toc_offset", "toc_length", "string_table_offset", "string_table_length"):
        yield Attack(f"{name} at the end of 64 bits", patched("aero", ("header", name, U64 - 7)))
    yield Attack("a name at the end of 32 bits", patched("aero", ("toc entry", "name_off", U32)))


@SUMS.on("safetensors")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for offsets in ([U64 - 7, U64], [U63, U63 + 8], [8, 0], [U64, 7], [0, U64], [1 << 64, (1 << 64) + 8], [-8, 0]):
        yield Attack(f"offsets {offsets}", build({"w": entry(offsets=offsets)}, bytes(8)))
    for length in (U64, U64 - 7, U63, (1 << 63) - 8):
        yield Attack(f"a header of {length}", build(b"{}", length=length))


@SUMS.on("gguf")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for offset in (U64 - 31, U63, U63 - 32, U64 & ~31, U64 - 95):
        yield Attack(f"a tensor at {offset}", gguf.file((), (gguf.info(offset=offset),), bytes(32)))
    for size in (U64, U64 - 7, U63, U64 - 40):
        text = pack("<Q", size) + b"a"
        yield Attack(f"a key of {size}", gguf.file((text + pack("<I", 4) + bytes(4),)))
        yield Attack(f"a text of {size}", gguf.file((gguf.entry("a", 8, text),)))
        yield Attack(f"a text of {size} in an array", gguf.file((gguf.entry("a", 9, gguf.array(8, 1, text)),)))
        yield Attack(f"a name of {size}", gguf.file((), (text + pack("<IQIQ", 1, 8, 0, 0),), bytes(64)))
    yield Attack(
        "an alignment of 2^31", gguf.file((gguf.u32("general.alignment", 1 << 31),), (gguf.info(),), bytes(32))
    )


@SUMS.on("torch", "npz")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for name in ("offset", "size", "stored"):
        for value in (U32 - 1, 1 << 31, U32):
            yield Attack(f"{name} {value}", patched(format, ("central directory", name, value)))
    for name in ("offset", "size"):
        for value in (U32 - 1, 1 << 31, U32):
            yield Attack(f"directory {name} {value}", patched(format, ("end of directory", name, value)))
    for offset, size in _PAIRS:
        yield Attack(f"zip64 {size} at {offset}", _zip64(format, offset, size))
    for first, stride in ((1 << 62, 1), (U63, U63), (0, 1 << 62), (U64, U64)):
        data = named(tensor(strides="(" + long_opcode(stride) + "t", first=long_opcode(first)))
        yield Attack(f"torch: first {first}, stride {stride}", checkpoint(data, {"0": bytes(16)}))


def _zip64(format: str, offset: int, size: int) -> bytes:
    """The good file with a zip64 end record that says where its directory is."""
    from tests.attacks.files import good

    data = good(format)
    end = data.rindex(b"PK\5\6")
    wide = b"PK\6\6" + pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, 1, 1, size, offset)
    return (
        data[:end]
        + wide
        + b"PK\6\7"
        + pack("<IQI", 0, end, 1)
        + b"PK\5\6"
        + pack("<HHHHIIH", 0, 0, 65535, 65535, U32, U32, 0)
    )


@SUMS.on("onnx")
def _(folder: Path, format: str) -> Iterator[Attack]:
    (folder / "w.bin").write_bytes(bytes(16))
    for number, (offset, length) in enumerate(_PAIRS):
        path = folder / f"{number}.onnx"
        path.write_bytes(onnx(proto(rest=external(location="w.bin", offset=str(offset), length=str(length)))))
        yield Attack(f"{length} at {offset} of another file", path)
        path = folder / f"{number}short.onnx"
        path.write_bytes(onnx(proto(rest=external(location="w.bin", offset=str(max(offset, 9))))))
        yield Attack(f"8 at {offset} of another file", path)
    for size in (U64, U63, U64 - 7, 1 << 40):
        varint = b"".join(
            bytes([size >> 7 * n & 127 | (128 if size >> 7 * (n + 1) else 0)])
            for n in range((size.bit_length() + 6) // 7)
        )
        yield Attack(f"a message of {size}", b"\x08\x08\x3a" + varint + bytes(8))
