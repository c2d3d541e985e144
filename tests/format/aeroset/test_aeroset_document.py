"""What the format asks of a set, on files that are parsed by hand."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest

import holdall
from tests.format.aero.build import parse

CONTENT = {f"t{n}": np.full((3, n), n, "<f4") for n in range(1, 12)}


@pytest.mark.shows("A41")
def test_a_set_is_read_by_the_document_alone(tmp_path):
    folder = tmp_path / "s.aeroset"
    options = {"max_shard_bytes": 200, "part_shards": 2, "align": 1}
    holdall.save(folder, CONTENT, metadata={"model_name": "toy", "architecture": "x"}, **options)
    document = json.loads((folder / "model.aeroset.json").read_text())
    assert list(document) == ["format", "model", "parts", "global_tidx"]
    assert document["format"] == {"name": "AEROSET", "version": [0, 1]}
    assert document["model"] == {"name": "toy", "architecture": "x"}
    for stated in (*document["parts"], document["global_tidx"]):
        data = (folder / stated["path"]).read_bytes()
        assert (stated["size_bytes"], stated["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
    everything = parse((folder / document["global_tidx"]["path"]).read_bytes()).tensors()
    assert [row["name"] for row in everything] == list(CONTENT)
    shards = [number for part in document["parts"] for number in part["shards"]]
    assert shards == list(range(len(shards)))
    assert len(document["parts"]) > 2
    for part in document["parts"]:
        alone = parse((folder / part["path"]).read_bytes())
        for row in alone.tensors():
            assert alone.raw(row["name"]) == CONTENT[row["name"]].tobytes()
            whole = next(other for other in everything if other["name"] == row["name"])
            assert whole["shard_id"] == part["shards"][row["shard_id"]]
            assert (whole["data_off"], whole["data_len"]) == (row["data_off"], row["data_len"])
        with holdall.open(folder / part["path"]) as model:  # a part is a model of its own
            assert all(model[name].numpy().tolist() == CONTENT[name].tolist() for name in model)
    with holdall.open(folder) as model:
        assert {name: model[name].numpy().tolist() for name in model} == {n: v.tolist() for n, v in CONTENT.items()}


@pytest.mark.shows("A43")
def test_version_2_states_where_parts_are_and_what_a_cache_should_do(tmp_path):
    holdall.save(tmp_path / "a.aeroset", CONTENT, base_url="https://host/parts")
    index = tmp_path / "a.aeroset" / "model.aeroset.json"
    document = json.loads(index.read_text())
    assert document["format"]["version"] == [0, 2]
    assert document["base_url"] == "https://host/parts"
    cache = {"enabled": True, "recommended": True}
    index.write_text(json.dumps({**document, "cache": cache, "color": "blue"}))
    with holdall.open(tmp_path / "a.aeroset") as model:
        assert model.version == (0, 2)
        holdall.save(tmp_path / "b.aeroset", model)
    again = json.loads((tmp_path / "b.aeroset" / "model.aeroset.json").read_text())
    assert (again["format"]["version"], again["cache"], again["color"]) == ([0, 2], cache, "blue")
    assert "base_url" not in again
    left = "model.aeroset.json: base_url is left out, since the new files are not there"
    done = holdall.convert(tmp_path / "a.aeroset", tmp_path / "c.aeroset", part_shards=1)
    assert left in done.changes
    done = holdall.convert(tmp_path / "a.aeroset", tmp_path / "d.aeroset", base_url="https://other/parts")
    assert left not in done.changes


@pytest.mark.parametrize(
    ("change", "rule", "at"),
    [
        (lambda d: d["format"].update(version=[9, 9]), "aeroset.version", b"[9,9]"),
        (lambda d: d["format"].update(name="OTHER"), "aeroset.version", b'"OTHER"'),
        (lambda d: d.pop("format"), "aeroset.version", b"{"),
        (lambda d: d["parts"][1].update(path="../up.aero"), "core.path", b'"../up.aero"'),
        (lambda d: d["parts"][1].update(path="https://host/x"), "core.follow", b'"https://host/x"'),
        (lambda d: d["global_tidx"].update(path="/abs"), "core.path", b'"/abs"'),
        (lambda d: d["parts"][2].update(shards=[77, 0]), "aeroset.shards", b"[77,0]"),
        (lambda d: d["parts"][1].update(path="gone.aero"), "core.member", b'"gone.aero"'),
        (lambda d: d["global_tidx"].update(path="gone.aero"), "core.member", b'"gone.aero"'),
        (lambda d: d["parts"][2].update(size_bytes=987654), "aeroset.size", b"987654"),
        (lambda d: d["parts"][1].update(sha256="ab" * 32), "aeroset.sha256", b'"abab'),
        (lambda d: d["global_tidx"].update(sha256="cd" * 32), "aeroset.sha256", b'"cdcd'),
    ],
)
def test_findings_have_the_byte_at_which_the_document_says_it(tmp_path, change, rule, at):
    holdall.save(tmp_path / "a.aeroset", CONTENT, max_shard_bytes=200, part_shards=1)
    path = tmp_path / "a.aeroset" / "model.aeroset.json"
    document = json.loads(path.read_text())
    change(document)
    data = json.dumps(document, separators=(",", ":")).encode()
    path.write_bytes(data)
    found = {finding.rule: (finding.offset, finding.file) for finding in holdall.verify(path).findings}
    assert found[rule] == (data.index(at), None)
