"""Zstandard decompression for untrusted files, bounded by the size that the file announced.

A frame must be one ordinary frame (not skippable, no dictionary) that states the announced size or none, with a window
of at most 128 MiB. Its content must have exactly the announced size, and the frame must end where the stored bytes end.

>>> data = compress(b"hold" * 1000)
>>> b"".join(expand([data], 4000)) == b"hold" * 1000
True
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from holdall.base.buffer_sizes import buffer_size
from holdall.errors import HoldallError

if TYPE_CHECKING:
    from holdall.binary.layout import Buffer

__all__ = ["FrameError", "compress", "compress_pieces", "expand", "expand_hashed", "import_zstd"]

WINDOW_LOG = 27  # 128 MiB, the default limit of zstd itself
PIECE = buffer_size(1 << 20)  # bytes of output at a time
LEVEL = 6  # of compression
JOINED = buffer_size(32 << 20)  # contents up to this size are compressed as one buffer
HELD = buffer_size(16 << 20)  # outputs up to this size are held while they are hashed, and decompressed only once

_MAGIC = b"\x28\xb5\x2f\xfd"


class FrameError(HoldallError, ValueError):
    """Compressed bytes are not the one frame that was announced."""


def import_zstd() -> Any:
    """Import zstd: Python's own from 3.14 on, its backport before."""
    if sys.version_info >= (3, 14):
        from compression import zstd

        return zstd
    from backports import zstd

    return zstd


def compress(data: Buffer, level: int = LEVEL) -> bytes:
    """Compress ``data`` into one frame that states its size and has no checksum."""
    zstd = import_zstd()
    stored: bytes = zstd.compress(data, level)
    return stored


def compress_pieces(make: Callable[[], Iterable[bytes]]) -> tuple[bytes, int, bytes]:
    """Compress what ``make`` makes piece by piece. Returns the frame, and size and BLAKE3 of what is in it.

    Up to 32 MiB it is the frame of :func:`compress`. More is never held as a whole: it is made once to measure it, and
    once more to compress it. Its frame may differ in a few bytes, since zstd searches a stream otherwise than a buffer.
    """
    from blake3 import blake3

    size, running, held = 0, blake3(), bytearray()
    for piece in make():
        size += len(piece)
        running.update(piece)
        if size <= JOINED:
            held += piece
    if size <= JOINED:
        return compress(held), size, running.digest()
    del held
    compressor = import_zstd().ZstdCompressor(LEVEL)
    compressor.set_pledged_input_size(size)
    stored = bytearray()
    for piece in make():
        stored += compressor.compress(piece)
    stored += compressor.flush()
    return bytes(stored), size, running.digest()


def expand(stored: Iterable[Buffer], size: int) -> Iterator[bytes]:
    """Decompress the one zstd frame in ``stored`` to exactly ``size`` bytes, piece by piece; else raise FrameError.

    Never decompresses more than ``size`` bytes, except for one byte that shows an overrun.
    """
    zstd = import_zstd()
    pieces = iter(stored)
    head = _read_head(pieces)
    _check_head(zstd, head, size)
    decoder = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: WINDOW_LOG})
    left, feed = size, head
    while not decoder.eof:
        if not feed and decoder.needs_input:
            feed = bytes(next(pieces, b""))
            if not feed:
                raise FrameError(f"the zstd frame is cut: {left} of {size} bytes are missing")
        try:
            out = decoder.decompress(feed, max_length=min(PIECE, left) or 1)
        except zstd.ZstdError as error:
            raise FrameError(f"not a zstd frame: {error}") from None
        feed = b""
        if len(out) > left:
            raise FrameError(f"the zstd frame holds more than the {size} bytes announced")
        left -= len(out)
        if out:
            yield out
    if left:
        raise FrameError(f"the zstd frame holds {size - left} bytes, {size} were announced")
    more = len(decoder.unused_data) + sum(len(piece) for piece in pieces)
    if more:
        raise FrameError(f"{more} more bytes follow the zstd frame")


def _read_head(pieces: Iterator[Buffer]) -> bytes:
    """Read pieces until the header of the frame is complete."""
    head = b""
    for piece in pieces:
        head += bytes(piece)
        if len(head) >= 18:  # the longest header of a frame
            break
    return head


def _check_head(zstd: Any, head: bytes, size: int) -> None:
    if head[1:4] == b"\x2a\x4d\x18" and 0x50 <= head[0] <= 0x5F:
        raise FrameError("a skippable zstd frame holds nothing")
    if not head.startswith(_MAGIC):
        raise FrameError(f"not a zstd frame: begins with {head[:4].hex() or 'nothing'}")
    try:
        info = zstd.get_frame_info(head)
    except zstd.ZstdError as error:
        raise FrameError(f"not a zstd frame: {error}") from None
    if info.dictionary_id:
        raise FrameError(f"the zstd frame needs the dictionary {info.dictionary_id}")
    if info.decompressed_size is not None and info.decompressed_size != size:
        raise FrameError(f"the zstd frame states {info.decompressed_size} bytes, {size} were announced")


def expand_hashed(stored: Callable[[], Iterable[Buffer]], size: int, digest: bytes) -> bytes:
    """Decompress a frame of ``size`` bytes and check that their BLAKE3 is ``digest``.

    A large frame is decompressed twice: hashed first, and kept only when the hash is right. Each call of ``stored``
    gives the compressed bytes from the start.
    """
    from blake3 import blake3

    if size <= HELD:
        kept = b"".join(expand(stored(), size))
        _check_digest(blake3(kept).digest(), digest)
        return kept
    running = blake3()
    for piece in expand(stored(), size):
        running.update(piece)
    _check_digest(running.digest(), digest)
    target = bytearray(size)
    at = 0
    for piece in expand(stored(), size):
        target[at : at + len(piece)] = piece
        at += len(piece)
    return bytes(target)


def _check_digest(found: bytes, digest: bytes) -> None:
    if found != digest:
        raise FrameError(f"the BLAKE3 of the content is {found.hex()}, the file says {digest.hex()}")
