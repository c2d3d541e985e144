"""The options that reading commands share, and what they mean."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdall.base.text import file_text
from holdall.cli import FAILED, UNREAD

if TYPE_CHECKING:
    from holdall.base.check import Level
    from holdall.format.base import Format
    from holdall.limits import Limits
    from holdall.model.model import Model
    from holdall.operations.examine import Examination

__all__ = ["FILE", "FORMAT_NAME", "LOCAL_FILE", "SIZE", "AnyType", "Count", "FileName", "FormatName"]
__all__ += ["LimitValue", "LocalFile", "NewFile", "Reading"]
__all__ += [
    "Size",
    "TextType",
    "Trust",
    "add_check_option",
    "add_reading_options",
    "add_threads_option",
    "add_trust_options",
    "check_threads",
    "find_target_format",
]
__all__ += ["EXIT_CODES", "for_each_file", "naming_file"]

_Function = TypeVar("_Function", bound=Callable[..., Any])

# click's parameter types became generic in 8.2; at run time both kinds are the bare class.
if TYPE_CHECKING:
    TextType = click.ParamType[str]
    AnyType = click.ParamType[Any]
else:
    TextType = AnyType = click.ParamType


class FormatName(TextType):
    """The id of a registered format; anything else is a usage error."""

    name = "format"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse a name that no format has."""
        from holdall.format import registry

        if not any(row.name == value for row in registry.BUILT_IN) and value not in registry.names():
            from holdall.base.suggest import did_you_mean

            known = registry.names()
            text = f"there is no format {value!r}; the formats are: {', '.join(known)}{did_you_mean(value, known)}"
            self.fail(text, param, ctx)
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        """Return the format names that begin with ``incomplete``."""
        from click.shell_completion import CompletionItem

        from holdall.format import registry

        return [CompletionItem(name) for name in registry.names() if name.startswith(incomplete)]


class Count(click.IntRange):
    """A number of things; what is beyond all machine integers counts as the largest of them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Refuse what is no number, or too small."""
        return min(int(super().convert(value, param, ctx)), sys.maxsize)


class Origin(TextType):
    """Scheme, host and port of a web server; anything else is a usage error."""

    name = "origin"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse a text that is not an origin."""
        from holdall.base.urls import parse_origins
        from holdall.errors import UnsupportedError

        try:
            return next(iter(parse_origins(str(value))))
        except UnsupportedError as error:
            self.fail(str(error), param, ctx)


class FileName(TextType):
    """A path as given: opening it shows whether it exists. Shells complete file names."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse an empty name: most likely it was a shell variable that is not set."""
        if not value:
            self.fail("the name of a file is empty", param, ctx)
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        """Let the shell complete file names."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type="file")]


class LocalFile(FileName):
    """A file beside the model, such as a list of names, or a file to be written: URLs are for models that are read."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse a URL before it is taken for a path, with which it would be shown as it was given."""
        from holdall.base.urls import is_url

        path = super().convert(value, param, ctx)
        if is_url(path):
            self.fail(f"{file_text(path)} is a URL: give a file", param, ctx)
        return path


class Size(AnyType):
    """A number of bytes or of elements, such as 5GB, 512MiB, 64K or 1000; anything else is a usage error."""

    name = "size"

    def __init__(self, least: int = 0) -> None:
        self._least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse a size."""
        from holdall.errors import ContentError
        from holdall.format.sharding import parse_size

        try:
            return parse_size(value, least=self._least)
        except ContentError as error:
            self.fail(str(error), param, ctx)


class LimitValue(AnyType):
    """A limit and its value, such as tensors=40M; a name that no limit has is a usage error."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        """Parse the limit's name and its number."""
        from dataclasses import fields

        from holdall.base.suggest import did_you_mean
        from holdall.limits import Limits

        if isinstance(value, tuple):  # click converts a default again
            return value
        name, _, number = str(value).partition("=")
        known = [each.name for each in fields(Limits)]
        if name not in known:
            hint = did_you_mean(name, known) or f"; the limits are: {', '.join(known)}"
            self.fail(f"there is no limit {name!r}{hint}", param, ctx)
        found = SIZE.convert(number, param, ctx)
        try:
            Limits(**{name: found})
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return name, found

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        """Return the limits that begin with ``incomplete``."""
        from dataclasses import fields

        from click.shell_completion import CompletionItem

        from holdall.limits import Limits

        return [CompletionItem(f"{each.name}=") for each in fields(Limits) if each.name.startswith(incomplete)]


class NewFile(LocalFile):
    """A file to be written: a wrong suffix or a missing folder is refused before any work is done."""

    def __init__(self, *suffixes: str, or_stdout: bool = False) -> None:
        self._suffixes = suffixes
        self._or_stdout = or_stdout

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse a path that cannot be written."""
        import os
        from pathlib import Path

        from holdall.base import platform

        path = super().convert(value, param, ctx)
        folder = Path(path).parent
        if path == "-" and self._or_stdout:
            return path
        if not path.lower().endswith(self._suffixes):
            self.fail(f"{file_text(path)!r} does not end in {' or '.join(self._suffixes)}", param, ctx)
        full = platform.full_path(folder)
        if not full.is_dir():
            self.fail(f"there is no folder {file_text(folder)!r}", param, ctx)
        if not os.access(full, os.W_OK):
            self.fail(f"the folder {file_text(folder)!r} may not be written to", param, ctx)
        return path


SIZE = Size()
FORMAT_NAME = FormatName()
FILE = FileName()
LOCAL_FILE = LocalFile()


@dataclass(frozen=True, slots=True)
class Trust:
    """How far the user trusts the files that a command reads."""

    untrusted: bool = False
    allow: tuple[str, ...] = ()
    changed: tuple[tuple[str, int], ...] = ()
    follow: tuple[str, ...] = ()

    @property
    def limits(self) -> Limits | None:
        """The limits, tight ones for untrusted files, with those the user changed; None for the usual ones."""
        if not self.untrusted and not self.changed:
            return None
        from dataclasses import replace

        from holdall.limits import DEFAULT_LIMITS, UNTRUSTED_LIMITS

        return replace(UNTRUSTED_LIMITS if self.untrusted else DEFAULT_LIMITS, **dict(self.changed))

    @property
    def allowed(self) -> tuple[str, ...] | None:
        """The formats whose code may run; None for all."""
        return self.allow or None


@dataclass(frozen=True, slots=True)
class Reading(Trust):
    """How the user wants files read, and the answer printed."""

    format: str | None = None
    json: bool = False

    def open(self, path: str, *, mmap: bool = False, check: bool = True) -> Model:
        """Open the model in ``path``. ``check=False`` ignores all hashes.

        ``mmap=True`` is for commands that would have to read much more without a map. A file that is cut while it is
        mapped ends the process, so untrusted files never are.
        """
        from holdall.operations.open_save import open_model

        mapped, proving = mmap and not self.untrusted, None if check else False
        open_here = partial(open_model, path, format=self.format, mmap=mapped, check=proving)
        return open_here(limits=self.limits, allowed=self.allowed, follow=self.follow)

    def examine(self, path: str, level: Level = "structure") -> Examination:
        """Read ``path`` as far as possible, with all findings."""
        from holdall.operations.examine import examine

        examine_here = partial(examine, path, level=level, format=self.format)
        return examine_here(limits=self.limits, allowed=self.allowed, follow=self.follow)


_UNTRUSTED_TEXT = "For files you do not trust: tight limits, no memory map. Refuses objects of unknown classes."
_UNTRUSTED = click.option("--untrusted", is_flag=True, help=_UNTRUSTED_TEXT)
_LIMIT_HELP = "Raise or lower a limit on what a file may ask for, such as tensors=40M; repeatable."
_LIMIT = click.option("--limit", "changed", multiple=True, type=LimitValue(), metavar="NAME=VALUE", help=_LIMIT_HELP)
_ALLOW = click.option("--allow", multiple=True, type=FORMAT_NAME, help="Read files of this format only; repeatable.")
_FOLLOW_TEXT = "Let servers redirect, and sets refer, to this origin, such as https://host; repeatable."
_FOLLOW = click.option("--follow", multiple=True, type=Origin(), metavar="ORIGIN", help=_FOLLOW_TEXT)


def add_check_option(function: _Function) -> _Function:
    """Add to a command ``--no-check``, passed as ``check``: False with it, else True."""
    text = "Do not check the hashes and checksums that files state of their tensors."
    return click.option("--no-check", "check", is_flag=True, flag_value=False, default=True, help=text)(function)


def add_threads_option(function: _Function) -> _Function:
    """Add to a command ``--threads``, which says how many threads its passes over the files use."""

    def command(*, threads: int | None, **rest: Any) -> Any:
        from holdall.base.parallel import use_threads

        with use_threads(threads):
            check_threads()
            return function(**rest)

    text = "Work in N threads; by default HOLDALL_THREADS, or one for each processor."
    option = click.option("--threads", type=Count(1), metavar="N", help=text)
    return option(update_wrapper(command, function))  # type: ignore[return-value]


def check_threads() -> None:
    """Refuse a number of threads in HOLDALL_THREADS that is none, before any work is done."""
    from holdall.base.parallel import thread_count
    from holdall.errors import UnsupportedError

    try:
        thread_count()
    except UnsupportedError as error:
        raise click.UsageError(str(error)) from None


def add_trust_options(function: _Function) -> _Function:
    """Add to a command ``--untrusted``, ``--limit``, ``--allow`` and ``--follow``, passed as one ``trust``."""

    def command(
        *, untrusted: bool, allow: tuple[str, ...], changed: tuple[tuple[str, int], ...], follow: tuple[str, ...],
        **rest: Any,
    ) -> Any:  # fmt: skip
        return function(trust=Trust(untrusted, allow, changed, follow), **rest)

    return _UNTRUSTED(_LIMIT(_ALLOW(_FOLLOW(update_wrapper(command, function)))))  # type: ignore[return-value]


def add_reading_options(function: _Function) -> _Function:
    """Add to a command ``--format``, ``--json`` and what :func:`add_trust_options` adds, passed as one ``reading``."""

    def command(*, format: str | None, as_json: bool, trust: Trust, **rest: Any) -> Any:
        reading = Reading(trust.untrusted, trust.allow, trust.changed, trust.follow, format, as_json)
        return function(reading=reading, **rest)

    wrapped = update_wrapper(command, function)
    wrapped = click.option("--json", "as_json", is_flag=True, help="Print JSON, one object a line.")(wrapped)
    wrapped = add_trust_options(wrapped)
    return click.option("--format", "format", type=FORMAT_NAME, help="The format, instead of detecting it.")(wrapped)  # type: ignore[return-value]


EXIT_CODES = {"ok": 0, "not ok": FAILED, "not read": UNREAD}  # by the verdict of the report


def for_each_file(files: Sequence[str], act: Callable[[str, int], int | None]) -> None:
    """Call ``act(path, number)``, which returns an exit code, for each file, also after one has failed.

    Exit 1 if any failed, else with the highest code.
    """
    from holdall.cli import Failure, choose_exit_code, sentence
    from holdall.errors import HoldallError

    context = click.get_current_context()
    codes = {0}
    for number, path in enumerate(files):
        try:
            codes.add(act(path, number) or 0)
        except BrokenPipeError:
            raise
        except (HoldallError, OSError) as error:
            if context.find_root().params.get("debug"):
                raise
            Failure(sentence(error, path)).show()
            codes.add(choose_exit_code(error))
    if codes != {0}:
        context.exit(FAILED if FAILED in codes else max(codes))


@contextmanager
def naming_file(path: str) -> Iterator[None]:
    """Attach ``path`` to errors raised inside that name no file."""
    from holdall.errors import HoldallError

    try:
        yield
    except HoldallError as error:
        error.file = error.file or path
        raise


def find_target_format(path: str, name: str | None) -> Format:
    """Return the format to write to ``path``: the one named, else that of its suffix."""
    from holdall.errors import UnsupportedError
    from holdall.format import registry

    if name is not None:
        return registry.find(name)
    try:
        return registry.find_by_suffix(path)
    except UnsupportedError as error:
        raise click.UsageError(f"{error} ({_format_hint(path)})") from None


def _format_hint(path: str) -> str:
    """Return the option to use if the suffix does not tell the format."""
    from pathlib import Path

    from holdall.format import registry

    meanings = next((names for suffix, names in registry.AMBIGUOUS.items() if path.lower().endswith(suffix)), None)
    if meanings is not None:
        return " or ".join(f"--format {name}" for name in meanings)
    return "--format hf for a folder" if path.endswith("/") or Path(path).is_dir() else "--format NAME"
