"""Sets and sharded folders at URLs; and that they stay where they are."""

from __future__ import annotations

import json

import numpy as np
import pytest

import holdall
from holdall.errors import FormatError, UnsupportedError
from holdall.source.remote.stores import is_folder_url, join_url
from tests.remote.servers import range_server
from tests.remote.shelf import BIG


@pytest.mark.shows("A42")
@pytest.mark.parametrize("name", ["hf", "aeroset"])
def test_a_set_by_its_main_file_and_by_its_folder(server, folder, name):
    with holdall.open(folder[0] / name) as here:
        for url in (f"{server.url}/{folder[1][name]}", f"{server.url}/{name}/"):
            with holdall.open(url) as model:
                assert model.format == name
                assert sorted(model) == sorted(here)
                np.testing.assert_array_equal(model[BIG].numpy(), here[BIG].numpy())
            assert holdall.verify(url).ok


def test_files_beside_weights_are_looked_for_when_asked(server, folder):
    with holdall.open(f"{server.url}/{folder[1]['hf']}") as model:
        assert not any("config.json" in path for _, path, _ in server.log.requests)
        assert model.config == {"hidden_size": 16, "model_type": "test"}
        assert model.vocab.tokens == ("[PAD]", "[UNK]", "hold", "all")
        assert sorted(model.assets) == ["config.json", "vocab.txt"]


def test_a_single_file_as_a_folder(tmp_path):
    holdall.save(tmp_path / "model.safetensors", {"w": np.ones(3, np.float32)})
    files = {"/m/model.safetensors": (tmp_path / "model.safetensors").read_bytes(), "/m/config.json": b'{"a": 1}'}
    with range_server(files) as running:
        for url, options in ((running.url + "/m/", {}), (running.url + "/m/model.safetensors", {"format": "hf"})):
            with holdall.open(url, **options) as model:
                assert (model.format, model.config, list(model)) == ("hf", {"a": 1}, ["w"])
        with holdall.open(running.url + "/m/model.safetensors") as model:
            assert model.format == "safetensors"


def test_shards_are_opened_side_by_side(server, folder):
    import threading

    under_way = most = 0
    lock = threading.Lock()

    def count(path, start, stop):
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        threading.Event().wait(0.05)
        with lock:
            under_way -= 1

    server.fault = count
    with holdall.open(f"{server.url}/{folder[1]['hf']}") as model:
        assert len(model.native.files) >= 2
    assert most >= 2


EVIL = ["http://127.0.0.1:9/x", "//127.0.0.1:9/x", "/etc/passwd", "../secret", "a/../../secret", "..\\secret"]


@pytest.mark.parametrize("path", EVIL)
def test_a_remote_set_never_leaves_its_folder(path):
    index = json.dumps({"metadata": {}, "weight_map": {"w": path}}).encode()
    with range_server({"/set/model.safetensors.index.json": index}) as running:
        with pytest.raises(FormatError) as caught:
            holdall.open(running.url + "/set/model.safetensors.index.json")
        assert caught.value.rule == "core.path"
        assert {asked for _, asked, _ in running.log.requests} == {"/set/model.safetensors.index.json"}


def test_a_remote_set_ignores_another_origin(server, folder):
    """AEROSET 0.2 may state another URL for its parts. No request is sent there."""
    path = f"/{folder[1]['aeroset']}"
    document = json.loads(server.files[path])
    document |= {"base_url": "http://127.0.0.1:9/elsewhere/", "format": {"name": "AEROSET", "version": [0, 2]}}
    server.files[path] = json.dumps(document).encode()
    with holdall.open(server.url + path) as model:
        assert model[BIG].numpy().shape == (1024, 1024)
    document["parts"][0]["path"] = "http://127.0.0.1:9/part-000.aero"
    server.files[path] = json.dumps(document).encode()
    with pytest.raises(FormatError, match="is not followed"):
        holdall.open(server.url + path)


def test_names_are_quoted_not_obeyed():
    assert join_url("http://h/a/b.json?sig=1", "x?y=1#z") == "http://h/a/x%3Fy%3D1%23z"
    assert join_url("http://h/a/b.json", "%2e%2e/x") == "http://h/a/%252e%252e/x"
    assert join_url("s3://bucket/a/b.json", "x?y") == "s3://bucket/a/x?y"
    assert join_url("hf://owner/repo@main", "config.json") == "hf://owner/repo@main/config.json"
    assert join_url("hf://owner/repo/sub/x.json", "y.json") == "hf://owner/repo/sub/y.json"
    with pytest.raises(FormatError):
        join_url("http://h/a/b.json", "../x")


def test_what_a_folder_is():
    assert is_folder_url("http://h/a/") and is_folder_url("s3://bucket/a/") and is_folder_url("hf://owner/repo")
    assert not is_folder_url("http://h/a") and not is_folder_url("hf://owner/repo/model.safetensors")


def test_a_folder_without_weights():
    with range_server({"/m/config.json": b"{}"}) as running, pytest.raises((FormatError, UnsupportedError)):
        holdall.open(running.url + "/m/")


def test_urls_are_not_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for save in (
        lambda: holdall.save("s3://bucket/x.oinf", {"w": np.ones(1)}),
        lambda: holdall.save("https://host/x", {"w": np.ones(1, np.float32)}, format="hf"),
    ):
        with pytest.raises(UnsupportedError, match="can be read, not written"):
            save()
    assert not list(tmp_path.iterdir())
