"""``holdall assets``: list the files that a model holds beside its tensors, or print its vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdall.base.text import clean, file_text, size_text
from holdall.cli.options import FILE, Reading, add_reading_options, for_each_file
from holdall.cli.output import emit, emit_json_lines, emit_table, warn
from holdall.errors import MissingError

if TYPE_CHECKING:
    from holdall.model.model import Model
    from holdall.model.vocab import Vocab

__all__ = ["assets"]


@click.command(epilog="Example: holdall assets model.mcf")
@click.argument("file", type=FILE)
@click.option("--vocab", "vocab", is_flag=True, help="Print the tokens of the vocabulary instead, one a line.")
@add_reading_options
def assets(file: str, vocab: bool, reading: Reading) -> None:
    """List the assets of FILE, such as a tokenizer or a configuration: name, kind and bytes.

    holdall extract FILE --asset NAME copies one out.
    """

    def act(path: str, number: int) -> None:
        with reading.open(path) as model:
            if vocab:
                _show_vocab(path, model.vocab, reading)
            else:
                _show_assets(path, model, reading)

    for_each_file([file], act)


def _show_assets(path: str, model: Model, reading: Reading) -> None:
    from holdall.format.hf_assets import kind_of_asset

    rows: list[dict[str, Any]] = [
        {"name": name, "kind": kind_of_asset(name), "size": model.assets.measure(name)} for name in model.assets
    ]
    if reading.json:
        emit_json_lines(rows)
    elif rows:
        sizes = ("cannot be read" if row["size"] is None else size_text(row["size"]) for row in rows)
        cells = ((clean(row["name"]), row["kind"], size) for row, size in zip(rows, sizes, strict=True))
        emit_table(("name", "kind", "bytes"), cells, right=("bytes",))
    else:
        warn(f"{file_text(path)}: holds no assets")


def _show_vocab(path: str, vocab: Vocab | None, reading: Reading) -> None:
    if vocab is None:
        raise MissingError(f"{file_text(path)}: holds no vocabulary")
    if not reading.json:
        emit(map(clean, vocab))
        return
    names = {id: name for name, id in vocab.special.items()}
    emit_json_lines(
        {"id": id, "token": token} | ({"special": names[id]} if id in names else {}) for id, token in enumerate(vocab)
    )
