"""Decompression that stays within what was declared, whatever a frame claims.

A zstd frame from a stranger is held to four things before a byte of it is kept: it is one ordinary frame (no
skippable one, no dictionary), the size it states is the size that was announced, its window is at most 128 MiB, and
what comes out is exactly the announced size, ending where the stored bytes end.

>>> data = compress(b"hold" * 1000)
>>> b"".join(expand([data], 4000)) == b"hold" * 1000
True
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from holdall.errors import HoldallError
from holdall.sizes import tuned

if TYPE_CHECKING:
    from holdall.layout import Buffer

__all__ = ["FrameError", "compress", "expand", "expand_proven"]

WINDOW_LOG = 27  # 128 MiB, what zstd itself accepts unasked
PIECE = tuned(1 << 20)  # bytes of output at a time
HELD = tuned(16 << 20)  # outputs up to this fit the one fixed buffer: hashed and kept in one go

_MAGIC = b"\x28\xb5\x2f\xfd"


class FrameError(HoldallError, ValueError):
    """Compressed bytes are not the one frame that was announced."""


def _zstd() -> Any:
    if sys.version_info >= (3, 14):
        from compression import zstd

        return zstd
    from backports import zstd

    return zstd


def compress(data: Buffer, level: int = 6) -> bytes:
    """One frame with its content size, without a checksum."""
    zstd = _zstd()
    stored: bytes = zstd.compress(data, level)
    return stored


def expand(stored: Iterable[Buffer], size: int) -> Iterator[bytes]:
    """The ``size`` bytes of the one zstd frame in ``stored``, piece by piece; FrameError for anything else.

    Never asks for more than is left of ``size``, but for one byte to see an overrun.
    """
    zstd = _zstd()
    pieces = iter(stored)
    head = _head(pieces)
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


def _head(pieces: Iterator[Buffer]) -> bytes:
    """At least the header of the frame."""
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


def expand_proven(stored: Callable[[], Iterable[Buffer]], size: int, digest: bytes) -> bytes:
    """The ``size`` bytes of a frame whose BLAKE3 is ``digest``: hashed through a fixed buffer first, kept second.

    ``stored`` gives the compressed bytes from the start, each time it is called.
    """
    from blake3 import blake3

    if size <= HELD:
        kept = b"".join(expand(stored(), size))
        _prove(blake3(kept).digest(), digest)
        return kept
    running = blake3()
    for piece in expand(stored(), size):
        running.update(piece)
    _prove(running.digest(), digest)
    target = bytearray(size)
    at = 0
    for piece in expand(stored(), size):
        target[at : at + len(piece)] = piece
        at += len(piece)
    return bytes(target)


def _prove(found: bytes, digest: bytes) -> None:
    if found != digest:
        raise FrameError(f"the BLAKE3 of the content is {found.hex()}, the file says {digest.hex()}")
