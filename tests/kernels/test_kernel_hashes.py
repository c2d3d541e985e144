import numpy as np
import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

# Around the block (64), the chunk (1024) and the first levels of the tree.
LENGTHS = [0, 1, 63, 64, 65, 128, 1023, 1024, 1025, 2048, 2049, 3072, 3073, 4096, 5000, 7169, 70001]


def hashes(kernels, kernel, pieces):
    lengths = np.array([len(piece) for piece in pieces], np.uint64)
    positions = np.cumsum(lengths, dtype=np.uint64) - lengths
    width = {"fnv1a": 4, "blake3_16": 16}[kernel]
    out = bytearray(width * len(pieces))
    getattr(kernels, kernel)(b"".join(pieces), positions, lengths, out)
    return [bytes(out[at : at + width]) for at in range(0, len(out), width)]


def test_fnv1a(kernels):
    found = hashes(kernels, "fnv1a", [b"", b"a", b"foobar", b"costarring", b"liquid"])
    assert [int.from_bytes(value, "little") for value in found[:3]] == [0x811C9DC5, 0xE40C292C, 0xBF9CF968]
    assert found[3] == found[4]


def test_blake3(kernels):
    pieces = [bytes(k % 251 for k in range(length)) for length in LENGTHS]
    assert hashes(kernels, "blake3_16", pieces) == [blake3(piece).digest(16) for piece in pieces]


@pytest.mark.parametrize("kernel", ["fnv1a", "blake3_16"])
def test_a_piece_out_of_bounds_is_refused(kernels, kernel):
    out = bytearray({"fnv1a": 8, "blake3_16": 32}[kernel])
    for position, length in [(0, 5), (5, 0), (4, 1), (2**64 - 1, 2), (1, 2**64 - 1), (2**63, 0)]:
        columns = np.array([4, position], np.uint64), np.array([0, length], np.uint64)
        with pytest.raises(ValueError, match="text 1"):
            getattr(kernels, kernel)(b"abcd", *columns, out)


@pytest.mark.parametrize("kernel", ["fnv1a", "blake3_16"])
def test_columns_that_do_not_match_are_refused(kernels, kernel):
    run = getattr(kernels, kernel)
    with pytest.raises(ValueError, match="uint64"):
        run(b"", bytes(8), bytes(16), bytearray(16))
    with pytest.raises(ValueError, match="bytes each"):
        run(b"", bytes(8), bytes(8), bytearray(5))
    with pytest.raises((TypeError, BufferError)):
        run(b"", bytes(0), bytes(0), b"")


@pytest.mark.parametrize("kernel", ["fnv1a", "blake3_16"])
@given(pieces=st.lists(st.binary(max_size=70), max_size=20))
def test_twins_agree(twins, kernel, pieces):
    reference, native = (hashes(kernels, kernel, pieces) for kernels in twins)
    assert reference == native


@pytest.mark.parametrize(("name", "width"), [("fnv1a", 4), ("blake3_16", 16)])
def test_hashes_are_not_written_over_what_says_where_to_read(twins, name, width):
    """The places are proven before the first hash is written; written over, they would be read unproven."""
    _, native = twins
    shared, apart = np.zeros(64, np.uint8), np.zeros(32, np.uint8)
    out = shared[: 4 * width]
    for positions, lengths in ((shared[8:40], apart), (apart, shared[8:40])):
        with pytest.raises(ValueError, match="over positions or lengths"):
            getattr(native, name)(bytes(8), positions, lengths, out)
    getattr(native, name)(bytes(8), apart, apart, out)
