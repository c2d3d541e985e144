import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

BITS = [1, 2, 3, 4, 6]
UNSIGNED, TWOS_COMPLEMENT, SIGN_BIT = range(3)
CANARY = 0x5A


def unpack(kernels, data, bit_offset, bits, count, kind):
    """The values; the bytes around `out` must stay."""
    guarded = np.full(count + 16, CANARY, np.uint8)
    kernels.unpack(data, bit_offset, bits, count, kind, guarded[8 : 8 + count])
    assert (guarded[:8] == CANARY).all()
    assert (guarded[8 + count :] == CANARY).all()
    return guarded[8 : 8 + count].view(np.int8).tolist()


def pack(kernels, codes, bits):
    size = (len(codes) * bits + 7) // 8
    guarded = np.full(size + 16, CANARY, np.uint8)
    kernels.pack(codes, bits, guarded[8 : 8 + size])
    assert (guarded[:8] == CANARY).all()
    assert (guarded[8 + size :] == CANARY).all()
    return guarded[8 : 8 + size].tobytes()


def value(data, at, bits, kind):
    """One element, straight from the definition."""
    code = int.from_bytes(data, "little") >> at & ((1 << bits) - 1)
    if kind == SIGN_BIT:
        return 2 * code - 1
    return code - (1 << bits) if kind == TWOS_COMPLEMENT and code >> (bits - 1) else code


@settings(max_examples=300)
@given(
    data=st.binary(max_size=60),
    bit_offset=st.integers(0, 40),
    layout=st.sampled_from([(bits, kind) for bits in BITS for kind in (0, 1)] + [(1, SIGN_BIT)]),
)
def test_unpack_by_definition(kernels, data, bit_offset, layout):
    bits, kind = layout
    count = max(0, len(data) * 8 - bit_offset) // bits
    expected = [value(data, bit_offset + i * bits, bits, kind) for i in range(count)]
    assert unpack(kernels, data, min(bit_offset, len(data) * 8), bits, count, kind) == expected


@settings(max_examples=300)
@given(codes=st.binary(max_size=100), bits=st.sampled_from(BITS))
def test_pack_by_definition(kernels, codes, bits):
    stream = sum((code & ((1 << bits) - 1)) << i * bits for i, code in enumerate(codes))
    assert pack(kernels, codes, bits) == stream.to_bytes((len(codes) * bits + 7) // 8, "little")


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 1000, 65535, 65536, 65537, 200_003])
@pytest.mark.parametrize("bits", BITS)
def test_twins_agree_on_long_streams(twins, bits, count):
    random = np.random.default_rng(count)
    codes = random.integers(0, 256, count, np.uint8)
    reference, native = (pack(kernels, codes, bits) for kernels in twins)
    assert reference == native
    for bit_offset in (0, 3, 8, 23):
        data = random.integers(0, 256, (bit_offset + count * bits + 7) // 8, np.uint8)
        reference, native = (unpack(kernels, data, bit_offset, bits, count, TWOS_COMPLEMENT) for kernels in twins)
        assert reference == native


@pytest.mark.parametrize(
    ("size", "bit_offset", "bits", "count", "kind", "out"),
    [
        (4, 0, 4, 9, 0, 9),
        (4, 1, 4, 8, 0, 8),
        (4, 33, 4, 0, 0, 0),
        (4, 0, 4, 8, 0, 7),
        (4, 0, 4, 8, 0, 9),
        (4, 0, 5, 1, 0, 1),
        (4, 0, 8, 1, 0, 1),
        (4, 0, 0, 1, 0, 1),
        (4, 0, -1, 1, 0, 1),
        (4, 0, 2**40, 1, 0, 1),
        (4, 0, 4, 1, 2, 1),
        (4, 0, 4, 1, 3, 1),
        (4, 0, 4, 1, -1, 1),
        (4, -1, 4, 1, 0, 1),
        (4, 2**63 - 1, 6, 1, 0, 1),
        (4, 2**64, 4, 1, 0, 1),
        (4, 0, 4, -1, 0, 1),
        (4, 0, 6, 2**62, 0, 1),
        (0, 0, 1, 1, 0, 1),
    ],
)
def test_unpack_out_of_bounds_is_refused(kernels, size, bit_offset, bits, count, kind, out):
    with pytest.raises(ValueError):
        kernels.unpack(bytes(size), bit_offset, bits, count, kind, bytearray(out))


@pytest.mark.parametrize(
    ("count", "bits", "out"), [(9, 4, 4), (8, 4, 5), (1, 5, 1), (1, 0, 0), (1, 2**40, 1), (0, 1, 1)]
)
def test_pack_out_of_bounds_is_refused(kernels, count, bits, out):
    with pytest.raises(ValueError):
        kernels.pack(bytes(count), bits, bytearray(out))


def test_a_read_only_or_strided_out_is_refused(kernels):
    for out in (bytes(4), memoryview(bytearray(8))[::2], np.zeros(8, np.uint8)[::2]):
        with pytest.raises(TypeError):
            kernels.unpack(bytes(4), 0, 1, 4, 0, out)
        with pytest.raises(TypeError):
            kernels.pack(bytes(32), 1, out)
