"""What the writer refuses, adds and keeps."""

from types import MappingProxyType

import numpy as np
import pytest
from click.testing import CliRunner

import holdall
from holdall.cli import main
from holdall.model.model import Model
from holdall.model.vocab import Vocab

W = np.arange(4, dtype=np.float32)


@pytest.mark.shows("E27", "E28", "E46")
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
        ({"w": np.zeros((2, 0), np.float32)}, {"layout": "sequential"}, r"a dim of 0, \[2, 0\]: .* layout=spec"),
        ({"w": W}, {"layout": "sequential", "vocab": ["t"] * 100_001}, "100001 tokens, more than 100000: "),
    ],
)
def test_refusals(content, options, says, tmp_path):
    with pytest.raises(holdall.ContentError, match=says):
        holdall.save(tmp_path / "x.weights", content, **options)
    assert not list(tmp_path.iterdir())


def test_what_the_loader_refuses_goes_into_the_layout_of_the_document(tmp_path):
    empty, tokens = np.zeros((2, 0), np.float32), ["t"] * 100_001
    holdall.save(tmp_path / "x.weights", {"w": empty}, vocab=tokens)
    with holdall.open(tmp_path / "x.weights") as model:
        assert (model["w"].shape, len(model.vocab)) == ((2, 0), 100_001)
    holdall.save(tmp_path / "most.weights", {"w": W}, layout="sequential", vocab=tokens[1:])
    data = (tmp_path / "most.weights").read_bytes()
    assert data[-500_000 - 4 :][:9] == (100_000).to_bytes(4, "little") + b"\1\0\0\0t"


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


@pytest.mark.shows("E18")
def test_required_keys_that_need_no_configuration_are_added_on_request(tmp_path, monkeypatch):
    class Configured(Model):
        config = MappingProxyType({"hidden_size": 8, "_name_or_path": "org/toy"})
        vocab = Vocab(["a", "b"])

    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1737028800")
    model = Configured(holdall.Model([holdall.Tensor.of("w", W)]).tensors, metadata={"model_version": "3"})
    holdall.save(tmp_path / "x.weights", model, fill="all")
    with holdall.open(tmp_path / "x.weights") as found:
        assert dict(found.metadata) == {
            "model_version": "3",
            "model_name": "toy",
            "vocab_size": "2",
            "created_at": "2025-01-16T12:00:00Z",
        }
    holdall.save(tmp_path / "x.weights", model)
    assert dict(holdall.open(tmp_path / "x.weights").metadata) == {"model_version": "3"}
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    holdall.save(tmp_path / "y.weights", {"w": W}, fill="all")
    assert holdall.open(tmp_path / "y.weights").metadata["created_at"] == "1970-01-01T00:00:00Z"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "soon")
    with pytest.raises(holdall.ContentError, match="SOURCE_DATE_EPOCH"):
        holdall.save(tmp_path / "z.weights", {"w": W}, fill="all")


def test_progress_covers_the_file(tmp_path):
    path = tmp_path / "x.weights"
    holdall.save(path, {"w": np.zeros(3_000_000, np.float32)}, fsync=False)
    calls = []
    assert holdall.verify(path, progress=lambda done, total: calls.append((done, total))).ok
    assert calls[-1] == (path.stat().st_size, path.stat().st_size)
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)


def test_a_vocabulary_from_the_command_line(tmp_path):
    source, target, text = tmp_path / "a.safetensors", tmp_path / "b.weights", tmp_path / "vocab.txt"
    holdall.save(source, {"w": W})
    text.write_bytes("[PAD]\n[UNK]\nhello\n##ß\n".encode())
    result = CliRunner().invoke(main, ["convert", str(source), str(target), "-o", f"vocab=@{text}"])
    assert result.exit_code == 0, result.output
    tokens = [b"[PAD]", b"[UNK]", b"hello", "##ß".encode()]
    stored = b"".join(len(token).to_bytes(2, "little") + token for token in tokens)
    assert (4).to_bytes(4, "little") + len(stored).to_bytes(4, "little") in target.read_bytes()
    assert stored in target.read_bytes()
    wrong = CliRunner().invoke(main, ["convert", str(source), str(target), "-o", f"vocab={text}"])
    assert (wrong.exit_code, "vocab is a Vocab, a sequence of tokens or @FILE" in wrong.stderr) == (1, True)
