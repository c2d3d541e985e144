"""Whatever the settings of an untrusted model say, its weights are decoded or an error of holdall is raised."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdall
import holdall.numpy
from tests.packed.layouts import read_content, write_content

MODELS = (
    *("fp8-blocks", "fp8-rows", "ct-int4-zeros", "ct-fp8-blocks", "ct-nvfp4", "ct-mixed", "gptq-3", "gptq-act-order"),
    *("awq-32", "bnb-nf4-nested", "bnb-int8", "mxfp4-experts", "nvfp4-stated", "mlx-3", "mlx-own-settings"),
)
JUNK: tuple[Any, ...] = (None, True, -1, 0, 1, 3, 10**30, 1.5, "x", [], {}, [[]], [{}], {"a": []}, [10**30, 10**30])


WEIGHTS = {"num_bits": 4, "type": "int", "strategy": "channel", "symmetric": True}


def list_places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a document, as the keys that lead to it."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield (*path, key)
        yield from list_places(inner, (*path, key))


def put(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy of the document with another value at a place."""
    document = copy.deepcopy(document)
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return document


def decode(path: Path) -> None:
    with suppress(holdall.HoldallError):
        holdall.numpy.load_file(path, decode=True)


@pytest.mark.parametrize("name", MODELS)
def test_no_setting_brings_out_another_error(name: str, tmp_path: Path) -> None:
    content = read_content(name)
    folder = write_content(content, tmp_path / "m")
    for place in list_places(content.config):
        for junk in JUNK:
            (folder / "config.json").write_text(json.dumps(put(content.config, place, junk)))
            decode(folder)


def test_no_description_of_four_bits_brings_out_another_error(tmp_path: Path) -> None:
    content = read_content("bnb-nf4-nested")
    name = content.find(".quant_state.bitsandbytes__nf4")
    state = json.loads(content.tensors[name].tobytes())
    for number, (place, junk) in enumerate((place, junk) for place in list_places(state) for junk in (*JUNK, 1e308)):
        data = json.dumps(put(state, place, junk)).encode()
        changed = copy.copy(content)
        changed.tensors = content.tensors | {name: np.frombuffer(data, np.uint8)}
        decode(write_content(changed, tmp_path / str(number)))


@pytest.mark.parametrize("name", MODELS)
def test_no_shape_of_a_part_brings_out_another_error(name: str, tmp_path: Path) -> None:
    content = read_content(name)
    number = 0
    for part, values in sorted(content.tensors.items())[:8]:
        for changed in (values.reshape(-1)[:0], values.reshape(-1), values[None], values.reshape(-1)[:1]):
            other = copy.copy(content)
            other.tensors = content.tensors | {part: np.ascontiguousarray(changed)}
            number += 1
            decode(write_content(other, tmp_path / str(number)))


def write_words(path: Path, layers: list[str], settings: dict[str, Any]) -> Path:
    """A folder of compressed-tensors with a small matrix of four bits for each layer."""
    tensors: dict[str, np.ndarray] = {}
    for layer in layers:
        tensors[f"{layer}.weight_packed"] = np.zeros((2, 2), np.int32)
        tensors[f"{layer}.weight_scale"] = np.ones((2, 1), np.float16)
        tensors[f"{layer}.weight_shape"] = np.array([2, 16], np.int64)
    group = {"weights": WEIGHTS, "targets": ["Linear"]}
    stated = {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"g": group}}
    path.mkdir()
    holdall.save(path / "model.safetensors", tensors)
    (path / "config.json").write_text(json.dumps({"quantization_config": {**stated, **settings}}))
    return path


def test_patterns_that_cannot_be_followed_are_refused(tmp_path: Path) -> None:
    folder = write_words(tmp_path / "m", ["a"], {"ignore": ["re:(?!a).*"]})
    with pytest.raises(holdall.ContentError, match=r"pattern '\(\?!a\)\.\*' cannot be followed: a look ahead"):
        holdall.numpy.load_file(folder, decode=True)


def test_patterns_for_many_layers_end(tmp_path: Path) -> None:
    layers = [f"model.layers.{n}.self_attn.q_proj" for n in range(100)]
    folder = write_words(
        tmp_path / "m", layers, {"ignore": [f"re:([a-z.]+|[0-9.]+)*[A-Z]{{{n}}}" for n in range(1, 400)]}
    )
    began = time.process_time()
    with pytest.raises(holdall.ContentError, match="399 patterns for this many layers take too long"):
        holdall.numpy.load_file(folder, decode=True)
    assert time.process_time() - began < 30


@pytest.mark.parametrize(
    "settings",
    [
        {"ignore": [f"re:.*l{n}$" for n in range(30_000)]},
        {"ignore": [f"re:.*(a|b)*{n}l$" for n in range(4000)]},
        {"ignore": ["re:" + "a{0}" * 20_000 + chr(200 + n) for n in range(40)]},
        {"config_groups": {f"g{n}": {"weights": WEIGHTS, "targets": [f"re:.*l{n}$"]} for n in range(3500)}},
        {"config_groups": {f"g{n}": {"weights": WEIGHTS, "targets": [f"l{n}"]} for n in range(3500)}},
    ],
    ids=("many", "compiled", "long", "groups", "names"),
)
def test_settings_of_many_patterns_are_refused_soon(settings: dict[str, Any], tmp_path: Path) -> None:
    layers = [f"model.layers.{n}.self_attn.q_proj" for n in range(2000)]
    folder = write_words(tmp_path / "m", layers, settings)
    began = time.process_time()
    with pytest.raises(holdall.ContentError, match=r"patterns are too many|for this many layers take too long"):
        holdall.numpy.load_file(folder, decode=True)
    assert time.process_time() - began < 10  # a second or two on a quiet core


def test_the_patterns_of_a_large_model_of_experts_take_little(tmp_path: Path) -> None:
    layers = [f"model.layers.{n}.mlp.experts.{e}.{part}_proj" for n in range(20) for e in range(100) for part in "abc"]
    ignored = ["re:.*self_attn.*", "re:.*shared_experts.*", r"re:.*mlp\.(gate|up|gate_up|down)_proj.*", "lm_head"]
    folder = write_words(tmp_path / "m", layers, {"ignore": ignored})
    assert len(holdall.numpy.load_file(folder, decode=True)) == len(layers)


def test_weights_without_rows_or_columns_are_read_or_refused(tmp_path: Path) -> None:
    folder = write_words(tmp_path / "m", ["a"], {})
    words = {"a.weight_packed": np.zeros((2, 0), np.int32), "a.weight_scale": np.ones((2, 1), np.float16)}
    holdall.save(folder / "model.safetensors", {**words, "a.weight_shape": np.array([2, 0], np.int64)})
    decode(folder)
    stated = {"quant_method": "awq", "bits": 4, "group_size": 128}
    (folder / "config.json").write_text(json.dumps({"quantization_config": stated}))
    parts = {"q.qweight": np.zeros((0, 8), np.int32), "q.qzeros": np.zeros((0, 8), np.int32)}
    holdall.save(folder / "model.safetensors", {**parts, "q.scales": np.zeros((0, 64), np.float16)})
    decode(folder)


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ('{"quantization_config": {"bits": 8}, "quantization_config": %s}', "the key 'quantization_config' twice"),
        ('{"x": 1e999, "quantization_config": %s}', "1e999 is beyond the range of float64"),
        ("\ufeff" + '{"quantization_config": %s}', "config.json"),
        ('{"quantization_config": %s', "config.json"),
        ('{"quantization_config": %s, "x": ' + "[" * 5000 + "]" * 5000 + "}", "config.json"),
        ('{"quantization_config": %s, "x": ' + "9" * 5000 + "}", "config.json"),
    ],
    ids=("twice", "infinite", "marked", "cut", "deep", "long"),
)
@pytest.mark.parametrize("name", ["gptq-4", "bnb-nf4"])
def test_a_configuration_that_cannot_be_used_is_the_reason(
    name: str, document: str, reason: str, tmp_path: Path
) -> None:
    content = read_content(name)
    folder = write_content(content, tmp_path / "m")
    (folder / "config.json").write_text(document % json.dumps(content.settings))
    with pytest.raises(holdall.ContentError, match=reason):
        holdall.convert(folder, tmp_path / "plain", format="hf", dequantize=True)


def test_half_a_pair_in_the_configuration_is_written_as_it_was(tmp_path: Path) -> None:
    content = read_content("gptq-4")
    assert content.config is not None
    content.config["title"] = "\ud800"
    holdall.convert(write_content(content, tmp_path / "m"), tmp_path / "plain", format="hf", dequantize=True)
    assert json.loads((tmp_path / "plain" / "config.json").read_text())["title"] == "\ud800"
