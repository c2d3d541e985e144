"""The format's own library reads what holdall writes, and holdall what the library writes, bit for bit."""

import ctypes
import itertools

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

import holdall
from holdall.format.safetensors.layout import DTYPES
from holdall.model.dtypes import find_dtype
from holdall.model.payload import InMemory
from holdall.model.tensor import Tensor
from tests.format.safetensors.files import build, entry, header_of

# The library's names for what it can write; the two 6-bit types it can only read.
WRITES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "U16": "uint16", "I32": "int32", "U32": "uint32",
    "I64": "int64", "U64": "uint64", "F16": "float16", "F32": "float32", "F64": "float64", "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu", "C64": "complex64",
    "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz", "F4": "float4_e2m1fn_x2",
}  # fmt: skip

SHAPES = [(), (0,), (8,), (2, 4), (4, 0, 6), (1, 1, 16)]


def sample(word, shape):
    dtype = find_dtype(DTYPES[word])
    if int(np.prod(shape)) * dtype.bits % 8:
        shape = (*shape, 4)
    size = dtype.nbytes(shape)
    data = bytes(np.random.default_rng(len(shape) + size).integers(0, 2 if word == "BOOL" else 256, size, np.uint8))
    return Tensor(f"{word}{list(shape)}", dtype, shape, InMemory(data))


@pytest.mark.parametrize("word", DTYPES)
def test_the_library_reads_it(word, tmp_path):
    tensors = [sample(word, shape) for shape in SHAPES]
    path = tmp_path / "x.safetensors"
    holdall.save(path, tensors, metadata={"a": "é", "b": ""})
    found = dict(safetensors.deserialize(path.read_bytes()))
    assert {name: (row["dtype"], tuple(row["shape"]), bytes(row["data"])) for name, row in found.items()} == {
        tensor.name: (word, tensor.shape, bytes(tensor.raw())) for tensor in tensors
    }
    with safetensors.safe_open(path, "np") as file:
        assert file.metadata() == {"a": "é", "b": ""}


@pytest.mark.parametrize("word", WRITES)
def test_it_reads_the_library(word, tmp_path):
    tensors = [sample(word, shape) for shape in SHAPES]
    buffers, specs = [], {}
    for tensor in tensors:
        buffers.append(ctypes.create_string_buffer(bytes(tensor.raw()), max(1, tensor.nbytes)))
        shape = tensor.shape if word != "F4" else (*tensor.shape[:-1], tensor.shape[-1] // 2)
        specs[tensor.name] = safetensors.TensorSpec(
            dtype=WRITES[word], shape=shape, data_ptr=ctypes.addressof(buffers[-1]), data_len=tensor.nbytes
        )
    data = safetensors.serialize(specs, {"k": "v"})
    with holdall.open(data) as model:
        assert (model.format, dict(model.metadata), model.metadata.kind("k")) == ("safetensors", {"k": "v"}, "string")
        for tensor in tensors:
            back = model[tensor.name]
            assert (str(back.dtype), back.shape) == (DTYPES[word], tensor.shape)
            assert bytes(back.raw()) == bytes(tensor.raw())
        assert [data[t.offset : t.offset + t.nbytes] for t in model.tensors] == [bytes(t.raw()) for t in model.tensors]
        path = tmp_path / "again.safetensors"
        holdall.save(path, model, align=8)
    assert path.read_bytes() == data  # down to the byte, where the library's own padding is asked for


def test_arrays_are_the_librarys(tmp_path):
    random = np.random.default_rng(3)
    arrays = {
        word: random.integers(0, 2, (3, 4)).astype(find_dtype(DTYPES[word]).numpy)
        for word in WRITES
        if word != "BF16" and not word.startswith(("F4", "F8"))  # which its numpy side cannot load
    }
    path = tmp_path / "x.safetensors"
    holdall.save(path, arrays)
    loaded = safetensors.numpy.load_file(path)
    with holdall.open(path) as model:
        for name, array in arrays.items():
            assert loaded[name].dtype == array.dtype
            assert loaded[name].tobytes() == array.tobytes() == model[name].numpy().tobytes()
            assert model[name].numpy().dtype == array.dtype


def test_all_dtypes_in_the_librarys_order(tmp_path):
    buffer = ctypes.create_string_buffer(64)
    specs = {}
    for number, word in enumerate(WRITES):
        tensor = sample(word, (8,))
        specs[f"{(number * 7) % 5}.{word}"] = safetensors.TensorSpec(
            dtype=WRITES[word], shape=(4,) if word == "F4" else (8,), data_ptr=ctypes.addressof(buffer),
            data_len=tensor.nbytes,
        )  # fmt: skip
    data = safetensors.serialize(specs)
    path = tmp_path / "x.safetensors"
    with holdall.open(data) as model:
        holdall.save(path, reversed(list(model.tensors)), align=8)
    assert path.read_bytes() == data


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.text(max_size=8).filter(lambda name: name != "__metadata__"), st.integers(0, 5), max_size=5),
       st.none() | st.dictionaries(st.text(max_size=5), st.text(max_size=8), max_size=3))  # fmt: skip
def test_any_name_and_any_metadata(tmp_path_factory, names, metadata):
    arrays = {name: np.arange(count, dtype=np.int16) for name, count in names.items()}
    path = tmp_path_factory.mktemp("any") / "x.safetensors"
    holdall.save(path, arrays, metadata=metadata, fsync=False)
    assert int.from_bytes(path.read_bytes()[:8], "little") % 64 == 56
    with safetensors.safe_open(path, "np") as file:
        assert sorted(file.keys()) == sorted(arrays)
        assert (file.metadata() or {}) == (metadata or {})
    data = safetensors.numpy.save(arrays, metadata or None)  # 0.8.0 writes no JSON for no tensors and {} as metadata
    for stored in (path.read_bytes(), data):
        with holdall.open(stored, format="safetensors") as model:
            assert dict(model.metadata) == (metadata or {})
            assert {name: model[name].numpy().tolist() for name in model} == {k: v.tolist() for k, v in arrays.items()}


def test_what_the_library_reads_and_holdall_reads_too():
    for header, data in [
        (b'{"a":{"shape":[1],"data_offsets":[0,4],"dtype":"F32"}}', bytes(4)),
        (b'{ "a" : { "dtype" : "F32", "shape" : [ 1 ], "data_offsets" : [ 0, 4 ] } }   ', bytes(4)),
        (b'{"a":{"dt\\u0079pe":"F\\u00332","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[],'
         b'"data_offsets":[4,5]}}', bytes(5)),
        (b'{"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
         b"abc"),
        (b"{}", b""),
        (b'{"__metadata__":{}}', b""),
        (b'{"a":{"dtype":"F32","shape":[0,18446744073709551615],"data_offsets":[0,0]}}', b""),
    ]:  # fmt: skip
        stored = build(header, data)
        expected = dict(safetensors.deserialize(stored))
        with holdall.open(stored, format="safetensors") as model:
            assert {name: (model[name].shape, bytes(model[name].raw())) for name in model} == {
                name: (tuple(row["shape"]), bytes(row["data"])) for name, row in expected.items()
            }


def test_writer_options(tmp_path):
    arrays = {"b": np.zeros(3, np.uint8), "a": np.zeros(2, np.uint8), "c": np.zeros(1, np.float64)}
    path = tmp_path / "x.safetensors"
    holdall.save(path, arrays, metadata={"z": "1", "y": "2"})
    header = header_of(path.read_bytes())
    assert list(header) == ["__metadata__", "c", "a", "b"]
    assert list(header["__metadata__"]) == ["y", "z"]
    holdall.save(path, arrays, metadata={"z": "1", "y": "2"}, order="given", metadata_order="given", align=4096)
    header = header_of(path.read_bytes())
    assert list(header) == ["__metadata__", "b", "a", "c"]
    assert list(header["__metadata__"]) == ["z", "y"]
    assert int.from_bytes(path.read_bytes()[:8], "little") == 4088
    safetensors.numpy.load_file(path)
    with pytest.raises(holdall.ContentError, match="align"):
        holdall.save(path, arrays, align=3)


@pytest.mark.parametrize(
    ("content", "metadata", "why"),
    [
        ([Tensor.of("x", [1, 2], "i4")], None, "i4 is not a safetensors type"),
        ([Tensor.of("x", [1, 0], "bitset")], None, "bitset is not a safetensors type"),
        ([Tensor.of("x", [1.0, 0], "c128")], None, "c128 is not a safetensors type"),
        ([Tensor("x", find_dtype("f32"), (2,), None)], None, "declared without data"),
        ([Tensor.of("x", [1.0]), Tensor.of("x", [1.0])], None, "two tensors are called 'x'"),
        ([Tensor.of("__metadata__", [1.0])], None, "no tensor can be called __metadata__"),
        ([Tensor.of("\ud800", [1.0])], None, "half of a surrogate pair"),
        ([Tensor("x", find_dtype("f4_e2m1"), (3,), InMemory(b"ab"))], None, "takes 12 bits"),
        ([Tensor("x", find_dtype("f32"), (2,), InMemory(b"abcd"))], None, "takes 8 bytes, not 4"),
        ([Tensor("x", find_dtype("u8"), (2**63, 2, 0), InMemory(b""))], None, "do not multiply within 64 bits"),
        ([], {"a": 1}, "metadata 'a': values are text, not int"),
        ([], {"a": "\udfff"}, "half of a surrogate pair"),
    ],
)
def test_what_it_refuses_to_write(content, metadata, why, tmp_path):
    with pytest.raises(holdall.ContentError, match=why):
        holdall.save(tmp_path / "x.safetensors", content, metadata=metadata)
    assert not list(tmp_path.iterdir())


def test_the_twins_read_the_same_columns(monkeypatch):
    from holdall.binary import kernels
    from holdall.binary.kernels import json_reference

    header = {"__metadata__": {"k": "é"}}
    at = 0
    for number, word in zip(range(300), itertools.cycle(DTYPES), strict=False):
        dtype, shape = find_dtype(DTYPES[word]), [8] * (number % 4)
        shape = shape if shape or not dtype.packed else [8]
        size = dtype.nbytes(shape)
        header[f"t{number}é"] = entry(word, shape, [at, at + size])
        at += size
    data = build(header, bytes(at))
    with holdall.open(data) as model:
        native = [(t.name, str(t.dtype), t.shape, t.offset, t.nbytes) for t in model.tensors]
        totals = model.tensors.totals()
    for function in json_reference.__all__:
        monkeypatch.setattr(kernels, function, getattr(json_reference, function))
    with holdall.open(data) as model:
        assert [(t.name, str(t.dtype), t.shape, t.offset, t.nbytes) for t in model.tensors] == native
        assert model.tensors.totals() == totals
        assert dict(model.metadata) == {"k": "é"}
    spaced = build(str(header).replace("'", '"').replace("(", "[").replace(")", "]").encode(), bytes(at))
    with holdall.open(spaced) as model:
        assert [(t.name, str(t.dtype), t.shape, t.nbytes) for t in model.tensors] == [
            (name, dtype, shape, size) for name, dtype, shape, _, size in native
        ]


def test_small_floats_have_values():
    data = build(
        {"a": entry("F4", [4], [0, 2]), "b": entry("F6_E2M3", [4], [2, 5])}, bytes([0x21, 0xF7, 0x41, 0x30, 0x10])
    )
    with holdall.open(data) as model:
        assert model["a"].numpy().astype(np.float32).tolist() == [0.5, 1.0, 6.0, -6.0]
        codes = [int.from_bytes(bytes([0x41, 0x30, 0x10]), "little") >> shift & 63 for shift in (0, 6, 12, 18)]
        assert model["b"].numpy().view(np.uint8).tolist() == codes
