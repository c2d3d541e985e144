"""The gguf package reads what holdall writes, and holdall reads what it writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdall
from holdall.errors import ContentError, UnsupportedError
from holdall.model.dtypes import find_dtype
from holdall.model.ggml import BLOCKS, PLAIN
from holdall.model.metadata import Entry, Metadata
from holdall.model.model import Model
from holdall.model.payload import InMemory
from holdall.model.tensor import Tensor
from holdall.testing.zoo import sample_values

gguf = pytest.importorskip("gguf")

SHAPES = ((7,), (3, 5), (2, 3, 4), (2, 1, 3, 5), ())
VALUES: dict[str, tuple[str, Any]] = {
    "u8": ("u8", 255), "i8": ("i8", -128), "u16": ("u16", 65535), "i16": ("i16", -32768), "u32": ("u32", 2**32 - 1),
    "i32": ("i32", -(2**31)), "u64": ("u64", 2**64 - 1), "i64": ("i64", -(2**63)), "f32": ("f32", 0.5),
    "f64": ("f64", 0.1), "yes": ("bool", True), "no": ("bool", False), "text": ("string", "grüße 重み"),
    "empty": ("string", ""), "texts": ("array:string", ["a", "", "ü"]), "ints": ("array:i32", np.array([1, -2], "i4")),
    "floats": ("array:f32", np.array([0.5, -1], "f4")), "bools": ("array:bool", np.array([True, False])),
    "bytes": ("array:u8", np.arange(5, dtype="u1")), "wide": ("array:u64", np.array([2**64 - 1], "u8")),
    "doubles": ("array:f64", np.array([0.1])), "shorts": ("array:i16", np.array([-5], "i2")),
}  # fmt: skip


def their_name(kind: str) -> str:
    whole = {"bool": "BOOL", "string": "STRING"}.get(kind)
    return whole or {"u": "UINT", "i": "INT", "f": "FLOAT"}[kind[0]] + kind[1:]


def oracle_bytes(tensor: Any) -> bytes:
    return np.ascontiguousarray(tensor.data).tobytes()


@pytest.mark.parametrize("name", PLAIN.values())
def test_the_package_reads_every_plain_type(name: str, tmp_path: Path) -> None:
    shapes = SHAPES[:4] if name == "bf16" else SHAPES  # the package itself fails on a bf16 of no dimensions
    tensors = [Tensor.of(f"t{len(s)}", sample_values(name, s), name) for s in shapes]
    holdall.save(tmp_path / "x.gguf", Model(tensors))
    found = {tensor.name: tensor for tensor in gguf.GGUFReader(tmp_path / "x.gguf").tensors}
    assert len(found) == len(tensors)
    for tensor in tensors:
        theirs = found[tensor.name]
        assert theirs.tensor_type.name == name.upper()
        assert tuple(theirs.shape)[::-1] == tensor.shape
        assert oracle_bytes(theirs) == bytes(tensor.raw())
        assert theirs.data_offset % 32 == 0


@pytest.mark.parametrize("name", PLAIN.values())
def test_every_plain_type_of_the_package_is_read(name: str, tmp_path: Path) -> None:
    arrays = {f"t{len(s)}": sample_values(name, s) for s in SHAPES[:4]}
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "test")
    for key, values in arrays.items():
        stored = values.view(np.uint8) if name == "bf16" else values
        kind = gguf.GGMLQuantizationType.BF16 if name == "bf16" else None
        writer.add_tensor(key, stored, raw_dtype=kind)
    write(writer)
    with holdall.open(tmp_path / "x.gguf") as model:
        assert list(model) == list(arrays)
        for key, values in arrays.items():
            tensor = model[key]
            assert (str(tensor.dtype), tensor.shape) == (name, values.shape)
            assert tensor.numpy().tobytes() == values.tobytes()
            assert tensor[..., -1].tobytes() == values[..., -1].tobytes()
        assert model["t1"].numpy().base is not None  # a window on the file
    assert holdall.verify(tmp_path / "x.gguf", level="strict").findings == []


def write(writer: Any) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


NEWER = {42}  # types that ggml has and the package does not know yet


@pytest.mark.parametrize("blocks", [b for b in BLOCKS.values() if b.id not in NEWER], ids=lambda blocks: blocks.title)
def test_blocks_of_every_type_pass_both_ways(blocks: Any, tmp_path: Path) -> None:
    kind = gguf.GGMLQuantizationType(blocks.id)
    assert gguf.GGML_QUANT_SIZES[kind] == (blocks.elements, blocks.block_bytes)
    stored = np.random.default_rng(blocks.id).integers(0, 256, (3, 2 * blocks.block_bytes), np.uint8)
    writer = gguf.GGUFWriter(tmp_path / "theirs.gguf", "test")
    writer.add_tensor("w", stored, raw_dtype=kind)
    write(writer)
    with holdall.open(tmp_path / "theirs.gguf") as model:
        tensor = model["w"]
        assert (str(tensor.dtype), tensor.shape) == (blocks.name, (3, 2 * blocks.elements))
        assert bytes(tensor.raw()) == stored.tobytes()
        holdall.save(tmp_path / "ours.gguf", model)
    assert (tmp_path / "ours.gguf").read_bytes() == (tmp_path / "theirs.gguf").read_bytes()


def test_the_table_of_types_is_the_packages() -> None:
    theirs = {kind.value: kind.name for kind in gguf.GGMLQuantizationType}
    ours = {id: name.upper() for id, name in PLAIN.items()} | {id: blocks.title for id, blocks in BLOCKS.items()}
    assert {id: name for id, name in ours.items() if id not in NEWER} == theirs


def test_metadata_of_every_kind_passes_both_ways(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    entries = [Entry(key, value, kind) for key, (kind, value) in VALUES.items()]
    holdall.save(path, Model([], metadata=Metadata(entries)))
    fields = gguf.GGUFReader(path).fields
    assert [key for key in fields if not key.startswith("GGUF.")] == list(VALUES)
    for key, (kind, value) in VALUES.items():
        plain = kind.removeprefix("array:")
        assert fields[key].types[-1].name == their_name(plain)
        assert fields[key].contents() == (value.tolist() if isinstance(value, np.ndarray) else value)
    with holdall.open(path) as model:
        same_values(model.metadata)


def same_values(metadata: Metadata) -> None:
    for key, (kind, value) in VALUES.items():
        found = metadata[key]
        assert metadata.kind(key) == kind
        if isinstance(value, np.ndarray):
            assert found.dtype == value.dtype and found.tolist() == value.tolist()
        else:
            assert type(found) is type(value) and found == value


@pytest.mark.parametrize("bits", [0x7FF8 << 48, 0xFFF8 << 48, (0x7FF8 << 48) + 1, (0xFFF0 << 48) + 0x123, 1 << 63])
def test_floats_come_back_bit_for_bit(tmp_path: Path, bits: int) -> None:
    value = np.array([bits], np.uint64).view(np.float64)[0].item()
    holdall.save(tmp_path / "x.gguf", {}, metadata={"one": value, "two": [value, 1.5]})
    fields = gguf.GGUFReader(tmp_path / "x.gguf").fields
    kept = [fields["one"].contents(), fields["two"].contents()[0]]
    assert [np.float64(each).view(np.uint64) for each in kept] == [bits, bits]


def test_metadata_of_the_package_is_read_by_kind(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "test")
    for key, (kind, value) in VALUES.items():
        plain = kind.removeprefix("array:")
        tag = gguf.GGUFValueType[their_name(plain)]
        if kind.startswith("array:"):
            items = value.tolist() if isinstance(value, np.ndarray) else value
            writer.add_key_value(key, items, gguf.GGUFValueType.ARRAY, sub_type=tag)
        else:
            writer.add_key_value(key, value, tag)
    write(writer)
    with holdall.open(tmp_path / "x.gguf") as model:
        assert list(model.metadata) == ["general.architecture", *VALUES]
        same_values(model.metadata)
        holdall.save(tmp_path / "again.gguf", model)
    ours, theirs = ((tmp_path / name).read_bytes() for name in ("again.gguf", "x.gguf"))
    assert ours.rstrip(b"\0") == theirs.rstrip(b"\0")  # the package leaves out the padding of no data


@pytest.mark.parametrize("alignment", [8, 64, 4096])
def test_other_alignments_pass_both_ways(alignment: int, tmp_path: Path) -> None:
    arrays = {f"t{n}": np.full((n + 1, 3), n, np.float32) for n in range(4)}
    holdall.save(tmp_path / "ours.gguf", arrays, alignment=alignment)
    reader = gguf.GGUFReader(tmp_path / "ours.gguf")
    assert reader.alignment == alignment
    for tensor in reader.tensors:
        assert tensor.data_offset % alignment == 0
        assert oracle_bytes(tensor) == arrays[tensor.name].tobytes()
    writer = gguf.GGUFWriter(tmp_path / "theirs.gguf", "test")
    writer.add_custom_alignment(alignment)
    for name, values in arrays.items():
        writer.add_tensor(name, values)
    write(writer)
    with holdall.open(tmp_path / "theirs.gguf") as model:
        assert model.native.alignment == alignment
        assert all(tensor.offset % alignment == 0 for tensor in model.tensors)
        holdall.save(tmp_path / "again.gguf", model)
    assert (tmp_path / "again.gguf").read_bytes() == (tmp_path / "theirs.gguf").read_bytes()


def test_the_vocabulary_is_a_facet(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "test")
    writer.add_token_list(["<s>", "</s>", "ü"] + ["t"] * 5000)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_sep_token_id(7)
    write(writer)
    with holdall.open(tmp_path / "x.gguf") as model:
        assert model.vocab[2] == "ü" and len(model.vocab) == 5003
        assert model.vocab.special == {"bos": 0, "eos": 1, "sep": 7}


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (Tensor.of("w", np.ones(3, np.uint8)), "ggml has no u8, but f32"),
        (Tensor.of("w", np.ones((1,) * 5, np.float32)), "5 dimensions"),
        (Tensor("w", find_dtype("f32"), (2,), None), "without data"),
        (Tensor.of("n" * 64, np.ones(2, np.float32)), "64 bytes"),
        (Tensor.of("", np.ones(2, np.float32)), "empty"),
        (Tensor.of("a\0", np.ones(2, np.float32)), "NUL"),
        (Tensor("w", BLOCKS[2], (2, 16), InMemory(bytes(18))), "whole blocks"),
        (Tensor("w", BLOCKS[2], (2, 32), InMemory(bytes(18))), "takes 36 bytes"),
    ],
)
def test_the_writer_says_why_it_refuses(tensor: Tensor, words: str, tmp_path: Path) -> None:
    with pytest.raises(ContentError, match=words):
        holdall.save(tmp_path / "x.gguf", Model([tensor]))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, ""), ({"a": 1}, ""), (b"bytes", ""), (2**64, ""), ([1, "a"], ""), ([1, 0.5], ""), ([[1]], ""),
        ([True, 1], ""), (np.ones(2, np.float16), ""), (np.ones((2, 2)), ""), ("\ud800", ""), (300, "u8"), (-1, "u64"),
        (1e300, "f32"), ("text", "u8"), (1, "string"), (1, "bool"), ([300], "array:u8"), ([1e300], "array:f32"),
        (["a"], "array:i32"), (7, "array:i32"), ("ab", "array:string"), (True, "i32"),
    ],
)  # fmt: skip
def test_values_that_do_not_fit_are_refused(value: Any, kind: str, tmp_path: Path) -> None:
    with pytest.raises(ContentError, match="'key'"):
        holdall.save(tmp_path / "x.gguf", Model([], metadata=Metadata([Entry("key", value, kind)])))


@pytest.mark.parametrize(
    "metadata", [{"": 1}, {"k" * 65536: 1}, {"general.alignment": 48}, {"general.alignment": "32"}, {"split.count": 2}]
)
def test_entries_that_no_file_can_have_are_refused(metadata: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ContentError):
        holdall.save(tmp_path / "x.gguf", {}, metadata=metadata)


@pytest.mark.parametrize("alignment", [0, 4, 48, "many", 1 << 32])
def test_alignments_that_do_not_exist_are_refused(alignment: Any, tmp_path: Path) -> None:
    with pytest.raises((ContentError, UnsupportedError)):
        holdall.save(tmp_path / "x.gguf", {}, alignment=alignment)


def test_odd_values_survive_a_rewrite(tmp_path: Path) -> None:
    nan = np.array([0x7F800001], "<u4").view("<f4")[0]
    nested = [[np.array([1], "u1")], [np.array([2, 3], "u1"), np.array([], "u1")]]
    entries = [Entry("nan", nan, "f32"), Entry("nested", nested, "array:array:array:u8")]
    holdall.save(tmp_path / "a.gguf", Model([], metadata=Metadata(entries)))
    with holdall.open(tmp_path / "a.gguf") as model:
        assert model.metadata.kind("nested") == "array:array:array:u8"
        assert model.metadata["nested"][1][0].tolist() == [2, 3]
        holdall.save(tmp_path / "b.gguf", model)
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()


def test_version_2_is_read(tmp_path: Path) -> None:
    holdall.save(tmp_path / "x.gguf", {"w": np.ones(3, np.float32)}, metadata={"a": 1})
    data = bytearray((tmp_path / "x.gguf").read_bytes())
    data[4] = 2
    with holdall.open(bytes(data)) as model:
        assert model.version == (2,)
        assert model["w"].numpy().tolist() == [1, 1, 1]
