"""Formats by name, by content, by suffix. Each is imported when it is first needed.

The rows below are all that detection needs to choose a candidate, so that opening one format imports one.
Other people's formats join through the entry-point group ``holdall.formats``: the entry's name is the
format id, its value an instance of :class:`holdall.format.Format`.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING

from holdall.check import Rule
from holdall.errors import FormatError, UnsupportedError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from holdall.format import Format
    from holdall.source import Source

__all__ = ["HEAD", "by_suffix", "detect", "find", "names"]

HEAD = 64  # bytes that detection looks at first

UNKNOWN = Rule("core.format", "the file is of a known format")


@dataclass(frozen=True, slots=True)
class Row:
    """A built-in format before it is imported."""

    name: str
    module: str
    suffixes: tuple[str, ...]
    magic: bytes = b""  # empty: the format is asked itself
    folder: bool = False


BUILT_IN: tuple[Row, ...] = (Row("oinf", "holdall.formats.oinf", (".oinf",), b"OINF\0"),)


def names() -> list[str]:
    """The ids of all registered formats, built-in ones first."""
    return [row.name for row in BUILT_IN] + [name for name in _plug_ins() if name not in _rows()]


def find(name: str) -> Format:
    """The format called ``name``."""
    row = _rows().get(name)
    if row is not None:
        return _load(row.module)
    entry = _plug_ins().get(name)
    if entry is None:
        raise UnsupportedError(f"there is no format {name!r}; the formats are: {', '.join(names())}")
    return _plug_in(entry)


def detect(source: Source, allowed: Collection[str] | None = None) -> Format:
    """The format of ``source``: by content first, by suffix where the content says nothing.

    ``allowed`` is an allowlist of ids: a file of any other format is refused, and no code of it is run.
    """
    head = source.read(0, min(HEAD, source.size))
    for candidate in _candidates(source, head):
        if (allowed is None or candidate.name in allowed) and candidate.accepts(head, source):
            return candidate
    by_name = [f for f in _by_suffix(source.name) if allowed is None or f.name in allowed]
    if len(by_name) == 1 and not source.is_folder:
        return by_name[0]  # its reader says precisely what is wrong
    known = ", ".join(allowed if allowed is not None else names())
    shown = "is an empty file" if not source.size and not source.is_folder else f"begins with {head[:16]!r}"
    what = "is a folder" if source.is_folder else shown
    raise FormatError(UNKNOWN.id, 0, f"{source.name}: {what}: none of the formats {known}")


def by_suffix(path: str | os.PathLike[str], *, folder: bool = False) -> Format:
    """The one format for a path to be written; a suffix that several share is refused naming them."""
    found = _by_suffix(os.fspath(path))
    if len(found) == 1:
        return found[0]
    if not found:
        known = ", ".join(sorted({suffix for name in names() for suffix in find(name).suffixes}))
        raise UnsupportedError(f"{os.fspath(path)}: no format has this suffix; give format=, or one of {known}")
    choices = ", ".join(f.name for f in found)
    raise UnsupportedError(f"{os.fspath(path)}: the suffix may mean {choices}: give format=")


def _candidates(source: Source, head: bytes) -> Iterator[Format]:
    """Formats worth asking, those whose magic matches first."""
    rows = [row for row in BUILT_IN if row.folder == source.is_folder]
    yield from (_load(row.module) for row in rows if row.magic and head.startswith(row.magic))
    yield from (_load(row.module) for row in rows if not row.magic)
    for entry in _plug_ins().values():
        plug_in = _plug_in(entry)
        if plug_in.folder == source.is_folder:
            yield plug_in


def _by_suffix(path: str) -> list[Format]:
    """Formats with the longest suffix that ``path`` ends in."""
    lower = path.lower().rstrip("/")
    found: dict[str, int] = {}
    for row in BUILT_IN:
        found[row.name] = max((len(suffix) for suffix in row.suffixes if lower.endswith(suffix)), default=0)
    for name, entry in _plug_ins().items():
        found[name] = max((len(suffix) for suffix in _plug_in(entry).suffixes if lower.endswith(suffix)), default=0)
    longest = max(found.values(), default=0)
    return [find(name) for name, length in found.items() if length == longest > 0]


@lru_cache(maxsize=1)
def _rows() -> dict[str, Row]:
    return {row.name: row for row in BUILT_IN}


@cache
def _load(module: str) -> Format:
    loaded: Format = import_module(module).FORMAT
    return loaded


@lru_cache(maxsize=1)
def _plug_ins() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in entry_points(group="holdall.formats")}


@cache
def _plug_in(entry: EntryPoint) -> Format:
    loaded: Format = entry.load()
    return loaded
