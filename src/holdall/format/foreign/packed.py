"""Names compressed files: pickles inside, as joblib writes them, by what they would import."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdall.format.foreign import Content
from holdall.format.foreign.pickle_names import find_names
from holdall.format.foreign.pickles import describe_pickle, has_magic
from holdall.format.outline import stop_at
from holdall.format.zip.outline import inflate_pieces
from holdall.source import BytesSource

if TYPE_CHECKING:
    from holdall.source import Source

__all__ = ["Packing", "find_packing", "name_packed", "unpack_pieces"]

_FIRST = 1 << 20  # bytes that are unpacked to see what is inside: a block of bzip2 has as many
_READ, _READ_REMOTE = 16 << 20, 1 << 20  # bytes of a pickle that are unpacked
_MOST = 64 << 20  # bytes that they may become
_MEMORY = 64 << 20  # bytes that a decompressor may take: a file states it
_STEP, _PIECE = 1 << 12, 1 << 16  # bytes that are unpacked at a time, and made of them
_ERRORS = (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError)


@dataclass(frozen=True, slots=True)
class Packing:
    """A compression: what files begin with, and how it is undone. If not ``certain``, only a pickle inside is a proof.

    ``window`` is that of zlib, for what it can undo.
    """

    magic: bytes
    name: str
    certain: bool
    make: Callable[[], Any]
    window: int = 0


_KINDS = (
    Packing(b"\x1f\x8b", "gzip", True, lambda: zlib.decompressobj(31), 31),
    Packing(b"\xfd7zXZ\0", "xz", True, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, _MEMORY)),
    Packing(b"BZh", "bzip2", True, bz2.BZ2Decompressor),
    Packing(b"\x78", "zlib", False, zlib.decompressobj, 15),
    Packing(b"\x5d\0", "lzma", False, lambda: lzma.LZMADecompressor(lzma.FORMAT_ALONE, _MEMORY)),
)


def name_packed(source: Source, front: bytes) -> Content | None:
    """Name a file that begins with ``front``, if that is compressed; None if it is not."""
    found = find_packing(source, front)
    if found is None:
        return None
    kind, pickled = found
    if not pickled:
        return Content(f"is compressed with {kind.name}: unpack it first")
    packed = source.read(0, min(_READ_REMOTE if source.is_remote else _READ, source.size))
    inside, whole = _unpack(packed, kind.make(), _MOST)
    names = find_names(BytesSource(inside), cut=not whole)
    return Content(describe_pickle(names, f" compressed with {kind.name}, as joblib writes them,"))


def find_packing(source: Source, front: bytes) -> tuple[Packing, bool] | None:
    """Find how a file that begins with ``front`` is compressed, and whether a pickle is inside; None if it is not."""
    for kind in _KINDS:
        if front.startswith(kind.magic):
            first = source.read(0, min(_FIRST, source.size))
            pickled = has_magic(_unpack(first, kind.make(), 2)[0])
            return (kind, pickled) if kind.certain or pickled else None
    return None


def unpack_pieces(source: Source, kind: Packing) -> Iterator[bytes]:
    """Unpack a file piece by piece; FormatError at what is broken."""
    if kind.window:
        return inflate_pieces(source, 0, source.size, kind.window)
    return _unpack_pieces(source, kind)


def _unpack_pieces(source: Source, kind: Packing) -> Iterator[bytes]:
    engine = kind.make()
    for stored in source.chunks(0, source.size):
        for at in range(0, len(stored), _STEP):
            feed = bytes(stored[at : at + _STEP])
            while True:
                try:
                    made = engine.decompress(feed, _PIECE)
                except _ERRORS as error:
                    raise stop_at(0, f"unpacking failed: {error}") from None
                if made:
                    yield made
                if engine.eof:
                    return
                if engine.needs_input:
                    break
                feed = b""
    raise stop_at(0, "the packed bytes end too early")


def _unpack(packed: bytes, engine: Any, most: int) -> tuple[bytes, bool]:
    """Unpack up to ``most`` bytes; whether they are all."""
    try:
        return engine.decompress(packed, most), engine.eof
    except _ERRORS:
        return b"", False
