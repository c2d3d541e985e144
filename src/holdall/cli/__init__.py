"""The command line. Commands are imported when they are called: ``holdall --version`` loads none of them."""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import click

from holdall import __version__
from holdall.cli.secrets import hide, hide_in_error, remember_secrets

__all__ = ["main"]

COMMANDS = {
    "info": "holdall.cli.info:info",
    "ls": "holdall.cli.ls:ls",
    "verify": "holdall.cli.verify:verify",
    "explain": "holdall.cli.explain:explain",
    "view": "holdall.cli.view:view",
    "extract": "holdall.cli.extract:extract",
    "assets": "holdall.cli.assets:assets",
    "convert": "holdall.cli.convert:convert",
    "restore": "holdall.cli.restore:restore",
    "quantize": "holdall.cli.quantize:quantize",
    "diff": "holdall.cli.diff:diff",
    "edit": "holdall.cli.edit:edit",
    "repair": "holdall.cli.repair:repair",
    "embed": "holdall.cli.embed:embed",
    "calibrate": "holdall.cli.calibrate:calibrate",
    "formats": "holdall.cli.formats:formats",
    "recipes": "holdall.cli.recipes:recipes",
    "from-dataclass": "holdall.cli.from_dataclass:from_dataclass",
    "demo": "holdall.cli.demo:demo",
    "completion": "holdall.cli.completion:completion",
}

# The list of `holdall --help`, kept here so that showing it imports no command.
SUMMARIES = {
    "info": "Show what a file holds, on one screen.",
    "ls": "List tensors: name, dtype, shape, bytes, offset.",
    "verify": "Check a file and list everything that is wrong with it.",
    "explain": "Show every byte's owner and meaning.",
    "view": "Look at a model, or at two, in the browser.",
    "extract": "Copy tensors or assets out, as .npy or as stored bytes.",
    "assets": "List the files inside, such as a tokenizer, or print the vocabulary.",
    "convert": "Convert between containers, losing nothing in silence.",
    "restore": "Make the original that a converted file carries again.",
    "quantize": "Quantize a model's matrices into an MCF file, and report the error.",
    "diff": "Compare two models, whatever containers they are in.",
    "edit": "Change metadata, tensor names or assets of a file.",
    "repair": "Replace what is damaged in a file, and nothing else, from a good copy.",
    "embed": "Turn texts into vectors, with a sentence encoder in any container.",
    "calibrate": "Record the ranges of a sentence encoder's activations over texts.",
    "formats": "Show the formats and what each can hold.",
    "recipes": "Show the recipes by which converted models run elsewhere.",
    "from-dataclass": "Write a Python dataclass as an OINF file.",
    "demo": "Write, read back and verify a small model in every format.",
    "completion": "Print or install shell completion.",
}

FAILED = 1  # the file is invalid or differs
UNREAD = 3  # the file may be intact, and holdall cannot read it or a part of it
# Those that a shell reports of programs ended by SIGPIPE and by SIGINT.
BROKEN_PIPE = 141
INTERRUPTED = 130


class Failure(click.ClickException):
    """The file is invalid or differs: one sentence on stderr."""

    exit_code = FAILED

    def show(self, file: Any = None) -> None:
        """Print the sentence."""
        click.echo(f"holdall: {hide(self.format_message())}", err=True)


class Unread(Failure):
    """The same where the file may be intact, and holdall cannot read it."""

    exit_code = UNREAD


class LazyGroup(click.Group):
    """A group that imports only the command that is called."""

    def main(self, *args: Any, **settings: Any) -> Any:
        """Run the command line, after making sure of the streams."""
        _prepare_streams()
        return super().main(*args, **settings)

    def make_context(self, *args: Any, **settings: Any) -> click.Context:
        """Parse the options of the group, two of which print: --help and --version."""
        given = [str(each) for each in (args[1] if len(args) > 1 else settings["args"])]  # parsing empties the list
        remember_secrets(given)
        try:
            with stdout_errors():
                return super().make_context(*args, **settings)
        except click.UsageError as error:
            raise _clean_usage_error(error, helps=not given) from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command and return it."""
        home = COMMANDS.get(cmd_name)
        if home is None:
            return None
        from importlib import import_module

        module, _, attribute = home.partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        if not gc.isenabled():
            gc.freeze()  # what was imported stays
            gc.enable()
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(SUMMARIES.items()))

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command. An error becomes one sentence and an exit code."""
        if os.environ.get("NO_COLOR") or os.environ.get("TERM") in ("dumb", "unknown"):
            ctx.color = False  # click.echo strips styles in every command
        try:
            with _handle_signals():
                return super().invoke(ctx)
        except BrokenPipeError:
            _drop_stdout()
            ctx.exit(BROKEN_PIPE)
        except click.UsageError as error:
            raise _clean_usage_error(error) from None
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except (Exception, KeyboardInterrupt) as error:
            from holdall.base.locks import was_interrupted

            if was_interrupted(error):
                click.echo(f"holdall: {hide(_add_notes('interrupted', error))}", err=True)
                ctx.exit(INTERRUPTED)
            if ctx.params.get("debug"):
                hide_in_error(error)
                raise
            kind = Unread if choose_exit_code(error) == UNREAD else Failure
            raise kind(_add_notes(sentence(error), error)) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is called. An unknown name is refused with the name that it resembles."""
        try:
            found = super().resolve_command(ctx, args)
        except click.UsageError as error:
            from holdall.base.suggest import did_you_mean

            raise click.UsageError(f"there is no command {args[0]!r}{did_you_mean(args[0], COMMANDS)}", ctx) from error
        if _may_handle(signal.SIGINT):
            # From here on ctrl-C has to unwind the command, which may have files to remove.
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return found


def _clean_usage_error(error: click.UsageError, helps: bool = False) -> click.UsageError:
    """The same error without what the arguments have in them: control characters, and secrets of URLs."""
    from holdall.base.text import brief

    if helps:
        return error
    text = error.format_message().replace("\n\t", " ")  # click lists choices on lines of their own
    return click.UsageError(brief(hide(text)), error.ctx)


def _add_notes(text: str, error: BaseException) -> str:
    """Add to the sentence what was noted on the way of the error, such as what an interrupted download leaves."""
    return "; ".join([text, *getattr(error, "__notes__", ())])


def choose_exit_code(error: BaseException) -> int:
    """Choose the code that a command exits with because of ``error``: the one rule of all commands."""
    return UNREAD if getattr(error, "unread", False) else FAILED


def sentence(error: BaseException, path: str | None = None) -> str:
    """Describe an error in one line that names the file: ``path``, unless the error names another."""
    from holdall.base.text import brief, file_text
    from holdall.errors import HoldallError

    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return brief(hide(f"{file_text(error.filename)}: {error.strerror}"))
    if isinstance(error, MemoryError):
        return "not enough memory"
    if not isinstance(error, (HoldallError, OSError)):
        return brief(hide(f"this should not happen: {type(error).__name__}: {error} (--debug shows where)"))
    text, file = brief(hide(str(error)) or type(error).__name__), getattr(error, "file", None) or path
    return text if file is None or file_text(file) in text else hide(f"{file_text(file)}: {text}")


@contextmanager
def _handle_signals() -> Iterator[None]:
    """Turn the signals that end a process into exceptions inside, and restore all signal handlers afterwards."""
    from holdall.base.platform import ENDING_SIGNALS

    before = {number: signal.getsignal(number) for number in (*ENDING_SIGNALS, signal.SIGINT) if _may_handle(number)}
    for number in ENDING_SIGNALS:
        if number in before:
            signal.signal(number, _terminate)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _may_handle(number: signal.Signals) -> bool:
    """Whether a handler may be set: only the main thread can, and background jobs ignore some signals on purpose."""
    on_main_thread = threading.current_thread() is threading.main_thread()
    return on_main_thread and signal.getsignal(number) not in (signal.SIG_IGN, None)


def _terminate(number: int, frame: object) -> None:
    """Unwind the command, which removes unfinished files, and exit with the code that a shell reports."""
    raise SystemExit(128 + number)


def _prepare_streams() -> None:
    """Give the command line streams that it can write to. A character that their encoding lacks is escaped."""
    if sys.stderr is None:  # closed by the caller
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115
    if sys.stdout is None:  # going on, the next file to be opened would get its descriptor
        Failure("standard output is closed").show()
        sys.exit(FAILED)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


@contextmanager
def stdout_errors() -> Iterator[None]:
    """Name standard output in its errors: a command that works on a file would name the file."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        _drop_stdout()
        raise Failure(f"standard output: {error.strerror}") from None


def _drop_stdout() -> None:
    """Send the rest of standard output nowhere, so that the flush at exit does not fail a second time."""
    from holdall.base.platform import open_null

    with suppress(OSError, ValueError):
        os.dup2(open_null(write=True), sys.stdout.fileno())


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: holdall info model.oinf",
)
@click.version_option(__version__, prog_name="holdall")
@click.option("--debug", is_flag=True, envvar="HOLDALL_DEBUG", help="Show the traceback of an error.")
def main(debug: bool) -> None:
    """Open, check, explain, convert and write the files that hold model weights.

    \b
    Exit codes: 0 success, 1 the file is invalid or differs, 2 usage error, 3 holdall cannot read it.
    """
