"""WordPiece: llama.cpp gives the ids of the tokenizers library, with the phantom space it wants."""

from __future__ import annotations

import json
import unicodedata

import pytest

from holdall.errors import ContentError
from holdall.recipes.tokenizers import tokenizer_to_gguf
from tests.recipes import trained
from tests.recipes.sentences import sentences


def has_spacing_mark_or_hangul(text) -> bool:
    """Whether llama.cpp strips more of this text than accents."""
    return any(unicodedata.category(letter) == "Mc" or "가" <= letter <= "힣" for letter in text)


@pytest.mark.parametrize("lowercase, strip_accents", [(True, None), (False, None), (True, False), (False, True)])
def test_llama_cpp_gives_the_ids_of_word_pieces(lowercase, strip_accents, tmp_path):
    pytest.importorskip("xllamacpp")
    from tests.recipes.llama_cpp import LlamaCpp

    tokenizer = trained.word_pieces(lowercase=lowercase, strip_accents=strip_accents)
    made = tokenizer_to_gguf(trained.folder_of(tokenizer, **trained.WORD_PIECES_CONFIG), rows=520)
    server = LlamaCpp(tmp_path, made.entries)
    strips = lowercase if strip_accents is None else strip_accents
    texts = sentences(without=[has_spacing_mark_or_hangul] if strips else [])
    assert len(texts) >= 185
    assert any("spacing marks" in note for note in made.notes) == strips
    assert [text for text in texts if server.encode(text) != tokenizer.encode(text).ids] == []


def test_the_entries_have_the_phantom_space_and_the_names_of_llama_cpp():
    tokenizer = trained.word_pieces(vocab_size=400)
    made = tokenizer_to_gguf(trained.folder_of(tokenizer, **trained.WORD_PIECES_CONFIG))
    values = {entry.key: entry.value for entry in made.entries}
    tokens = values["tokenizer.ggml.tokens"]
    assert tokens[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    for id in range(5, len(tokens)):
        own = tokenizer.id_to_token(id)
        assert tokens[id] == (own[2:] if own.startswith("##") else "▁" + own)
    ids = {key: value for key, value in values.items() if key.endswith("_id")}
    words = {"bos": 2, "unknown": 1, "seperator": 3, "padding": 0, "cls": 2, "mask": 4, "eos": 3}
    assert ids == {f"tokenizer.ggml.{word}_token_id": id for word, id in words.items()}
    assert values["tokenizer.ggml.token_type_count"] == 2
    assert values["tokenizer.ggml.normalizer.lowercase"] is True


def test_a_vocabulary_without_cls_is_refused():
    document = json.loads(trained.word_pieces(vocab_size=400).to_str())
    vocab = document["model"]["vocab"]
    vocab["[GO]"] = vocab.pop("[CLS]")
    document["added_tokens"] = []
    with pytest.raises(ContentError, match="there is no cls token, and WordPiece"):
        tokenizer_to_gguf({"tokenizer.json": json.dumps(document).encode()})


@pytest.mark.parametrize("lowercase", [True, False])
def test_a_folder_with_vocab_txt_alone_gives_the_same_entries(lowercase):
    tokenizer = trained.word_pieces(lowercase=lowercase)
    folder = trained.folder_of(tokenizer, **trained.WORD_PIECES_CONFIG, do_lower_case=lowercase)
    lines = "".join(f"{tokenizer.id_to_token(id)}\n" for id in range(tokenizer.get_vocab_size()))
    plain = {"vocab.txt": lines.encode(), "tokenizer_config.json": folder["tokenizer_config.json"]}
    assert tokenizer_to_gguf(plain) == tokenizer_to_gguf(folder)


def test_a_token_twice_in_vocab_txt_is_refused():
    with pytest.raises(ContentError, match=r"vocab.txt: token 'a' has the ids 1 and 3"):
        tokenizer_to_gguf({"vocab.txt": b"[CLS]\na\nb\na\n"})


def test_special_tokens_are_known_by_their_usual_spelling():
    document = json.loads(trained.word_pieces(vocab_size=400).to_str())
    document["added_tokens"] = []
    found = tokenizer_to_gguf({"tokenizer.json": json.dumps(document).encode()})
    values = {entry.key: entry.value for entry in found.entries}
    assert values["tokenizer.ggml.token_type"][:5] == [1, 3, 3, 3, 1]
    assert values["tokenizer.ggml.tokens"][:4] == ["▁[PAD]", "[UNK]", "[CLS]", "[SEP]"]
