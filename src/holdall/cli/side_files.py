"""Files beside the model, such as lists of names and documents: held in memory, so only within the limits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from holdall.base.text import file_text
from holdall.errors import ContentError

if TYPE_CHECKING:
    from holdall.limits import Limits

__all__ = ["parse_side_json", "read_side_file", "read_side_json", "read_side_stream", "read_side_text"]

_PIECE = 1 << 20


def read_side_file(path: str, limits: Limits | None) -> bytes:
    """Read a file of up to ``Limits.metadata_bytes``. One that has no end, such as a device, is refused there too."""
    with Path(path).open("rb") as file:
        return read_side_stream(file, path, limits)


def read_side_stream(stream: BinaryIO, name: str, limits: Limits | None) -> bytes:
    """Read the rest of a stream, called ``name`` in messages, of up to ``Limits.metadata_bytes``."""
    from holdall.base.check import Check
    from holdall.limits import DEFAULT_LIMITS

    check = Check(limits=limits or DEFAULT_LIMITS)
    data = bytearray()
    while piece := stream.read(_PIECE):
        data += piece
        most = check.limits.metadata_bytes
        if len(data) > most:
            check.exceed("metadata_bytes", None, f"{file_text(name)}: has more than {most} bytes")
    return bytes(data)


def read_side_text(path: str, limits: Limits | None) -> str:
    """Read a text, which must be UTF-8."""
    try:
        return read_side_file(path, limits).decode()
    except UnicodeDecodeError as error:
        raise ContentError(f"{file_text(path)}: is not UTF-8 text: byte {error.start}") from None


def read_side_json(path: str, limits: Limits | None) -> Any:
    """Read a JSON document: see :func:`parse_side_json`."""
    return parse_side_json(read_side_file(path, limits), path, limits)


def parse_side_json(data: bytes, path: str, limits: Limits | None) -> Any:
    """Parse a JSON document of up to ``Limits.nesting`` levels and ``Limits.metadata_entries`` values."""
    from holdall.base.check import Check
    from holdall.binary.documents.base import TooManyValues
    from holdall.binary.documents.json import DocumentError, decode
    from holdall.limits import DEFAULT_LIMITS

    check = Check(limits=limits or DEFAULT_LIMITS)
    most = check.limits.metadata_entries
    try:
        return decode(data, depth=check.limits.nesting, most=most).value
    except TooManyValues:
        check.exceed("metadata_entries", None, f"{file_text(path)}: has {most} values or more")
    except DocumentError as error:
        raise ContentError(f"{file_text(path)}: is not JSON: {error.message}") from None
