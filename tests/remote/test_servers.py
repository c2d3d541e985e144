"""Real servers: nginx, and an S3 server with real credentials."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest

import holdall
from holdall.source.remote.remote_source import RemoteError
from tests.remote import shelf


@pytest.fixture(scope="module")
def store(s3, folder):
    """The bucket with some of the shelf in it."""
    import obstore
    from obstore.store import S3Store

    config = {"access_key_id": s3.key, "secret_access_key": s3.secret, "endpoint": s3.endpoint, "region": "us-east-1"}
    made = S3Store("models", config=config, client_options={"allow_http": True})
    for path in folder[0].rglob("*"):
        key = str(path.relative_to(folder[0]))
        if path.is_file() and key.startswith(("hf/", "oinf/", "aeroset/", folder[1]["hashed aero"])):
            obstore.put(made, key, path.read_bytes())
    return made


@pytest.fixture
def bucket(s3, store, monkeypatch):
    """An environment that may read the bucket; gives its URL."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    return "s3://models"


@pytest.mark.parametrize("name", ["oinf", "hashed aero", "hf", "aeroset"])
def test_s3(bucket, folder, name):
    url = f"{bucket}/{folder[1][name]}"
    with holdall.open(url) as model, holdall.open(folder[0] / folder[1][name]) as here:
        for tensor in model.fetch():
            assert bytes(tensor.raw()) == bytes(here[tensor.name].raw())
    assert holdall.verify(url).ok


@pytest.mark.parametrize("server", ["s3", "web", "followed"])
def test_a_set_is_downloaded(request, folder, tmp_path, server):
    wanted = {path.name: path.read_bytes() for path in (folder[0] / "aeroset").iterdir()}
    base = request.getfixturevalue("bucket" if server == "s3" else "web_url")
    source, follow = f"{base}/{folder[1]['aeroset']}", ()
    if server == "followed":
        document = json.loads((folder[0] / folder[1]["aeroset"]).read_text())
        source, follow = tmp_path / "model.aeroset.json", base
        source.write_text(json.dumps({**document, "base_url": f"{base}/aeroset"}))
        with holdall.open(source, follow=base) as model, holdall.open(folder[0] / "aeroset") as here:
            assert {name: bytes(model[name].raw()) for name in model} == {
                name: bytes(here[name].raw()) for name in here
            }
    holdall.convert(source, tmp_path / "copy", format="aeroset", follow=follow)
    got = {path.name: path.read_bytes() for path in (tmp_path / "copy").iterdir()}
    assert {name: data for name, data in got.items() if name.endswith(".aero")} == {
        name: data for name, data in wanted.items() if name.endswith(".aero")
    }
    assert holdall.verify(tmp_path / "copy").ok


def test_a_prefix_is_listed(bucket):
    with holdall.open(f"{bucket}/hf/") as model:
        assert sorted(model.assets) == ["config.json", "vocab.txt"]
        assert model.vocab.tokens[2] == "hold"
    with holdall.open(f"{bucket}/aeroset/") as model:
        assert model.format == "aeroset"


def test_a_wrong_secret_is_refused(bucket, folder, monkeypatch, s3):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-" + s3.secret)
    for url in (f"{bucket}/{folder[1]['oinf']}", f"{bucket}/hf/"):
        with pytest.raises(RemoteError) as caught:
            holdall.open(url)
        assert s3.secret not in str(caught.value) and s3.key not in str(caught.value)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(RemoteError, match=r"denied|refused"):
        holdall.open(f"{bucket}/{folder[1]['oinf']}")


def test_a_profile_is_enough(bucket, folder, tmp_path, monkeypatch, s3):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name)
    home = tmp_path / ".aws"
    home.mkdir()
    (home / "credentials").write_text(f"[lab]\naws_access_key_id={s3.key}\naws_secret_access_key={s3.secret}\n")
    (home / "config").write_text(f"[profile lab]\nendpoint_url={s3.endpoint}\n")
    monkeypatch.setenv("AWS_PROFILE", "lab")
    with holdall.open(f"{bucket}/{folder[1]['oinf']}") as model:
        assert len(model) > 2000


def test_a_replaced_object_in_s3_is_an_error(bucket, store, folder):
    import obstore

    data = (folder[0] / folder[1]["oinf"]).read_bytes()
    obstore.put(store, "replaced.oinf", data)
    with holdall.open(f"{bucket}/replaced.oinf") as model:
        obstore.put(store, "replaced.oinf", data[:-1] + bytes([data[-1] ^ 1]))
        with pytest.raises(holdall.FormatError, match="was replaced"):
            model[shelf.BIG].numpy()


def test_signed_urls(bucket, store, folder):
    from datetime import timedelta

    import obstore

    url = obstore.sign(store, "GET", folder[1]["oinf"], timedelta(minutes=5))
    with holdall.open(url) as model:
        assert model[shelf.BIG].numpy().shape == (1024, 1024)
        assert "Signature" not in model.sources[0].name


@pytest.mark.parametrize("name", ["oinf", "safetensors", "mcf", "embd", "aero", "hf", "aeroset"])
def test_a_web_server(web_url, folder, name):
    url = f"{web_url}/{folder[1][name]}"
    with holdall.open(url) as model, holdall.open(folder[0] / folder[1][name]) as here:
        for tensor in model.fetch():
            np.testing.assert_array_equal(tensor.numpy(), here[tensor.name].numpy())
        assert model.config == here.config
    assert holdall.verify(url).ok


def test_a_web_server_with_empty_and_missing_files(web_url, folder, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    (folder[0] / "empty").write_bytes(b"")
    with pytest.raises(holdall.FormatError, match="empty"):
        holdall.open(f"{web_url}/empty")
    with pytest.raises(RemoteError, match="is not there"):
        holdall.open(f"{web_url}/nothing")
