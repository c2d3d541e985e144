"""What numbers are like: the kernels and their twins to the bit, and both against exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from holdall.binary import kernels
from holdall.binary.kernels import measure_reference as reference

KINDS = {"f32": "<f4", "f64": "<f8", "i32": "<i4", "u32": "<u4", "i64": "<i8", "u64": "<u8"}
BOTH = pytest.mark.parametrize("implementation", [kernels, reference], ids=["kernel", "twin"])
SPECIAL = [0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1e-45, -1e-45, 3.4e38, -3.4e38, 1.0, 1 + 2**-23]


def first_of(values: np.ndarray) -> np.ndarray:
    """The origin: the first element, or zero."""
    usable = values.size and np.isfinite(values[0])
    return values[:1] if usable else np.zeros(1, values.dtype)


def make_values(kind: str, form: str, count: int) -> np.ndarray:
    random = np.random.default_rng([len(form), count, *kind.encode()])
    dtype = np.dtype(KINDS[kind])
    if form == "every pattern of bits":
        return random.integers(0, 256, count * dtype.itemsize, np.uint8).view(dtype)
    if form == "special":
        with np.errstate(invalid="ignore"):
            return random.choice(SPECIAL, count).astype(dtype)
    if form == "constant":
        return np.full(count, 7, dtype)
    if form == "large offset":
        return (random.standard_normal(count) * 50 + 10**6).astype(dtype)
    if form == "extremes" and dtype.kind != "f":
        return random.choice(np.array([np.iinfo(dtype).min, np.iinfo(dtype).max, 0, 1], dtype), count)
    return (random.standard_normal(count) * 1000).astype(np.int64).astype(dtype)


FORMS = ["every pattern of bits", "special", "constant", "large offset", "extremes", "normal"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_twin_agrees_to_the_bit(kind: str, form: str) -> None:
    for count in (0, 1, 7, 8, 9, 1023, 1024, 1025, 5000):
        values = make_values(kind, form, count)
        tables = np.zeros((2, reference.CODES), np.uint64)
        with np.errstate(all="ignore"):
            one, other = (
                module.measure(kind, values, first_of(values), 1.0, table)
                for module, table in zip((kernels, reference), tables, strict=True)
            )
        assert repr(one) == repr(other)  # also the sign of a zero, and two NaNs
        assert np.array_equal(*tables)
        assert tables[0].sum() == one[0]
        with np.errstate(all="ignore"):
            assert repr(kernels.measure(kind, values, first_of(values), 1.0, bytearray())) == repr(one)


@settings(max_examples=200, deadline=None)
@given(
    values=st.sampled_from(list(KINDS.values())).flatmap(lambda kind: arrays(kind, st.integers(0, 60))),
    shift=st.sampled_from([-300, 0, 5]),
)
def test_every_value_of_every_kind(values: np.ndarray, shift: int) -> None:
    kind = next(kind for kind, name in KINDS.items() if np.dtype(name) == values.dtype)
    for module in (kernels, reference):
        tables = np.zeros(reference.CODES, np.uint64)
        with np.errstate(all="ignore"):
            found = module.measure(kind, values, first_of(values), 2.0**shift, tables)
        finite = values[np.isfinite(values)]
        assert found[:2] == (finite.size, np.isnan(values).sum())
        assert found[2:4] == (np.isinf(values).sum(), (values == 0).sum())
        assert found[4:6] == ((finite.min().item(), finite.max().item()) if finite.size else (None, None))


@BOTH
@pytest.mark.parametrize("form", ["large offset", "normal", "extremes"])
@pytest.mark.parametrize("kind", KINDS)
def test_moments_against_exact_arithmetic(implementation, kind: str, form: str) -> None:
    values = make_values(kind, form, 3001)
    origin = first_of(values)
    count, *_, mean, spread = implementation.measure(kind, values, origin, 1.0, bytearray())
    exact = [Fraction(value) - Fraction(origin[0].item()) for value in values.tolist()]
    middle = sum(exact) / count
    squares = sum((value - middle) ** 2 for value in exact)
    assert abs(Fraction(mean) - middle) <= max(map(abs, exact)) / 10**14
    assert math.isclose(spread, squares, rel_tol=1e-11)


@BOTH
def test_codes_keep_the_order_of_distances(implementation) -> None:
    """A code tells the distance to 1 in 128, and never confuses two sides of a border."""
    values = np.sort(np.random.default_rng(2).standard_normal(20_000).astype(np.float32)).astype("<f4")
    origin = values[5000:5001]
    places = []
    for value in values[::50]:
        table = np.zeros(reference.CODES, np.uint64)
        implementation.measure("f32", np.array([value]), origin, 1.0, table)
        code = int(table.argmax())
        places.append(-(code & 0x7FFF) if code & 0x8000 else code)
    assert places == sorted(places)
    assert len(set(places)) > 200


@BOTH
@pytest.mark.parametrize("width", [1, 2])
def test_codes_are_counted(implementation, width: int) -> None:
    random = np.random.default_rng(width)
    for codes in (random.integers(0, 1 << 8 * width, 100_003), random.integers(0, 3, 10_001), np.zeros(999), [], [5]):
        codes = np.asarray(codes).astype(f"<u{width}")
        counts = np.full(1 << 8 * width, 3, np.uint64)
        implementation.count_codes(codes, width, counts)
        assert np.array_equal(counts - np.uint64(3), np.bincount(codes, minlength=counts.size))


@BOTH
@pytest.mark.parametrize("kind", KINDS)
def test_elements_are_compared_with_borders(implementation, kind: str) -> None:
    for form in FORMS:
        values = make_values(kind, form, 3001)
        borders = values[:20]
        counts = np.full(borders.size, 2, np.uint64)
        implementation.count_reached(kind, values, borders, counts)
        assert (counts - np.uint64(2)).tolist() == [int((values >= border).sum()) for border in borders]


@BOTH
def test_words_that_repeat_are_all_counted(implementation) -> None:
    codes = np.array([1, 2, 3, 4] * 7 + [1, 2, 3, 5] * 2 + [9, 9, 9], "<u2")
    counts = np.zeros(reference.CODES, np.uint64)
    implementation.count_codes(codes, 2, counts)
    assert {code: int(counts[code]) for code in counts.nonzero()[0]} == {1: 9, 2: 9, 3: 9, 4: 7, 5: 2, 9: 3}


@BOTH
def test_what_does_not_fit_is_refused(implementation) -> None:
    for arguments, message in [
        (("f16", b"", b"", 1.0, bytearray()), "no kind 'f16' is measured"),
        (("f32", bytes(6), bytes(4), 1.0, bytearray()), "6 bytes and an origin of 4 are not elements of 4 bytes"),
        (("u64", bytes(8), bytes(4), 1.0, bytearray()), "8 bytes and an origin of 4 are not elements of 8 bytes"),
        (("f32", bytes(4), bytes(4), 1.0, bytearray(8)), "65536 counts need 524288 bytes, not 8"),
        (("f64", bytes(8), b"\xff" * 8, 1.0, bytearray()), "an origin must be finite"),
    ]:
        with pytest.raises(ValueError, match=message):
            implementation.measure(*arguments)
    for arguments, message in [
        ((bytes(3), 2, bytearray(8 << 16)), "3 bytes are not codes of 2 bytes, which may be 1 or 2"),
        ((bytes(3), 3, bytearray(8 << 16)), "3 bytes are not codes of 3 bytes, which may be 1 or 2"),
        ((bytes(3), 1, bytearray(8)), "256 counts need 2048 bytes, not 8"),
    ]:
        with pytest.raises(ValueError, match=message):
            implementation.count_codes(*arguments)
    for arguments, message in [
        (("f8", b"", b"", bytearray()), "no kind 'f8' is measured"),
        (("f32", bytes(4), bytes(3), bytearray()), "4 bytes and borders of 3 are not elements of 4 bytes"),
        (("f64", bytes(8), bytes(8), bytearray(4)), "1 counts need 8 bytes, not 4"),
    ]:
        with pytest.raises(ValueError, match=message):
            implementation.count_reached(*arguments)
    with pytest.raises(TypeError):
        implementation.count_codes(bytes(3), 1, bytes(2048))
