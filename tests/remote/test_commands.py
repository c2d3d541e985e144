"""Every reading command and verb takes a URL, for every format."""

from __future__ import annotations

import json

import numpy as np
import pytest

import holdall
from holdall.format import registry
from holdall.operations.repair import repair
from tests.remote import shelf

FORMATS = [name for name in registry.names() if registry.find(name).writes]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A smaller shelf: every command goes over it several times."""
    made = tmp_path_factory.mktemp("small")
    return made, shelf.put_on(made, 150)


@pytest.fixture(scope="module")
def _files(folder):
    return shelf.served(folder[0])


@pytest.mark.shows("A42", "A46")
@pytest.mark.parametrize("name", FORMATS)
def test_commands_take_urls(server, folder, cli, tmp_path, name):
    path = folder[1][name]
    url, here = f"{server.url}/{path}", folder[0] / path
    for arguments in (["info", "--json"], ["ls"], ["ls", "--json"], ["verify"], ["verify", "--level", "strict"]):
        there, local = cli(*arguments, url), cli(*arguments, here)
        assert there.exit_code == local.exit_code, there.output
        assert there.output.replace(url, str(here)).replace(server.url, str(folder[0])) == local.output
    assert cli("explain", url).exit_code == 0
    got = cli("extract", url, shelf.BIG, "-o", tmp_path / "big.npy")
    assert got.exit_code == 0, got.output
    with holdall.open(here) as model:
        np.testing.assert_array_equal(np.load(tmp_path / "big.npy"), model[shelf.BIG].numpy())
    assert cli("diff", url, here).exit_code == 0
    assert cli("diff", here, url).exit_code == 0


@pytest.mark.parametrize("name", FORMATS)
def test_conversions_stream_from_a_url(server, folder, tmp_path, name):
    url, here = f"{server.url}/{folder[1][name]}", folder[0] / folder[1][name]
    server.log.clear()
    seen = []
    holdall.convert(url, tmp_path / "there.aero", fsync=False, progress=lambda done, total: seen.append(done))
    assert len(server.log.requests) < 75, "one request a tensor"
    assert seen
    holdall.convert(here, tmp_path / "here.aero", fsync=False)
    assert not holdall.diff(tmp_path / "there.aero", tmp_path / "here.aero")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here.aero", "there.aero"]  # and no copy of the source


def test_a_cast_streams_too(server, folder, tmp_path):
    server.log.clear()
    holdall.convert(f"{server.url}/{folder[1]['safetensors']}", tmp_path / "x.oinf", cast="bf16", fsync=False)
    assert len(server.log.requests) < 60
    with holdall.open(tmp_path / "x.oinf") as model:
        assert str(model[shelf.BIG].dtype) == "bf16"


def test_several_urls_merge(server, tmp_path):
    for name in "ab":
        holdall.save(tmp_path / f"{name}.oinf", {name: np.full(4, ord(name), np.float32)})
        server.files[f"/{name}.oinf"] = (tmp_path / f"{name}.oinf").read_bytes()
    holdall.convert([f"{server.url}/a.oinf", f"{server.url}/b.oinf"], tmp_path / "x.safetensors")
    with holdall.open(tmp_path / "x.safetensors") as model:
        assert sorted(model) == ["a", "b"]


def test_repair_from_a_url(server, folder, tmp_path):
    whole = (folder[0] / folder[1]["hashed aero"]).read_bytes()
    broken = tmp_path / "x.aero"
    broken.write_bytes(whole[:2_000_000] + b"damage" + whole[2_000_006:])
    assert repair(broken, f"{server.url}/{folder[1]['hashed aero']}").patches
    assert broken.read_bytes() == whole


def test_verify_streams_and_reports(server, folder):
    path = f"/{folder[1]['hashed aero']}"
    data = bytearray(server.files[path])
    data[len(data) // 2] ^= 1
    server.files[path] = bytes(data)
    seen = []
    report = holdall.verify(server.url + path, progress=lambda done, total: seen.append((done, total)))
    assert not report.ok and report.path == server.url + path
    assert seen


def test_stats_and_json(server, folder, cli):
    result = cli("info", "--json", f"{server.url}/{folder[1]['hf']}")
    facts = json.loads(result.output)
    assert facts["assets"] == {"config.json": 41, "vocab.txt": 21}
    assert facts["path"] == f"{server.url}/{folder[1]['hf']}"
