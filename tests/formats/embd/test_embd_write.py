"""What the writer refuses, adds and keeps."""

from types import MappingProxyType

import numpy as np
import pytest

import holdall
from holdall.formats.embd.layout import KEYS
from holdall.model import Model
from holdall.vocab import Vocab

CONFIG = {
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 12,
    "vocab_size": 99,
    "_name_or_path": "org/toy",
}
W = np.arange(4, dtype=np.float32)


@pytest.mark.parametrize(
    ("content", "options", "says"),
    [
        ({"w": np.float32(1)}, {}, "scalar"),
        ({"w": np.zeros((1, 1, 1, 1, 1), np.float32)}, {}, "5 dims"),
        ({"w": np.zeros(2, np.int64)}, {}, "i64"),
        ({"w" * 65536: W}, {}, "65535"),
        ({"w": W}, {"metadata": {"k": "v" * 65536}}, "65535"),
        ({"w": W}, {"metadata": {"k": 1.5}}, "text"),
        ({"w": W}, {"vocab": ["t" * 65536]}, "65535"),
        ({"w": W}, {"vocab": "vocab.txt"}, "Vocab"),
        ({"w": W.astype(np.int8)}, {"layout": "sequential"}, "f32 only"),
    ],
)
def test_refusals(content, options, says, tmp_path):
    with pytest.raises(holdall.ContentError, match=says):
        holdall.save(tmp_path / "x.weights", content, **options)
    assert not list(tmp_path.iterdir())


def test_layouts_into_each_other(tmp_path):
    vocab = Vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"])
    holdall.save(tmp_path / "a.weights", {"w": W}, metadata={"model_name": "toy", "hidden_size": 4}, vocab=vocab)
    with holdall.open(tmp_path / "a.weights") as model:
        assert dict(model.metadata) == {"model_name": "toy", "hidden_size": "4"}
        assert model.vocab == vocab
        holdall.save(tmp_path / "b.weights", model, layout="sequential")
    with holdall.open(tmp_path / "b.weights") as model:
        assert (model.version, model.vocab.tokens) == ((1,), vocab.tokens)
        holdall.save(tmp_path / "c.weights", model, layout="spec")
    with holdall.open(tmp_path / "c.weights") as model:
        assert (model.version, model.vocab.special) == ((1, 0), vocab.special)
        assert model["w"].offset % 64 == 0


def test_a_missing_special_token_is_stored_as_no_id(tmp_path):
    holdall.save(tmp_path / "x.weights", {"w": W}, vocab=["[PAD]", "a"])
    with holdall.open(tmp_path / "x.weights") as model:
        assert (model.vocab.special["pad"], model.vocab.special["cls"]) == (0, 0xFFFFFFFF)


def test_required_keys_come_from_a_configuration(tmp_path, monkeypatch):
    class Configured(Model):
        config = MappingProxyType(CONFIG)
        vocab = Vocab(["a", "b"])

    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1737028800")
    model = Configured(holdall.Model([holdall.Tensor.of("w", W)]).tensors, metadata={"model_version": "3"})
    holdall.save(tmp_path / "x.weights", model)
    with holdall.open(tmp_path / "x.weights") as found:
        assert set(found.metadata) == set(KEYS)
        assert found.metadata["model_version"] == "3"
        assert found.metadata["vocab_size"] == "2"
        assert found.metadata["model_name"] == "toy"
        assert found.metadata["created_at"] == "2025-01-16T12:00:00Z"
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    holdall.save(tmp_path / "y.weights", {"w": W}, fill="all")
    assert holdall.open(tmp_path / "y.weights").metadata["created_at"] == "1970-01-01T00:00:00Z"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "soon")
    with pytest.raises(holdall.ContentError, match="SOURCE_DATE_EPOCH"):
        holdall.save(tmp_path / "z.weights", {"w": W}, fill="all")


def test_progress_covers_the_file(tmp_path):
    path = tmp_path / "x.weights"
    holdall.save(path, {"w": np.zeros(3_000_000, np.float32)}, fsync=False)
    told = []
    assert holdall.verify(path, progress=lambda done, total: told.append((done, total))).ok
    assert told[-1] == (path.stat().st_size, path.stat().st_size)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
