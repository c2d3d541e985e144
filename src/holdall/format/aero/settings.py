"""The options of the writer, parsed and completed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdall.base.utf8 import utf8_breach
from holdall.errors import ContentError
from holdall.format.aero.layout import IHSH, KNOWN, MJSN, MMSG, TIDX
from holdall.format.aero.read import list_files
from holdall.format.refusals import parse_number
from holdall.model.model import Model
from holdall.model.payload import InMemory, Payload

__all__ = ["ExtraChunk", "Settings", "settings_of"]

_PAGE = 4 << 20
_MOST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class ExtraChunk:
    """A chunk of a kind that the format does not define."""

    fourcc: bytes
    name: str
    payload: Payload


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of the writer; none of them is left open."""

    uuid: bytes | None  # None: from the content
    tensor_hash: bool
    page: int  # 0: no page hashes
    control_hash: bool
    max_shard_bytes: int
    align: int
    sort: bool
    compressed: frozenset[bytes]  # the fourccs of documents that are compressed
    extras: tuple[ExtraChunk, ...]  # that the caller gives


def settings_of(model: Model, options: Mapping[str, Any]) -> Settings:
    """The settings for ``model``; options left open are as in the file that it comes from."""
    files = list_files(model)
    tensor_hash, page, control = options["tensor_hash"], options["page_hash"], options["control_hash"]
    if tensor_hash is None:
        tensor_hash = any(file.stated.has_tensor_hashes for file in files)
    if page is None:
        page = min(max((file.stated.find_page_size(_PAGE) for file in files), default=0), _MOST)
    if control is None:
        control = any(file.chunks.rows(IHSH) for file in files)
    page = (_PAGE if page else 0) if isinstance(page, bool) else _parse_number("page_hash", page, 0)
    align = _parse_number("align", options["align"], 1)
    if align & (align - 1):
        raise ContentError(f"aero: align is a power of two, not {align}")
    most = _parse_number("max_shard_bytes", options["max_shard_bytes"], 1)
    return Settings(
        _parse_uuid(options["uuid"]),
        _parse_flag(tensor_hash),
        page,
        _parse_flag(control),
        most,
        align,
        _parse_flag(options["sort"]),
        frozenset(fourcc for fourcc in (TIDX, MMSG, MJSN) if options[fourcc.decode().lower()] == "compressed"),
        _parse_chunks(options["chunk"]),
    )


def _parse_chunks(given: Any) -> tuple[ExtraChunk, ...]:
    """Parse the chunks that the caller gives: contents by ``FOURCC:name``."""
    if given is not None and not isinstance(given, Mapping):
        raise ContentError(f"aero: chunk is a mapping from FOURCC:name to bytes, not {type(given).__name__}")
    found = []
    for label, content in (given or {}).items():
        fourcc, colon, name = label.partition(":")
        if not colon or len(fourcc) != 4 or not fourcc.isascii() or not fourcc.isprintable():
            raise ContentError(f"aero: chunk {label!r} does not begin with four ASCII characters and a colon")
        if fourcc.encode() in KNOWN:
            raise ContentError(f"aero: chunk {label!r}: the format itself uses {fourcc}")
        wrong = "has no name" if not name else "has a NUL in its name" if "\0" in name else utf8_breach(name)
        if wrong:
            raise ContentError(f"aero: chunk {label!r} {wrong}")
        payload = content if isinstance(content, Payload) else InMemory(content)
        found.append(ExtraChunk(fourcc.encode(), name, payload))
    return tuple(found)


def _parse_flag(value: Any) -> bool:
    return value.lower() in ("1", "true", "yes") if isinstance(value, str) else bool(value)


def _parse_number(name: str, value: Any, least: int) -> int:
    number = parse_number(value)
    if not least <= number <= _MOST:
        raise ContentError(f"aero: {name} is a number from {least} on, not {value!r}")
    return number


def _parse_uuid(value: Any) -> bytes | None:
    import uuid

    if value == "content":
        return None
    if value == "random":
        return uuid.uuid4().bytes
    try:
        given = value if isinstance(value, bytes) else getattr(value, "bytes", None) or bytes.fromhex(value)
    except (TypeError, ValueError):
        given = b""
    if len(given) != 16:
        raise ContentError(f"aero: uuid is content, random or 32 hex digits, not {value!r}")
    return given
