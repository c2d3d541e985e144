"""Formats by name, by content, by suffix. Each is imported when it is first needed.

The rows below are all that detection needs to choose a candidate, so that opening one format imports one.
Other people's formats join through the entry-point group ``holdall.formats``: the entry's name is the
format id, its value an instance of :class:`holdall.format.Format`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING

from holdall.check import Rule
from holdall.errors import FormatError, UnsupportedError
from holdall.looks import looks_like

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from holdall.format import Format
    from holdall.source import Source

__all__ = ["GROUP", "HEAD", "by_suffix", "choose", "detect", "find", "is_built_in", "names", "plug_ins", "suffix_of"]

GROUP = "holdall.formats"  # of entry points
HEAD = 64  # bytes that detection looks at first

UNKNOWN = Rule("core.format", "the file is of a known format")


@dataclass(frozen=True, slots=True)
class Row:
    """A built-in format before it is imported. ``module`` may name the instance: "package.module:NAME"."""

    name: str
    module: str
    suffixes: tuple[str, ...]
    magic: bytes = b""  # empty: the format is asked itself
    folder: bool = False
    splits: bool = False


BUILT_IN: tuple[Row, ...] = (
    Row("oinf", "holdall.formats.oinf", (".oinf",), b"OINF\0"),
    Row("mcf", "holdall.formats.mcf", (".mcf",), b"MCF\0"),
    Row("embd", "holdall.formats.embd", (".weights",), b"EMBD"),
    Row("gptrs-checkpoint", "holdall.formats.gptrs:CHECKPOINT", (".gptrs",), b"GPTRSCHK"),
    Row("gptrs-archive", "holdall.formats.gptrs:ARCHIVE", (".gptrsten",), b"GPTRSTEN"),
    Row("aero", "holdall.formats.aero", (".aero",), b"AERO"),
    Row("gguf", "holdall.formats.gguf", (".gguf",), b"GGUF", splits=True),
    Row("aeroset", "holdall.formats.aeroset", (".aeroset",), folder=True),
    Row("safetensors", "holdall.formats.safetensors", (".safetensors",), splits=True),
    Row("torch", "holdall.formats.torch", (".pt", ".pth", ".ckpt")),
    Row("npz", "holdall.formats.npz", (".npz",)),
    Row("onnx", "holdall.formats.onnx", (".onnx",)),
    Row("hf", "holdall.formats.hf", (".safetensors.index.json",), folder=True),
)

# Suffixes that mean nothing by themselves: what is written under one is said, never guessed.
AMBIGUOUS: dict[str, tuple[str, ...]] = {".bin": ("gptrs-checkpoint", "torch")}


def names() -> list[str]:
    """The ids of all registered formats, built-in ones first."""
    return [*_rows(), *plug_ins()]


def is_built_in(name: str) -> bool:
    """Whether ``name`` is one of holdall's own formats, for which no code of others is imported."""
    return name in _rows()


def find(name: str) -> Format:
    """The format called ``name``."""
    row = _rows().get(name)
    if row is not None:
        return _load(row.module)
    entry = plug_ins().get(name)
    if entry is None:
        raise UnsupportedError(f"there is no format {name!r}; the formats are: {', '.join(names())}")
    return _plug_in(entry)


def detect(source: Source, allowed: Collection[str] | None = None) -> Format:
    """The format of ``source``: by content first, by suffix where the content says nothing.

    ``allowed`` is an allowlist of ids: a file of any other format is refused, and no code of it is run.
    """
    head = source.read(0, min(HEAD, source.size))
    for candidate in _candidates(source, head, allowed):
        if candidate.accepts(head, source):
            return candidate
    by_name = _by_suffix(source.name, allowed)
    looks = None if source.is_folder else looks_like(head, source.size)
    if len(by_name) == 1 and not source.is_folder:
        if looks is not None:
            raise FormatError(UNKNOWN.id, 0, f"{source.name}: {looks}; it holds no {by_name[0].name}")
        return by_name[0]  # its reader says precisely what is wrong
    known = ", ".join(allowed if allowed is not None else names())
    other = next((row.name for row in BUILT_IN if row.magic and head.startswith(row.magic)), None)  # not allowed
    what = "is a folder" if source.is_folder else f"is {other}" if other else looks or f"begins with {head[:16]!r}"
    raise FormatError(UNKNOWN.id, 0, f"{source.name}: {what}: none of the formats {known}")


def choose(source: Source, format: str | None, allowed: Collection[str] | None) -> Format:
    """The format that the caller names, else the one that the content shows; never one that is not ``allowed``."""
    if format is None:
        return detect(source, allowed)
    if allowed is not None and format not in allowed:
        raise UnsupportedError(f"{source.name}: the format {format} is not among the allowed ones")
    return find(format)


def by_suffix(path: str | os.PathLike[str], *, folder: bool = False) -> Format:
    """The one format for a path to be written; a suffix that several share is refused naming them."""
    for suffix, meanings in AMBIGUOUS.items():
        if os.fspath(path).lower().endswith(suffix):
            raise UnsupportedError(f"{os.fspath(path)}: {suffix} may mean {' or '.join(meanings)}: give a format")
    found = _by_suffix(os.fspath(path))
    if len(found) == 1:
        return found[0]
    if not found:
        known = ", ".join(sorted({suffix for name in names() for suffix in find(name).suffixes}))
        raise UnsupportedError(f"{os.fspath(path)}: no format has this suffix; give a format, or use one of {known}")
    choices = ", ".join(f.name for f in found)
    raise UnsupportedError(f"{os.fspath(path)}: the suffix may mean {choices}: give a format")


def suffix_of(path: str) -> str | None:
    """The one built-in format whose suffix ``path`` has; None where it has none, or one that says nothing."""
    found = [row.name for row in BUILT_IN if path.lower().endswith(row.suffixes)]
    return found[0] if len(found) == 1 and not path.lower().endswith(tuple(AMBIGUOUS)) else None


def _candidates(source: Source, head: bytes, allowed: Collection[str] | None) -> Iterator[Format]:
    """Formats worth asking, those whose magic matches first. A folder format may be given by its main file too.

    A folder has no magic: formats that are always folders come first, then those that may be split into files.
    """
    wanted = [row for row in BUILT_IN if allowed is None or row.name in allowed]
    rows = [row for row in wanted if row.folder or row.splits or not source.is_folder]
    yield from (_load(row.module) for row in rows if row.magic and head.startswith(row.magic))
    yield from (_load(row.module) for row in rows if not row.magic)
    yield from (_load(row.module) for row in rows if row.magic and source.is_folder)
    for plug_in in _working_plug_ins(allowed):
        if plug_in.folder or plug_in.splits or not source.is_folder:
            yield plug_in


def _by_suffix(path: str, allowed: Collection[str] | None = None) -> list[Format]:
    """Formats with the longest suffix that ``path`` ends in; plug-ins are looked for when no built-in has one."""
    lower = path.lower().rstrip("/")

    def match(suffixes: Collection[str]) -> int:
        return max((len(suffix) for suffix in suffixes if lower.endswith(suffix)), default=0)

    found = {row.name: match(row.suffixes) for row in BUILT_IN if allowed is None or row.name in allowed}
    if not any(found.values()):
        found = {plug_in.name: match(plug_in.suffixes) for plug_in in _working_plug_ins(allowed)}
    longest = max(found.values(), default=0)
    return [find(name) for name, length in found.items() if length == longest > 0]


@lru_cache(maxsize=1)
def _rows() -> dict[str, Row]:
    return {row.name: row for row in BUILT_IN}


@cache
def _load(module: str) -> Format:
    home, _, instance = module.partition(":")
    loaded: Format = getattr(import_module(home), instance or "FORMAT")
    return loaded


@lru_cache(maxsize=1)
def plug_ins() -> dict[str, EntryPoint]:
    """Other people's formats, not yet imported. None of them takes the name of a built-in one."""
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in entry_points(group=GROUP) if entry.name not in _rows()}


@cache
def _plug_in(entry: EntryPoint) -> Format:
    from holdall.format import Format

    try:
        loaded = entry.load()
    except Exception as error:  # whatever other people's code raises
        message = f"the format {entry.name!r} ({entry.value}) cannot be imported: {error}"
        raise UnsupportedError(message) from error
    if not isinstance(loaded, Format) or loaded.name != entry.name:
        raise UnsupportedError(f"{entry.value} is not a holdall Format called {entry.name!r}")
    return loaded


def _working_plug_ins(allowed: Collection[str] | None) -> Iterator[Format]:
    """The allowed plug-ins, imported. A broken one is warned of, and keeps no other file from being opened."""
    for name, entry in plug_ins().items():
        if allowed is None or name in allowed:
            try:
                yield _plug_in(entry)
            except UnsupportedError as error:
                warnings.warn(str(error), RuntimeWarning, stacklevel=2)
