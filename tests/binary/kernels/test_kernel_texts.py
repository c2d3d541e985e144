import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st


def decode(kernels, pieces):
    lengths = np.array([len(piece) for piece in pieces], np.uint64)
    positions = np.cumsum(lengths, dtype=np.uint64) - lengths
    return kernels.texts(b"".join(pieces), positions, lengths)


def test_texts(kernels):
    names = ["w1", "", "größe", "重み", "🦉", "a" * 1000, "nul\0inside"]
    assert decode(kernels, [name.encode() for name in names]) == (names, -1)
    assert decode(kernels, []) == ([], -1)


@pytest.mark.parametrize(
    "bad",
    [b"\xff", b"\x80", b"\xc3", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"aaaaaaaaaaaaaaaa\xe9"],
    ids=["byte", "continuation", "cut", "overlong", "surrogate", "too-high", "latin-1"],
)
def test_the_first_invalid_text_is_named(kernels, bad):
    assert decode(kernels, [b"a", b"b", bad, b"c", bad]) == (["a", "b"], 2)
    assert decode(kernels, [bad]) == ([], 0)


@pytest.mark.parametrize(
    ("position", "length"), [(0, 5), (5, 0), (4, 1), (2**64 - 1, 2), (1, 2**64 - 1), (2**63, 0), (0, 2**63)]
)
def test_a_text_out_of_bounds_is_refused(kernels, position, length):
    with pytest.raises(ValueError, match="text 1"):
        kernels.texts(b"abcd", np.array([4, position], np.uint64), np.array([0, length], np.uint64))


@pytest.mark.parametrize(("positions", "lengths"), [(8, 16), (16, 8), (7, 7), (8, 0)])
def test_columns_that_do_not_match_are_refused(kernels, positions, lengths):
    with pytest.raises(ValueError, match="uint64"):
        kernels.texts(b"", bytes(positions), bytes(lengths))


@given(pieces=st.lists(st.binary(max_size=6) | st.text(max_size=6).map(str.encode), max_size=8))
def test_twins_agree(twins, pieces):
    reference, native = (decode(kernels, pieces) for kernels in twins)
    assert reference == native
