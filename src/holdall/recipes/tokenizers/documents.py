"""The tokenizer.json that does what llama.cpp does with a stored tokenizer, and whether it is another one's equal."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Mapping
from typing import Any

from holdall.errors import ContentError
from holdall.recipes.tokenizers.components import split_steps
from holdall.recipes.tokenizers.joining import merges_of_scores
from holdall.recipes.tokenizers.pieces import CONTROL, NORMAL, UNKNOWN, USER_DEFINED
from holdall.recipes.tokenizers.pre_tokenizers import pre_tokenizer_of
from holdall.recipes.tokenizers.spacing import SPACE
from holdall.recipes.tokenizers.stored import KEY, Stored
from holdall.recipes.tokenizers.templates import make_added, make_template
from holdall.recipes.tokenizers.word_pieces import CONTINUES, unmark_word

__all__ = ["documents_agree", "make_document"]

_METASPACE = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always", "split": True}
_SPACES = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
_AT_SPACES = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
_UNDO = [{"type": "Replace", "pattern": {"String": SPACE}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def make_document(stored: Stored) -> dict[str, Any]:
    """Make the tokenizer.json of a stored tokenizer."""
    vocab = {_added_text(stored, id): id for id in range(len(stored.tokens))}
    kinds = (CONTROL, UNKNOWN, USER_DEFINED)
    listed = [(token, id) for token, id in vocab.items() if stored.types[id] in kinds]
    added = [make_added(id, token, special=stored.types[id] != USER_DEFINED) for token, id in listed]
    parts = _PARTS[stored.model](stored, vocab)
    head = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added}
    order = ("normalizer", "pre_tokenizer", "post_processor", "decoder", "model")
    parts["post_processor"] = _make_frame(stored, vocab)
    return head | {name: parts[name] for name in order}


def _added_text(stored: Stored, id: int) -> str:
    """The text of a token, with the spaces that SentencePiece-like vocabularies write as ▁."""
    text = stored.tokens[id]
    return text.replace(" ", SPACE) if stored.model in ("llama", "t5") else text


def _byte_level_parts(stored: Stored, vocab: dict[str, int]) -> dict[str, Any]:
    row = pre_tokenizer_of(stored.pre)
    steps = [{**step, "trim_offsets": True} if step["type"] == "ByteLevel" else dict(step) for step in row.steps]
    if stored.merges is None:
        raise ContentError(f"the metadata has no {KEY}merges, by which BPE joins letters")
    model = _bpe(vocab, stored.merges, ignore_merges=row.ignore_merges)
    return {
        "normalizer": {"type": "NFC"} if row.nfc else None,
        "pre_tokenizer": steps[0] if len(steps) == 1 else {"type": "Sequence", "pretokenizers": steps},
        "decoder": _BYTE_LEVEL,
        "model": model,
    }


def _bpe(
    vocab: dict[str, int],
    merges: list[tuple[str, str]],
    unknown: str | None = None,
    *,
    byte_fallback: bool = False,
    ignore_merges: bool = False,
) -> dict[str, Any]:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": unknown,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": byte_fallback,
        "byte_fallback": byte_fallback,
        "ignore_merges": ignore_merges,
        "vocab": vocab,
        "merges": [list(pair) for pair in merges],
    }


def _sentence_parts(stored: Stored, vocab: dict[str, int]) -> dict[str, Any]:
    prefix = stored.flag("add_space_prefix", True)
    merges = stored.merges
    if merges is None:
        merges = merges_of_scores(stored.tokens, stored.types, stored.scores or [])
    unknown = next((token for token, kind in zip(stored.tokens, stored.types, strict=True) if kind == UNKNOWN), None)
    prepend = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": SPACE}, _SPACES]}
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if prefix else []
    return {
        "normalizer": prepend if prefix else _SPACES,
        # As Gemma has it, to no effect: there are no spaces left.
        "pre_tokenizer": None if prefix else _AT_SPACES,
        "decoder": {"type": "Sequence", "decoders": [*_UNDO, *strip]},
        "model": _bpe(vocab, merges, unknown, byte_fallback=True),
    }


def _unigram_parts(stored: Stored, vocab: dict[str, int]) -> dict[str, Any]:
    if stored.scores is None:
        raise ContentError(f"the metadata has no {KEY}scores, by which a unigram tokenizer chooses")
    removes, prefix = stored.flag("remove_extra_whitespaces", False), stored.flag("add_space_prefix", False)
    normalizers: list[dict[str, Any]] = []
    charsmap = stored.flags.get(f"{KEY}precompiled_charsmap")
    if charsmap is not None:
        data = base64.b64encode(_bytes_of(charsmap)).decode()
        normalizers.append({"type": "Precompiled", "precompiled_charsmap": data})
    if removes:
        normalizers.append({"type": "Strip", "strip_left": False, "strip_right": True})
        normalizers.append({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": SPACE})
    crosses = any(SPACE in token[1:] for token, id in vocab.items() if stored.types[id] == NORMAL)
    scheme = "always" if prefix or removes else "never"
    metaspace = {**_METASPACE, "prepend_scheme": scheme, "split": not crosses}
    rows = [[token, stored.scores[id]] for token, id in vocab.items()]
    return {
        "normalizer": {"type": "Sequence", "normalizers": normalizers} if normalizers else None,
        "pre_tokenizer": metaspace,
        "decoder": metaspace,
        "model": {"type": "Unigram", "unk_id": stored.ids.get("unk"), "vocab": rows, "byte_fallback": False},
    }


def _bytes_of(value: Any) -> bytes:
    items = value.tolist() if hasattr(value, "tolist") else value
    if not isinstance(items, list) or not all(isinstance(item, int) and -128 <= item < 256 for item in items):
        raise ContentError(f"{KEY}precompiled_charsmap is not a list of bytes")
    return bytes(item & 255 for item in items)


def _word_parts(stored: Stored, vocab: dict[str, int]) -> dict[str, Any]:
    lowercase = stored.flag("normalizer.lowercase", True)
    strips = stored.flag("normalizer.strip_accents", lowercase)
    plain = {unmark_word(token) if stored.types[id] == NORMAL else token: id for token, id in vocab.items()}
    if len(plain) != len(vocab):
        raise ContentError(f"{KEY}tokens: two tokens of WordPiece are the same without the mark of words")
    unknown = stored.tokens[stored.ids["unk"]] if "unk" in stored.ids else "[UNK]"
    model = {"type": "WordPiece", "unk_token": unknown, "continuing_subword_prefix": CONTINUES}
    return {
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True}
        | {"strip_accents": None if strips == lowercase else strips, "lowercase": lowercase},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": CONTINUES, "cleanup": True},
        "model": {**model, "max_input_chars_per_word": 100, "vocab": plain},
    }


_PARTS: dict[str, Callable[[Stored, dict[str, int]], dict[str, Any]]] = {
    "gpt2": _byte_level_parts,
    "llama": _sentence_parts,
    "t5": _unigram_parts,
    "bert": _word_parts,
}


def _make_frame(stored: Stored, vocab: dict[str, int]) -> dict[str, Any] | None:
    """Make the post-processor: as the entries say, or as llama.cpp does without them."""
    words = stored.model == "bert"
    usual = {"gpt2": (False, False), "llama": (True, False), "t5": (False, True), "bert": (True, True)}[stored.model]
    if stored.model == "gpt2":
        usual = pre_tokenizer_of(stored.pre).ignore_merges, False  # llama-bpe and tekken
    found: list[str | None] = []
    for name, adds in zip(("bos", "sep" if words else "eos"), usual, strict=True):
        adds = adds if words else stored.flag(f"add_{name}_token", adds)
        found.append(_added_text(stored, stored.ids[name]) if adds and name in stored.ids else None)
    return make_template(found[0], found[1], vocab, once=words, kinds=stored.model != "t5")


def documents_agree(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether two tokenizer.json give the same ids and the same decoded text for everything."""
    return _outline(first) == _outline(second)


def _outline(document: Mapping[str, Any]) -> list[Any]:
    """Return what counts of a tokenizer.json, in a form that can be compared."""
    parts = {part: list(split_steps(document.get(part), part)) for part in _COMPARED}
    frame = [_outline_frame(step) for step in parts["post_processor"] if step["type"] != "ByteLevel"]
    frame = [step for step in frame if step.get("special_tokens") != {}]  # which puts nothing around a text
    decoder = [_outline_decoder(step) for step in parts["decoder"]]
    normal = parts["normalizer"]
    # Whether an added token is normalized counts where the normalizer changes such texts.
    flags = _FLAGS if not normal or normal == [{"type": "NFC"}] else (*_FLAGS, "normalized")
    added = {
        (row["id"], row["content"]): [row.get(flag) is True for flag in flags]
        for row in document.get("added_tokens") or ()
    }
    return [
        normal,
        parts["pre_tokenizer"],
        frame,
        decoder,
        added,
        _outline_model(document["model"], {content for _, content in added}),
    ]


_COMPARED = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
_FLAGS = ("special", "lstrip", "rstrip", "single_word")


def _outline_frame(step: Mapping[str, Any]) -> Mapping[str, Any]:
    """A post-processor without the tokens that a template lists and does not use."""
    known = step.get("special_tokens")
    if step["type"] != "TemplateProcessing" or not isinstance(known, Mapping):
        return step
    used = set()
    for name in ("single", "pair"):
        for place in step[name] if isinstance(step.get(name), list) else ():
            special = place.get("SpecialToken") if isinstance(place, Mapping) else None
            used.add(special.get("id") if isinstance(special, Mapping) and isinstance(special.get("id"), str) else None)
    return {**step, "special_tokens": {name: row for name, row in known.items() if name in used}}


def _outline_decoder(step: Mapping[str, Any]) -> Mapping[str, Any]:
    if step["type"] == "ByteLevel":
        return {"type": "ByteLevel"}
    return {key: value for key, value in step.items() if (step["type"], key) != ("Metaspace", "split")}


def _outline_model(model: Mapping[str, Any], added: set[str]) -> dict[str, Any]:
    """The model without defaults that are spelled out, and without added tokens, which are found before it runs."""
    kept = {key: value for key, value in model.items() if value not in (None, False, "") and key != "type"}
    if "merges" in model:
        kept["merges"] = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
    vocab = model["vocab"]
    if isinstance(vocab, list):  # scores, which GGUF stores with 32 bits
        rows = enumerate(vocab)
        kept["vocab"] = {token: (id, struct.pack("<f", score)) for id, (token, score) in rows if token not in added}
    else:
        kept["vocab"] = {token: id for token, id in vocab.items() if token not in added}
    if model.get("byte_fallback"):
        kept.pop("fuse_unk", None)  # nothing is unknown where bytes have tokens
    return kept
