"""Whatever is described comes back: bits, order, kinds."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import holdall
from holdall import oinf
from holdall.format.oinf import FORMAT
from holdall.format.oinf.layout import TAG_OF
from holdall.model.dtypes import DTYPES
from holdall.model.metadata import Entry, Metadata
from holdall.model.payload import InMemory
from holdall.model.tensor import Tensor
from holdall.sink.file import write_file

NAMES = st.text("ABCabc019._-", min_size=1, max_size=12)
TYPES = sorted(name for name in TAG_OF if name in DTYPES and name != "bitset")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("round-trips")


def write_bytes(folder, model, **options):
    plan = FORMAT.plan(model, FORMAT.settings(options))
    write_file(folder / "file.oinf", plan, fsync=False)
    return (folder / "file.oinf").read_bytes()


@st.composite
def tensors(draw):
    dtype = DTYPES[draw(st.sampled_from(TYPES))]
    shape = draw(arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
    size = dtype.nbytes(shape)
    data = bytearray(draw(st.binary(min_size=size, max_size=size)))
    if dtype.kind == "bool":
        data = bytearray(byte & 1 for byte in data)
    if dtype.kind == "ternary":  # code 10 is not ternary
        data = bytearray(byte & ~(byte << 1 & 0xAA ^ 0xAA) for byte in data)
    used = int(np.prod(shape)) * dtype.bits % 8
    if used:
        data[-1] &= (1 << used) - 1
    declared = draw(st.booleans())
    return Tensor(draw(NAMES), dtype, shape, None if declared else InMemory(bytes(data)))


SCALARS = st.sampled_from(TYPES).flatmap(
    lambda name: st.binary(min_size=DTYPES[name].nbytes(()), max_size=DTYPES[name].nbytes(())).map(
        lambda data, name=name: scalar(name, data)
    )
)


def scalar(name, data):
    """A value and kind with these bits."""
    dtype = DTYPES[name]
    byte = data[0] & (1 << dtype.bits) - 1 if dtype.packed else data[0] & 1 if dtype.kind == "bool" else None
    if dtype.kind == "ternary" and byte == 2:
        byte = 3
    data = data if byte is None else bytes([byte])
    model = holdall.open(one_value(TAG_OF[name], data))
    return model.metadata["k"], name


def one_value(tag, data):
    """A file with a single metadata value, made by hand."""
    head = struct.pack("<5s6I5Q3x", b"OINF\0", 1, 0, 0, 1, 0, 0, 72, 72, 104, 104, 104 + len(data) + -len(data) % 8)
    return head + struct.pack("<I4sIIQQ", 1, b"k", tag, 0, len(data), 104) + data + bytes(-len(data) % 8)


VALUES = (
    SCALARS
    | NAMES.map(lambda text: (text, "string"))
    | st.lists(st.booleans(), max_size=20).map(lambda bits: (oinf.Bitset(bits), "bitset"))
    | arrays.arrays(np.int16, arrays.array_shapes(min_dims=0, max_dims=3, min_side=0)).map(lambda a: (a, "ndarray:i16"))
    | arrays.arrays(np.float32, 3).map(lambda a: (a, "ndarray:f32"))
)


def unique(items, name):
    return list({name(item): item for item in items}.values())


@settings(max_examples=150, deadline=None)
@given(
    content=st.lists(tensors(), max_size=6),
    sizevars=st.dictionaries(NAMES, st.integers(0, 2**64 - 1), max_size=4),
    metadata=st.dictionaries(NAMES, VALUES, max_size=5),
    version=st.sampled_from([1, 2]),
    sort=st.booleans(),
)
def test_round_trip(folder, content, sizevars, metadata, version, sort):
    content = unique(content, lambda tensor: tensor.name)
    entries = [Entry(key, value, kind) for key, (value, kind) in metadata.items()]
    model = oinf.model(sizevars=sizevars, metadata=Metadata(entries))
    model = holdall.Model(content, metadata=model.metadata, native=model.native, format="oinf")
    data = write_bytes(folder, model, version=version, sort=sort)
    assert holdall.verify(data, level="strict").findings == []
    with holdall.open(data) as found:
        order = sorted if sort else list
        assert found.version == (version,)
        assert list(found.sizevars.items()) == order(sizevars.items())
        assert list(found.metadata) == order(metadata)
        assert list(found) == order(tensor.name for tensor in content)
        for tensor in content:
            reopen = found[tensor.name]
            assert (reopen.dtype, reopen.shape, reopen.has_data) == (tensor.dtype, tensor.shape, tensor.has_data)
            if tensor.has_data:
                assert reopen.raw() == tensor.raw()
        assert write_bytes(folder, found, sort=sort) == data  # every bit, those of NaNs included


@settings(max_examples=60, deadline=None)
@given(
    shape=arrays.array_shapes(min_dims=1, max_dims=3, max_side=4),
    axis=st.none() | st.integers(0, 2),
    asymmetric=st.booleans(),
    data=st.data(),
)
def test_quant_round_trip(folder, shape, axis, asymmetric, data):
    axis = None if axis is None else axis % len(shape)
    count = 1 if axis is None else shape[axis]
    scale = data.draw(st.lists(st.floats(width=32, allow_nan=False), min_size=count, max_size=count))
    zeros = data.draw(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=count, max_size=count))
    quant = oinf.QuantParams(scale, zeros if asymmetric else None, axis)
    specs = {name: oinf.TensorSpec(np.zeros(shape, np.int8), quant=quant) for name in "abc"}
    with holdall.open(write_bytes(folder, oinf.model(specs))) as found:
        assert [found[name].native for name in "abc"] == [quant] * 3


@settings(max_examples=200, deadline=None)
@given(base=st.sampled_from(["gen_v2_many_mixed", "hand_v2_multi_quant", "gen_v1_meta_ndarrays"]), data=st.data())
def test_a_damaged_file_is_refused_or_read_never_worse(base, data):
    from tests.format.oinf import corpus

    stored = bytearray(corpus.file(base).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        stored[data.draw(st.integers(0, len(stored) - 1))] = data.draw(st.integers(0, 255))
    del stored[data.draw(st.integers(0, len(stored)) | st.just(len(stored))) :]
    holdall.verify(bytes(stored), level="strict", format="oinf")
    try:
        with holdall.open(bytes(stored), format="oinf") as model:
            for tensor in model.tensors:
                if tensor.has_data:
                    tensor.numpy()
    except (holdall.FormatError, holdall.UnsupportedError):
        pass


def test_long_tables():
    """A table built in blocks has the bytes of one packed entry by entry."""
    from holdall.binary.tables import build
    from holdall.format.oinf.layout import TENSOR

    count = 40_000
    columns = {
        "name": [f"layer.{i}.w".encode() for i in range(count)], "dtype": [10] * count,
        "ndim": [i % 3 for i in range(count)],
        "flags": [1] * count, "dims": [(i, 2**64 - 1)[: i % 3] for i in range(count)],
        "data_nbytes": list(range(count)), "data_offset": [2**63] * count,
    }  # fmt: skip
    rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    assert build(TENSOR[1], **columns) == b"".join(TENSOR[1].pack(**row) for row in rows)
