"""The configuration: what is accepted, what is kept, and how it changes."""

import json
import struct

import numpy as np
import pytest
from click.testing import CliRunner

import holdall
from holdall.cli import main

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


@pytest.mark.shows("G06", "G08")
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


@pytest.mark.shows("G06", "G09")
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
        ({"metadata": {"kind": "x", "text": "\ud800"}}, "surrogate pair"),
    ],
)
def test_the_writer_refuses_what_no_reader_takes(options, says, tmp_path):
    with pytest.raises(holdall.ContentError, match=says):
        holdall.save(tmp_path / "x.gptrs", {"w": np.zeros(2, np.float32)}, **options)


def stored_config(path):
    """The configuration as it is in the file, found by its length alone."""
    data = path.read_bytes()
    (size,) = struct.unpack_from("<I", data, 12)
    return data[16 : 16 + size]


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_a_configuration_from_the_command_line(tmp_path):
    source, target, document = tmp_path / "a.safetensors", tmp_path / "b.gptrs", tmp_path / "c.json"
    holdall.save(source, {"w": np.ones(2, np.float32)}, metadata={"format": "pt"})
    document.write_bytes(b'{ "kind": "gpt",\n "config": {"num_layers": 2} }\n')
    assert run("convert", source, target, "-o", f"config=@{document}").exit_code == 0
    assert stored_config(target) == document.read_bytes()
    assert run("convert", source, target, "-o", 'config={"kind": "toy", "config": [1, 2]}').exit_code == 0
    assert stored_config(target) == b'{"kind":"toy","config":[1,2]}'
    document.write_text(json.dumps(LEGACY))
    assert run("convert", source, target, "-o", f"config=@{document}").exit_code == 0
    assert json.loads(stored_config(target)) == {"kind": "gpt", "config": LEGACY}


@pytest.mark.parametrize(
    ("given", "exit_code", "says"),
    [
        ("[1, 2]", 1, "the configuration is an array, not an object"),
        ("5", 1, "the configuration is 5, not an object"),
        ("true", 1, "the configuration is true, not an object"),
        ('{"a"', 1, "the configuration: the document ends too early"),
        ("{}", 1, "there is no kind"),
        ('{"kind": "x", "config": NaN}', 1, "the configuration: "),
        ("@none.json", 2, "-o config=@none.json: No such file"),
    ],
)
def test_a_wrong_configuration_on_the_command_line_is_one_plain_sentence(tmp_path, given, exit_code, says):
    source, target = tmp_path / "a.safetensors", tmp_path / "b.gptrs"
    holdall.save(source, {"w": np.ones(2, np.float32)})
    result = run("convert", source, target, "-o", f"config={given}")
    assert (result.exit_code, target.exists()) == (exit_code, False)
    assert says in result.stderr and "should not happen" not in result.stderr


def test_metadata_of_other_formats_stays_out_of_the_configuration(tmp_path):
    source, target = tmp_path / "a.safetensors", tmp_path / "b.gptrs"
    holdall.save(source, {"w": np.ones(2, np.float32)}, metadata={"format": "pt", "config": "x", "author": "me"})
    report = holdall.convert(source, target)
    assert stored_config(target) == b'{"kind":"unknown","config":null}'
    assert {loss.name for loss in report.losses} == {"format", "config", "author"}
    with holdall.open(source) as model:
        holdall.save(target, model)
        assert stored_config(target) == b'{"kind":"unknown","config":null}'
        holdall.save(target, model, metadata={"kind": "toy", "note": "mine"})
        assert stored_config(target) == b'{"kind":"toy","note":"mine"}'
    holdall.convert(source, target, metadata={"note": "mine"})  # what the caller asks for is stored
    assert stored_config(target) == b'{"kind":"unknown","config":null,"note":"mine"}'


def test_a_configuration_comes_back_through_a_format_of_texts(tmp_path):
    config = {"kind": "gpt", "config": {"num_layers": 2, "name": "x"}, "eos_token_ids": [1, 2]}
    holdall.save(tmp_path / "a.gptrs", {"w": np.ones(2, np.float32)}, metadata=config)
    holdall.convert(tmp_path / "a.gptrs", tmp_path / "b.safetensors")
    holdall.convert(tmp_path / "b.safetensors", tmp_path / "c.gptrs")
    assert json.loads(stored_config(tmp_path / "c.gptrs")) == config
