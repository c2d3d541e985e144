"""Byte-level BPE: llama.cpp gives the ids of the tokenizers library, for every pre-tokenizer of the table."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import replace
from pathlib import Path

import pytest

from holdall.errors import UnsupportedError
from holdall.model.metadata import Entry
from holdall.recipes.tokenizers import tokenizer_to_gguf
from holdall.recipes.tokenizers.pre_tokenizers import ROWS, find_pre_tokenizer, pre_tokenizer_of
from tests.recipes import trained
from tests.recipes.sentences import sentences


def has_mark_or_foreign_case(text) -> bool:
    """Whether the expressions of llama.cpp for tekken and gpt-4o, which come close only, part this text otherwise."""
    kinds = [unicodedata.category(letter) for letter in text if not letter.isascii()]
    return any(kind[0] == "M" or kind in ("Lu", "Ll", "Lt") for kind in kinds)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_llama_cpp_gives_the_ids_of_the_library(row, tmp_path):
    pytest.importorskip("xllamacpp")
    from tests.recipes.llama_cpp import LlamaCpp

    tokenizer = trained.byte_level(row, bos=row.name == "llama-bpe")
    made = tokenizer_to_gguf(trained.folder_of(tokenizer), rows=tokenizer.get_vocab_size() + 10)
    server = LlamaCpp(tmp_path, made.entries)
    without = [has_mark_or_foreign_case] if row.unlike else []
    texts = sentences(without=without)
    assert [text for text in texts if server.encode(text) != tokenizer.encode(text).ids] == []
    assert len(texts) >= 200 or (row.unlike in made.notes and len(texts) > 120)
    assert any("NFC" in note for note in made.notes) == row.nfc


def test_another_name_gives_other_ids(tmp_path):
    pytest.importorskip("xllamacpp")
    from tests.recipes.llama_cpp import LlamaCpp

    tokenizer = trained.byte_level(pre_tokenizer_of("llama-bpe"))
    made = tokenizer_to_gguf(trained.folder_of(tokenizer))
    entries = [replace(entry, value="qwen2") if entry.key == "tokenizer.ggml.pre" else entry for entry in made.entries]
    server = LlamaCpp(tmp_path, entries)
    assert sum(server.encode(text) != tokenizer.encode(text).ids for text in sentences()) > 5


def test_the_entries_are_those_that_llama_cpp_reads():
    tokenizer = trained.byte_level(pre_tokenizer_of("llama-bpe"), vocab_size=270, bos=True)
    made = tokenizer_to_gguf(trained.folder_of(tokenizer, pad_token="<|end|>"), rows=275)
    values = {entry.key: entry for entry in made.entries}
    tokens = values.pop("tokenizer.ggml.tokens")
    assert tokens.kind == "array:string"
    assert tokens.value == [tokenizer.id_to_token(id) for id in range(272)] + ["[PAD272]", "[PAD273]", "[PAD274]"]
    types = values.pop("tokenizer.ggml.token_type")
    assert (types.kind, types.value) == ("array:i32", [3, 3, 3, 3, *[1] * 266, 4, 4, 5, 5, 5])
    merges = values.pop("tokenizer.ggml.merges")
    stated = json.loads(tokenizer.to_str())["model"]["merges"]
    assert (merges.kind, merges.value) == ("array:string", [" ".join(pair) for pair in stated])
    assert list(values.values()) == [
        Entry("tokenizer.ggml.model", "gpt2", "string"),
        Entry("tokenizer.ggml.pre", "llama-bpe", "string"),
        Entry("tokenizer.ggml.bos_token_id", 0, "u32"),
        Entry("tokenizer.ggml.eos_token_id", 1, "u32"),
        Entry("tokenizer.ggml.padding_token_id", 3, "u32"),
        Entry("tokenizer.ggml.add_bos_token", True, "bool"),
        Entry("tokenizer.ggml.add_eos_token", False, "bool"),
        Entry("tokenizer.chat_template", trained.TEMPLATE, "string"),
    ]


def test_the_names_of_keys_are_those_of_the_library():
    import gguf

    tokenizer = trained.byte_level(pre_tokenizer_of("llama-bpe"), vocab_size=270, bos=True)
    folder = trained.folder_of(tokenizer, **{f"{name}_token": "<|end|>" for name in ("pad", "unk", "sep", "mask")})
    known = {value for name, value in vars(gguf.Keys.Tokenizer).items() if name.isupper()}
    assert {entry.key for entry in tokenizer_to_gguf(folder).entries} <= known


def test_an_unknown_pre_tokenizer_is_refused_and_shown():
    split = {"type": "Split", "pattern": {"Regex": "[a-z]+"}, "behavior": "Removed", "invert": False}
    steps = [split, {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}]
    with pytest.raises(UnsupportedError) as refused:
        find_pre_tokenizer({"type": "NFKC"}, {"type": "Sequence", "pretokenizers": steps}, ignore_merges=False)
    assert str(refused.value) == (
        "tokenizer.json: llama.cpp has no name for this way to part words: pre-tokenizer "
        "Split(behavior=Removed, invert=false, pattern=[a-z]+), ByteLevel(add_prefix_space=false, use_regex=false), "
        "normalizer NFKC"
    )


def test_a_prefix_space_is_refused():
    with pytest.raises(UnsupportedError, match=r"ByteLevel\(add_prefix_space=true, use_regex=true\)"):
        find_pre_tokenizer(None, {"type": "ByteLevel", "add_prefix_space": True}, ignore_merges=False)


def test_every_row_is_found_by_its_own_parts():
    for row in ROWS:
        steps = {"type": "Sequence", "pretokenizers": list(row.steps)}
        normalizer = {"type": "NFC"} if row.nfc else {"type": "Sequence", "normalizers": []}
        assert find_pre_tokenizer(normalizer, steps, ignore_merges=row.ignore_merges) is row


def test_the_page_names_every_row():
    page = (Path(__file__).parents[2] / "docs" / "tokenizers.md").read_text()
    assert [row.name for row in ROWS if f"`{row.name}`" not in page] == []


def test_bytes_without_a_token_are_noted():
    document = json.loads(trained.byte_level(trained.ROW, vocab_size=270).to_str())
    del document["model"]["vocab"]["ÿ"]  # a byte that is in no UTF-8
    document["added_tokens"] = [{"id": 269 + at, "content": f"<{at}>"} for at in range(2)]
    vocab = {token: id for id, token in enumerate(document["model"]["vocab"])}
    document["model"]["vocab"] = {token: id for token, id in vocab.items() if token not in ("<tool>", "</tool>")}
    assert tokenizer_to_gguf({"tokenizer.json": json.dumps(document).encode()}).notes == ()
    plain = {"type": "BPE", "vocab": {"a": 0}, "merges": [], "unk_token": "a"}
    document = {"model": plain, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False}}
    found = tokenizer_to_gguf({"tokenizer.json": json.dumps(document).encode()})
    assert found.notes == ("242 bytes have no token: llama.cpp drops them and parts words there",)
