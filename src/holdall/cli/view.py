"""``holdall view``: look at a model in the browser."""

from __future__ import annotations

import logging
import signal
from typing import TYPE_CHECKING

import click

from holdall.base.text import file_text, size_text
from holdall.cli.options import FILE, NewFile, Reading, add_reading_options, add_threads_option
from holdall.cli.output import echo, emit_json, show_progress

if TYPE_CHECKING:
    from holdall.viewer.window import Window

__all__ = ["view"]


@click.command(
    epilog="Examples: holdall view model.safetensors   |   holdall view model.gguf original.safetensors   |   "
    "holdall view model.oinf --export page.html --tensor 'h.0.*'"
)
@click.argument("model", type=FILE)
@click.argument("other", type=FILE, required=False)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port to serve at; any free one by default.")
@click.option("--no-browser", is_flag=True, help="Print the address, and do not open a browser.")
@click.option("--export", type=NewFile(".html"), metavar="PAGE.html",
              help="Write one page to send around, which needs no network, and serve nothing.")  # fmt: skip
@click.option("--tensor", "tensors", multiple=True, metavar="NAME",
              help="With --export: add a heat map of this tensor, or of all that a pattern matches.")  # fmt: skip
@add_threads_option
@add_reading_options
def view(
    model: str, other: str | None, port: int, no_browser: bool, export: str | None, tensors: tuple[str, ...],
    reading: Reading,
) -> None:  # fmt: skip
    """Serve a page that shows MODEL, its tensors and its bytes, or MODEL beside OTHER, until ctrl-C.

    The page is served to this machine only, reads no more than it shows, and changes nothing.
    """
    from holdall.viewer.subject import Subject
    from holdall.viewer.window import Window

    if tensors and export is None:
        raise click.UsageError("--tensor goes with --export.")
    if export is not None and other is not None:
        raise click.UsageError("--export takes one model.")
    paths = [model] if other is None else [model, other]
    window = Window([Subject.of_examination(reading.examine(path, "full"), path) for path in paths])
    if export is None:
        _serve(window, port, no_browser, reading)
    else:
        _export(window, export, tensors, reading)


def _export(window: Window, path: str, tensors: tuple[str, ...], reading: Reading) -> None:
    from holdall.viewer.export import write_export

    try:
        with show_progress("reading") as on_progress:
            size = write_export(path, window.subjects[0], tensors, on_progress)
    finally:
        window.close()
    if reading.json:
        emit_json({"path": path, "bytes": size})
    else:
        echo(f"{file_text(path)}: {size_text(size)}")


def _serve(window: Window, port: int, no_browser: bool, reading: Reading) -> None:
    from holdall.viewer.server import ViewServer

    server = ViewServer(window, port)
    if reading.json:
        emit_json({"url": server.url})
    else:
        echo(server.url + "\n(ctrl-C ends it)")
    if not no_browser:
        import webbrowser

        webbrowser.open(server.url)
    try:
        server.run()
    except KeyboardInterrupt:
        pass
    finally:
        _prepare_end()
        window.close()


def _prepare_end() -> None:
    """Keep requests that the end cuts off from reporting their failure; another ctrl-C ends the process at once."""
    logging.disable()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
