"""SentencePiece-like BPE and unigram: llama.cpp gives the ids of the tokenizers library."""

from __future__ import annotations

import json

import pytest
from tokenizers import Tokenizer

from holdall.errors import UnsupportedError
from holdall.recipes.tokenizers import tokenizer_to_gguf
from tests.recipes import trained
from tests.recipes.sentences import sentences

CONFIG = {"unk_token": "<unk>"}


def follows_special(text) -> bool:
    """Whether text follows a special token; llama.cpp puts a space before it, prepend_scheme first does not."""
    return any(text.partition(mark)[2] for mark in (*trained.SPECIAL, "<tool>", "</tool>"))


def space_follows_special(text) -> bool:
    """Whether a space does: llama.cpp adds another one, and Metaspace does not."""
    return any(text.partition(mark)[2].startswith(" ") for mark in (*trained.SPECIAL, "<tool>", "</tool>"))


def ends_in_space(text) -> bool:
    """Whether a text, or what stands before a special token, ends in white space, which llama.cpp removes here."""
    return text[-1:].isspace() or " <|end" in text or "\n<|st" in text


WITHOUT = {"llama": [], "gemma": [], "always": [space_follows_special], "words": [space_follows_special]}
WITHOUT["first"] = [follows_special]
UNIGRAM_WITHOUT = {"plain": WITHOUT["always"], "words": WITHOUT["words"], "xlm-r": [ends_in_space]}
UNIGRAM_WITHOUT |= {"t5": [], "t5-strip": []}


@pytest.mark.parametrize("closed", [False, True], ids=["learnt", "closed"])
@pytest.mark.parametrize("style", trained.STYLES)
def test_llama_cpp_gives_the_ids_of_bpe_with_byte_fallback(style, closed, tmp_path):
    pytest.importorskip("xllamacpp")
    from tests.recipes.llama_cpp import LlamaCpp

    tokenizer = trained.sentence_bpe(style, closed=closed)
    made = tokenizer_to_gguf(trained.folder_of(tokenizer, **CONFIG), rows=tokenizer.get_vocab_size() + 3)
    server = LlamaCpp(tmp_path, made.entries)
    texts = sentences(without=WITHOUT[style])
    assert [text for text in texts if server.encode(text) != tokenizer.encode(text).ids] == []
    assert len(texts) >= 195
    assert any("Metaspace" in note for note in made.notes) == (style in ("always", "first", "words"))
    assert any("prepend_scheme first" in note for note in made.notes) == (style == "first")


@pytest.mark.parametrize("style", trained.UNIGRAM)
def test_llama_cpp_gives_the_ids_of_unigram(style, tmp_path):
    pytest.importorskip("xllamacpp")
    from tests.recipes.llama_cpp import LlamaCpp

    tokenizer = trained.unigram(style)
    made = tokenizer_to_gguf(trained.folder_of(tokenizer, **CONFIG, pad_token="<pad>"))
    server = LlamaCpp(tmp_path, made.entries)
    texts = sentences(without=UNIGRAM_WITHOUT[style])
    assert [text for text in texts if server.encode(text) != tokenizer.encode(text).ids] == []
    assert len(texts) >= 190
    assert any("with 32 bits" in note for note in made.notes)
    assert any("at the end of a text" in note for note in made.notes) == (style == "xlm-r")


def test_llama_cpp_gives_the_ids_of_runs_of_spaces_and_lines_that_are_added_tokens(tmp_path):
    """Gemma lists such runs as added tokens: lines are found in the text, and ▁ only after spaces have become it."""
    pytest.importorskip("xllamacpp")
    from tests.recipes.llama_cpp import LlamaCpp

    document = json.loads(trained.sentence_bpe("gemma", bos=None).to_str())
    model, added = document["model"], [row for row in document["added_tokens"] if row["special"]]
    runs = [letter * count for count in range(2, 6) for letter in ("▁", "\n")]
    model["vocab"] |= {token: id for id, token in enumerate(["\n", *runs], len(model["vocab"]))}
    added += [{**added[0], "id": model["vocab"][run], "content": run, "special": False} for run in runs]
    document["added_tokens"] = added
    model["merges"] = [[run[:at], run[at:]] for run in runs for at in range(1, len(run))] + model["merges"]
    tokenizer = Tokenizer.from_str(json.dumps(document))
    made = tokenizer_to_gguf({"tokenizer.json": tokenizer.to_str().encode()})
    server = LlamaCpp(tmp_path, made.entries)
    texts = sentences() + [f"a{' ' * spaces}b{chr(10) * lines}c" for spaces in range(1, 12) for lines in range(1, 9)]
    assert [text for text in texts if server.encode(text) != tokenizer.encode(text).ids] == []


def test_the_entries_of_bpe_with_byte_fallback():
    tokenizer = trained.sentence_bpe("llama", vocab_size=200)
    made = tokenizer_to_gguf(trained.folder_of(tokenizer, **CONFIG), rows=tokenizer.get_vocab_size() + 1)
    values = {entry.key: entry.value for entry in made.entries}
    kinds = {entry.key: entry.kind for entry in made.entries}
    assert values["tokenizer.ggml.model"] == "llama"
    assert values["tokenizer.ggml.add_space_prefix"] is True
    assert kinds["tokenizer.ggml.scores"] == "array:f32"
    types = dict(zip(values["tokenizer.ggml.tokens"], values["tokenizer.ggml.token_type"], strict=True))
    shown = [types[token] for token in ("<unk>", "<s>", "<0x0A>", "a", "<tool>", f"[PAD{len(types) - 1}]")]
    assert shown == [2, 3, 6, 1, 4, 5]
    scores = dict(zip(values["tokenizer.ggml.tokens"], values["tokenizer.ggml.scores"], strict=True))
    joined = [
        first + second for first, _, second in (merge.partition(" ") for merge in values["tokenizer.ggml.merges"])
    ]
    assert [scores[token] for token in joined] == [-rank for rank in range(len(joined))]


def test_a_token_that_only_llama_cpp_would_join_is_refused():
    document = json.loads(trained.sentence_bpe("gemma", vocab_size=200).to_str())
    vocab = document["model"]["vocab"]
    letters = [token for token in vocab if len(token) == 1]
    known = {"".join(pair) for pair in document["model"]["merges"]}
    pair = next(a + b for a in letters for b in letters if a + b not in known)
    vocab[pair] = len(vocab) + 2
    with pytest.raises(UnsupportedError, match=f"no merge joins '{pair[0]}' and '{pair[1]}' to a token, and llama.cpp"):
        tokenizer_to_gguf({"tokenizer.json": json.dumps(document).encode()})


def test_spaces_that_llama_cpp_treats_otherwise_are_refused_and_shown():
    document = json.loads(trained.unigram().to_str())
    document["normalizer"] = {"type": "NFKC"}
    with pytest.raises(UnsupportedError) as refused:
        tokenizer_to_gguf({"tokenizer.json": json.dumps(document).encode()})
    assert str(refused.value) == (
        "tokenizer.json: llama.cpp has no way to treat spaces as this tokenizer does: normalizer NFKC, pre-tokenizer "
        "Metaspace(replacement=▁, split=false, prepend_scheme=always)"
    )
