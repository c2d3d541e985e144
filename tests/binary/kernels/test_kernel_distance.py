"""How far two arrays are apart: the kernel and its twin, to the bit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from holdall.binary import kernels
from holdall.binary.kernels import reference

PAIRS = st.integers(0, 70).flatmap(
    lambda n: st.tuples(*[arrays(np.float32, n, elements=st.floats(width=32)) for _ in "ab"])
)


@given(PAIRS)
def test_the_twin_agrees_to_the_bit(pair: tuple[np.ndarray, np.ndarray]) -> None:
    a, b = pair
    for left, right in ((a, b), (a, a), (b, np.roll(b, 1))):
        assert kernels.distance(left, right) == reference.distance(left, right)


def test_known_distances() -> None:
    a = np.array([1, 2, np.nan, np.inf, np.inf, -0.0, 3], np.float32)
    b = np.array([1, 4, np.nan, np.inf, 0, 0.0, np.nan], np.float32)
    assert kernels.distance(a, b) == (3, 2, 2.0, 4.0, 5.0, 17.0, 9.0)


@pytest.mark.parametrize("implementation", [kernels.distance, reference.distance])
def test_every_addition_is_rounded(implementation: object) -> None:
    a = np.array([1e8, 1, 1], np.float32)
    assert implementation(a, np.zeros(3, np.float32))[3] == 1e16  # type: ignore[operator]  # and not 1e16 + 2


def test_large_arrays_agree_with_numpy() -> None:
    random = np.random.default_rng(0)
    a, b = random.standard_normal((2, 100_003)).astype(np.float32)
    different, wild, largest, squares, left, right, product = kernels.distance(a, b)
    x, y = a.astype(np.float64), b.astype(np.float64)
    assert (different, wild, largest) == (100_003, 0, np.abs(x - y).max())
    for got, want in zip((squares, left, right, product), ((x - y) @ (x - y), x @ x, y @ y, x @ y), strict=True):
        assert math.isclose(got, want, rel_tol=1e-12)


@pytest.mark.parametrize("implementation", [kernels.distance, reference.distance])
def test_sizes_that_differ_are_refused(implementation: object) -> None:
    with pytest.raises(ValueError, match="one size"):
        implementation(bytes(8), bytes(4))  # type: ignore[operator]
    with pytest.raises(ValueError, match="one size"):
        implementation(bytes(3), bytes(3))  # type: ignore[operator]


@pytest.mark.parametrize("implementation", [kernels.equal, reference.equal])
@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 4096, 100_003])
def test_equal_notices_every_byte(implementation: object, size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    assert implementation(data, data.copy()) is True  # type: ignore[operator]
    assert implementation(data, bytes(size + 1)) is False  # type: ignore[operator]
    for at in {0, size // 2, size - 1} if size else ():
        other = data.copy()
        other[at] ^= 1
        assert implementation(data, other) is False  # type: ignore[operator]
