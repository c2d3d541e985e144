"""``holdall embed``: turn texts into vectors, with a sentence encoder in any container."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

import click

from holdall.base.text import clean, file_text, plural, shorten
from holdall.cli.options import (
    FILE,
    LOCAL_FILE,
    SIZE,
    Count,
    NewFile,
    Reading,
    add_reading_options,
    check_threads,
    for_each_file,
)
from holdall.cli.output import (
    echo,
    emit,
    emit_bytes,
    emit_heading,
    emit_json,
    emit_pairs,
    emit_table,
    show_progress,
    warn,
)
from holdall.cli.side_files import read_side_file, read_side_stream
from holdall.cli.stdin_stdout import standard_input
from holdall.errors import ContentError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from holdall.limits import Limits
    from holdall.model.vocab import Vocab
    from holdall.runtime import Embedder

__all__ = ["embed", "read_config", "read_lines", "read_vocab"]

_SHOWN = 4  # at most so many numbers of a vector are printed
_WIDE = 48  # at most so many letters of a text are printed
_COMPARED = 200  # the most texts of a table of similarities
_TOP = 5  # texts that --against shows for each, unless --top-k says otherwise

# The variables from which the libraries below numpy take their number of threads, when numpy is imported.
_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "OMP_NUM_THREADS")


@click.command(epilog='Example: holdall embed all-MiniLM-L6-v2.weights "The cat sits." "A feline rests." --similarity')
@click.argument("file", type=FILE)
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@click.option("-i", "--input", "inputs", multiple=True, type=LOCAL_FILE, metavar="PATH",
              help="A file with a text a line, or - for stdin; may be given several times.")  # fmt: skip
@click.option(
    "-o",
    "--output",
    type=NewFile(".npy", or_stdout=True),
    metavar="PATH",
    help="Write the vectors as .npy, or to stdout with -.",
)
@click.option("--similarity", is_flag=True, help="Show the cosine of every pair of texts.")
@click.option("--against", type=LOCAL_FILE, metavar="PATH",
              help="A file with a text a line, or - for stdin: show those nearest to each TEXT.")  # fmt: skip
@click.option("--top-k", type=Count(1), metavar="N", help="With --against: how many. By default 5.")
@click.option("--tokens", is_flag=True, help="Show the tokens of each text, and what they decode to; no vectors.")
@click.option(
    "--vocab", "vocab_path", type=LOCAL_FILE, metavar="PATH", help="A vocab.txt, if FILE holds no vocabulary."
)
@click.option("--config", "config_path", type=LOCAL_FILE, metavar="PATH", help="A config.json, if FILE holds none.")
@click.option("--max-length", type=Count(2), metavar="N", help="Cut texts at N tokens.")
@click.option("--no-normalize", is_flag=True, help="Keep the length that vectors have.")
@click.option("--threads", type=Count(1), metavar="N",
              help="Compute in N threads. By default numpy decides.")  # fmt: skip
@click.option("--batch-size", type=Count(1), default=32, show_default=True, help="Texts at a time.")
@click.option(
    "--budget", type=SIZE, metavar="SIZE", help="Hold at most this much of the weights in memory, such as 20MB."
)
@add_reading_options
def embed(
    file: str,
    texts: tuple[str, ...],
    inputs: tuple[str, ...],
    output: str | None,
    similarity: bool,
    against: str | None,
    top_k: int | None,
    tokens: bool,
    vocab_path: str | None,
    config_path: str | None,
    max_length: int | None,
    no_normalize: bool,
    threads: int | None,
    batch_size: int,
    budget: int | None,
    reading: Reading,
) -> None:
    """Turn each TEXT into a vector, with the BERT sentence encoder in FILE.

    --against notes.txt --top-k 3 finds the lines of a file that are nearest to each TEXT.

    Without texts and files they are read from stdin, one a line. Weights, configuration and vocabulary come from
    FILE; --vocab and --config supply what FILE lacks.
    """
    if output == "-" and (reading.json or similarity or against):
        raise click.UsageError("-o - fills stdout: it goes with none of --json, --similarity and --against.")
    if tokens and (output or similarity or against):
        raise click.UsageError("--tokens computes no vectors: it goes with none of -o, --similarity and --against.")
    if top_k is not None and against is None:
        raise click.UsageError("--top-k needs --against PATH, a file of texts.")
    if [*inputs, against].count("-") > 1 or (against == "-" and not texts and not inputs):
        raise click.UsageError("stdin can be read once: for the texts, or for --against.")
    check_threads()  # weights are decoded by as many, whatever --threads says of the vectors
    if threads is not None:
        _leave_threads_to_us()
    if not texts and not inputs and standard_input().isatty():
        raise click.UsageError("no text: give it as an argument, with --input, or through a pipe.")

    def act(path: str, number: int) -> None:
        listed = [*texts, *read_lines(inputs or (() if texts else ("-",)), reading.limits)]
        others = [] if against is None else read_lines((against,), reading.limits)
        if similarity and len(listed) > _COMPARED:
            raise click.UsageError(f"--similarity compares at most {_COMPARED} texts, not {len(listed)}.")
        with reading.open(path, mmap=True) as model:
            from holdall.runtime import Embedder

            embedder = Embedder(
                model,
                budget=budget,
                vocab=read_vocab(vocab_path, reading.limits),
                config=read_config(config_path, reading.limits),
                max_length=max_length,
                normalize=False if no_normalize else None,
            )
            if tokens:
                _show_tokens(listed, embedder, reading)
                _warn_of_cut(embedder)
                return
            with show_progress("embedding", of="texts") as on_progress:
                rows = embedder.embed([*listed, *others], batch_size, threads=threads or 1, progress=on_progress)
        _warn_of_cut(embedder)
        vectors = rows[: len(listed)]
        if against is None:
            _show(listed, vectors, output, similarity, reading)
        else:
            _show_nearest(listed, vectors, others, rows[len(listed) :], top_k or _TOP, output, reading)

    for_each_file([file], act)


def _leave_threads_to_us() -> None:
    """Have numpy compute each batch on one thread, so that there are as many threads as were asked for."""
    import os

    os.environ.update(dict.fromkeys(_THREADS, "1"))


def read_lines(inputs: tuple[str, ...], limits: Limits | None) -> list[str]:
    """Return the lines of files, which must be UTF-8."""
    found: list[str] = []
    for path in inputs:
        stdin = path == "-"
        data = read_side_stream(standard_input().buffer, "stdin", limits) if stdin else read_side_file(path, limits)
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise ContentError(f"{'stdin' if stdin else path}: byte {error.start} is not UTF-8") from None
        lines = text.split("\n")
        found += (line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1]))
    return found


def read_vocab(path: str | None, limits: Limits | None) -> Vocab | None:
    """Return the vocabulary in a vocab.txt or tokenizer.json; None without a path."""
    from holdall.format.hf_assets import vocab_of

    if path is None:
        return None
    name = "tokenizer.json" if path.endswith(".json") else "vocab.txt"
    found = vocab_of({name: read_side_file(path, limits)})
    if found is None:
        raise ContentError(f"{file_text(path)}: there is no vocabulary in it")
    return found


def read_config(path: str | None, limits: Limits | None) -> dict[str, Any] | None:
    """Return the configuration in a config.json; None without a path."""
    from holdall.format.hf_assets import config_of

    if path is None:
        return None
    found = config_of({"config.json": read_side_file(path, limits)})
    if found is None:
        raise ContentError(f"{file_text(path)}: a configuration is a JSON object")
    return found


def _warn_of_cut(embedder: Embedder) -> None:
    if embedder.cut:
        length = embedder.tokenizer.max_length
        what = plural(embedder.cut, "text")
        warn(f"{what} cut at {length} tokens (--max-length sets another length)")


def _show(
    texts: list[str], vectors: NDArray[np.float32], output: str | None, similarity: bool, reading: Reading
) -> None:
    if output is not None:
        _write(vectors, output)
    cosines = _compare(vectors) if similarity else None
    if reading.json:
        answer = _to_json(texts, vectors)
        if cosines is not None:
            answer["similarity"] = cosines.tolist()
        emit_json(answer)
    elif cosines is not None:
        headers = ["", *(str(number) for number in range(1, len(texts) + 1)), "text"]
        rows = [
            [str(number), *(f"{value:.4f}" for value in row), shorten(text, _WIDE)]
            for number, (row, text) in enumerate(zip(cosines.tolist(), texts, strict=True), 1)
        ]
        emit_table(headers, rows, right=headers[:-1])
    elif output is None:
        emit(
            f"{shorten(text, _WIDE).ljust(_WIDE)}  {' '.join(f'{value:+.6f}' for value in row[:_SHOWN])} ... "
            f"({len(row)})"
            for text, row in zip(texts, vectors.tolist(), strict=True)
        )
    elif output != "-":
        echo(f"{file_text(output)}: {plural(len(texts), 'vector')} of {vectors.shape[1]}")


def _to_json(texts: list[str], vectors: NDArray[np.float32]) -> dict[str, Any]:
    if not all(map(isfinite, vectors.sum(axis=1).tolist())):
        raise ContentError("JSON holds finite numbers only, and not all of the vectors are")
    return {"texts": texts, "embeddings": vectors.tolist()}


def _compare(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    from holdall.runtime import compute_cosines

    return compute_cosines(vectors, vectors)


def _show_nearest(
    texts: list[str],
    vectors: NDArray[np.float32],
    others: list[str],
    candidates: NDArray[np.float32],
    count: int,
    output: str | None,
    reading: Reading,
) -> None:
    from holdall.runtime import find_nearest

    if output is not None:
        _write(vectors, output)
    found = find_nearest(vectors, candidates, count)
    if reading.json:
        nearest = [[{"text": others[row], "line": row + 1, "cosine": cosine} for row, cosine in rows] for rows in found]
        emit_json({**_to_json(texts, vectors), "nearest": nearest})
        return
    for text, rows in zip(texts, found, strict=True):
        emit_heading(shorten(text, _WIDE))
        emit(f"  {cosine:+.4f}  {row + 1:>6}  {shorten(others[row], _WIDE)}" for row, cosine in rows)


def _show_tokens(texts: list[str], embedder: Embedder, reading: Reading) -> None:
    rows: list[dict[str, Any]] = [
        {"ids": ids, "tokens": [embedder.vocab[id] for id in ids], "decoded": embedder.tokenizer.decode(ids)}
        for ids in embedder.tokenize(texts)
    ]
    if reading.json:
        emit_json({"texts": texts, "tokens": rows})
        return
    for text, row in zip(texts, rows, strict=True):
        emit_heading(shorten(text, _WIDE))
        pieces = " ".join(map(clean, row["tokens"]))
        emit_pairs([("ids", " ".join(map(str, row["ids"]))), ("tokens", pieces), ("decoded", clean(row["decoded"]))])


def _write(vectors: NDArray[np.float32], output: str) -> None:
    from holdall.model.tensor import Tensor
    from holdall.operations.extract import plan_npy, stream_plan
    from holdall.sink import write_file

    plan = plan_npy(Tensor.of("embeddings", vectors))
    if output != "-":
        write_file(output, plan, fsync=False)
        return
    emit_bytes(stream_plan(plan))
