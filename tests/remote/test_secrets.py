"""Credentials and signatures arrive where they belong, and are seen nowhere else."""

from __future__ import annotations

import json
import pickle
import time

import pytest

import holdall
from holdall.base.urls import hide_secrets
from holdall.source.remote.credentials import client_options, s3_config
from holdall.source.remote.remote_source import RemoteError
from holdall.source.remote.stores import remove_signature
from tests.remote.servers import make_certificate, range_server

SECRET = "sesame-8f3a"
SIGNED = f"?X-Amz-Signature={SECRET}&X-Amz-Expires=60&part=1"


@pytest.fixture
def url(server, folder):
    host = server.url.removeprefix("http://")
    return f"http://user:{SECRET}@{host}/{folder[1]['oinf']}{SIGNED}"


def test_what_was_signed_arrives(server, url):
    with holdall.open(url) as model:
        assert len(model) > 2000
    assert set(server.log.queries) == {SIGNED[1:]}
    assert all(text.startswith("Basic ") for text in server.log.authorizations)


def test_nothing_shows_it(server, url, cli, tmp_path, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    said = []
    with holdall.open(url) as model:
        said += [repr(model), repr(model.sources[0]), model.sources[0].name, str(model.sources[0].identity)]
        said += [str(holdall.verify(url)), repr(holdall.verify(url)), str(holdall.diff(url, url))]
        said += [repr(holdall.convert(url, tmp_path / "x.safetensors"))]
        server.fault = lambda path, start, stop: "503"
        with pytest.raises(RemoteError) as caught:
            model["big"].numpy()
        said += [str(caught.value), repr(caught.value), repr(caught.value.__cause__), repr(caught.value.__context__)]
    for wrong in (url, url.replace("oinf", "nothing")):
        for arguments in (["info"], ["ls"], ["verify"], ["explain"], ["extract"], ["diff"], ["--debug", "info"]):
            more = ["w"] if arguments == ["extract"] else [url] if arguments == ["diff"] else []
            result = cli(*arguments, wrong, *more)
            assert result.exit_code
            said += [result.output, str(result.exception)]
    server.fault = lambda path, start, stop: None
    for arguments in (["info"], ["info", "--json"], ["verify", "--json"], ["ls"], ["explain"], ["diff", url, "--json"]):
        result = cli(arguments[0], url, *arguments[1:])
        assert result.exit_code == 0, result.output
        said.append(result.output)
    assert said and not [text for text in said if SECRET in text]


def test_a_pickle_holds_what_it_needs_to_come_back(url):
    """A pickled model holds the right to read it."""
    with holdall.open(url) as model:
        assert list(pickle.loads(pickle.dumps(model))) == list(model)


def test_how_urls_are_shown():
    assert hide_secrets(f"https://u:{SECRET}@h:8443/x/y{SIGNED}#f") == "https://h:8443/x/y"
    assert hide_secrets("s3://bucket/a?b#c") == "s3://bucket/a?b#c"
    assert hide_secrets("/local/file?x") == "/local/file?x"
    assert remove_signature(f"https://h/x{SIGNED}") == "https://h/x?part=1"
    assert remove_signature("https://h/x?sv=1&sig=2&se=3") == "https://h/x"


def test_a_token_for_the_hub(server, folder, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setenv("HF_TOKEN", SECRET)
    server.files = {f"/owner/repo/resolve/main/{p.removeprefix('/hf/')}": d for p, d in server.files.items()
                    if p.startswith("/hf/")}  # fmt: skip
    for url in ("hf://owner/repo/model.safetensors.index.json", "hf://owner/repo"):
        with holdall.open(url) as model:
            assert model.config["hidden_size"] == 16
            assert SECRET not in repr(model.sources)
    assert set(server.log.authorizations) == {f"Bearer {SECRET}"}
    with pytest.raises(RemoteError) as caught:
        holdall.open("hf://owner/repo@v1.0/model.safetensors")
    assert server.log.requests[-1][1] == "/owner/repo/resolve/v1.0/model.safetensors"
    assert str(caught.value) == "hf://owner/repo@v1.0/model.safetensors: is not there"


def test_a_redirect_to_another_host_gets_no_token(server, folder, monkeypatch):
    """As the hub does: it answers with the address of a store, which must not see the token."""
    path = f"/{folder[1]['oinf']}"
    with range_server({path: server.files[path]}) as store:
        store_url = store.url.replace("127.0.0.1", "localhost")
        server.redirects["/owner/repo/resolve/main/x.oinf"] = store_url + path
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("HF_TOKEN", SECRET)
        with holdall.open("hf://owner/repo/x.oinf") as model:
            assert len(model) > 2000
        assert set(server.log.authorizations) == {f"Bearer {SECRET}"}
        assert set(store.log.authorizations) == {""}


def test_profiles_and_the_environment(tmp_path, monkeypatch):
    aws = tmp_path / ".aws"
    aws.mkdir()
    lab = "[profile lab]\nregion = eu-north-1\nendpoint_url = https://s3.lab\n"
    (aws / "config").write_text(f"{lab}[default]\nregion = x\n")
    (aws / "credentials").write_text(f"[lab]\naws_access_key_id = k\naws_secret_access_key = {SECRET}\n")
    monkeypatch.setenv("AWS_PROFILE", "lab")
    keys = {"access_key_id": "k", "secret_access_key": SECRET}
    assert s3_config() == {"region": "eu-north-1", "endpoint": "https://s3.lab", **keys}
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    assert s3_config()["region"] == "eu-west-1"
    monkeypatch.delenv("AWS_PROFILE")
    assert "access_key_id" not in s3_config()
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    assert s3_config()["skip_signature"] == "true"


def test_a_certificate_authority_of_ones_own(tmp_path, monkeypatch):
    bundle = tmp_path / "ca.pem"
    bundle.write_bytes(b"-----BEGIN CERTIFICATE-----\n")
    assert "root_certificate" not in client_options(plain_http=False)
    monkeypatch.setenv("HOLDALL_CA_BUNDLE", str(bundle))
    assert client_options(plain_http=False)["root_certificate"] == bundle.read_bytes()


def test_https_with_that_authority(server, folder, tmp_path, monkeypatch):
    context, certificate = make_certificate(tmp_path)
    path = f"/{folder[1]['oinf']}"
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    with range_server({path: server.files[path]}, context) as secure:
        url = secure.url.replace("127.0.0.1", "localhost") + path
        with pytest.raises(RemoteError):
            holdall.open(url)
        monkeypatch.setenv("HOLDALL_CA_BUNDLE", str(certificate))
        with holdall.open(url) as model:
            assert len(model) > 2000


def test_json_names_the_copy_without_its_signature(server, folder, cli, tmp_path):
    path = tmp_path / "x.aero"
    whole = server.files[f"/{folder[1]['hashed aero']}"]
    path.write_bytes(whole[:3_000_000] + b"\0\1\2\3" + whole[3_000_004:])
    result = cli("repair", path, "--from", f"{server.url}/{folder[1]['hashed aero']}{SIGNED}", "--json")
    assert result.exit_code == 0, result.output
    assert SECRET not in result.output
    assert json.loads(result.output)["copy"] == f"{server.url}/{folder[1]['hashed aero']}"
    assert path.read_bytes() == whole
