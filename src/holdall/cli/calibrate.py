"""``holdall calibrate``: record the ranges of a sentence encoder's activations over given texts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from holdall.base.text import clean, file_text, plural
from holdall.cli.embed import read_config, read_lines, read_vocab
from holdall.cli.options import (
    FILE,
    LOCAL_FILE,
    Count,
    NewFile,
    Reading,
    add_reading_options,
    add_threads_option,
    for_each_file,
)
from holdall.cli.output import echo, emit_json, emit_table, show_progress
from holdall.cli.side_files import read_side_json
from holdall.cli.stdin_stdout import standard_input
from holdall.errors import ContentError

if TYPE_CHECKING:
    from holdall.limits import Limits

__all__ = ["calibrate", "read_ranges"]


@click.command(epilog="Example: holdall calibrate all-MiniLM-L6-v2.weights --input texts.txt --output ranges.json")
@click.argument("file", type=FILE)
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@click.option("-i", "--input", "inputs", multiple=True, type=LOCAL_FILE, metavar="PATH",
              help="A file with a text a line, or - for stdin; may be given several times.")  # fmt: skip
@click.option("-o", "--output", type=NewFile(".json"), metavar="PATH", help="Write the ranges, for quantize --clips.")
@click.option(
    "--vocab", "vocab_path", type=LOCAL_FILE, metavar="PATH", help="A vocab.txt, if FILE holds no vocabulary."
)
@click.option("--config", "config_path", type=LOCAL_FILE, metavar="PATH", help="A config.json, if FILE holds none.")
@click.option("--batch-size", type=Count(1), default=32, show_default=True, help="Texts at a time.")
@add_threads_option
@add_reading_options
def calibrate(
    file: str,
    texts: tuple[str, ...],
    inputs: tuple[str, ...],
    output: str | None,
    vocab_path: str | None,
    config_path: str | None,
    batch_size: int,
    reading: Reading,
) -> None:
    """Record the smallest and the largest activation of each layer of FILE over the given texts.

    FILE holds a BERT sentence encoder, as for holdall embed. Without texts and files they are read from stdin, one a
    line. The ranges are bounds for tensors of these names: holdall quantize --domain activations --clips PATH.
    """
    if not texts and not inputs and standard_input().isatty():
        raise click.UsageError("no text: give it as an argument, with --input, or through a pipe.")

    def act(path: str, number: int) -> None:
        from holdall.runtime import Embedder

        listed = [*texts, *read_lines(inputs or (() if texts else ("-",)), reading.limits)]
        with reading.open(path, mmap=True) as model:
            vocab, config = read_vocab(vocab_path, reading.limits), read_config(config_path, reading.limits)
            embedder = Embedder(model, vocab=vocab, config=config)
            with show_progress("calibrating", of="texts") as on_progress:
                ranges = embedder.calibrate(listed, batch_size, progress=on_progress)
        if output is not None:
            from holdall.sink.text import write_text

            write_text(output, json.dumps(ranges, indent=1) + "\n")
        if reading.json:
            emit_json({"texts": len(listed), "ranges": ranges})
        elif output is not None:
            echo(f"{file_text(output)}: {plural(len(ranges), 'range')} over {plural(len(listed), 'text')}")
        else:
            rows = [[clean(name), f"{low:.6g}", f"{high:.6g}"] for name, (low, high) in ranges.items()]
            emit_table(("activation", "min", "max"), rows, right=("min", "max"))

    for_each_file([file], act)


def read_ranges(path: str | None, limits: Limits | None) -> dict[str, tuple[float, float]]:
    """Read the bounds of tensors by name from a JSON object of pairs; none without a path."""
    if path is None:
        return {}
    found = read_side_json(path, limits)
    pairs = found.items() if isinstance(found, dict) else ()
    ranges = {name: (bounds[0], bounds[1]) for name, bounds in pairs if _is_pair(bounds)}
    if not isinstance(found, dict) or len(ranges) != len(found):
        raise ContentError(f"{file_text(path)}: is not a JSON object with two numbers, low and high, for each name")
    return ranges


def _is_pair(bounds: object) -> bool:
    return isinstance(bounds, list) and len(bounds) == 2 and all(type(bound) in (int, float) for bound in bounds)
