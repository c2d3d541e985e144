"""External data: tensors whose bytes are in files beside the model, never outside its folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdall.check import Check, figure
from holdall.errors import FormatError, UnsupportedError
from holdall.formats.onnx import rules
from holdall.payload import Range

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

    @property
    def sources(self) -> list[Source]:
        """All of them, in the order in which they were met."""
        return list(self._sources.values())

    def place(self, entries: Mapping[str, str], size: int, at: int, what: str) -> Range:
        """The ``size`` bytes that the entries of ``external_data`` name."""
        location = entries.get("location")
        if not location:
            self._check.fail(rules.LOCATION, at, f"{what}: its external data has no location")
        offset = self._number(entries, "offset", 0, at, what)
        source = self._source(location, at, what)
        length = self._number(entries, "length", size, at, what)
        if length != size:
            self._check.fail(
                rules.SIZE,
                at,
                f"{what} needs {figure(size)} bytes, and {figure(length)} are said to be in {location!r}",
            )
        if offset > source.size or size > source.size - offset:
            place = f"{figure(offset)}..{figure(offset + size)}"
            message = f"{what}: bytes {place} are outside of {location!r}, which has {source.size}"
            self._check.fail(rules.EXTERNAL, at, message)
        return Range(source, offset, size)

    def _source(self, location: str, at: int, what: str) -> Source:
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

    def _number(self, entries: Mapping[str, str], key: str, default: int, at: int, what: str) -> int:
        text = entries.get(key)
        if text is None:
            return default
        if not (text.isascii() and text.isdigit() and len(text) <= 19):
            self._check.fail(rules.LOCATION, at, f"{what}: the {key} {text[:40]!r} of its external data is no number")
        return int(text)
