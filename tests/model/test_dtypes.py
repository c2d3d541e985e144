import importlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdall.binary import kernels
from holdall.binary.kernels import reference
from holdall.errors import ContentError, UnsupportedError
from holdall.model.dtypes import DTYPES, dtype_of, find_dtype
from holdall.testing import sample_values

KERNELS = ["native", "reference"]


@pytest.fixture(params=KERNELS)
def engine(request, monkeypatch):
    if request.param == "native" and not kernels.NATIVE:
        pytest.skip("the C kernels are not compiled")
    if request.param == "reference":
        for name in ("pack", "unpack", "narrow", "widen"):
            monkeypatch.setattr(kernels, name, getattr(reference, name))


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (3, 5), (2, 0, 3), (4, 4, 4)])
def test_what_is_encoded_is_decoded(engine, name, shape):
    dtype = DTYPES[name]
    values = sample_values(name, shape)
    before = values.tobytes()
    stored = dtype.encode(values)
    assert len(stored) == dtype.nbytes(shape)
    assert values.tobytes() == before
    back = dtype.decode(memoryview(bytes(stored)), shape)
    assert (back.dtype, back.shape) == (dtype.numpy, tuple(shape))
    assert back.tobytes() == values.tobytes()
    if back.flags.writeable and back.size:
        back[...] = np.ones((), back.dtype)
        assert dtype.decode(memoryview(bytes(stored)), shape).tobytes() == before


@pytest.mark.parametrize("name", [name for name, dtype in DTYPES.items() if dtype.packed])
def test_packed_codes_of_every_value_at_every_place(engine, name):
    """All bit patterns, decoded from every bit offset, are the same numbers; unused bits are written as 0."""
    dtype = DTYPES[name]
    codes = np.arange(1 << dtype.bits, dtype=np.uint8)
    stream = np.tile(codes, 16)
    bits = np.unpackbits(stream[:, None], axis=1, bitorder="little")[:, : dtype.bits]
    packed = np.packbits(bits.reshape(-1), bitorder="little").tobytes()
    everything = dtype.decode(memoryview(packed), (stream.size,))
    for first in range(20):
        part = dtype.decode_flat(memoryview(packed), first, 9)
        assert part.tobytes() == everything[first : first + 9].tobytes()
    legal = everything if name != "t2" else everything[everything != -2]
    stored = dtype.encode(legal[:3])
    assert bytes(stored)[-1] >> (3 * dtype.bits % 8 or 8) == 0


def test_ml_floats_are_those_of_ml_dtypes():
    for name, dtype in DTYPES.items():
        if dtype.numpy_name.startswith("ml:") and dtype.bits == 8:
            module = importlib.import_module("ml_dtypes")
            every = np.arange(256, dtype=np.uint8)
            expected = every.view(getattr(module, dtype.numpy_name[3:]))
            assert dtype.decode(memoryview(every.tobytes()), (256,)).tobytes() == expected.tobytes(), name


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("i8", [128]), ("i8", [-129]), ("u8", [-1]), ("u8", [256]), ("i4", [8]), ("i4", [-9]), ("u4", [16]),
        ("i1", [1]), ("u2", [4]), ("t2", [-2]), ("t2", [2]), ("t1", [0]), ("t1", [1, 0]), ("bool", [2]), ("bool", [-1]),
        ("i32", [0.5]), ("i32", [np.nan]), ("i64", [np.inf]), ("i64", [2.0**63]), ("u64", [-1]), ("u64", [2.0**64]),
        ("bool", [0.5]), ("i64", np.array([2**63], np.uint64)), ("f32", [1j]), ("i8", [1j]), ("bool", [1 + 0j]),
        ("f32", ["a"]), ("i8", ["1"]), ("i8", [None]), ("f4_e2m1", [np.nan]), ("f6_e2m3", [np.inf]),
        ("f32", np.array(["2020-01-01"], "M8[D]")),
    ],
)  # fmt: skip
def test_values_that_would_change_are_refused(name, values):
    with pytest.raises(ContentError):
        find_dtype(name).encode(np.asarray(values))


@pytest.mark.parametrize(
    ("name", "values"),
    [("i8", [127.0, -128.0]), ("u64", [0.0, 2.0**63]), ("i64", [-(2.0**63)]), ("bool", [1.0, 0.0]),
     ("u1", [True, False]), ("t1", [-1, 1]), ("i4", np.array([-8, 7], ">i8")), ("u8", np.zeros(0)),
     ("bf16", [1, 2, 3]), ("c64", [1.5 + 0j])],
)  # fmt: skip
def test_whole_numbers_fit_whatever_their_type(name, values):
    array = np.asarray(values)
    back = find_dtype(name).decode(find_dtype(name).encode(array), array.shape)
    assert np.array_equal(back.astype(array.dtype), array)


def test_floats_are_rounded_to_nearest_even(engine):
    for name in ("bf16", "f16", "f8_e4m3", "f8_e5m2"):
        values = np.random.default_rng(1).standard_normal(1000).astype(np.float32)
        stored = DTYPES[name].decode(DTYPES[name].encode(values), (1000,))
        assert stored.tobytes() == values.astype(DTYPES[name].numpy).tobytes()


@pytest.mark.parametrize("kind", ["f4", "f8", "f2", "i2", "i4", "i8", "u2", "u4", "u8", "c8", "c16"])
def test_byte_order_and_strides_do_not_matter(kind):
    grid = np.arange(24).reshape(4, 6)
    plain = grid.astype("<" + kind)
    dtype = dtype_of(plain)
    expected = bytes(dtype.encode(plain))
    assert dtype_of(grid.astype(">" + kind)) is dtype
    assert bytes(dtype.encode(grid.astype(">" + kind))) == expected
    assert bytes(dtype.encode(np.asfortranarray(plain))) == expected
    wide = np.zeros((8, 12), "<" + kind)
    wide[::2, ::2] = plain
    assert bytes(dtype.encode(wide[::2, ::2])) == expected
    assert bytes(dtype.encode(plain[::-1])) == bytes(dtype.encode(plain[::-1].copy()))


@given(st.sampled_from(["f32", "f64", "i64", "c128", "bf16"]), st.integers(0, 15))
def test_payloads_at_odd_addresses(name, shift):
    values = sample_values(name, (5, 3))
    data = memoryview(bytes(shift) + values.tobytes())[shift:]
    back = DTYPES[name].decode(data, (5, 3))
    assert back.tobytes() == values.tobytes()
    assert back.flags.aligned
    assert not back.flags.writeable


def test_bytes_above_one_are_true():
    back = DTYPES["bool"].decode(memoryview(b"\0\1\2\xff"), (4,))
    assert back.view(np.uint8).tolist() == [0, 1, 1, 1]


def test_sizes_are_exact():
    assert DTYPES["i4"].nbytes((3, 3)) == 5
    assert DTYPES["f6_e2m3"].nbytes((3,)) == 3
    assert DTYPES["f64"].nbytes((2**40, 2**40)) == 2**83
    assert DTYPES["u1"].nbytes(()) == 1
    assert DTYPES["u1"].nbytes((0, 9)) == 0


def test_names():
    assert str(find_dtype("bf16")) == "bf16"
    assert find_dtype(find_dtype("i4")) is find_dtype("i4")
    with pytest.raises(UnsupportedError, match="no dtype 'float32'"):
        find_dtype("float32")
    for array in (
        np.array(["a"]),
        np.array([None]),
        np.zeros(1, "M8[s]"),
        np.zeros(1, np.longdouble),
        np.zeros(1, "V3"),
    ):
        with pytest.raises(ContentError, match="cannot be stored"):
            dtype_of(array)
    assert str(dtype_of(np.zeros(1, np.uint8))) == "u8"
    assert str(dtype_of(np.zeros(1, bool))) == "bool"
