"""The options that reading commands share, and what they mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from holdall.check import Level
    from holdall.errors import HoldallError
    from holdall.examine import Examination
    from holdall.format import Format
    from holdall.limits import Limits
    from holdall.model import Model

__all__ = ["FILE", "FORMAT_NAME", "SIZE", "AnyType", "FileName", "FormatName", "NewFile", "Reading", "Size"]
__all__ += [
    "TextType",
    "Trust",
    "about",
    "checking",
    "each_file",
    "first_error",
    "reading",
    "target_format",
    "trusting",
]

_Function = TypeVar("_Function", bound=Callable[..., Any])

# click's parameter types became generic in 8.2; at run time both kinds are the bare class.
if TYPE_CHECKING:
    TextType = click.ParamType[str]
    AnyType = click.ParamType[Any]
else:
    TextType = AnyType = click.ParamType


class FormatName(TextType):
    """The id of a registered format; anything else is wrong usage."""

    name = "format"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse a name that no format has."""
        from holdall import registry

        if not any(row.name == value for row in registry.BUILT_IN) and value not in registry.names():
            from holdall.suggest import did_you_mean

            known = registry.names()
            text = f"there is no format {value!r}; the formats are: {', '.join(known)}{did_you_mean(value, known)}"
            self.fail(text, param, ctx)
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        """The names that begin so."""
        from click.shell_completion import CompletionItem

        from holdall import registry

        return [CompletionItem(name) for name in registry.names() if name.startswith(incomplete)]


class FileName(TextType):
    """A path as given; whether it exists is found out by opening it. Shells complete file names."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """As it is, unless there is nothing: most likely a variable of a shell that is not set."""
        if not value:
            self.fail("the name of a file is empty", param, ctx)
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        """Leave it to the shell."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type="file")]


class Size(AnyType):
    """A number of bytes or of elements, such as 5GB, 512MiB, 64K or 1000; anything else is wrong usage."""

    name = "size"

    def __init__(self, least: int = 0) -> None:
        self._least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """As a number."""
        from holdall.errors import ContentError
        from holdall.sharding import parse_size

        try:
            return parse_size(value, least=self._least)
        except ContentError as error:
            self.fail(str(error), param, ctx)


class NewFile(FileName):
    """A file to be written after some work: a wrong suffix or a missing folder is found out before it."""

    def __init__(self, *suffixes: str) -> None:
        self._suffixes = suffixes

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """As it is, or refused as wrong usage."""
        import os
        from pathlib import Path

        path = str(value)
        folder = Path(path).parent
        if path == "-":
            return path
        if not path.lower().endswith(self._suffixes):
            self.fail(f"{path!r} does not end in {' or '.join(self._suffixes)}", param, ctx)
        if not folder.is_dir():
            self.fail(f"there is no folder {str(folder)!r}", param, ctx)
        if not os.access(folder, os.W_OK):
            self.fail(f"the folder {str(folder)!r} may not be written to", param, ctx)
        return path


SIZE = Size()
FORMAT_NAME = FormatName()
FILE = FileName()


@dataclass(frozen=True, slots=True)
class Trust:
    """How far the user trusts the files that a command reads."""

    untrusted: bool = False
    allow: tuple[str, ...] = ()

    @property
    def limits(self) -> Limits | None:
        """The usual caps, or tight ones for the files of strangers."""
        if not self.untrusted:
            return None
        from holdall.limits import UNTRUSTED_LIMITS

        return UNTRUSTED_LIMITS

    @property
    def allowed(self) -> tuple[str, ...] | None:
        """The formats whose code may run; None for all."""
        return self.allow or None


@dataclass(frozen=True, slots=True)
class Reading(Trust):
    """How the user wants files read, and the answer printed."""

    format: str | None = None
    json: bool = False

    def open(self, path: str, *, mmap: bool = True, check: bool = True) -> Model:
        """The model in ``path``; untrusted files are read, never mapped. ``check=False`` ignores all hashes."""
        from holdall.api import open_model

        mapped, proving = mmap and not self.untrusted, None if check else False
        open_here = partial(open_model, path, format=self.format, mmap=mapped, check=proving)
        return open_here(limits=self.limits, allowed=self.allowed)

    def examine(self, path: str, level: Level = "structure") -> Examination:
        """As far as ``path`` can be read, with what is wrong."""
        from holdall.examine import examine

        mapped = not self.untrusted
        return examine(path, level=level, format=self.format, limits=self.limits, allowed=self.allowed, mmap=mapped)


_UNTRUSTED = click.option("--untrusted", is_flag=True, help="For files of strangers: tight limits, no memory map.")
_ALLOW = click.option("--allow", multiple=True, type=FORMAT_NAME, help="Read files of this format only; repeatable.")


def checking(function: _Function) -> _Function:
    """Give a command ``--no-check``, handed on as ``check``: False with it, else True."""
    text = "Do not check the hashes and checksums that files state of their tensors."
    return click.option("--no-check", "check", is_flag=True, flag_value=False, default=True, help=text)(function)


def trusting(function: _Function) -> _Function:
    """Give a command ``--untrusted`` and ``--allow``, handed on as one ``trust``."""

    def command(*, untrusted: bool, allow: tuple[str, ...], **rest: Any) -> Any:
        return function(trust=Trust(untrusted, allow), **rest)

    return _UNTRUSTED(_ALLOW(update_wrapper(command, function)))  # type: ignore[return-value]


def reading(function: _Function) -> _Function:
    """Give a command ``--format``, ``--untrusted``, ``--allow`` and ``--json``, handed on as one ``reading``."""

    def command(*, format: str | None, untrusted: bool, allow: tuple[str, ...], as_json: bool, **rest: Any) -> Any:
        return function(reading=Reading(untrusted, allow, format, as_json), **rest)

    wrapped = update_wrapper(command, function)
    wrapped = click.option("--json", "as_json", is_flag=True, help="Print JSON, one object a line.")(wrapped)
    wrapped = _UNTRUSTED(_ALLOW(wrapped))
    return click.option("--format", "format", type=FORMAT_NAME, help="The format, instead of detecting it.")(wrapped)  # type: ignore[return-value]


def each_file(files: Sequence[str], act: Callable[[str, int], bool]) -> None:
    """Do ``act(path, number)`` for each file, going on after one that fails; exit 1 when any did, or said False."""
    from holdall.cli import Failure, sentence
    from holdall.errors import HoldallError

    context = click.get_current_context()
    fine = True
    for number, path in enumerate(files):
        try:
            fine = act(path, number) and fine
        except BrokenPipeError:
            raise
        except (HoldallError, OSError) as error:
            if context.find_root().params.get("debug"):
                raise
            Failure(sentence(error, path)).show()
            fine = False
    if not fine:
        context.exit(1)


@contextmanager
def about(path: str) -> Iterator[None]:
    """What goes wrong in here is about ``path``, unless it says itself what it is about."""
    from holdall.errors import HoldallError

    try:
        yield
    except HoldallError as error:
        error.file = error.file or path
        raise


def first_error(seen: Examination) -> HoldallError:
    """Why there is no model at all."""
    from holdall.errors import FormatError

    finding = seen.report.findings[0]
    return FormatError(finding.rule, finding.offset, finding.message)


def target_format(path: str, name: str | None) -> Format:
    """The format to write to ``path``: the one that is named, else that of its suffix, if it has one."""
    from holdall import registry
    from holdall.errors import UnsupportedError

    if name is not None:
        return registry.find(name)
    try:
        return registry.by_suffix(path)
    except UnsupportedError as error:
        raise click.UsageError(f"{error} ({_format_hint(path)})") from None


def _format_hint(path: str) -> str:
    """The option that says what a suffix does not."""
    from pathlib import Path

    from holdall import registry

    meanings = next((names for suffix, names in registry.AMBIGUOUS.items() if path.lower().endswith(suffix)), None)
    if meanings is not None:
        return " or ".join(f"--format {name}" for name in meanings)
    return "--format hf for a folder" if path.endswith("/") or Path(path).is_dir() else "--format NAME"
