"""``ls --json`` and ``ls --long`` show what a format states of each tensor, compared with the golden files' facts."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

import holdall
from holdall.format import registry
from holdall.model.model import Model
from holdall.model.tensor import Tensor
from holdall.oinf import QuantParams
from tests.golden import golden


@pytest.fixture
def rows(cli):
    """The objects that ``ls --json`` prints, by name of the tensor."""

    def list_rows(path):
        shown = cli("ls", path, "--json")
        assert shown.exit_code == 0, shown.output
        return {row["name"]: row for row in map(json.loads, shown.output.splitlines())}

    return list_rows


def test_aero_shows_shard_hash_and_flags(rows, cli):
    path = golden("aero") / "ihsh_phsh_hash_b3.aero"
    found = rows(path)
    blake3 = pytest.importorskip("blake3").blake3
    with holdall.open(path) as model:
        for name, row in found.items():
            assert row["hash_b3"] == blake3(model[name].raw()).hexdigest()
            assert (row["shard"], row["flags"]) == (0, 0)
    assert {row["shard"] for row in rows(golden("aero") / "multi_shard.aero").values()} > {0}
    assert all("hash_b3" not in row for row in rows(golden("aero") / "multi_shard.aero").values())
    assert rows(golden("aero") / "unknown_keys.aero")["a"]["extra"] == {"strides": [5, 1]}
    head, first, *_ = cli("ls", path, "--long").output.splitlines()
    assert head.split()[-3:] == ["flags", "shard", "hash_b3"]
    assert first.split()[-1] == next(iter(found.values()))["hash_b3"]


def test_a_set_shows_shard_and_file(rows):
    found = rows(golden("aero") / "set3" / "model.aeroset.json").values()
    assert len({row["file"] for row in found}) > 1
    assert len({row["shard"] for row in found}) > 1


def test_mcf_shows_the_quant_record(rows, cli, tmp_path):
    values = np.random.default_rng(0).normal(size=(4, 64)).astype(np.float32)
    model = Model([Tensor.of("w", values), Tensor.of("b", values[0])])
    holdall.save(tmp_path / "m.mcf", holdall.quant.quantize_model(model, "k4"))
    found = rows(tmp_path / "m.mcf")
    top = float(np.abs(values).max())
    assert found["w"]["quant"] == {"method": "k4", "domain": "weights", "min_clip": -top, "max_clip": top}
    assert "quant" not in found["b"]
    lines = {line.split()[0]: line for line in cli("ls", tmp_path / "m.mcf", "--long").output.splitlines()}
    assert "method: k4, domain: weights" in lines["w"] and lines["b"].endswith(" -")


def test_oinf_shows_quantization_parameters(rows, tmp_path):
    tensor = Tensor.of("w", np.zeros((2, 3), np.int8))
    tensor.native = QuantParams.per_channel(0, [0.5, 0.25], [1, -1])
    holdall.save(tmp_path / "m.oinf", [tensor, Tensor.of("b", np.zeros(2, np.float32))])
    found = rows(tmp_path / "m.oinf")
    expected = {"scale": [0.5, 0.25], "zero_point": [1, -1], "axis": 0, "scheme": "asymmetric"}
    assert found["w"]["quant"] == expected
    assert "quant" not in found["b"]


def test_long_shows_values_whole(cli, tmp_path):
    scales = [float(n) for n in range(100)]
    tensor = Tensor.of("w", np.zeros((100, 2), np.int8))
    tensor.native = QuantParams.per_channel(0, scales, [0] * 100)
    holdall.save(tmp_path / "m.oinf", [tensor, Tensor.of("b", np.zeros(2, np.float32))])
    shown = cli("ls", tmp_path / "m.oinf", "--long").output
    lines = {line.split()[0]: line for line in shown.splitlines()}
    points = ", ".join(["0"] * 100)
    scale = ", ".join(map(str, scales))
    assert f"{{scale: [{scale}], zero_point: [{points}], axis: 0, scheme: asymmetric}}" in lines["w"]
    assert len(lines["b"]) < 100  # a wide cell fills no other row


def test_gptrs_shows_base_ids_and_flags(rows, tmp_path):
    vectors = json.loads((golden("gptrs") / "base_id_vectors.json").read_text())["vectors"]
    ids = {vector["name"]: vector["base_id"] for vector in vectors if vector.get("name")}
    ids = {name: id for name, id in ids.items() if name.isascii()}
    tensors = [Tensor.of(name, np.zeros(2, np.float32)) for name in ids]
    holdall.save(tmp_path / "m.gptrs", tensors, config={"kind": "toy", "config": {}})
    found = rows(tmp_path / "m.gptrs")
    assert len(found) > 3
    assert {name: row["base_id"] for name, row in found.items()} == ids
    archive = rows(golden("gptrs") / "ten_basic.bin")
    assert {name: row.get("flag") for name, row in archive.items()} == {"flag": 1, "input": None, "labels": None}
    assert not any("base_id" in row for row in archive.values())


def test_an_attribute_of_tensors_is_shown_where_the_format_holds_it():
    """A field of Holds with the name of an attribute makes it appear, without a line in any format."""
    tensor = Tensor.of("w", np.zeros(2, np.float32))
    assert registry.find("npz").describe_tensor(tensor) == {}
    described = type(registry.find("npz")).describe_tensor(SimpleNamespace(holds=SimpleNamespace(shape=True)), tensor)
    assert described == {"shape": (2,)}


def test_values_that_json_cannot_hold_become_text(rows, cli, tmp_path):
    holdall.save(tmp_path / "m.aero", {"w": np.zeros(2, np.float32)})
    with holdall.open(tmp_path / "m.aero") as model:
        tensor = model["w"]
    from dataclasses import replace

    tensor.native = replace(tensor.native, extra={"x": float("nan"), "y": b"\x01\x02"})
    tensor.payload = Tensor.of("w", np.zeros(2, np.float32)).payload
    holdall.save(tmp_path / "odd.aero", [tensor])
    assert rows(tmp_path / "odd.aero")["w"]["extra"] == {"x": "nan", "y": "0102"}
    assert "x: nan" in cli("ls", tmp_path / "odd.aero", "--long").output
