"""Metadata in npz: JSON in an array of bytes called ``__metadata__``, which numpy loads like any other array."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from holdall.base.check import Check, figure
from holdall.binary.documents.base import DocumentError
from holdall.format.npz import rules
from holdall.format.npz.header import Array
from holdall.format.refusals import check_entries
from holdall.format.zip.inflate import InflatedPayload, read_part
from holdall.model.metadata import Entry
from holdall.model.payload import Payload

__all__ = ["breach", "encode", "is_document", "read"]

_LOW, _HIGH = -(1 << 63), (1 << 64) - 1


def is_document(payload: Payload, array: Array) -> bool:
    """Whether the array called ``__metadata__`` can be a document: bytes that begin with a brace."""
    if str(array.dtype) != "u8" or len(array.shape) != 1 or not array.shape[0]:
        return False
    return read_part(payload, array.start, array.start + 1) == b"{"


def read(payload: Payload, array: Array, at: int, check: Check) -> list[Entry]:
    """Read the entries of the document."""
    from holdall.binary.documents.json import decode

    size = payload.size - array.start
    check.limit("metadata_bytes", size, at, "npz: bytes of metadata")
    if isinstance(payload, InflatedPayload):
        check.limit_document(size, payload.source.size, at, "npz: bytes of metadata, inflated")
    try:
        document = decode(read_part(payload, array.start, payload.size), depth=check.limits.nesting, unique=True)
    except DocumentError as error:
        check.fail(rules.METADATA, at, f"npz: __metadata__ is not JSON with each key once: {error}")
    if not isinstance(document.value, dict):
        check.fail(rules.METADATA, at, "npz: __metadata__ is not a JSON object")
    return [Entry(key, value, "json") for key, value in document.value.items()]


def encode(entries: Iterable[Entry]) -> bytes:
    """Encode the document that holds ``entries``."""
    import msgspec

    return msgspec.json.encode(check_entries("npz", entries, breach))


def breach(key: str, value: Any) -> str | None:
    """Why JSON cannot hold the entry; None when it can."""
    return _breach(key) or _breach(value)


def _breach(value: Any, depth: int = 0) -> str | None:
    from holdall.binary.documents.json import breach as json_breach

    if depth > 64:
        return "is nested too deeply"
    match value:
        case int():
            return None if _LOW <= value <= _HIGH else f"{figure(value)} does not fit 64 bits"
        case list() | tuple():
            return next(filter(None, (_breach(item, depth + 1) for item in value)), None)
        case Mapping():
            if not all(isinstance(key, str) for key in value):
                return "has a key that is not text"
            inside = (_breach(part, depth + 1) for item in value.items() for part in item)
            return next(filter(None, inside), None)
        case _:
            return json_breach(value)
