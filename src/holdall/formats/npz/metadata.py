"""Metadata in npz: JSON in an array of bytes called ``__metadata__``, which numpy loads like any other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from holdall.check import Check
from holdall.documents.base import DocumentError
from holdall.errors import ContentError
from holdall.formats.npz import rules
from holdall.formats.npz.header import Array
from holdall.inflated import Inflated, read_part
from holdall.metadata import Entry
from holdall.payload import Payload

__all__ = ["breach", "encode", "is_document", "read"]

_LOW, _HIGH = -(1 << 63), (1 << 64) - 1


def is_document(payload: Payload, array: Array) -> bool:
    """Whether the array called ``__metadata__`` is one that holdall writes."""
    if str(array.dtype) != "u8" or len(array.shape) != 1 or not array.shape[0]:
        return False
    return read_part(payload, array.start, array.start + 1) == b"{"


def read(payload: Payload, array: Array, at: int, check: Check) -> list[Entry]:
    """The entries of the document."""
    from holdall.documents.json import decode

    size = payload.size - array.start
    check.limit("metadata_bytes", size, at, "npz: bytes of metadata")
    if isinstance(payload, Inflated):
        check.limit_document(size, payload.source.size, at, "npz: bytes of metadata, inflated")
    try:
        document = decode(read_part(payload, array.start, payload.size), depth=check.limits.nesting)
    except DocumentError as error:
        check.fail(rules.METADATA, at, f"npz: __metadata__ is not JSON: {error}")
    if not isinstance(document.value, dict) or document.duplicates:
        check.fail(rules.METADATA, at, "npz: __metadata__ is not one JSON object with each key once")
    return [Entry(key, value, "json") for key, value in document.value.items()]


def encode(entries: Iterable[Entry]) -> bytes:
    """The document that holds ``entries``."""
    import msgspec

    found: dict[str, Any] = {}
    for entry in entries:
        wrong = breach(entry.key, entry.value)
        if wrong:
            raise ContentError(f"npz: metadata {entry.key!r}: {wrong}")
        if entry.key in found:
            raise ContentError(f"npz: two metadata entries are called {entry.key!r}")
        found[entry.key] = entry.value
    return msgspec.json.encode(found)


def breach(key: str, value: Any) -> str | None:
    """Why JSON cannot hold the entry as it is; None when it can."""
    return _breach(key) or _breach(value)


def _breach(value: Any, depth: int = 0) -> str | None:
    if depth > 64:
        return "is nested too deeply"
    match value:
        case None | bool():
            return None
        case int():
            return None if _LOW <= value <= _HIGH else f"{value} does not fit 64 bits"
        case float():
            return None if value - value == 0 else f"JSON has no {value}"
        case str():
            try:
                value.encode()
            except UnicodeEncodeError:
                return f"{value!r} holds half of a surrogate pair, which is no text"
            return None
        case list() | tuple():
            return next(filter(None, (_breach(item, depth + 1) for item in value)), None)
        case Mapping():
            if not all(isinstance(key, str) for key in value):
                return "has a key that is not text"
            inside = (_breach(part, depth + 1) for item in value.items() for part in item)
            return next(filter(None, inside), None)
        case _:
            return f"{type(value).__name__} is not a value that JSON has"
