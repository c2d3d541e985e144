"""Malformed and hostile files of tokenizers: one sentence each, soon."""

from __future__ import annotations

import json
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdall.errors import ContentError, FormatError, HoldallError, UnsupportedError
from holdall.recipes.tokenizers import tokenizer_from_gguf, tokenizer_to_gguf
from tests.recipes import trained

BYTES = {"type": "ByteLevel", "add_prefix_space": False}
BPE = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}


def convert(document, **assets):
    return tokenizer_to_gguf({"tokenizer.json": json.dumps(document).encode(), **assets})


def bpe(**changes):
    return {"model": {**BPE, **changes}, "pre_tokenizer": BYTES}


REFUSED = {
    "no model": ({"pre_tokenizer": BYTES}, ContentError, "tokenizer.json has no model"),
    "a list": ([1], ContentError, "tokenizer.json holds a list, not an object"),
    "an unknown kind": (
        {"model": {"type": "WordLevel", "vocab": {}}},
        UnsupportedError,
        "tokenizer.json: a model of type WordLevel has no form in GGUF; known are BPE, Unigram, WordPiece",
    ),
    "a kind that is no text": (
        {"model": {"type": [[[]]]}},
        UnsupportedError,
        "tokenizer.json: a model of type unknown has no form in GGUF; known are BPE, Unigram, WordPiece",
    ),
    "no vocabulary": (bpe(vocab=None), ContentError, "tokenizer.json has no vocabulary that maps tokens to ids"),
    "an empty vocabulary": (bpe(vocab={}, merges=[]), ContentError, "tokenizer.json has no vocabulary"),
    "a hole": (bpe(vocab={"a": 0, "b": 2}), ContentError, "tokenizer.json: no token has the id 1, and one has 2"),
    "a far id": (
        bpe(vocab={"a": 0, "b": 10**30}),
        ContentError,
        f"tokenizer.json: no token has the id 1, and one has {10**30}",
    ),
    "one id twice": (
        bpe(vocab={"a": 0, "b": 0}),
        ContentError,
        "tokenizer.json: the tokens 'a' and 'b' have one id, 0",
    ),
    "an id that is no number": (
        bpe(vocab={"a": True}),
        ContentError,
        "tokenizer.json: the id of token 'a' is not a number from 0",
    ),
    "two ids of one token": (
        {**bpe(), "added_tokens": [{"id": 7, "content": "a"}]},
        ContentError,
        "tokenizer.json: token 'a' has the ids 0 and 7",
    ),
    "an added token without id": (
        {**bpe(), "added_tokens": [{"content": "x"}]},
        ContentError,
        "tokenizer.json: added token 0 has no id and content",
    ),
    "added tokens that are no list": (
        {**bpe(), "added_tokens": {"a": 1}},
        ContentError,
        "tokenizer.json: added_tokens is a dict, not a list",
    ),
    "no merges": (bpe(merges=None), ContentError, "tokenizer.json: the BPE model has no list of merges"),
    "a merge of one": (bpe(merges=["ab"]), ContentError, "tokenizer.json: merge 0 is not two tokens"),
    "a merge of three": (bpe(merges=[["a", "b", "a"]]), ContentError, "tokenizer.json: merge 0 is not two tokens"),
    "a merge of nothing known": (
        bpe(merges=["b a"]),
        ContentError,
        "tokenizer.json: merge 0 needs a token 'ba', and there is none",
    ),
    "dropout": (
        bpe(dropout=0.1),
        UnsupportedError,
        "tokenizer.json: the BPE model has a dropout, and llama.cpp knows no such BPE",
    ),
    "a step without type": (
        {**bpe(), "normalizer": {"lowercase": True}},
        ContentError,
        "tokenizer.json: normalizer holds a dict that is not a step with a type",
    ),
    "a sequence without steps": (
        {**bpe(), "pre_tokenizer": {"type": "Sequence"}},
        ContentError,
        "tokenizer.json: a Sequence of pre_tokenizer has no list of pretokenizers",
    ),
    "too many steps": (
        {**bpe(), "pre_tokenizer": {"type": "Sequence", "pretokenizers": [BYTES] * 100}},
        ContentError,
        "tokenizer.json: pre_tokenizer has more than 64 steps",
    ),
    "a score that is no number": (
        {"model": {"type": "Unigram", "unk_id": 0, "vocab": [["a", "x"]]}, "pre_tokenizer": {"type": "Metaspace"}},
        ContentError,
        "tokenizer.json: token 0 of the unigram model is not a text and a finite score",
    ),
    "unigram without unknown": (
        {"model": {"type": "Unigram", "vocab": [["a", 0.0]]}, "pre_tokenizer": {"type": "Metaspace"}},
        ContentError,
        "tokenizer.json: the unigram model names no token for what it does not know",
    ),
    "sentence pieces without bytes": (
        {"model": {**BPE, "byte_fallback": True}, "pre_tokenizer": {"type": "Metaspace"}},
        UnsupportedError,
        "tokenizer.json: llama.cpp joins pieces by merges and falls back to bytes; "
        "256 of the 256 byte tokens are missing",
    ),
    "a template with a token that is not there": (
        {
            **bpe(),
            "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}]},
        },
        ContentError,
        "tokenizer.json: the post-processor names no token and id of the vocabulary",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused_in_one_sentence(case):
    document, error, message = REFUSED[case]
    with pytest.raises(error) as refused:
        convert(document)
    assert str(refused.value) == message


def test_a_folder_without_a_tokenizer_is_refused():
    with pytest.raises(ContentError, match="the folder has no tokenizer"):
        tokenizer_to_gguf({"config.json": b"{}"})


def test_json_that_is_none_names_its_byte():
    with pytest.raises(FormatError, match=r"tokenizer.json: .* \(at byte 0x1\)"):
        tokenizer_to_gguf({"tokenizer.json": b"{"})


def test_more_tokens_than_rows_are_refused():
    with pytest.raises(ContentError, match="the tokenizer has 3 tokens, but the embeddings have only 2 rows"):
        tokenizer_to_gguf({"tokenizer.json": json.dumps(bpe()).encode()}, rows=2)


def test_more_rows_than_can_be_believed_are_refused():
    config = json.dumps({"vocab_size": 10**12}).encode()
    with pytest.raises(ContentError, match="the embeddings have 1000000000000 rows for a tokenizer of 3 tokens"):
        tokenizer_to_gguf({"tokenizer.json": json.dumps(bpe()).encode(), "config.json": config})


def test_added_tokens_without_a_row_are_left_out_and_named():
    document = {**bpe(), "added_tokens": [{"id": 3, "content": "<image>", "special": True}]}
    found = tokenizer_to_gguf({"tokenizer.json": json.dumps(document).encode()}, rows=3)
    assert "1 added tokens have no row in the embeddings and are left out: '<image>'" in found.notes
    values = {entry.key: entry.value for entry in found.entries}
    assert values["tokenizer.ggml.tokens"] == ["a", "b", "ab"]
    kept = json.loads(tokenizer_from_gguf(values)["tokenizer.json"])
    assert kept["added_tokens"] == document["added_tokens"]


@pytest.mark.parametrize("part", ["normalizer", "pre_tokenizer", "model", "post_processor", "decoder", "added_tokens"])
@pytest.mark.parametrize("depth", [100, 500, 100_000])
def test_deep_nesting_is_an_error_of_holdall(part, depth):
    deep = "[" * depth + "]" * depth
    document = json.dumps(bpe())[:-1] + f', "{part}": {{"type": "Sequence", "normalizers": {deep}, "vocab": {deep}}}}}'
    with pytest.raises(HoldallError):
        tokenizer_to_gguf({"tokenizer.json": document.encode()})


def test_nested_sequences_are_taken_apart_without_recursion():
    steps = '{"type":"Sequence","normalizers":[' * 60 + "]}" * 60
    document = json.dumps(bpe())[:-1] + f', "normalizer": {steps}}}'
    assert tokenizer_to_gguf({"tokenizer.json": document.encode()}).entries[1].value == "gpt-2"


@pytest.mark.parametrize("count, length", [(1, 400_000), (200, 2_000), (20_000, 20)])
def test_long_tokens_take_no_quadratic_time(count, length):
    """Each is refused or converted within seconds: joining looks at a bounded number of pairs."""
    tokens = [f"<0x{byte:02X}>" for byte in range(256)] + ["a", "b"]
    words = [
        "a" * (length - 5) + f"{number:05d}".translate(str.maketrans("0123456789", "abababcdcd"))
        for number in range(count)
    ]
    tokens = list(dict.fromkeys([*tokens, *words]))
    model = {
        "type": "BPE",
        "byte_fallback": True,
        "vocab": {token: id for id, token in enumerate(tokens)},
        "merges": [],
    }
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    started = time.monotonic()
    try:
        convert({"model": model, "normalizer": spaces})
    except ContentError as error:
        assert re.search(r"tokens such as 'a+…' of \d+ letters are too long for BPE", str(error))
    assert time.monotonic() - started < 20


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.text(max_size=3) | st.just("▁"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "id", "content", "a"]), inner),
    max_leaves=6,
)
SEEDS = [
    json.loads(trained.byte_level(trained.ROW, vocab_size=270, bos=True).to_str()),
    json.loads(trained.sentence_bpe("llama", vocab_size=180).to_str()),
    json.loads(trained.unigram("t5-strip", vocab_size=300).to_str()),
    json.loads(trained.word_pieces(vocab_size=200).to_str()),
]


def places(value, path=()):
    """Where a document can be changed: the first items of each list and object."""
    yield path
    items = list(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ())
    for key, inner in items[:12]:
        yield from places(inner, (*path, key))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_changed_document_is_converted_or_refused(data):
    document = json.loads(json.dumps(SEEDS[data.draw(st.sampled_from(range(len(SEEDS))))]))
    path = data.draw(st.sampled_from([path for path in places(document) if path]))
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = data.draw(VALUES)
    try:
        found = convert(document)
    except HoldallError as error:
        assert "\n" not in str(error)
        return
    tokenizer_from_gguf({entry.key: entry.value for entry in found.entries})


ENTRIES = [{entry.key: entry.value for entry in convert(document).entries} for document in SEEDS]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_changed_metadata_gives_files_or_is_refused(data):
    metadata = dict(ENTRIES[data.draw(st.sampled_from(range(len(ENTRIES))))])
    metadata[data.draw(st.sampled_from(sorted(metadata)))] = data.draw(VALUES)
    try:
        files = tokenizer_from_gguf(metadata)
    except HoldallError as error:
        assert "\n" not in str(error)
        return
    assert json.loads(files["tokenizer.json"])["model"]
