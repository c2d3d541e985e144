"""How far two arrays are apart: the kernel and its twin, to the bit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from holdall import kernels
from holdall.kernels import reference

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
