"""From GGUF back to a folder: transformers gives the ids, the text and the special tokens of the first folder."""

from __future__ import annotations

import json

import pytest

from holdall.errors import ContentError, UnsupportedError
from holdall.recipes.tokenizers import tokenizer_from_gguf, tokenizer_to_gguf
from holdall.recipes.tokenizers.pre_tokenizers import ROWS
from tests.recipes import trained
from tests.recipes.sentences import sentences
from tests.recipes.test_tokenizers_sentence_pieces import UNIGRAM_WITHOUT, WITHOUT

HF_JSON = "tokenizer.huggingface.json"
KINDS = {row.name: (trained.byte_level, {"row": row, "bos": True}, {"pad_token": "<|end|>"}) for row in ROWS}
for style in trained.STYLES:
    for closed in (False, True):
        made_of = {"style": style, "closed": closed}
        KINDS[f"bpe-{style}-{'closed' if closed else 'learnt'}"] = trained.sentence_bpe, made_of, {"unk_token": "<unk>"}
for style in trained.UNIGRAM:
    KINDS[f"unigram-{style}"] = trained.unigram, {"style": style}, {"unk_token": "<unk>", "pad_token": "<pad>"}
for lowercase in (True, False):
    made_of = {"lowercase": lowercase}
    KINDS[f"words-{'lower' if lowercase else 'cased'}"] = trained.word_pieces, made_of, trained.WORD_PIECES_CONFIG

# Those that put a space otherwise than llama.cpp does, so that the whole tokenizer.json is kept.
KEPT = {name for name in KINDS if name.startswith(("bpe-always", "bpe-first", "bpe-words"))}
KEPT |= {"unigram-plain", "unigram-t5", "unigram-xlm-r"}


def make_folder(kind) -> dict[str, bytes]:
    make, arguments, config = KINDS[kind]
    return trained.folder_of(make(**arguments), **config)


def metadata_of(folder, rows=None) -> dict:
    return {entry.key: entry.value for entry in tokenizer_to_gguf(folder, rows).entries}


def open_folder(path, files):
    transformers = pytest.importorskip("transformers")
    path.mkdir()
    for name, data in files.items():
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_bytes(data)
    (path / "config.json").write_text('{"model_type": "llama"}')
    return transformers.AutoTokenizer.from_pretrained(path)


@pytest.mark.parametrize("kind", KINDS)
def test_the_folder_comes_back(kind, tmp_path):
    folder = make_folder(kind)
    metadata = metadata_of(folder, rows=900)
    assert (HF_JSON in metadata) == (kind in KEPT)
    first, second = open_folder(tmp_path / "a", folder), open_folder(tmp_path / "b", tokenizer_from_gguf(metadata))
    assert second.special_tokens_map == first.special_tokens_map
    assert len(second) == len(first)
    assert second.chat_template == first.chat_template == trained.TEMPLATE
    for text in [*sentences(), " leading space", "  two", "", " "]:
        ids = first(text)["input_ids"]
        assert second(text)["input_ids"] == ids
        assert second(text, add_special_tokens=False)["input_ids"] == first(text, add_special_tokens=False)["input_ids"]
        assert second.decode(ids) == first.decode(ids)
        assert second.decode(ids, skip_special_tokens=True) == first.decode(ids, skip_special_tokens=True)
    assert second("one", "two")["input_ids"] == first("one", "two")["input_ids"]
    assert second.convert_ids_to_tokens(range(len(first))) == first.convert_ids_to_tokens(range(len(first)))


@pytest.mark.parametrize("kind", sorted(KEPT))
def test_without_the_kept_document_the_ids_are_those_of_llama_cpp(kind, tmp_path):
    folder = make_folder(kind)
    metadata = metadata_of(folder)
    del metadata[HF_JSON]
    first, second = open_folder(tmp_path / "a", folder), open_folder(tmp_path / "b", tokenizer_from_gguf(metadata))
    group, style = kind.split("-", 1)
    without = UNIGRAM_WITHOUT[style] if group == "unigram" else WITHOUT[style.rpartition("-")[0]]
    texts = sentences(without=without)
    assert [text for text in texts if second(text)["input_ids"] != first(text)["input_ids"]] == []


@pytest.mark.parametrize("style", trained.STYLES)
def test_merges_are_made_of_scores_where_a_file_has_none(style, tmp_path):
    tokenizer = trained.sentence_bpe(style)
    metadata = metadata_of(trained.folder_of(tokenizer, unk_token="<unk>"))
    del metadata["tokenizer.ggml.merges"]
    metadata.pop(HF_JSON, None)
    second = open_folder(tmp_path / "b", tokenizer_from_gguf(metadata))
    texts = sentences(without=WITHOUT[style])
    assert [text for text in texts if second(text)["input_ids"] != tokenizer.encode(text).ids] == []


def test_named_chat_templates_come_back(tmp_path):
    templates = [{"name": "default", "template": "A"}, {"name": "tool_use", "template": "B"}]
    folder = trained.folder_of(trained.byte_level(ROWS[0]), template=templates)
    metadata = metadata_of(folder)
    assert metadata["tokenizer.chat_templates"] == ["tool_use"]
    assert metadata["tokenizer.chat_template.tool_use"] == "B"
    files = tokenizer_from_gguf(metadata)
    assert files["additional_chat_templates/tool_use.jinja"] == b"B"
    assert open_folder(tmp_path / "b", files).chat_template == {"default": "A", "tool_use": "B"}
    assert metadata_of(files) == metadata


def test_added_tokens_that_only_added_tokens_json_has_come_along():
    folder = trained.folder_of(trained.byte_level(ROWS[0], vocab_size=270))
    metadata = metadata_of({**folder, "added_tokens.json": b'{"<more>": 272, "<tool>": 270}'})
    assert metadata["tokenizer.ggml.tokens"][270:] == ["<tool>", "</tool>", "<more>"]
    document = json.loads(tokenizer_from_gguf(metadata)["tokenizer.json"])
    assert [row["content"] for row in document["added_tokens"]][-3:] == ["<tool>", "</tool>", "<more>"]


@pytest.mark.parametrize("before, after", [("<s>", None), ("<s>", "</s>"), (None, "</s>"), (None, None)])
def test_llama_cpp_puts_the_tokens_around_a_text_that_transformers_puts(before, after, tmp_path):
    pytest.importorskip("xllamacpp")
    from tests.recipes.llama_cpp import LlamaCpp

    tokenizer = trained.with_frame(trained.byte_level(trained.ROW), before, after)
    stated = {"add_bos_token": not before, "add_eos_token": not after} if before or after else {}
    folder = trained.folder_of(tokenizer, **stated)  # the template wins over these
    made = tokenizer_to_gguf(folder)
    first, server = open_folder(tmp_path / "a", folder), LlamaCpp(tmp_path, made.entries)
    second = open_folder(tmp_path / "b", tokenizer_from_gguf({entry.key: entry.value for entry in made.entries}))
    for text in ("Hello world", "", "<s>again"):
        assert server.encode(text) == first(text)["input_ids"] == second(text)["input_ids"]


def test_a_folder_without_a_template_says_it_in_its_configuration():
    for adds in (True, False):
        folder = trained.folder_of(trained.byte_level(trained.ROW), add_bos_token=adds, add_eos_token=not adds)
        metadata = metadata_of(folder)
        flags = [metadata[f"tokenizer.ggml.add_{name}_token"] for name in ("bos", "eos")]
        assert flags == [adds, not adds]


@pytest.mark.parametrize("kind", ["llama-bpe", "bpe-llama-learnt", "unigram-plain", "words-lower"])
def test_special_tokens_that_only_the_configuration_names_are_special(kind, tmp_path):
    folder = make_folder(kind)
    document = json.loads(folder["tokenizer.json"])
    named = set(json.loads(folder["tokenizer_config.json"]).values())
    document["added_tokens"] = [row for row in document["added_tokens"] if row["content"] not in named]
    bare = {**folder, "tokenizer.json": json.dumps(document).encode()}
    metadata = metadata_of(bare)
    assert metadata["tokenizer.ggml.token_type"] == metadata_of(folder)["tokenizer.ggml.token_type"]
    first, second = open_folder(tmp_path / "a", bare), open_folder(tmp_path / "b", tokenizer_from_gguf(metadata))
    assert [text for text in sentences() if first(text)["input_ids"] != second(text)["input_ids"]] == []


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"model": None}, ContentError, "the metadata has no tokenizer.ggml.model: there is no tokenizer in it"),
        ({"model": "rwkv"}, UnsupportedError, "tokenizer.ggml.model is 'rwkv'; tokenizers are made of gpt2, llama"),
        ({"tokens": None}, ContentError, "the metadata has no tokenizer.ggml.tokens: the vocabulary is missing"),
        ({"tokens": ["a", "a"]}, ContentError, "tokenizer.ggml.tokens has 'a' twice, last as token 1"),
        ({"tokens": [1]}, ContentError, "tokenizer.ggml.tokens is not a list of texts"),
        ({"token_type": [1]}, ContentError, "tokenizer.ggml.token_type has 1 items for 3 tokens"),
        ({"merges": None}, ContentError, "the metadata has no tokenizer.ggml.merges, by which BPE joins letters"),
        ({"merges": ["ab"]}, ContentError, "tokenizer.ggml.merges: merge 0, 'ab', is not of two tokens that join"),
        ({"merges": ["a c"]}, ContentError, "tokenizer.ggml.merges: merge 0, 'a c', is not of two tokens that join"),
        ({"pre": "kimi-k2"}, UnsupportedError, "tokenizer.ggml.pre is 'kimi-k2'; known are gpt-2, olmo, smollm,"),
    ],
)  # fmt: skip
def test_metadata_without_a_tokenizer_is_refused(change, error, message):
    entries = {"model": "gpt2", "pre": "gpt-2", "tokens": ["a", "b", "ab"], "token_type": [1, 1, 1], "merges": ["a b"]}
    changed = {f"tokenizer.ggml.{key}": value for key, value in {**entries, **change}.items() if value is not None}
    with pytest.raises(error) as refused:
        tokenizer_from_gguf(changed)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize("kept", ["[1]", "{", 7, '{"model": 1}'])
def test_a_kept_document_that_is_none_is_refused(kept):
    metadata = metadata_of(trained.folder_of(trained.byte_level(ROWS[0], vocab_size=270)))
    with pytest.raises(ContentError, match=HF_JSON):
        tokenizer_from_gguf({**metadata, HF_JSON: kept})


def test_a_template_name_cannot_leave_the_folder():
    metadata = metadata_of(trained.folder_of(trained.byte_level(ROWS[0], vocab_size=270)))
    hostile = {"tokenizer.chat_templates": ["../x"], "tokenizer.chat_template.../x": "B"}
    with pytest.raises(ContentError, match=r"tokenizer.chat_templates names '../x', which is no template"):
        tokenizer_from_gguf(metadata | hostile)
