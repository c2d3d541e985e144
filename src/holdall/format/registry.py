"""Finds formats by name, by content and by suffix, and imports each when it is first needed.

``BUILT_IN`` has what detection needs to choose a candidate, so that opening a file imports one format. Formats of
other packages are found by the entry-point group ``holdall.formats``: the name of an entry is the format id, its value
an instance of :class:`holdall.format.base.Format`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdall.base.check import Rule
from holdall.base.text import file_text
from holdall.errors import ForeignError, FormatError, UnsupportedError
from holdall.format.second_format import FRONT, refuse_second

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from holdall.format.base import Format
    from holdall.model.model import Model
    from holdall.source import Source

__all__ = ["GROUP", "HEAD", "choose", "detect", "find", "find_by_suffix", "is_built_in", "name_by_suffix", "names"]
__all__ += ["plug_ins", "resolve_facet"]

GROUP = "holdall.formats"  # the group of entry points
HEAD = 64  # bytes that a format is shown first

UNKNOWN = Rule("core.format", "the file is of a known format")


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A built-in format before it is imported. ``module`` may name the instance: "package.module:NAME"."""

    name: str
    module: str
    suffixes: tuple[str, ...]
    magic: bytes = b""  # if empty, the format is imported to decide
    folder: bool = False
    splits: bool = False
    beside: bool = False


BUILT_IN: tuple[BuiltIn, ...] = (
    BuiltIn("oinf", "holdall.format.oinf", (".oinf",), b"OINF\0"),
    BuiltIn("mcf", "holdall.format.mcf", (".mcf",), b"MCF\0"),
    BuiltIn("embd", "holdall.format.embd", (".weights",), b"EMBD"),
    BuiltIn("gptrs-checkpoint", "holdall.format.gptrs:CHECKPOINT", (".gptrs",), b"GPTRSCHK"),
    BuiltIn("gptrs-archive", "holdall.format.gptrs:ARCHIVE", (".gptrsten",), b"GPTRSTEN"),
    BuiltIn("aero", "holdall.format.aero", (".aero",), b"AERO"),
    BuiltIn("gguf", "holdall.format.gguf", (".gguf",), b"GGUF", splits=True),
    BuiltIn("aeroset", "holdall.format.aeroset", (".aeroset",), folder=True),
    BuiltIn("safetensors", "holdall.format.safetensors", (".safetensors",), splits=True),
    BuiltIn("torch", "holdall.format.torch", (".pt", ".pth", ".ckpt")),
    BuiltIn("npz", "holdall.format.npz", (".npz",)),
    BuiltIn("onnx", "holdall.format.onnx", (".onnx",), beside=True),
    BuiltIn("hf", "holdall.format.hf", (".safetensors.index.json",), folder=True),
)

# Suffixes that several formats use: a file with such a suffix is written only if a format is named.
AMBIGUOUS: dict[str, tuple[str, ...]] = {".bin": ("gptrs-checkpoint", "torch")}


def names() -> list[str]:
    """The ids of all registered formats, built-in ones first."""
    return [*_built_in(), *plug_ins()]


def is_built_in(name: str) -> bool:
    """Whether ``name`` is a format of holdall, for which no plug-in is imported."""
    return name in _built_in()


def find(name: str) -> Format:
    """Find the format called ``name``."""
    built_in = _built_in().get(name)
    if built_in is not None:
        return _load(built_in.module)
    entry = plug_ins().get(name)
    if entry is None:
        raise UnsupportedError(f"there is no format {name!r}; the formats are: {', '.join(names())}")
    return _load_plug_in(entry)


def detect(source: Source, allowed: Collection[str] | None = None) -> Format:
    """The format of ``source``: by content, or by suffix if no format accepts the content.

    ``allowed`` is an allowlist of ids: a file of any other format is refused, and no code of that format is run. A
    file that other programs read as a second format is refused whether that one is allowed or not.
    """
    front = source.read(0, min(FRONT, source.size))
    head = front[:HEAD]
    for candidate in _list_candidates(source, head, allowed):
        if candidate.accepts(head, source):
            if not source.is_folder:
                refuse_second(source, front, candidate)
            return candidate
    by_name = _match_suffix(source.name, allowed)
    from holdall.format.sniff import name_content, name_folder  # which most programs never need

    if source.is_folder:
        what = name_folder(source.names(), _list_suffixes(allowed)) or f"is a folder: {_list_known(allowed)}"
        raise ForeignError(UNKNOWN.id, None, f"{source.name}: {what}")
    other = next((each.name for each in BUILT_IN if each.magic and head.startswith(each.magic)), None)  # not allowed
    if other is not None and not by_name:
        raise FormatError(UNKNOWN.id, 0, f"{source.name}: is {other}: {_list_known(allowed)}")
    content = name_content(source)
    if content is None and len(by_name) == 1:
        refuse_second(source, front, by_name[0])
        return by_name[0]  # its reader raises the error that says precisely what is wrong
    if content is None:
        raise ForeignError(UNKNOWN.id, 0, f"{source.name}: begins with {head[:16]!r}: {_list_known(allowed)}")
    kind = FormatError if content.failed else ForeignError
    missing = f"; it holds no {by_name[0].name}" if len(by_name) == 1 else ""
    raise kind(UNKNOWN.id, 0, f"{source.name}: {content.text}{missing}")


def _list_known(allowed: Collection[str] | None) -> str:
    return f"none of the formats {', '.join(allowed if allowed is not None else names())}"


def _list_suffixes(allowed: Collection[str] | None) -> tuple[str, ...]:
    """List the suffixes of files that may be opened; another one would be refused as well."""
    found = {suffix: {each.name} for each in BUILT_IN for suffix in each.suffixes}
    found |= {suffix: set(meanings) for suffix, meanings in AMBIGUOUS.items()} | {".npy": {"npz"}}
    return tuple(suffix for suffix, meanings in found.items() if allowed is None or meanings & set(allowed))


def choose(source: Source, format: str | None, allowed: Collection[str] | None) -> Format:
    """Choose the format called ``format``, or else that of the content; raises if it is not ``allowed``."""
    if format is None:
        return detect(source, allowed)
    if allowed is not None and format not in allowed:
        raise UnsupportedError(f"{source.name}: the format {format} is not among the allowed ones")
    return find(format)


def find_by_suffix(path: str | os.PathLike[str]) -> Format:
    """Find the format of a path to be written; UnsupportedError lists the choices for a suffix that several share."""
    for suffix, meanings in AMBIGUOUS.items():
        if os.fspath(path).lower().endswith(suffix):
            raise UnsupportedError(f"{file_text(path)}: {suffix} may mean {' or '.join(meanings)}: give a format")
    found = _match_suffix(os.fspath(path))
    if len(found) == 1:
        return found[0]
    if not found:
        known = ", ".join(sorted({suffix for name in names() for suffix in find(name).suffixes}))
        raise UnsupportedError(f"{file_text(path)}: no format has this suffix; give a format, or use one of {known}")
    choices = ", ".join(f.name for f in found)
    raise UnsupportedError(f"{file_text(path)}: the suffix may mean {choices}: give a format")


def name_by_suffix(path: str) -> str | None:
    """Return the id of the built-in format whose suffix ``path`` has; None for other and for ambiguous suffixes."""
    found = [each.name for each in BUILT_IN if path.lower().endswith(each.suffixes)]
    return found[0] if len(found) == 1 and not path.lower().endswith(tuple(AMBIGUOUS)) else None


def _list_candidates(source: Source, head: bytes, allowed: Collection[str] | None) -> Iterator[Format]:
    """List the formats that may accept ``source``, those whose magic matches first.

    Folder formats may accept a file, the main file of their folder. A folder has no magic, so formats without magic
    come first, then those that may be split into files.
    """
    wanted = [each for each in BUILT_IN if allowed is None or each.name in allowed]
    fitting = [each for each in wanted if each.folder or each.splits or each.beside or not source.is_folder]
    # The format that the suffix names is asked first: if it accepts, the others need not be imported.
    fitting.sort(key=lambda each: not source.name.lower().endswith(each.suffixes))
    yield from (_load(each.module) for each in fitting if each.magic and head.startswith(each.magic))
    yield from (_load(each.module) for each in fitting if not each.magic)
    yield from (_load(each.module) for each in fitting if each.magic and source.is_folder)
    for plug_in in _load_plug_ins(allowed):
        if plug_in.folder or plug_in.splits or plug_in.beside or not source.is_folder:
            yield plug_in


def _match_suffix(path: str, allowed: Collection[str] | None = None) -> list[Format]:
    """Find the formats with the longest suffix of ``path``; plug-ins only if no built-in format matches."""
    lower = path.lower().rstrip("/")

    def match(suffixes: Collection[str]) -> int:
        return max((len(suffix) for suffix in suffixes if lower.endswith(suffix)), default=0)

    found = {each.name: match(each.suffixes) for each in BUILT_IN if allowed is None or each.name in allowed}
    if not any(found.values()):
        found = {plug_in.name: match(plug_in.suffixes) for plug_in in _load_plug_ins(allowed)}
    longest = max(found.values(), default=0)
    return [find(name) for name, length in found.items() if length == longest > 0]


@lru_cache(maxsize=1)
def _built_in() -> dict[str, BuiltIn]:
    return {each.name: each for each in BUILT_IN}


@cache
def _load(module: str) -> Format:
    home, _, instance = module.partition(":")
    loaded: Format = getattr(import_module(home), instance or "FORMAT")
    return loaded


@lru_cache(maxsize=1)
def plug_ins() -> dict[str, EntryPoint]:
    """The entry points of plug-ins by name, not yet imported; a name of a built-in format is ignored."""
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in entry_points(group=GROUP) if entry.name not in _built_in()}


@cache
def _load_plug_in(entry: EntryPoint) -> Format:
    from holdall.format.base import Format

    try:
        loaded = entry.load()
    except Exception as error:  # code of another package may raise anything
        message = f"the format {entry.name!r} ({entry.value}) cannot be imported: {error}"
        raise UnsupportedError(message) from error
    if not isinstance(loaded, Format) or loaded.name != entry.name:
        raise UnsupportedError(f"{entry.value} is not a holdall Format called {entry.name!r}")
    return loaded


def _load_plug_ins(allowed: Collection[str] | None) -> Iterator[Format]:
    """Load the allowed plug-ins, imported. A broken one only causes a warning, so that other files can be opened."""
    for name, entry in plug_ins().items():
        if allowed is None or name in allowed:
            try:
                yield _load_plug_in(entry)
            except UnsupportedError as error:
                warnings.warn(str(error), RuntimeWarning, stacklevel=2)


def resolve_facet(model: Model, name: str) -> Any:
    """Return the facet ``name`` that the format of ``model`` finds in it; None if it finds none."""
    return None if model.format is None else find(model.format).facet(name, model)
