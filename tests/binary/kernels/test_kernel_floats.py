import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

TYPES = {
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "f8_e4m3": ml_dtypes.float8_e4m3fn,
    "f8_e5m2": ml_dtypes.float8_e5m2,
}
WIDTHS = {"bf16": 2, "f16": 2, "f8_e4m3": 1, "f8_e5m2": 1}

every_kind = pytest.mark.parametrize("kind", TYPES)


def all_codes(kind):
    return np.arange(1 << 8 * WIDTHS[kind], dtype=f"u{WIDTHS[kind]}")


def widen(kernels, kind, codes):
    out = np.empty(codes.size, np.float32)
    kernels.widen(kind, codes, out)
    return out


def narrow(kernels, kind, values):
    out = np.empty(values.size, f"u{WIDTHS[kind]}")
    kernels.narrow(kind, values, out)
    return out


def oracle(kind, values):
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(TYPES[kind]).view(f"u{WIDTHS[kind]}")


@every_kind
def test_widen_every_code(kernels, kind):
    codes = all_codes(kind)
    wide, expected = widen(kernels, kind, codes), codes.view(TYPES[kind]).astype(np.float32)
    nan = np.isnan(expected)
    assert (np.isnan(wide) == nan).all()
    assert (wide.view(np.uint32)[~nan] == expected.view(np.uint32)[~nan]).all()
    assert (np.signbit(wide) == np.signbit(expected)).all()


@every_kind
def test_narrowing_undoes_widening(kernels, kind):
    codes = all_codes(kind)
    wide = widen(kernels, kind, codes)
    finite = ~np.isnan(wide)
    assert (narrow(kernels, kind, wide)[finite] == codes[finite]).all()


@every_kind
def test_narrow_ties_and_their_neighbours(kernels, kind):
    """Halfway between every two adjacent codes, and one float32 step to either side."""
    numbers = widen(kernels, kind, all_codes(kind))
    # In float64, where the number after bf16's largest does not overflow.
    edges = np.unique(numbers[np.isfinite(numbers)].astype(np.float64))
    beyond = 2 * edges[-1] - edges[-2]  # what would follow the largest number decides where overflow starts
    points = np.concatenate([[-beyond], edges, [beyond]])
    middles = ((points[1:] + points[:-1]) / 2).astype(np.float32)
    values = np.concatenate(
        [middles, np.nextafter(middles, np.float32("inf")), np.nextafter(middles, -np.float32("inf"))]
    )
    assert (narrow(kernels, kind, values) == oracle(kind, values)).all()


@every_kind
def test_narrow_random_bits(kernels, kind):
    values = np.random.default_rng(7).integers(0, 1 << 32, 1 << 20, np.uint32).view(np.float32)
    nan = np.isnan(values)
    codes = narrow(kernels, kind, values)
    assert (codes[~nan] == oracle(kind, values)[~nan]).all()
    assert np.isnan(widen(kernels, kind, codes[nan])).all()


@every_kind
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_narrow_extremes(kernels, kind, sign):
    values = np.float32(sign) * np.array(
        [0, 1e-45, 1e-38, 448, 464, 464.1, 480, 57344, 61440, 65504, 65520, 3.4e38, np.inf], "f4"
    )
    assert narrow(kernels, kind, values).tolist() == oracle(kind, values).tolist()


@pytest.mark.parametrize(
    ("kind", "bits", "code"),
    [
        ("bf16", 0x7FC00000, 0x7FC0),
        ("bf16", 0x7F800001, 0x7FC0),
        ("bf16", 0xFFA50000, 0xFFE5),
        ("f16", 0x7FC00000, 0x7E00),
        ("f16", 0x7F800001, 0x7E00),
        ("f16", 0xFFA02000, 0xFF01),
        ("f16", 0x7FFFFFFF, 0x7FFF),
        ("f8_e5m2", 0x7F800001, 0x7E),
        ("f8_e5m2", 0xFFFFFFFF, 0xFE),
        ("f8_e4m3", 0x7F800001, 0x7F),
        ("f8_e4m3", 0xFFC00000, 0xFF),
    ],
)
def test_nan_keeps_its_sign_and_turns_quiet(kernels, kind, bits, code):
    assert narrow(kernels, kind, np.array([bits], np.uint32)).tolist() == [code]


@every_kind
def test_twins_agree_to_the_bit(twins, kind):
    reference, native = (widen(kernels, kind, all_codes(kind)).view(np.uint32) for kernels in twins)
    assert (reference == native).all()
    # Every sign, exponent and pattern around the bits that round, NaNs included.
    tails = np.array([0, 1, 0x7FF, 0x800, 0x801, 0xFFF], np.uint32)
    bits = (np.arange(1 << 20, dtype=np.uint32)[:, None] << 12 | tails).ravel()
    reference, native = (narrow(kernels, kind, bits) for kernels in twins)
    assert (reference == native).all()


@every_kind
@given(bits=st.lists(st.integers(0, 2**32 - 1), max_size=70))
def test_twins_agree_on_any_length(twins, kind, bits):
    values = np.array(bits, np.uint32)
    reference, native = (narrow(kernels, kind, values) for kernels in twins)
    assert reference.tolist() == native.tolist()
    reference, native = (widen(kernels, kind, reference).view(np.uint32) for kernels in twins)
    assert reference.tolist() == native.tolist()


@every_kind
def test_buffers_at_odd_addresses(kernels, kind):
    codes = np.arange(1, 1 + 40 * WIDTHS[kind], dtype=np.uint8)
    shifted, wide = memoryview(b"x" + codes.tobytes())[1:], bytearray(161)
    kernels.widen(kind, shifted, memoryview(wide)[1:])
    assert wide[1:] == widen(kernels, kind, codes.view(f"u{WIDTHS[kind]}")).tobytes()
    back = bytearray(1 + codes.size)
    kernels.narrow(kind, memoryview(wide)[1:], memoryview(back)[1:])
    assert back[1:] == codes.tobytes()


@pytest.mark.parametrize(
    ("kind", "small", "wide"),
    [("f16", 2, 8), ("f16", 3, 4), ("f16", 4, 4), ("bf16", 2, 3), ("f8_e4m3", 1, 5), ("f8_e5m2", 2, 4), ("f32", 4, 4)],
)
def test_sizes_that_do_not_match_are_refused(kernels, kind, small, wide):
    with pytest.raises(ValueError):
        kernels.widen(kind, bytes(small), bytearray(wide))
    with pytest.raises(ValueError):
        kernels.narrow(kind, bytes(wide), bytearray(small))


def test_a_read_only_out_is_refused(kernels):
    with pytest.raises(TypeError):
        kernels.widen("f16", bytes(2), bytes(4))
    with pytest.raises(TypeError):
        kernels.narrow("f16", bytes(4), bytes(2))


@pytest.mark.parametrize("kind", [*TYPES, "f32"])
@pytest.mark.parametrize("count", [1, 2, 17, 1000, 70_001])
def test_extremes_are_those_of_numpy(kernels, kind, count):
    dtype = np.dtype(TYPES.get(kind, np.float32))
    values = np.random.default_rng(count).normal(0, 3, count).astype(dtype)
    wide = values.astype(np.float32)
    assert kernels.extremes(kind, values.view(np.uint8)) == (wide.min(), wide.max())
    odd = memoryview(b"x" + values.tobytes())[1:]  # at an odd address
    assert kernels.extremes(kind, odd) == (wide.min(), wide.max())


@every_kind
@pytest.mark.parametrize("at", [0, 501, 1000])
def test_extremes_show_every_value_that_is_not_finite(kernels, kind, at):
    codes = all_codes(kind)
    wild = codes[~np.isfinite(codes.view(TYPES[kind]).astype(np.float32))]
    for code in (*wild[:2], *wild[-2:], wild[wild.size // 2]):
        values = np.ones(1001, TYPES[kind]).view(codes.dtype)
        values[at] = code
        assert not np.isfinite(kernels.extremes(kind, values)).all()


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, -np.nan])
def test_extremes_show_infinities_and_nan_of_float32(kernels, value):
    assert not np.isfinite(kernels.extremes("f32", np.array([1, value, -1], np.float32))).all()


@pytest.mark.parametrize(("kind", "size"), [("f16", 3), ("f32", 6), ("f16", 0), ("f64", 8)])
def test_extremes_of_no_elements_are_refused(kernels, kind, size):
    with pytest.raises(ValueError):
        kernels.extremes(kind, bytes(size))
