import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdall.binary.crc32 import crc32_combine
from holdall.source.digests import new_hash
from holdall.testing import run_isolated


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_combined_checksums_are_those_of_the_whole(first, second):
    assert crc32_combine(zlib.crc32(first), zlib.crc32(second), len(second)) == zlib.crc32(first + second)


@pytest.mark.parametrize("length", [0, 1, 7, 8, 4095, 4096, 1 << 20, (1 << 20) + 13])
def test_long_second_parts(length):
    second = b"\x5a" * length
    assert crc32_combine(zlib.crc32(b"head"), zlib.crc32(second), length) == zlib.crc32(b"head" + second)


def test_lengths_that_no_buffer_has():
    """Appending n zero bytes twice is appending 2n, also far beyond memory."""
    start = zlib.crc32(b"x")
    once = crc32_combine(start, 0, 1 << 40)
    assert crc32_combine(once, 0, 1 << 40) == crc32_combine(start, 0, 1 << 41)


def test_hashing_on_all_cores_survives_a_fork():
    """The threads of a parent do not exist in its child, which would wait for them for ever."""

    def digest():
        running = new_hash("blake3")
        running.update(bytes(8 << 20))
        return running.digest()

    assert run_isolated(digest, seconds=20) == digest() == run_isolated(digest, seconds=20)
