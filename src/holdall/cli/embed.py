"""``holdall embed``: texts to vectors, with a sentence encoder in any container."""

from __future__ import annotations

import sys
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdall.cli.options import FILE, SIZE, NewFile, Reading, each_file, reading
from holdall.cli.output import emit, emit_json, progress, table
from holdall.cli.text import clean, plural, shorten
from holdall.errors import ContentError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from holdall.runtime import Embedder
    from holdall.vocab import Vocab

__all__ = ["embed"]

_SHOWN = 4  # numbers of a vector that people get to see
_WIDE = 48  # letters of a text, likewise
_COMPARED = 200  # texts that a table of similarities may have


@click.command(epilog='Example: holdall embed all-MiniLM-L6-v2.weights "The cat sits." "A feline rests." --similarity')
@click.argument("file", type=FILE)
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@click.option("-i", "--input", "inputs", multiple=True, type=FILE, metavar="PATH",
              help="A file with a text a line, or - for stdin; may be given several times.")  # fmt: skip
@click.option(
    "-o", "--output", type=NewFile(".npy"), metavar="PATH", help="Write the vectors as .npy, or to stdout with -."
)
@click.option("--similarity", is_flag=True, help="Show the cosine of every pair of texts.")
@click.option("--vocab", "vocab_path", type=FILE, metavar="PATH", help="A vocab.txt, where FILE holds no vocabulary.")
@click.option("--config", "config_path", type=FILE, metavar="PATH", help="A config.json, where FILE holds none.")
@click.option("--max-length", type=click.IntRange(2), metavar="N", help="Cut texts at N tokens.")
@click.option("--batch-size", type=click.IntRange(1), default=32, show_default=True, help="Texts at a time.")
@click.option(
    "--budget", type=SIZE, metavar="SIZE", help="Hold at most so much of the weights in memory, such as 20MB."
)
@reading
def embed(
    file: str,
    texts: tuple[str, ...],
    inputs: tuple[str, ...],
    output: str | None,
    similarity: bool,
    vocab_path: str | None,
    config_path: str | None,
    max_length: int | None,
    batch_size: int,
    budget: int | None,
    reading: Reading,
) -> None:
    """Turn each TEXT into a vector, with the BERT sentence encoder in FILE.

    Without texts and files they are read from stdin, one a line. Weights, configuration and vocabulary come from
    FILE; the options say so where it holds only a part of them.
    """
    if output == "-" and (reading.json or similarity):
        raise click.UsageError("-o - fills stdout: it goes with neither --json nor --similarity.")
    if not texts and not inputs and sys.stdin.isatty():
        raise click.UsageError("no text: give it as an argument, with --input, or through a pipe.")

    def act(path: str, number: int) -> bool:
        listed = [*texts, *_lines(inputs or (() if texts else ("-",)))]
        if similarity and len(listed) > _COMPARED:
            raise click.UsageError(f"--similarity compares at most {_COMPARED} texts, not {len(listed)}.")
        with reading.open(path) as model:
            from holdall.runtime import Embedder

            embedder = Embedder(
                model,
                budget=budget,
                vocab=_vocab(vocab_path),
                config=_config(config_path),
                max_length=max_length,
            )
            with progress("embedding", of="texts") as told:
                vectors = embedder.embed(listed, batch_size, progress=told)
        _say_cut(embedder)
        _show(listed, vectors, output, similarity, reading)
        return True

    each_file([file], act)


def _lines(inputs: tuple[str, ...]) -> list[str]:
    """The lines of files; what is not UTF-8 in them is refused."""
    found: list[str] = []
    for path in inputs:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            name = "stdin" if path == "-" else path
            raise ContentError(f"{name}: byte {error.start} is not UTF-8") from None
        lines = text.split("\n")
        found += (line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1]))
    return found


def _vocab(path: str | None) -> Vocab | None:
    from holdall.facets import vocab_of

    if path is None:
        return None
    name = "tokenizer.json" if path.endswith(".json") else "vocab.txt"
    found = vocab_of({name: Path(path).read_bytes()})
    if found is None:
        raise ContentError(f"{path}: there is no vocabulary in it")
    return found


def _config(path: str | None) -> dict[str, Any] | None:
    from holdall.facets import config_of

    if path is None:
        return None
    found = config_of({"config.json": Path(path).read_bytes()})
    if found is None:
        raise ContentError(f"{path}: a configuration is a JSON object")
    return found


def _say_cut(embedder: Embedder) -> None:
    if embedder.cut:
        length = embedder.tokenizer.max_length
        what = plural(embedder.cut, "text")
        click.echo(f"holdall: {what} cut at {length} tokens (--max-length sets another length)", err=True)


def _show(
    texts: list[str], vectors: NDArray[np.float32], output: str | None, similarity: bool, reading: Reading
) -> None:
    if output is not None:
        _write(vectors, output)
    cosines = _cosines(vectors) if similarity else None
    if reading.json:
        if not all(map(isfinite, vectors.sum(axis=1).tolist())):
            raise ContentError("JSON holds finite numbers only, and not all of the vectors are")
        answer: dict[str, Any] = {"embeddings": vectors.tolist()}
        if cosines is not None:
            answer["similarity"] = cosines.tolist()
        emit_json(answer)
    elif cosines is not None:
        headers = ["", *(str(number) for number in range(1, len(texts) + 1)), "text"]
        rows = [
            [str(number), *(f"{value:.4f}" for value in row), shorten(text, _WIDE)]
            for number, (row, text) in enumerate(zip(cosines.tolist(), texts, strict=True), 1)
        ]
        table(headers, rows, right=headers[:-1])
    elif output is None:
        emit(
            f"{shorten(text, _WIDE).ljust(_WIDE)}  {' '.join(f'{value:+.6f}' for value in row[:_SHOWN])} ... "
            f"({len(row)})"
            for text, row in zip(texts, vectors.tolist(), strict=True)
        )
    elif output != "-":
        click.echo(f"{clean(output)}: {plural(len(texts), 'vector')} of {vectors.shape[1]}")


def _cosines(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    import numpy as np

    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    found: NDArray[np.float32] = unit @ unit.T
    return found


def _write(vectors: NDArray[np.float32], output: str) -> None:
    from holdall.extract import npy_plan, plan_bytes
    from holdall.sink import write_file
    from holdall.tensor import Tensor

    plan = npy_plan(Tensor.of("embeddings", vectors))
    if output != "-":
        write_file(output, plan, fsync=False)
        return
    if sys.stdout.isatty():
        raise click.UsageError("stdout is a terminal: give -o PATH, or a pipe.")
    for piece in plan_bytes(plan):
        sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()
