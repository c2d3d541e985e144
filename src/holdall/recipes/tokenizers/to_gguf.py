"""From the files of a Hugging Face folder to the entries of GGUF that llama.cpp makes a tokenizer of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from holdall.base.repeats import find_repeat
from holdall.base.text import shorten
from holdall.binary.documents.json import encode
from holdall.errors import ContentError, UnsupportedError
from holdall.format.gguf import SPECIAL_WORDS
from holdall.model.metadata import Entry
from holdall.recipes.tokenizers.byte_level import make_byte_level
from holdall.recipes.tokenizers.components import split_steps
from holdall.recipes.tokenizers.documents import documents_agree, make_document
from holdall.recipes.tokenizers.folder_files import FolderTokenizer, read_configs, read_folder
from holdall.recipes.tokenizers.frame import find_special_ids, find_stated_ids, find_stop_ids, read_frame
from holdall.recipes.tokenizers.pieces import NORMAL, UNUSED, Pieces, pad_token
from holdall.recipes.tokenizers.sentence_pieces import make_sentence_bpe, make_unigram
from holdall.recipes.tokenizers.stored import HF_JSON, KEY, read_stored
from holdall.recipes.tokenizers.word_pieces import make_word_pieces

__all__ = ["GgufTokenizer", "list_stated_ids", "tokenizer_to_gguf"]

STOP_WORDS = ("eot", "eom")  # end of turn, and of message
_MOST_IDS = 1 << 32  # that GGUF has a type for


@dataclass(frozen=True)
class GgufTokenizer:
    """The entries, in the order of the file; ``notes`` are sentences on where llama.cpp gives other ids, and why."""

    entries: tuple[Entry, ...]
    notes: tuple[str, ...] = ()


def tokenizer_to_gguf(assets: Mapping[str, bytes], rows: int | None = None) -> GgufTokenizer:
    """Make the entries of GGUF from the tokenizer of a folder.

    ``rows`` are those of the embeddings: the vocabulary is filled up to them, since llama.cpp wants as many tokens.
    Without it, config.json says how many there are. UnsupportedError for a tokenizer that llama.cpp cannot run.
    A tokenizer.json that could not be made again from the entries is kept whole, where GGUF has a place for it.

    >>> model = b'{"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}'
    >>> document = b'{"model": %b, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}}' % model
    >>> found = tokenizer_to_gguf({"tokenizer.json": document}, rows=4)
    >>> {entry.key: entry.value for entry in found.entries}["tokenizer.ggml.tokens"]
    ['a', 'b', 'ab', '[PAD3]']
    """
    folder = read_folder(assets)
    pieces = _find_kind(folder)(folder)
    _fit_rows(pieces, _find_rows(folder) if rows is None else rows, len(folder.added))
    entries = [*_list_pieces(pieces), *_list_special(folder, pieces)]
    remade = make_document(read_stored({entry.key: entry.value for entry in entries}))
    if not documents_agree(folder.document, remade):
        entries.append(Entry(HF_JSON, encode(folder.document).decode(), "string"))
    return GgufTokenizer((*entries, *_list_templates(folder)), tuple(pieces.notes))


def list_stated_ids(assets: Mapping[str, bytes]) -> list[Entry]:
    """List the ids of special tokens that the configurations of a folder without a tokenizer state.

    >>> [(entry.key, entry.value) for entry in list_stated_ids({"config.json": b'{"eos_token_id": [2, 5]}'})]
    [('tokenizer.ggml.eos_token_id', 2), ('tokenizer.ggml.eot_token_id', 5)]
    """
    folder = read_configs(assets)
    ids = find_stated_ids(folder, _MOST_IDS, *SPECIAL_WORDS)
    entries = [Entry(f"{KEY}{SPECIAL_WORDS[name]}_token_id", id, "u32") for name, id in ids.items()]
    return entries + _list_stops(ids.get("eos"), find_stop_ids(folder, _MOST_IDS), [])


def _find_kind(folder: FolderTokenizer) -> Callable[[FolderTokenizer], Pieces]:
    kind = folder.model.get("type", "BPE" if "merges" in folder.model else None)
    steps = split_steps(folder.document.get("pre_tokenizer"), "pre_tokenizer")
    if kind == "BPE":
        return make_byte_level if any(step["type"] == "ByteLevel" for step in steps) else make_sentence_bpe
    if isinstance(kind, str) and kind in _KINDS:
        return _KINDS[kind]
    named = shorten(kind, 40) if isinstance(kind, str) else "unknown"
    known = ", ".join(["BPE", *_KINDS])
    raise UnsupportedError(f"tokenizer.json: a model of type {named} has no form in GGUF; known are {known}")


_KINDS = {"Unigram": make_unigram, "WordPiece": make_word_pieces}


def _find_rows(folder: FolderTokenizer) -> int | None:
    inner = folder.model_config.get("text_config")
    for config in (folder.model_config, inner if isinstance(inner, Mapping) else {}):
        size = config.get("vocab_size")
        if type(size) is int:
            return size
    return None


_SPARE = 1 << 20  # rows without a token beyond which a number in config.json is not believed


def _fit_rows(pieces: Pieces, rows: int | None, added: int) -> None:
    """Give every row of the embeddings a token; drop added tokens that have no row, which no model can know."""
    count = len(pieces.tokens)
    if rows is None or rows == count:
        return
    if rows > count + _SPARE:
        raise ContentError(f"the embeddings have {rows} rows for a tokenizer of {count} tokens")
    if rows < count:
        if rows < count - added or any(kind == NORMAL for kind in pieces.types[rows:]):
            raise ContentError(f"the tokenizer has {count} tokens, but the embeddings have only {rows} rows")
        dropped = ", ".join(repr(shorten(token, 40)) for token in pieces.tokens[rows : rows + 3])
        pieces.notes.append(f"{count - rows} added tokens have no row in the embeddings and are left out: {dropped}")
        for column in (pieces.tokens, pieces.types, pieces.scores):
            if column is not None:
                del column[rows:]
    pieces.tokens += [pad_token(id) for id in range(count, rows)]
    pieces.types += [UNUSED] * (rows - count)
    if pieces.scores is not None:
        pieces.scores += [0.0] * (rows - count)


def _list_pieces(pieces: Pieces) -> list[Entry]:
    twice = find_repeat(pieces.tokens)
    if twice is not None:
        shown = shorten(pieces.tokens[twice], 40)
        raise ContentError(f"two tokens are {shown!r} in GGUF, and llama.cpp refuses such a vocabulary")
    entries = [Entry(f"{KEY}model", pieces.model, "string"), Entry(f"{KEY}pre", pieces.pre, "string")]
    entries.append(Entry(f"{KEY}tokens", pieces.tokens, "array:string"))
    if pieces.scores is not None:
        entries.append(Entry(f"{KEY}scores", pieces.scores, "array:f32"))
    entries.append(Entry(f"{KEY}token_type", pieces.types, "array:i32"))
    if pieces.merges is not None:
        entries.append(Entry(f"{KEY}merges", pieces.merges, "array:string"))
    return entries


def _list_special(folder: FolderTokenizer, pieces: Pieces) -> list[Entry]:
    """List the ids of special tokens, and whether they are put around a text."""
    ids = {**find_special_ids(folder, pieces.tokens), **pieces.ids}
    before, after = read_frame(folder, pieces.tokens, ids)
    for name, place in (("bos", before), ("eos", after)):
        if len(place) > 1:
            shown = " ".join(shorten(pieces.tokens[id], 40) for id in place)
            pieces.notes.append(f"llama.cpp puts at most one token before and one after a text, and not {shown}")
            place.clear()
        elif place:
            ids[name] = place[0]  # what llama.cpp puts there is what it calls by this name
    entries = [Entry(f"{KEY}{word}_token_id", ids[name], "u32") for name, word in SPECIAL_WORDS.items() if name in ids]
    entries += _list_stops(ids.get("eos"), find_stop_ids(folder, len(pieces.tokens)), pieces.notes)
    entries.append(Entry(f"{KEY}add_bos_token", bool(before), "bool"))
    entries.append(Entry(f"{KEY}add_eos_token", bool(after), "bool"))
    return entries + [_make_flag(key, value) for key, value in pieces.flags.items()]


def _list_stops(eos: int | None, stops: list[int], notes: list[str]) -> list[Entry]:
    """List the tokens that end a text besides ``eos``: llama.cpp stops at those of a turn and of a message too."""
    others = [id for id in stops if id != eos]
    if eos is not None and len(others) == len(stops) > 0:
        notes.append(f"the tokenizer ends a text with the id {eos}, and config.json with others: all of them end one")
    if len(others) > len(STOP_WORDS):
        left = ", ".join(map(str, others[len(STOP_WORDS) :]))
        notes.append(f"GGUF has places for three tokens that end a text, and these ids are left out: {left}")
    return [Entry(f"{KEY}{word}_token_id", id, "u32") for word, id in zip(STOP_WORDS, others, strict=False)]


def _make_flag(key: str, value: Any) -> Entry:
    if isinstance(value, bytes):
        return Entry(f"{KEY}{key}", list(value), "array:u8")
    return Entry(f"{KEY}{key}", value, "bool" if isinstance(value, bool) else "u32")


def _list_templates(folder: FolderTokenizer) -> list[Entry]:
    entries = []
    others = [name for name in folder.templates if name != "default"]
    for name in others:
        if not name.replace("-", "_").isidentifier() or not name.isascii():
            raise ContentError(f"a chat template is called {shorten(name, 40)!r}, which is no part of a key in GGUF")
    if others:
        entries.append(Entry("tokenizer.chat_templates", others, "array:string"))
        entries += [Entry(f"tokenizer.chat_template.{name}", folder.templates[name], "string") for name in others]
    if "default" in folder.templates:
        entries.append(Entry("tokenizer.chat_template", folder.templates["default"], "string"))
    return entries
