"""Deflated entries of an archive, of which only what is shown is inflated."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdall.format.outline import OpenRange, Outline, cap_expansion, open_packed, stop_at

if TYPE_CHECKING:
    from zlib import _Decompress as _Decoder

    from holdall.limits import Limits
    from holdall.source import Source

__all__ = ["inflate_pieces", "open_deflated"]

_STEP = 1 << 12  # bytes that are inflated at a time,
_PIECE = 1 << 16  # and made of them


def open_deflated(source: Source, start: int, stop: int, limits: Limits, open_inside: OpenRange) -> Outline:
    """The outline of what bytes ``start`` to ``stop`` inflate to, as far as it is whole."""
    pieces = inflate_pieces(source, start, stop)
    return open_packed("deflate", pieces, cap_expansion(limits, source.size), open_inside)


def inflate_pieces(source: Source, start: int, stop: int, window: int = -zlib.MAX_WBITS) -> Iterator[bytes]:
    """What bytes ``start`` to ``stop`` inflate to; ``window`` says what is around the deflated bytes, as in zlib."""
    decoder = zlib.decompressobj(window)
    for stored in source.chunks(start, stop - start):
        for at in range(0, len(stored), _STEP):
            before = decoder.copy()
            try:
                yield from _feed(decoder, stored[at : at + _STEP])
            except zlib.error as error:
                yield from _feed_until_broken(before, stored[at : at + _STEP])
                raise stop_at(start, f"inflating failed: {error}") from None
            if decoder.eof:
                return
    raise stop_at(start, "the deflated bytes end too early")


def _feed(decoder: _Decoder, feed: bytes | memoryview) -> Iterator[bytes]:
    """What ``feed`` inflates to, a piece at a time: a few bytes can become a thousand times as many."""
    while not decoder.eof:
        made = decoder.decompress(feed, _PIECE)
        feed = decoder.unconsumed_tail
        if made:
            yield made
        elif not feed:
            return


def _feed_until_broken(decoder: _Decoder, feed: bytes | memoryview) -> Iterator[bytes]:
    """What comes before the broken byte: an error takes with it all that its call has made."""
    try:
        for at in range(len(feed)):
            yield from _feed(decoder, feed[at : at + 1])
    except zlib.error:
        return
