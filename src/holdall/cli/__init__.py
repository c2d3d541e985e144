"""The command line. Commands are imported when they are called: ``holdall --version`` loads none of them."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from holdall import __version__

__all__ = ["main"]

COMMANDS = {
    "info": "holdall.cli.info:info",
    "ls": "holdall.cli.ls:ls",
    "verify": "holdall.cli.verify:verify",
    "explain": "holdall.cli.explain:explain",
    "extract": "holdall.cli.extract:extract",
    "convert": "holdall.cli.convert:convert",
    "restore": "holdall.cli.restore:restore",
    "quantize": "holdall.cli.quantize:quantize",
    "diff": "holdall.cli.diff:diff",
    "edit": "holdall.cli.edit:edit",
    "repair": "holdall.cli.repair:repair",
    "embed": "holdall.cli.embed:embed",
    "formats": "holdall.cli.formats:formats",
    "from-dataclass": "holdall.cli.from_dataclass:from_dataclass",
    "demo": "holdall.cli.demo:demo",
    "completion": "holdall.cli.completion:completion",
}

# What `holdall --help` says of each, so that showing the list imports nothing.
SUMMARIES = {
    "info": "Show what a file holds, on one screen.",
    "ls": "List tensors: name, dtype, shape, bytes, offset.",
    "verify": "Check a file and list everything that is wrong with it.",
    "explain": "Show every byte's owner and meaning.",
    "extract": "Copy tensors out, as .npy or as stored bytes.",
    "convert": "Convert between containers, losing nothing in silence.",
    "restore": "Make the original that a converted file carries again.",
    "quantize": "Quantize a model's matrices into an MCF file, and report the error.",
    "diff": "Compare two models, whatever containers they are in.",
    "edit": "Change metadata, tensor names or assets of a file.",
    "repair": "Replace what is damaged in a file, and nothing else, from a good copy.",
    "embed": "Turn texts into vectors, with a sentence encoder in any container.",
    "formats": "Show the formats and what each can hold.",
    "from-dataclass": "Write a Python dataclass as an OINF file.",
    "demo": "Write, read back and verify a small model in every format.",
    "completion": "Print or install shell completion.",
}

BROKEN_PIPE = 141  # what a shell reports of a program that SIGPIPE ended
INTERRUPTED = 130  # ... and SIGINT
ENDING = (signal.SIGTERM, signal.SIGHUP)  # signals that end a command after it has removed what it was writing


class Failure(click.ClickException):
    """The file fails or differs: one sentence on stderr, exit 1."""

    exit_code = 1

    def show(self, file: Any = None) -> None:
        """Print the sentence."""
        click.echo(f"holdall: {self.format_message()}", err=True)


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports the one that is called."""

    def main(self, *args: Any, **settings: Any) -> Any:
        """Run what the words ask for, after making sure of the streams."""
        _prepare_streams()
        return super().main(*args, **settings)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All commands, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command itself, imported now."""
        home = COMMANDS.get(cmd_name)
        if home is None:
            return None
        from importlib import import_module

        module, _, attribute = home.partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(SUMMARIES.items()))

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; what goes wrong becomes one sentence and an exit code."""
        if os.environ.get("NO_COLOR") or os.environ.get("TERM") in ("dumb", "unknown"):
            ctx.color = False  # every echo of every command heeds it
        try:
            with _own_signals():
                result = super().invoke(ctx)
            sys.stdout.flush()  # a closed pipe shows up here, not when the interpreter is gone
        except BrokenPipeError:
            _drop_stdout()
            ctx.exit(BROKEN_PIPE)
        except KeyboardInterrupt:
            click.echo("holdall: interrupted", err=True)
            ctx.exit(INTERRUPTED)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            if ctx.params.get("debug"):
                raise
            raise Failure(sentence(error)) from None
        return result

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is called; a name that none has may have meant another."""
        try:
            found = super().resolve_command(ctx, args)
        except click.UsageError as error:
            from holdall.suggest import did_you_mean

            raise click.UsageError(f"there is no command {args[0]!r}{did_you_mean(args[0], COMMANDS)}", ctx) from error
        if _may_handle(signal.SIGINT):
            signal.signal(signal.SIGINT, signal.default_int_handler)  # from here on there may be files to remove
        return found


def sentence(error: BaseException, path: str | None = None) -> str:
    """An error as one line for people: what, and of which file; ``path`` is the one at hand when it does not say."""
    from holdall.cli.text import brief, file_text
    from holdall.errors import HoldallError

    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return brief(f"{os.fsdecode(error.filename)}: {error.strerror}")
    if isinstance(error, MemoryError):
        return "not enough memory"
    if not isinstance(error, (HoldallError, OSError)):
        return brief(f"this should not happen: {type(error).__name__}: {error} (--debug shows where)")
    text, file = brief(str(error) or type(error).__name__), getattr(error, "file", None) or path
    return text if file is None or file_text(file) in text else f"{file_text(file)}: {text}"


@contextmanager
def _own_signals() -> Iterator[None]:
    """Inside, SIGTERM and SIGHUP are exceptions, and a command may handle others; afterwards all is as before."""
    before = {number: signal.getsignal(number) for number in (*ENDING, signal.SIGINT) if _may_handle(number)}
    for number in ENDING:
        if number in before:
            signal.signal(number, _terminate)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _may_handle(number: signal.Signals) -> bool:
    """Not where it is ignored, as in the background, nor in a thread, nor where other code than Python's handles it."""
    here = threading.current_thread() is threading.main_thread()
    return here and signal.getsignal(number) not in (signal.SIG_IGN, None)


def _terminate(number: int, frame: object) -> None:
    """Leave as after ctrl-C: files in progress are removed on the way out. The code is what a shell reports."""
    raise SystemExit(128 + number)


class _Output(io.BufferedWriter):
    """Standard output, which says so itself when it cannot be written to: no file of the user's is to blame."""

    def write(self, data: Any, /) -> int:
        """Write, or leave with a sentence."""
        with _blaming_stdout():
            return super().write(data)

    def flush(self) -> None:
        """Flush, or leave with a sentence."""
        with _blaming_stdout():
            super().flush()


@contextmanager
def _blaming_stdout() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        _drop_stdout()
        raise Failure(f"standard output: {error.strerror}") from None


def _prepare_streams() -> None:
    """Streams that can be written to, or say why not; what they cannot show they escape."""
    if sys.stderr is None:  # closed: nobody wants to know
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if sys.stdout is None:  # closed; the next file that is opened must not take its place
        sys.stdout = _text(os.open(os.devnull, os.O_RDONLY), "utf-8")
    elif type(_raw(sys.stdout)) is io.FileIO:
        sys.stdout.flush()
        by_line = bool(sys.stdout.line_buffering or getattr(sys.stdout, "write_through", False))
        sys.stdout = _text(sys.stdout.fileno(), sys.stdout.encoding, by_line)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _raw(stream: Any) -> Any:
    """What a stream of text writes its bytes to; python -u leaves out the buffer."""
    buffer = getattr(stream, "buffer", None)
    return getattr(buffer, "raw", buffer)


def _text(number: int, encoding: str, by_line: bool = False) -> io.TextIOWrapper:
    buffer = _Output(io.FileIO(number, "w", closefd=False))
    return io.TextIOWrapper(buffer, encoding, line_buffering=by_line)


def _drop_stdout() -> None:
    """Nobody reads any more: keep the interpreter from complaining about it when it flushes at the end."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        return


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
    Exit codes: 0 fine, 1 the file fails or differs, 2 wrong usage.
    """
