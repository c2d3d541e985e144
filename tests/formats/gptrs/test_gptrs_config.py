"""The configuration: what is accepted, what is kept, and how it changes."""

import json
import struct

import numpy as np
import pytest

import holdall

LEGACY = {
    "vocab_size": 32,
    "context_length": 16,
    "embed_dim": 8,
    "num_layers": 1,
    "num_heads": 2,
    "mlp_ratio": 2,
    "dropout": 0,
}


def checkpoint(config):
    data = config if isinstance(config, bytes) else json.dumps(config).encode()
    return b"GPTRSCHK" + struct.pack("<II", 2, len(data)) + data + struct.pack("<II", 4, 0)


@pytest.mark.parametrize(
    "config",
    [
        {"kind": "gpt"},
        {"kind": "", "config": [1], "runtime": None},
        {"kind": "x", "runtime": {}},
        {"kind": "x", "runtime": {"functional_overrides": {"a": "", "b": " benchmark ", "c": "benchmark(cache=1)"}}},
        {"kind": "x", "runtime": {"functional_overrides": {"a": "force=flash"}, "other": 1}},
        {"kind": "x", "runtime": {"weight_streaming": {"enabled": True, "device_weights_percent": 2}}},
        {"kind": "x", "runtime": {"weight_streaming": {"prefetch_layers": None, "device_budget_bytes": 0}}},
        LEGACY,
        {**LEGACY, "kind": 5, "dropout": 0.5, "functional_overrides": {"a": "benchmark"}, "more": [None]},
        b' {"kind":"a","kind":"b"}\n',
    ],
)
def test_accepted(config):
    model = holdall.open(checkpoint(config))
    assert isinstance(model.config["kind"], str)
    assert "config" in model.config


@pytest.mark.parametrize(
    "config",
    [
        b"",
        b"[]",
        b"null",
        b'{"kind":"x"} x',
        b'{"kind":"x","config":NaN}',
        b'{"kind":"x","config":1e999}',
        b'{"kind":"\\ud800"}',
        b'\xef\xbb\xbf{"kind":"x"}',
        b'{"kind":"x","config":' + b"[" * 200 + b"]" * 200 + b"}",
        {"kind": 5},
        {"kind": "x", "runtime": []},
        {"kind": "x", "runtime": {"functional_overrides": None}},
        {"kind": "x", "runtime": {"functional_overrides": {"a": 1}}},
        {"kind": "x", "runtime": {"functional_overrides": {"a": "force="}}},
        {"kind": "x", "runtime": {"functional_overrides": {"a": "benchmark(cache=0)"}}},
        {"kind": "x", "runtime": {"functional_overrides": {"a": "benchmark(cache=99999999999999999999999)"}}},
        {"kind": "x", "runtime": {"functional_overrides": {"a": "fastest"}}},
        {"kind": "x", "runtime": {"weight_streaming": 1}},
        {"kind": "x", "runtime": {"weight_streaming": {"enabled": 1}}},
        {"kind": "x", "runtime": {"weight_streaming": {"prefetch_layers": 1.0}}},
        {"kind": "x", "runtime": {"weight_streaming": {"device_budget_bytes": -1}}},
        {"kind": "x", "runtime": {"weight_streaming": {"device_weights_percent": "1"}}},
        {**LEGACY, "mlp_ratio": 1.0},
        {**LEGACY, "num_heads": True},
        {**LEGACY, "dropout": "0"},
        {**LEGACY, "functional_overrides": {"a": "never"}},
    ],
)
def test_refused(config):
    with pytest.raises(holdall.FormatError) as caught:
        holdall.open(checkpoint(config))
    assert caught.value.rule.startswith("gptrs.config.")
    assert not holdall.verify(checkpoint(config)).ok


def test_duplicate_keys_are_reported_by_strict():
    data = checkpoint(b'{"kind":"a","kind":"b"}')
    assert holdall.open(data).config["kind"] == "b"
    assert holdall.verify(data).ok
    assert [f.rule for f in holdall.verify(data, level="strict").findings] == ["gptrs.config.duplicate"]


def test_bytes_stay_until_the_value_changes(tmp_path):
    spaced = b'{ "kind" : "toy", "config": {"a": 1}, "extra": 1.50 }'
    path = tmp_path / "x.gptrs"
    with holdall.open(checkpoint(spaced)) as model:
        holdall.save(path, model)
        assert spaced in path.read_bytes()
        holdall.save(path, model, metadata={**model.metadata, "extra": 2})
        assert b'{"kind":"toy","config":{"a":1},"extra":2}' in path.read_bytes()
        holdall.save(path, model, config={"kind": "other"})
        assert b'{"kind":"other"}' in path.read_bytes()


def test_a_configuration_of_version_1_becomes_one_with_a_kind(tmp_path):
    config = json.dumps(LEGACY).encode()
    old = b"GPTRSCHK" + struct.pack("<II", 1, len(config)) + config + struct.pack("<I", 0)
    with holdall.open(old) as model:
        assert (model.version, model.config) == ((1,), {"kind": "gpt", "config": LEGACY})
        holdall.save(tmp_path / "x.gptrs", model)
    with holdall.open(tmp_path / "x.gptrs") as model:
        assert model.version == (2,)
        assert json.loads(model.native.config) == {"kind": "gpt", "config": LEGACY}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"config": {"config": 1}}, "kind"),
        ({"config": {"kind": "x", "config": float("nan")}}, "nan"),
        ({"config": {"kind": "x", "config": {1: 2}}}, "key"),
        ({"config": b"{"}, "configuration"),
        ({"metadata": {"kind": "x", "blob": b"1"}}, "bytes"),
        ({"metadata": {"kind": "x", "text": "\ud800"}}, "Unicode"),
    ],
)
def test_the_writer_refuses_what_no_reader_takes(options, says, tmp_path):
    with pytest.raises(holdall.ContentError, match=says):
        holdall.save(tmp_path / "x.gptrs", {"w": np.zeros(2, np.float32)}, **options)
