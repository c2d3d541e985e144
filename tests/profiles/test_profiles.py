import numpy as np
import pytest

import holdall
from holdall import profiles
from holdall.model.vocab import Vocab

CONFIG = {
    "model_type": "bert",
    "vocab_size": 6,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 12,
}
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]


@pytest.fixture
def weights(tmp_path):
    """A small model of that configuration, as a file; what is given changes it."""

    def write(metadata=None, tokens=TOKENS, **changes):
        profile = profiles.from_config(CONFIG)
        tensors = {name: np.zeros(want.shape, np.float32) for name, want in profile.tensors.items()}
        tensors = {name: value for name, value in {**tensors, **changes}.items() if value is not None}
        known = {key: value or "2025-01-16" for key, value in profile.metadata.items()}
        known = {key: value for key, value in {**known, **(metadata or {})}.items() if value is not None}
        holdall.save(tmp_path / "x.weights", tensors, metadata=known, vocab=Vocab(tokens), fsync=False)
        return holdall.open(tmp_path / "x.weights")

    return write


def rules(model, **options):
    return [finding.rule for finding in profiles.check(model, profiles.from_config(CONFIG, **options))]


@pytest.mark.shows("E19", "E20")
def test_the_profile_of_the_document():
    profile = profiles.load("all-MiniLM-L6-v2")
    assert profiles.names() == ["all-MiniLM-L6-v2"]
    assert (len(profile.required), len(profile.tensors), len(profile.metadata)) == (101, 103, 10)
    required = [profile.tensors[name] for name in profile.required]
    assert sum(4 * int(np.prod(tensor.shape)) for tensor in required) == 90_261_504
    assert {tensor.dtype for tensor in profile.tensors.values()} == {"f32"}
    assert profile.tensors["encoder.layer.5.output.dense.weight"].shape == (384, 1536)
    assert profile.metadata["max_position_emb"] == "512"
    with pytest.raises(holdall.UnsupportedError, match="all-MiniLM-L6-v2"):
        profiles.load("../bert")


def test_a_model_that_fits(weights):
    assert rules(weights()) == []
    assert rules(weights(**{"pooler.dense.weight": None, "pooler.dense.bias": None})) == []


@pytest.mark.shows("E17", "E20", "E41")
def test_breaches(weights):
    assert rules(weights(metadata={"created_at": "yesterday"})) == ["profile.metadata"]
    assert rules(weights(metadata={"hidden_size": "9"})) == ["profile.metadata"]
    assert rules(weights(metadata={"model_name": None})) == ["profile.metadata"]
    assert rules(weights(tokens=TOKENS[:5])) == ["profile.vocab"]
    assert rules(weights(tokens=["a", *TOKENS[1:]])) == ["profile.vocab"]
    assert rules(weights(**{"encoder.layer.1.output.LayerNorm.bias": None})) == ["profile.tensor.missing"]
    assert rules(weights(**{"embeddings.LayerNorm.bias": np.zeros(9, np.float32)})) == ["profile.tensor.shape"]
    assert rules(weights(**{"embeddings.LayerNorm.bias": np.zeros(8, np.float16)}), dtype="f32") == [
        "profile.tensor.dtype"
    ]
    found = profiles.check(weights(more=np.zeros(2, np.float32)), profiles.from_config(CONFIG))
    assert [(finding.rule, finding.severity) for finding in found] == [("profile.tensor.extra", "note")]


@pytest.mark.parametrize(
    "change", [{"hidden_size": "8"}, {"hidden_size": None}, {"num_hidden_layers": 10**9}, {"vocab_size": True}]
)
def test_configurations_are_checked(change):
    with pytest.raises(holdall.ContentError):
        profiles.from_config({**CONFIG, **change})


def test_other_architectures_are_refused():
    with pytest.raises(holdall.UnsupportedError, match="'llama'"):
        profiles.from_config({**CONFIG, "model_type": "llama"})


def test_the_command_line(weights, tmp_path):
    testing = pytest.importorskip("click.testing")
    import json

    from holdall.cli import main

    def verify(profile):
        return testing.CliRunner().invoke(main, ["verify", str(tmp_path / "x.weights"), "--profile", str(profile)])

    config = tmp_path / "config.json"
    config.write_text(json.dumps(CONFIG))
    weights().close()
    assert verify(config).exit_code == 0
    shown = verify("all-MiniLM-L6-v2")
    assert shown.exit_code == 1
    assert "profile.tensor.shape" in shown.output
    config.write_text("{")
    assert (verify(config).exit_code, verify("unknown").exit_code, verify("none.json").exit_code) == (2, 2, 2)
