"""The quick way through a header where the C tokenizer is missing.

A header that is byte for byte what an encoder makes of its decoded content is strict JSON with unique keys and
known fields, and nothing of it is left to check. Almost every file is; any other takes the careful way.
"""

from __future__ import annotations

import json
from itertools import chain
from typing import Annotated

import msgspec
import numpy as np

from holdall.check import Check
from holdall.columns import Shapes
from holdall.formats.safetensors.header import WORDS, Entries, Index
from holdall.formats.safetensors.layout import METADATA
from holdall.limits import Limits
from holdall.metadata import Entry, Metadata

__all__ = ["quick_index"]

_Size = Annotated[int, msgspec.Meta(ge=0)]
_OPENING = f'{{"{METADATA}":'
_CODES = {word: code for code, word in enumerate(WORDS)}


class _Row(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    dtype: str
    shape: list[_Size]
    data_offsets: tuple[_Size, _Size]


_decoder = msgspec.json.Decoder(dict[str, _Row])


def quick_index(header: bytes, check: Check) -> Index | None:
    """The columns of a header in the usual form; None for any other, right or wrong."""
    compact = header.rstrip(b" ")
    index = _index_of(compact, header, check)
    if index is None:  # the usual form, but for white space between tokens?
        try:
            spaceless = msgspec.json.format(compact, indent=-1)
        except (msgspec.DecodeError, RecursionError):
            return None
        index = None if spaceless == compact else _index_of(spaceless, header, check)
    return index


def _index_of(compact: bytes, header: bytes, check: Check) -> Index | None:
    try:
        metadata, rest = _split(compact)
        rows = _decoder.decode(rest)
        usual = _within_limits(rows, header, metadata or {}, check.limits)
        if msgspec.json.encode(rows) != rest or METADATA in rows or not usual:
            return None
        codes = np.array([_CODES[row.dtype] for row in rows.values()], np.uint8)
        ranks = np.array([len(row.shape) for row in rows.values()], np.uint64)
        dims = np.array(list(chain.from_iterable(row.shape for row in rows.values())), np.uint64)
        offsets = np.array([row.data_offsets for row in rows.values()], np.uint64).reshape(-1, 2)
    except (msgspec.DecodeError, UnicodeError, KeyError, ValueError, OverflowError, RecursionError):
        return None
    starts = (np.cumsum(ranks, dtype=np.uint64) - ranks) * np.uint64(8)
    tape: list[Entries] = []  # made when somebody asks for a place

    def place(row: int, field: str) -> int:
        if not tape:
            tape.append(Entries(header, check))
        entries = tape[0]
        column = ("name", "entry", "dtype", "shape", "data_offsets").index(field)
        return entries.at(int(entries.records[row + (metadata is not None), column]))

    begins, ends = np.ascontiguousarray(offsets[:, 0]), np.ascontiguousarray(offsets[:, 1])
    entries = [Entry(key, value, "string") for key, value in (metadata or {}).items()]
    return Index(list(rows), codes, Shapes(dims.data, starts, ranks), begins, ends, Metadata(entries), place)


def _within_limits(rows: dict[str, _Row], header: bytes, metadata: dict[str, str], limits: Limits) -> bool:
    """Whether nothing can be above a limit; near one, the careful way decides."""
    return (
        len(rows) < limits.tensors
        and len(header) <= limits.metadata_bytes
        and len(metadata) <= limits.metadata_entries
        and max(map(len, rows), default=0) * 4 <= limits.name_bytes
        and max((len(row.shape) for row in rows.values()), default=0) <= limits.rank
    )


def _split(header: bytes) -> tuple[dict[str, str] | None, bytes]:
    """Metadata that come first, and the object without them. ValueError when they are not in the usual form."""
    text = header.decode()
    if not text.startswith(_OPENING):
        return None, header
    metadata, end = json.JSONDecoder().raw_decode(text, len(_OPENING))
    plain = text[len(_OPENING) : end].encode()
    strict = msgspec.json.decode(plain, type=dict[str, str])
    comma = text.startswith(",", end)
    rest = b"{" + text[end + comma :].encode()
    if strict != metadata or msgspec.json.encode(strict) != plain or comma == (rest == b"{}"):
        raise ValueError
    return strict, rest
