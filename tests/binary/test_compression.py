"""Bounded zstd: exactly what was announced comes out, or a FrameError, and never more memory than that."""

import struct

import pytest
from blake3 import blake3

from holdall.binary.compression import (
    HELD,
    JOINED,
    FrameError,
    compress,
    compress_pieces,
    expand,
    expand_hashed,
    import_zstd,
)

zstd = import_zstd()
DATA = bytes(range(256)) * 400


def whole(stored, size, piece=1 << 16):
    return b"".join(expand([stored[at : at + piece] for at in range(0, len(stored), piece)], size))


@pytest.mark.parametrize("piece", [1, 7, 1 << 16])
def test_what_was_announced_comes_out(piece):
    assert whole(compress(DATA), len(DATA), piece) == DATA
    assert whole(compress(b""), 0, piece) == b""


@pytest.mark.parametrize("size", [0, 1000, JOINED, JOINED + 1])
def test_pieces_are_compressed_as_one_frame(size):
    data = (DATA * (size // len(DATA) + 1))[:size]
    asked = []

    def make():
        asked.append(True)
        return (data[at : at + 70_001] for at in range(0, size, 70_001))

    stored, counted, digest = compress_pieces(make)
    assert (counted, digest) == (size, blake3(data).digest())
    assert zstd.get_frame_info(stored).decompressed_size == size
    assert whole(stored, size) == data
    assert len(asked) == (1 if size <= JOINED else 2)
    if size <= JOINED:
        assert stored == compress(data)


def test_frames_without_a_size_or_with_a_checksum():
    parameter = zstd.CompressionParameter
    for options in ({parameter.content_size_flag: 0}, {parameter.checksum_flag: 1}):
        assert whole(zstd.compress(DATA, options=options), len(DATA)) == DATA


@pytest.mark.parametrize("by", [-1, 1, 5])
@pytest.mark.parametrize("sized", [0, 1])
def test_another_size_is_refused(by, sized):
    stored = zstd.compress(DATA, options={zstd.CompressionParameter.content_size_flag: sized})
    with pytest.raises(FrameError):
        whole(stored, len(DATA) + by)


def test_more_than_one_frame_is_refused():
    frame, skippable = compress(DATA), struct.pack("<II", 0x184D2A50, 4) + b"skip"
    for stored in (
        frame + frame,
        frame + skippable,
        skippable + frame,
        frame + b"\0",
        skippable,
        b"",
        b"\x28\xb5",
        frame[:-1],
    ):
        with pytest.raises(FrameError):
            whole(stored, len(DATA))


def test_dictionaries_and_large_windows_are_refused():
    dictionary = zstd.train_dict([DATA[at : at + 500] for at in range(0, 50_000, 300)], 1000)
    with pytest.raises(FrameError, match="dictionary"):
        whole(zstd.compress(DATA, zstd_dict=dictionary), len(DATA))
    parameter = zstd.CompressionParameter
    is_remote = zstd.ZstdCompressor(options={parameter.window_log: 28, parameter.content_size_flag: 0})
    with pytest.raises(FrameError):
        whole(is_remote.compress(DATA) + is_remote.flush(), len(DATA))


def test_a_bomb_is_stopped_at_what_was_announced():
    bomb = zstd.compress(bytes(64 << 20), options={zstd.CompressionParameter.content_size_flag: 0})
    out = 0
    with pytest.raises(FrameError, match="more than the 1000 bytes"):
        for piece in expand([bomb], 1000):
            out += len(piece)
    assert out <= 1000


@pytest.mark.parametrize("size", [1000, HELD + 1])
def test_proven_content(size):
    data = bytes(size)
    stored = compress(data)
    assert expand_hashed(lambda: [stored], size, blake3(data).digest()) == data
    with pytest.raises(FrameError, match="BLAKE3"):
        expand_hashed(lambda: [stored], size, bytes(32))
