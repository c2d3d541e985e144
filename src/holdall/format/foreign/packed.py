"""Names compressed files: pickles inside, as joblib writes them, by what they would import."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdall.format.foreign import Content
from holdall.format.foreign.pickle_names import find_names
from holdall.format.foreign.pickles import describe_pickle, has_magic
from holdall.source import BytesSource

if TYPE_CHECKING:
    from holdall.source import Source

__all__ = ["name_packed"]

_FIRST = 1 << 20  # bytes that are unpacked to see what is inside: a block of bzip2 has as many
_READ, _READ_REMOTE = 16 << 20, 1 << 20  # bytes of a pickle that are unpacked
_MOST = 64 << 20  # bytes that they may become
_MEMORY = 64 << 20  # bytes that a decompressor may take: a file states it
_ERRORS = (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError)
# What files begin with, the compression, and how it is undone. Without a magic, only a pickle inside is a proof.
_KINDS: tuple[tuple[bytes, str, bool, Callable[[], Any]], ...] = (
    (b"\x1f\x8b", "gzip", True, lambda: zlib.decompressobj(31)),
    (b"\xfd7zXZ\0", "xz", True, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, _MEMORY)),
    (b"BZh", "bzip2", True, bz2.BZ2Decompressor),
    (b"\x78", "zlib", False, zlib.decompressobj),
    (b"\x5d\0", "lzma", False, lambda: lzma.LZMADecompressor(lzma.FORMAT_ALONE, _MEMORY)),
)


def name_packed(source: Source, front: bytes) -> Content | None:
    """Name a file that begins with ``front``, if that is compressed; None if it is not."""
    for magic, kind, certain, make in _KINDS:
        if front.startswith(magic):
            first = source.read(0, min(_FIRST, source.size))
            if has_magic(_unpack(first, make(), 2)[0]):
                packed = source.read(0, min(_READ_REMOTE if source.is_remote else _READ, source.size))
                inside, whole = _unpack(packed, make(), _MOST)
                found = find_names(BytesSource(inside), cut=not whole)
                return Content(describe_pickle(found, f" compressed with {kind}, as joblib writes them,"))
            return Content(f"is compressed with {kind}: unpack it first") if certain else None
    return None


def _unpack(packed: bytes, engine: Any, most: int) -> tuple[bytes, bool]:
    """Unpack up to ``most`` bytes; whether they are all."""
    try:
        return engine.decompress(packed, most), engine.eof
    except _ERRORS:
        return b"", False
