"""The options of the writer, made definite."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdall.errors import ContentError
from holdall.formats.aero.layout import IHSH, PHSH
from holdall.formats.aero.read import AeroNative, AeroTable
from holdall.model import Model

__all__ = ["Settings", "settings_of"]

_PAGE = 4 << 20


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of the writer, made definite."""

    uuid: bytes | None  # None: from the content
    tensor_hash: bool
    page: int  # 0: no page hashes
    control_hash: bool
    max_shard_bytes: int
    align: int
    sort: bool


def settings_of(model: Model, options: Mapping[str, Any]) -> Settings:
    """What the options mean for ``model``: those left open are as in the file it comes from."""
    native = model.native if isinstance(model.native, AeroNative) else None
    tensor_hash, page, control = options["tensor_hash"], options["page_hash"], options["control_hash"]
    if tensor_hash is None:
        table = model.tensors
        tensor_hash = isinstance(table, AeroTable) and bool(table.tidx.hashed.any())
    if page is None:
        page = bool(native and native.chunks.rows(PHSH))
    if control is None:
        control = bool(native and native.chunks.rows(IHSH))
    page = (_PAGE if page else 0) if isinstance(page, bool) else _number("page_hash", page, 0)
    align = _number("align", options["align"], 1)
    if align & (align - 1):
        raise ContentError(f"aero: align is a power of two, not {align}")
    most = _number("max_shard_bytes", options["max_shard_bytes"], 1)
    return Settings(
        _uuid(options["uuid"]), _flag(tensor_hash), page, _flag(control), most, align, _flag(options["sort"])
    )


def _flag(value: Any) -> bool:
    return value.lower() in ("1", "true", "yes") if isinstance(value, str) else bool(value)


def _number(name: str, value: Any, least: int) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError):
        raise ContentError(f"aero: {name} is a number, not {value!r}") from None
    if not least <= number < 1 << 63:
        raise ContentError(f"aero: {name} is at least {least}, not {number}")
    return number


def _uuid(value: Any) -> bytes | None:
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
