"""What ``holdall info`` shows of an AERO file beyond its model: the UUID and the table of contents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdall.format.aero.chunks import Chunks
from holdall.format.aero.layout import COMPRESSED, IS_INDEX, MMAP_CRITICAL, OPTIONAL
from holdall.format.aero.read import AeroNative

__all__ = ["describe"]

_FLAGS = {COMPRESSED: "zstd", MMAP_CRITICAL: "mmap", IS_INDEX: "index", OPTIONAL: "optional"}


def describe(native: AeroNative) -> Mapping[str, str | Sequence[Mapping[str, Any]]]:
    """Return the UUID and the chunks."""
    return {"uuid": str(native.uuid), "chunks": _ChunkRows(native.chunks)}


class _ChunkRows(Sequence[Mapping[str, Any]]):
    """The table of contents, each row made when it is shown: a file may have a million."""

    def __init__(self, chunks: Chunks) -> None:
        self._chunks = chunks

    def __len__(self) -> int:
        return len(self._chunks)

    def __getitem__(self, row: int) -> Mapping[str, Any]:  # type: ignore[override]  # rows only, no slices
        chunk = self._chunks[row]
        flags = " ".join(word for bit, word in _FLAGS.items() if chunk.flags & bit)
        return {"fourcc": chunk.fourcc, "name": chunk.name, "offset": chunk.offset, "bytes": chunk.length,
                "uncompressed": chunk.ulen, "flags": flags}  # fmt: skip
