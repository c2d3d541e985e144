import numpy as np
import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from holdall.binary.kernels import hashes

# Around the block (64), the chunk (1024) and the first levels of the tree.
LENGTHS = [0, 1, 63, 64, 65, 128, 1023, 1024, 1025, 2048, 2049, 3072, 3073, 4096, 5000, 7169, 70001]


def hash_all(kernels, kernel, pieces):
    lengths = np.array([len(piece) for piece in pieces], np.uint64)
    positions = np.cumsum(lengths, dtype=np.uint64) - lengths
    width = {"fnv1a": 4, "blake3_16": 16}[kernel]
    out = bytearray(width * len(pieces))
    getattr(kernels, kernel)(b"".join(pieces), positions, lengths, out)
    return [bytes(out[at : at + width]) for at in range(0, len(out), width)]


def test_fnv1a(kernels):
    found = hash_all(kernels, "fnv1a", [b"", b"a", b"foobar", b"costarring", b"liquid"])
    assert [int.from_bytes(value, "little") for value in found[:3]] == [0x811C9DC5, 0xE40C292C, 0xBF9CF968]
    assert found[3] == found[4]


def test_blake3():
    pieces = [bytes(k % 251 for k in range(length)) for length in LENGTHS]
    assert hash_all(hashes, "blake3_16", pieces) == [blake3(piece).digest(16) for piece in pieces]


@pytest.fixture(params=["blake3_16", "fnv1a", "native fnv1a"])
def kernel(request):
    if request.param != "native fnv1a":
        return getattr(hashes, request.param)
    return pytest.importorskip("holdall.binary.kernels._native", reason="the C kernels are not compiled").fnv1a


def test_a_piece_out_of_bounds_is_refused(kernel):
    out = bytearray(32 if kernel is hashes.blake3_16 else 8)
    for position, length in [(0, 5), (5, 0), (4, 1), (2**64 - 1, 2), (1, 2**64 - 1), (2**63, 0)]:
        columns = np.array([4, position], np.uint64), np.array([0, length], np.uint64)
        with pytest.raises(ValueError, match="text 1"):
            kernel(b"abcd", *columns, out)


def test_columns_that_do_not_match_are_refused(kernel):
    with pytest.raises(ValueError, match="uint64"):
        kernel(b"", bytes(8), bytes(16), bytearray(16))
    with pytest.raises(ValueError, match="bytes each"):
        kernel(b"", bytes(8), bytes(8), bytearray(5))
    with pytest.raises((TypeError, BufferError)):
        kernel(b"", bytes(0), bytes(0), b"")


@given(pieces=st.lists(st.binary(max_size=70), max_size=20))
def test_twins_agree(twins, pieces):
    reference, native = (hash_all(kernels, "fnv1a", pieces) for kernels in twins)
    assert reference == native


def test_hashes_are_not_written_over_what_says_where_to_read(twins):
    """The places are checked before the first hash is written; written over, they would be read unchecked."""
    _, native = twins
    shared, apart = np.zeros(64, np.uint8), np.zeros(32, np.uint8)
    out = shared[:16]
    for positions, lengths in ((shared[8:40], apart), (apart, shared[8:40])):
        with pytest.raises(ValueError, match="over positions or lengths"):
            native.fnv1a(bytes(8), positions, lengths, out)
    native.fnv1a(bytes(8), apart, apart, out)
