"""What explain opens in AERO files: metadata chunks, expanded where they are compressed, and the string table."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from holdall.binary.compression import expand
from holdall.format.aero.layout import IHSH, MJSN, MMSG, PHSH, TIDX
from holdall.format.aero.read import AeroNative
from holdall.format.outline import (
    OpenRange,
    Outline,
    Place,
    cap_expansion,
    open_packed,
    outline_by_name,
    outline_json,
    outline_msgpack,
    outline_text,
)

if TYPE_CHECKING:
    from holdall.format.aero.chunks import Chunk
    from holdall.limits import Limits
    from holdall.model.model import Model
    from holdall.source import Source

__all__ = ["outline"]

_SYNTAX: dict[bytes, OpenRange] = {MJSN: outline_json, **dict.fromkeys((MMSG, TIDX, IHSH, PHSH), outline_msgpack)}


def outline(place: Place, source: Source, model: Model | None, limits: Limits) -> Outline | None:
    """The outline of a chunk that is no shard, by its fourcc, or of the string table."""
    if place.name == "string table":
        return outline_text(source, place.start, place.stop, end=b"\0", what="name")
    chunk = _find_chunk(place, model) if place.name == "chunk" else None
    if chunk is None:
        return None
    open_inside = _SYNTAX.get(chunk.fourcc.encode("latin-1"), partial(outline_by_name, chunk.name))
    if not chunk.compressed:
        return open_inside(source, place.start, place.stop)
    pieces = expand(source.chunks(place.start, place.stop - place.start), chunk.ulen)
    return open_packed("zstd", pieces, cap_expansion(limits, source.size), open_inside)


def _find_chunk(place: Place, model: Model | None) -> Chunk | None:
    """The chunk that takes the bytes of ``place``."""
    if model is None or not isinstance(model.native, AeroNative):
        return None
    table = model.native.chunks.table
    rows = ((table["chunk_offset"] == place.start) & (table["chunk_length"] == place.stop - place.start)).nonzero()[0]
    return model.native.chunks[int(rows[0])] if len(rows) else None
