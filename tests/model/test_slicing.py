import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdall.model.dtypes import DTYPES, find_dtype
from holdall.model.encodings import Encoding
from holdall.model.payload import InMemory, SourceRange
from holdall.model.slicing import index_of, normalize
from holdall.model.tensor import Tensor
from holdall.source import BytesSource
from holdall.testing import RecordingSource, sample_values
from holdall.testing.strategies import basic_indices

SHAPES = [(), (1,), (7,), (0,), (3, 5), (2, 3, 4), (5, 0, 2), (1, 1, 9)]
LARGE = (40, 30, 50)  # rows beyond a page in every type


def recorded(values, dtype, shift=0):
    data = bytes(shift) + bytes(find_dtype(dtype).encode(values))
    source = RecordingSource(BytesSource(data))
    return Tensor("t", find_dtype(dtype), values.shape, SourceRange(source, shift, len(data) - shift)), source


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_slices_are_numpys(data):
    dtype = data.draw(st.sampled_from(["f32", "i4", "u1", "bool", "f6_e2m3", "c128", "t2"]))
    values = sample_values(dtype, data.draw(st.sampled_from([*SHAPES, LARGE])))
    index = data.draw(basic_indices(values.shape))
    expected = values[index]
    read, source = recorded(values, dtype, data.draw(st.integers(0, 3)))
    unaligned = Tensor(
        "t", find_dtype(dtype), values.shape, SourceRange(BytesSource(b"x" + bytes(read.raw())), 1, read.nbytes)
    )
    for tensor in (read, unaligned, Tensor.of("t", values, dtype)):
        source.reads.clear()
        found = tensor[index]
        assert isinstance(found, np.ndarray)
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_can_be_sliced(name):
    """The types of ml_dtypes have codes that numpy does not know, such as '<f1' for f8_e5m2."""
    values = sample_values(name, (5, 8))
    tensor, _ = recorded(values, name, shift=1)
    for index in (np.s_[-1:], np.s_[::-2, 1::3], np.s_[2], np.s_[3, 4]):
        assert tensor[index].tobytes() == values[index].tobytes()


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_slices_read_what_they_need_give_or_take_a_page_a_row(data):
    dtype = data.draw(st.sampled_from(["f64", "f32", "i4", "u1", "bool"]))
    values = sample_values(dtype, LARGE)
    tensor, source = recorded(values, dtype)
    index = data.draw(basic_indices(LARGE))
    needed = values[index].size * find_dtype(dtype).bits / 8
    tensor[index]
    assert source.bytes_read <= tensor.nbytes + len(source.reads)  # rows of bits may share a byte
    assert all(size <= max(4096, needed) + 2 for _, size in source.reads)
    if needed == 0:
        assert source.bytes_read == 0


@pytest.mark.parametrize("name", [name for name, dtype in DTYPES.items() if dtype.packed or dtype.bits == 32])
def test_contiguous_rows_cost_their_own_bytes(name):
    values = sample_values(name, (64, 4099))
    tensor, source = recorded(values, name, shift=3)
    bits = find_dtype(name).bits
    for index, count in ((np.s_[5], 4099), (np.s_[10:12], 2 * 4099), (np.s_[3, 7:3007], 3000), (np.s_[-1, -1], 1)):
        source.reads.clear()
        assert tensor[index].tobytes() == values[index].tobytes()
        assert source.bytes_read <= count * bits // 8 + 2


@pytest.mark.parametrize(("key", "expected"), [(7, 8), (slice(7, 8), 7), (-249, 7)])
def test_an_unaligned_payload_is_not_copied_whole(key, expected):
    """A row counted from the front asks for its own bytes alone, wherever they lie."""
    values = np.arange(1 << 16, dtype=np.float64).reshape(256, 256)
    asked = []

    class Watched(BytesSource):
        def view(self, offset, size):
            asked.append(size)
            return super().view(offset, size)

    copied = 0
    for shift in range(8):
        source = Watched(bytes(16 + shift) + values.tobytes())
        asked.clear()
        row = Tensor("t", find_dtype("f64"), (256, 256), SourceRange(source, 16 + shift, values.nbytes))[key]
        assert row.tobytes() == values[7].tobytes() and row.shape == values[key].shape
        assert row.flags.aligned
        copied += asked[-1] == values[7].nbytes
    assert copied == expected


def test_a_row_of_mapped_bytes_is_a_view_of_them():
    for shape in ((64, 8), (64, 2, 4), (64, 8, 1, 1), (64, 0)):
        values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        tensor = Tensor("t", find_dtype("f32"), shape, SourceRange(BytesSource(values.tobytes()), 0, values.nbytes))
        for row in (0, 5, shape[0] - 1, -1, np.int64(3)):
            found = tensor[row]
            assert type(found) is np.ndarray and found.shape == values[row].shape and not found.flags.writeable
            assert found.tobytes() == values[row].tobytes() and (not found.size or not found.flags.owndata)
        with pytest.raises(IndexError, match=f"index {shape[0]} is out of bounds for dimension 0 of size {shape[0]}"):
            tensor[shape[0]]


@pytest.mark.parametrize(
    "wrong", [None, [0, 1], np.array([0]), np.array([True, False]), 1.0, "a", True, np.True_, (0, 0, 0), (..., ...)]
)
def test_other_indices_are_refused(wrong):
    values = np.zeros((2, 3), np.float32)
    for tensor in (Tensor.of("t", values), recorded(values, "f32")[0], Tensor.of("t", values, "i4")):
        with pytest.raises(IndexError):
            tensor[wrong]


@pytest.mark.parametrize("wrong", [2, -3, (0, 3), (0, -4)])
def test_indices_out_of_bounds(wrong):
    with pytest.raises(IndexError, match="out of bounds"):
        Tensor.of("t", np.zeros((2, 3), np.float32), "i4")[wrong]
    with pytest.raises(ValueError, match="zero"):
        Tensor.of("t", np.zeros((2, 3), np.float32), "i4")[::0]


@given(st.data())
def test_normalized_indices_are_the_same_indices(data):
    shape = data.draw(st.sampled_from(SHAPES))
    values = np.arange(int(np.prod(shape))).reshape(shape)
    index = data.draw(basic_indices(shape))
    axes = normalize(index, shape)
    assert np.array_equal(values[index_of(axes)], values[index])
    assert [count for _, _, count, gone in axes if not gone] == list(values[index].shape)


class Doubled(Encoding):
    """Every row can be decoded alone: one byte for each element, which decodes to twice its value."""

    name = "test.doubled"

    def __init__(self, apart):
        self.apart = apart

    def nbytes(self, shape):
        return int(np.prod(shape))

    def decode(self, data, shape):
        return np.frombuffer(data, np.uint8).astype(np.float32).reshape(shape) * 2

    def rows(self, shape, start, stop):
        width = int(np.prod(shape[1:]))
        return [(start * width, stop * width)] if self.apart and shape else None

    def decode_rows(self, ranges, shape, first=0):
        return self.decode(b"".join(map(bytes, ranges)), shape)


@settings(max_examples=150, deadline=None)
@given(st.data(), st.booleans())
def test_slices_of_encoded_tensors(data, apart):
    shape = data.draw(st.sampled_from([shape for shape in SHAPES if shape]))
    values = (np.arange(int(np.prod(shape))) % 100).astype(np.uint8).reshape(shape)
    tensor = Tensor("t", Doubled(apart), shape, InMemory(values.tobytes()))
    index = data.draw(basic_indices(shape))
    assert np.array_equal(tensor[index], (values.astype(np.float32) * 2)[index])


def test_blocks_are_the_tensor_in_order():
    for dtype in ("f32", "i4", "u1", "bool", "f6_e2m3"):
        values = sample_values(dtype, (33, 7))
        tensor, source = recorded(values, dtype)
        for count in (1, 8, 13, 64, 1 << 20):
            flat = b"".join(block.tobytes() for block in tensor.blocks(count))
            assert flat == values.tobytes(), (dtype, count)
        assert not list(recorded(sample_values(dtype, (0, 3)), dtype)[0].blocks())
        assert source.reads
