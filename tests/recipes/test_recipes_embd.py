"""BERT encoders to EMBD and back: every tensor that stays comes back bit for bit, and so does the vocabulary."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdall
from holdall.errors import ContentError
from holdall.format.embd.layout import KEYS
from holdall.model.model import model_of
from holdall.model.vocab import Vocab
from tests.runtime import tiny

METADATA = {
    "model_name": "toy", "model_version": "1.0.0", "embedding_dim": "24", "vocab_size": "15", "num_layers": "2",
    "num_attention_heads": "3", "hidden_size": "24", "intermediate_size": "40", "max_position_emb": "12",
    "created_at": "2025-01-16T12:00:00Z",
}  # fmt: skip
CONFIG = tiny.CONFIG | {"layer_norm_eps": 1e-12, "_name_or_path": "org/toy"}
RECIPE = "bert-embd"
HEADS = ("cls.predictions.bias", "cls.seq_relationship.weight", "cls.predictions.decoder.weight")


def save_folder(
    path: Path, prefix: str = "", dtype: Any = np.float32, files: dict[str, Any] | None = None, **changes: Any
) -> dict[str, np.ndarray]:
    """Save a BERT as folders have it, with parts that sentence encoders do not need; return its tensors."""
    arrays = {name: values.astype(dtype) for name, values in tiny.tensors(prefix).items()}
    size = CONFIG["hidden_size"]
    arrays |= {f"{prefix}pooler.dense.weight": np.ones((size, size), dtype)}
    arrays |= {f"{prefix}pooler.dense.bias": np.ones(size, dtype)}
    arrays |= {f"{prefix}embeddings.position_ids": np.arange(12)[None]}
    arrays |= {name: np.ones(2, dtype) for name in HEADS if prefix}
    config = {key: value for key, value in (CONFIG | changes).items() if value is not None}
    holdall.save(path, arrays, format="hf", fsync=False)
    (path / "config.json").write_text(json.dumps(config))
    for name, value in ({"vocab.txt": tiny.VOCAB.to_text()} | (files or {})).items():
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())
    return arrays


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("prefix", ["", "bert."])
def test_there_and_back(prefix: str, dtype: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1737028800")
    arrays = save_folder(tmp_path / "folder", prefix, dtype)
    report = holdall.convert(tmp_path / "folder", tmp_path / "m.weights", fsync=False)
    left = sorted(name for name in arrays if "pooler" in name or "position_ids" in name or name.startswith("cls."))
    kept = {name: values for name, values in arrays.items() if name not in left}
    assert report.changes[0] == f"recipe {RECIPE} (BERT): {len(arrays)} tensors become {len(kept)}"
    assert report.dropped == [f"{len(left)} tensors left out: {', '.join(left)}"]
    assert report.lossless is False
    with holdall.open(tmp_path / "m.weights") as model:
        assert {prefix + name for name in model} == set(kept)
        for name, values in kept.items():
            np.testing.assert_array_equal(model[name.removeprefix(prefix)].numpy(), values)
        assert dict(model.metadata) == METADATA
        assert set(model.metadata) == set(KEYS)
        assert model.vocab == tiny.VOCAB
    again = holdall.convert(tmp_path / "m.weights", tmp_path / "back", format="hf", fsync=False)
    assert again.changes[0].startswith("recipe bert-embd (BERT), applied backwards: ")
    assert again.lossless
    with holdall.open(tmp_path / "back") as model:
        assert {prefix + name: model[name].raw().tobytes() for name in model} == {
            name: values.tobytes() for name, values in kept.items()
        }
        word = {np.float32: "float32", np.float16: "float16"}[dtype]
        more = {"architectures": ["BertModel"], "position_embedding_type": "absolute", "torch_dtype": word}
        assert model.config == CONFIG | more | {"_name_or_path": "toy"}
        assert model.vocab == tiny.VOCAB
    holdall.convert(tmp_path / "back", tmp_path / "again.weights", fsync=False)
    assert (tmp_path / "again.weights").read_bytes() == (tmp_path / "m.weights").read_bytes()


@pytest.mark.parametrize("format", ["mcf", "aero", "npz"])
def test_every_container_with_configuration_and_vocabulary_gives_the_same_file(format: str, tmp_path: Path) -> None:
    save_folder(tmp_path / "folder", "bert.")
    holdall.convert(tmp_path / "folder", tmp_path / "copy", format=format, carry=True, fsync=False)
    for source in ("folder", "copy"):
        holdall.convert(tmp_path / source, tmp_path / f"{source}.weights", fsync=False)
    assert (tmp_path / "copy.weights").read_bytes() == (tmp_path / "folder.weights").read_bytes()


def test_the_vocabulary_of_tokenizer_json_is_enough(tmp_path: Path) -> None:
    vocab = {token: id for id, token in enumerate(tiny.WORDS)}
    save_folder(tmp_path / "folder", files={"tokenizer.json": {"model": {"type": "WordPiece", "vocab": vocab}}})
    (tmp_path / "folder" / "vocab.txt").unlink()
    holdall.convert(tmp_path / "folder", tmp_path / "m.weights", fsync=False)
    with holdall.open(tmp_path / "m.weights") as model:
        assert model.vocab == tiny.VOCAB


def test_special_tokens_of_another_spelling_come_back(tmp_path: Path) -> None:
    words = ["<pad>", "<unk>", "<cls>", "<sep>", "<mask>", *tiny.WORDS[5:]]
    spelled = {f"{name}_token": f"<{name}>" for name in ("pad", "unk", "cls", "sep", "mask")}
    files = {"vocab.txt": "".join(f"{word}\n" for word in words).encode(), "special_tokens_map.json": spelled}
    save_folder(tmp_path / "folder", files=files)
    holdall.convert(tmp_path / "folder", tmp_path / "m.weights", fsync=False)
    holdall.convert(tmp_path / "m.weights", tmp_path / "back", format="hf", fsync=False)
    for path in (tmp_path / "m.weights", tmp_path / "back"):
        with holdall.open(path) as model:
            assert model.vocab.special == {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}
            assert list(model.vocab) == words


def test_by_way_of_a_folder_and_mcf_the_file_is_the_same(tmp_path: Path) -> None:
    """MCF holds a tokenizer.json and no vocab.txt, so the folder has both."""
    save_folder(tmp_path / "folder", "bert.")
    chain = ["folder", "a.weights", "back", "b.mcf", "b.weights", "c.gguf", "c.weights"]
    steps = zip(chain, ["a.weights", "back", "b.mcf", "b.weights"], strict=False)
    for source, target in [*steps, ("back", "c.gguf"), ("c.gguf", "c.weights")]:
        holdall.convert(tmp_path / source, tmp_path / target, format="hf" if target == "back" else None, fsync=False)
    first = (tmp_path / "a.weights").read_bytes()
    assert (tmp_path / "b.weights").read_bytes() == first
    assert (tmp_path / "c.weights").read_bytes() == first


@pytest.mark.parametrize("cased", [False, True])
def test_the_tokenizer_of_the_folder_is_that_of_the_vocabulary(cased: bool, tmp_path: Path) -> None:
    """The same ids as a WordPiece of the vocabulary, also where capitals count."""
    transformers = pytest.importorskip("transformers")
    words = [*tiny.WORDS, "The", "Mat"] if cased else tiny.WORDS
    model = model_of(tiny.tensors())
    holdall.save(tmp_path / "plain.weights", model, vocab=Vocab(words), metadata=METADATA, fsync=False)
    holdall.convert(tmp_path / "plain.weights", tmp_path / "back", format="hf", fsync=False)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "back")
    truth = Vocab(words).wordpiece(lowercase=not cased)
    for text in [*tiny.TEXTS, "The Mat sits on the Mat", "THE MÄT"]:
        assert tokenizer(text)["input_ids"] == truth.encode(text).ids, text


def test_tokens_that_are_there_twice_leave_the_vocabulary_alone(tmp_path: Path) -> None:
    vocab = Vocab([*tiny.WORDS, "cat"])
    holdall.save(tmp_path / "m.weights", model_of(tiny.tensors()), vocab=vocab, metadata=METADATA, fsync=False)
    holdall.convert(tmp_path / "m.weights", tmp_path / "back", format="hf", fsync=False)
    with holdall.open(tmp_path / "back") as model:
        assert "tokenizer.json" not in model.assets
        assert model.vocab == vocab


def test_without_a_vocabulary_the_report_says_so(tmp_path: Path) -> None:
    save_folder(tmp_path / "folder")
    (tmp_path / "folder" / "vocab.txt").unlink()
    report = holdall.convert(tmp_path / "folder", tmp_path / "m.weights", fsync=False)
    assert "there is no vocabulary in it, without which few programs run the model" in report.changes
    with holdall.open(tmp_path / "m.weights") as model:
        assert model.vocab is None
        assert model.metadata["vocab_size"] == "15"


POOLING = {"1_Pooling/config.json": {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}}


@pytest.mark.parametrize(
    ("changes", "files", "message"),
    [
        ({"hidden_act": "relu"}, {}, "hidden_act is not gelu"),
        ({"layer_norm_eps": 1e-6}, {}, "layer_norm_eps is not 1e-12"),
        ({"position_embedding_type": "relative_key"}, {}, "position_embedding_type is not absolute"),
        ({"is_decoder": True}, {}, "EMBD is for encoders"),
        ({"num_attention_heads": None}, {}, "the configuration lacks num_attention_heads"),
        ({"num_hidden_layers": 3}, {}, "the tensor 'encoder.layer.2.attention.self.query.weight' is missing"),
        (
            {"num_hidden_layers": 1},
            {},
            "'encoder.layer.1.attention.output.LayerNorm.bias' is beyond the 1 that",
        ),
        ({"hidden_size": "24"}, {}, "'24' is no whole number"),
        ({}, POOLING, "a text is the vector of its first token"),
        ({}, {"tokenizer.json": {"model": {"type": "BPE", "vocab": {"a": 0}}}}, "the tokenizer is no WordPiece"),
    ],
)
def test_what_programs_for_embd_would_not_compute_is_refused(
    changes: dict[str, Any], files: dict[str, Any], message: str, tmp_path: Path
) -> None:
    save_folder(tmp_path / "folder", files=files, **changes)
    with pytest.raises(ContentError, match=message):
        holdall.convert(tmp_path / "folder", tmp_path / "m.weights", fsync=False)
    assert not (tmp_path / "m.weights").exists()


def test_a_tensor_that_is_there_under_two_names_is_refused(tmp_path: Path) -> None:
    arrays = save_folder(tmp_path / "folder")
    name = "embeddings.LayerNorm.weight"
    holdall.save(tmp_path / "two", arrays | {f"bert.{name}": arrays[name] + 1}, format="hf", fsync=False)
    (tmp_path / "two" / "config.json").write_text(json.dumps(CONFIG))
    with pytest.raises(ContentError, match=rf"'bert\.{name}' and '{name}' are names of the same tensor"):
        holdall.convert(tmp_path / "two", tmp_path / "m.weights", fsync=False)


def test_the_names_of_old_norms_are_understood(tmp_path: Path) -> None:
    arrays = save_folder(tmp_path / "folder")
    old = {name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): arrays[name] for name in arrays}
    assert set(old) != set(arrays)
    holdall.save(tmp_path / "old", old, format="hf", fsync=False)
    for name in ("config.json", "vocab.txt"):
        (tmp_path / "old" / name).write_bytes((tmp_path / "folder" / name).read_bytes())
    for source in ("folder", "old"):
        holdall.convert(tmp_path / source, tmp_path / f"{source}.weights", fsync=False)
    with holdall.open(tmp_path / "old.weights") as model, holdall.open(tmp_path / "folder.weights") as expected:
        assert {name: model[name].raw().tobytes() for name in model} == {
            name: expected[name].raw().tobytes() for name in expected
        }


def save_gguf(tmp_path: Path, **metadata: Any) -> Path:
    """The folder, and the GGUF file that the recipe for llama.cpp makes of it."""
    config = {"tokenizer_class": "BertTokenizer", "do_lower_case": True}
    save_folder(tmp_path / "folder", "bert.", files={"tokenizer_config.json": config})
    report = holdall.convert(tmp_path / "folder", tmp_path / "m.gguf", fsync=False, metadata=metadata)
    assert report.recipe is not None
    assert report.recipe.recipe.name == "bert-gguf"
    return tmp_path / "m.gguf"


def test_a_gguf_file_comes_by_way_of_its_own_recipe(tmp_path: Path) -> None:
    path = save_gguf(tmp_path)
    holdall.convert(tmp_path / "folder", tmp_path / "folder.weights", fsync=False)
    report = holdall.convert(path, tmp_path / "m.weights", fsync=False)
    assert report.changes[0].startswith("recipe bert-embd (BERT): ")
    assert any(change.startswith("recipe bert-gguf (BERT), applied backwards: ") for change in report.changes)
    assert report.recipe is not None
    names = {row.before: row.after for row in report.recipe.rows}
    assert names[("blk.0.attn_q.weight",)] == ("encoder.layer.0.attention.self.query.weight",)
    with holdall.open(tmp_path / "m.weights") as model, holdall.open(tmp_path / "folder.weights") as expected:
        assert {name: model[name].raw().tobytes() for name in model} == {
            name: expected[name].raw().tobytes() for name in expected
        }
        assert dict(model.metadata) == dict(expected.metadata)
        assert model.vocab == expected.vocab


def test_a_gguf_file_that_pools_otherwise_is_refused(tmp_path: Path) -> None:
    path = save_gguf(tmp_path, **{"bert.pooling_type": 2})
    with pytest.raises(ContentError, match="a text is the vector of its first token"):
        holdall.convert(path, tmp_path / "m.weights", fsync=False)
    assert not (tmp_path / "m.weights").exists()


def test_numbers_of_another_file_that_are_none_are_refused_on_the_way_back(tmp_path: Path) -> None:
    save_folder(tmp_path / "folder")
    holdall.convert(tmp_path / "folder", tmp_path / "m.weights", fsync=False, metadata={"hidden_size": "many"})
    with pytest.raises(ContentError, match="'many' is no whole number in decimal"):
        holdall.convert(tmp_path / "m.weights", tmp_path / "back", format="hf", fsync=False)
    assert not (tmp_path / "back").exists()
