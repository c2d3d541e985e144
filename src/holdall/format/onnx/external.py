"""External data: tensors whose bytes are in other files of the model's folder."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from holdall.base.check import Check, figure
from holdall.errors import FormatError, UnsupportedError
from holdall.format.onnx import rules
from holdall.model.payload import SourceRange

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdall.source import Source

__all__ = ["ExternalFiles"]


class ExternalFiles:
    """The files that tensors name, each opened once."""

    def __init__(self, home: Source, check: Check) -> None:
        self._home = home
        self._check = check
        self._sources: dict[str, Source] = {}
        self.checksums = 0  # how many tensors state one, which is not checked

    @property
    def sources(self) -> list[Source]:
        """The opened files, in the order in which tensors name them."""
        return list(self._sources.values())

    def place(self, entries: Mapping[str, str], size: int, at: int, what: str) -> SourceRange:
        """The ``size`` bytes that the entries of ``external_data`` name."""
        self.checksums += "checksum" in entries
        location = entries.get("location")
        if not location:
            self._check.fail(rules.LOCATION, at, f"{what}: its external data has no location")
        offset = self._parse_number(entries, "offset", 0, at, what)
        source = self._open(location, at, what)
        length = self._parse_number(entries, "length", size, at, what)
        if length != size:
            self._check.fail(
                rules.SIZE,
                at,
                f"{what} needs {figure(size)} bytes, and {figure(length)} are stated for {location!r}",
            )
        if offset + size > source.size:
            place = f"{figure(offset)}..{figure(offset + size)}"
            message = f"{what}: bytes {place} are outside of {location!r}, which has {source.size}"
            self._check.fail(rules.EXTERNAL, at, message)
        return SourceRange(source, offset, size)

    def _open(self, location: str, at: int, what: str) -> Source:
        location = _normalize(location)
        if location not in self._sources:
            self._check.limit("sections", len(self._sources) + 1, at, "onnx: files of external data")
            try:
                opened = self._home.sibling(location)
            except (OSError, UnsupportedError) as error:
                self._check.fail(rules.LOCATION, at, f"{what}: {location!r} cannot be opened: {error}")
            except FormatError as error:
                self._check.fail(rules.LOCATION, at, f"{what}: {error.message}")
            self._sources[location] = opened
        return self._sources[location]

    def _parse_number(self, entries: Mapping[str, str], key: str, default: int, at: int, what: str) -> int:
        text = entries.get(key)
        if text is None:
            return default
        if not (text.isascii() and text.isdigit() and len(text) <= 19):
            self._check.fail(
                rules.LOCATION, at, f"{what}: the {key} {text[:40]!r} of its external data is not a number"
            )
        return int(text)


def _normalize(location: str) -> str:
    """Take ``.`` and ``..`` out of a path, as the onnx library does; one that leads out of the folder is kept, to fail.

    >>> _normalize("./weights/../d"), _normalize("../d")
    ('d', '../d')
    """
    plain = posixpath.normpath(location)
    return location if location.endswith(("/", "/.")) or plain.startswith("..") else plain
