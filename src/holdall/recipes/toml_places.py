"""TOML with the place of each value, so that an error in a recipe names its line and column."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import Any

from holdall.errors import ContentError

__all__ = ["Document", "Path", "read_toml"]

Path = tuple[str | int, ...]

_DELIMITERS = ",]}#\n"
_QUOTES = "\"'"
_DOTS = 256  # of one line


@dataclass(frozen=True, slots=True)
class Document:
    """The values of a TOML file, and where each stands in its ``text``.

    >>> read_toml("a.toml", "x = [1,\\n  2]").error(("x", 1), "two is too many").args[0]
    'a.toml, line 2, column 3: two is too many'
    """

    name: str
    text: str
    values: dict[str, Any]
    places: dict[Path, int]

    def place(self, path: Path) -> str:
        """Name the place of the value at ``path``; for one that is not there, of the nearest one around it."""
        while path and path not in self.places:
            path = path[:-1]
        return f"{self.name}, {_name_place(self.text, self.places.get(path, 0))}"

    def error(self, path: Path, message: str) -> ContentError:
        """Build the error for the value at ``path``."""
        return ContentError(f"{self.place(path)}: {message}")


def _name_place(text: str, at: int) -> str:
    line = text.count("\n", 0, at) + 1
    return f"line {line}, column {at - text.rfind(chr(10), 0, at)}"


def read_toml(name: str, text: str) -> Document:
    """Parse ``text``, the content of the file called ``name``; raises ContentError with line and column."""
    text = text.replace("\r\n", "\n")
    for number, line in enumerate(text.split("\n"), 1):  # the time for a dotted key grows with the square of its length
        if line.count(".") > _DOTS:
            raise ContentError(f"{name}, line {number}, column 1: a line has at most {_DOTS} dots")
    try:
        values = tomllib.loads(text)
        places = _Walk(text).places
    except tomllib.TOMLDecodeError as error:
        what, _, where = str(error).rpartition(" (at ")
        place = where.removesuffix(")") if what else ""
        place = place if place.startswith("line ") else _name_place(text, len(text))
        raise ContentError(f"{name}, {place}: {(what or str(error)).rstrip('.').lower()}") from None
    except RecursionError:
        raise ContentError(f"{name}: its values are nested too deeply") from None
    except ValueError as error:  # an integer of too many digits, or a date that is none
        raise ContentError(f"{name}: has a value that cannot be held: {error}") from None
    return Document(name, text, values, places)


class _Walk:
    """Walks over TOML that is known to be valid, and notes where each key and each item of an array stands."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.places: dict[Path, int] = {}
        self._tables: dict[Path, int] = {}  # how many tables an array of tables has so far
        table: Path = ()
        while self._skip_space():
            if text.startswith("[[", self.at):
                table = self._read_header(2)
                number = self._tables[table] = self._tables.get(table, -1) + 1
                table = (*table, number)
                self.places[table] = self._start
            elif text[self.at] == "[":
                table = self._read_header(1)
                self.places[table] = self._start
            else:
                self._walk_pair(table)

    def _skip_space(self) -> bool:
        """Skip space, commas and comments; False at the end of the text."""
        while self.at < len(self.text):
            if self.text[self.at] == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif self.text[self.at] in " \t\n,":
                self.at += 1
            else:
                return True
        return False

    def _read_header(self, brackets: int) -> Path:
        self._start = self.at
        self.at += brackets
        path = self._read_key("]")
        self.at += brackets
        return path

    def _read_key(self, end: str) -> Path:
        """Read a dotted key up to ``end``."""
        words: list[str] = []
        start = self.at
        while self.text[self.at] != end:
            if self.text[self.at] in _QUOTES:
                self._skip_string()
            elif self.text[self.at] == ".":
                words.append(self.text[start : self.at])
                self.at += 1
                start = self.at
            else:
                self.at += 1
        words.append(self.text[start : self.at])
        return tuple(_unquote(word.strip()) for word in words)

    def _walk_pair(self, table: Path) -> None:
        start = self.at
        path = (*table, *self._read_key("="))
        for length in range(len(table) + 1, len(path) + 1):
            self.places.setdefault(path[:length], start)
        self.at += 1
        self._walk_value(path)

    def _walk_value(self, path: Path) -> None:
        while self.text[self.at] in " \t":
            self.at += 1
        first = self.text[self.at]
        if first in _QUOTES:
            self._skip_string()
        elif first in "[{":
            self.at += 1
            number = 0
            while self._skip_space() and self.text[self.at] not in "]}":
                if first == "{":
                    self._walk_pair(path)
                else:
                    self.places[(*path, number)] = self.at
                    self._walk_value((*path, number))
                    number += 1
            self.at += 1
        else:
            while self.at < len(self.text) and self.text[self.at] not in _DELIMITERS:
                self.at += 1

    def _skip_string(self) -> None:
        quote = self.text[self.at]
        mark = quote * 3 if self.text.startswith(quote * 3, self.at) else quote
        self.at += len(mark)
        while not self.text.startswith(mark, self.at):
            self.at += 2 if self.text[self.at] == "\\" and quote == '"' else 1
        self.at += len(mark)
        while len(mark) == 3 and self.at < len(self.text) and self.text[self.at] == quote:  # up to two quotes more
            self.at += 1


def _unquote(word: str) -> str:
    if word[:1] not in _QUOTES:
        return word
    return next(iter(tomllib.loads(f"{word} = 0")))
