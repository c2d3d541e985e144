"""Where requests go and what they carry: redirects stay at one origin unless others are named; secrets stay always."""

from __future__ import annotations

import base64
import logging
import time

import numpy as np
import pytest

import holdall
from holdall.errors import FormatError
from holdall.numpy import save
from tests.remote.servers import make_certificate, range_server

PASSWORD, TOKEN = "sesame-8f3a", "tok-77c1e"
BASIC = "Basic " + base64.b64encode(f"user:{PASSWORD}".encode()).decode()
VALUES = {"w": np.arange(40_000, dtype=np.float32), "b": np.ones(5, np.float32)}
FILE = save(VALUES, format="safetensors")
PLAIN = {"host", "user-agent", "accept-encoding", "range", "if-match"}  # all that another origin may learn


@pytest.fixture
def home():
    with range_server({"/m.safetensors": FILE}) as running:
        yield running


@pytest.fixture
def elsewhere():
    with range_server({"/x/m.safetensors": FILE}) as running:
        yield running


@pytest.fixture
def third():
    with range_server({"/x/m.safetensors": FILE}) as running:
        yield running


def sign(url: str) -> str:
    return f"{url.replace('://', f'://user:{PASSWORD}@')}/m.safetensors?token={TOKEN}"


def check_values(url, **options) -> None:
    with holdall.open(url, **options) as model:
        np.testing.assert_array_equal(model["w"].numpy(), VALUES["w"])


def test_a_redirect_inside_an_origin_is_followed(home):
    home.redirects["/m.safetensors"] = "/other/m.safetensors"
    home.files["/other/m.safetensors"] = FILE
    check_values(sign(home.url))
    assert set(home.log.authorizations) == {BASIC}
    home.redirects["/m.safetensors"] = f"{home.url}/other/m.safetensors?a=b"
    check_values(sign(home.url))


def test_a_redirect_to_another_origin_is_refused(home, elsewhere, cli):
    home.redirects["/m.safetensors"] = f"{elsewhere.url}/x/m.safetensors?X-Amz-Signature={TOKEN}"
    url = sign(home.url)
    for follow in ((), home.url, elsewhere.url.replace("127.0.0.1", "localhost"), "https://127.0.0.1"):
        with pytest.raises(FormatError) as caught:
            holdall.open(url, follow=follow)
        assert caught.value.rule == "core.follow"
        assert caught.value.message == (
            f"{home.url}/m.safetensors: the redirect to '{elsewhere.url}/x/m.safetensors' is at {elsewhere.url}, "
            f"which is not followed: allow it with follow='{elsewhere.url}' (--follow {elsewhere.url})"
        )
    done = cli("info", url)
    assert done.exit_code == 1 and f"--follow {elsewhere.url}" in done.output
    assert elsewhere.log.requests == []


def test_a_named_origin_gets_nothing_but_the_question(home, elsewhere, cli, tmp_path):
    home.redirects["/m.safetensors"] = f"{elsewhere.url}/x/m.safetensors?n=1"
    check_values(sign(home.url), follow=elsewhere.url)
    for command in (["info"], ["ls"], ["verify"], ["explain"], ["convert", tmp_path / "copy.npz"], ["diff", FILE_PATH]):
        (tmp_path / "local.safetensors").write_bytes(FILE)
        more = [tmp_path / "local.safetensors" if word is FILE_PATH else word for word in command[1:]]
        done = cli(command[0], sign(home.url), *more, "--follow", elsewhere.url)
        assert done.exit_code == 0, (command, done.output)
    assert set(home.log.authorizations) == {BASIC}
    assert set(elsewhere.log.queries) == {"n=1"}
    for sent in elsewhere.log.headers:
        assert set(sent) <= PLAIN, sent
        assert PASSWORD not in str(sent) and TOKEN not in str(sent) and "user" not in sent["host"]
        assert sent["accept-encoding"] == "identity"


FILE_PATH = object()


def test_what_left_an_origin_does_not_come_back_with_its_password(home, elsewhere):
    home.redirects["/m.safetensors"] = f"{elsewhere.url}/x/m.safetensors"
    elsewhere.redirects["/x/m.safetensors"] = f"{home.url}/back.safetensors"
    home.files["/back.safetensors"] = FILE
    check_values(sign(home.url), follow=elsewhere.url)
    asked = zip(home.log.requests, home.log.headers, strict=True)
    seen = {(path, sent.get("authorization")) for (_, path, _), sent in asked}
    assert seen == {("/m.safetensors", BASIC), ("/back.safetensors", None)}
    assert all("referer" not in sent for sent in home.log.headers + elsewhere.log.headers)


NOWHERE = [
    "file:///etc/passwd", "ftp://127.0.0.1/x", "//169.254.169.254/latest", "http://user:p@{host}/x", "s3://bucket/x",
    "http://{host}\\@evil.example/x", "https://{host}/x", "http://{host}/a b",
]  # fmt: skip


@pytest.mark.parametrize("target", NOWHERE)
def test_a_redirect_that_is_no_plain_address_is_refused(home, target):
    home.redirects["/m.safetensors"] = target.format(host=home.url.removeprefix("http://"))
    with pytest.raises(FormatError, match="the redirect to") as caught:
        holdall.open(f"{home.url}/m.safetensors")
    assert caught.value.rule == "core.follow"
    assert len(home.log.requests) == 1


def test_a_redirect_in_a_circle_ends(home):
    home.redirects["/m.safetensors"] = "/m.safetensors"
    with pytest.raises(holdall.HoldallError, match="redirects more than 5 times"):
        holdall.open(f"{home.url}/m.safetensors")
    assert len(home.log.requests) == 6


def test_the_files_of_a_folder_follow_the_same_rule(home, elsewhere):
    home.files["/set/model.safetensors"], home.files["/set/config.json"] = FILE, b'{"hidden_size": 3}'
    check_values(f"{home.url}/set/")
    home.redirects["/set/config.json"] = f"{elsewhere.url}/config.json"
    elsewhere.files["/config.json"] = b'{"hidden_size": 4}'
    with pytest.raises(FormatError, match="which is not followed"), holdall.open(f"{home.url}/set/") as model:
        assert model.config
    assert elsewhere.log.requests == []
    with holdall.open(f"{home.url}/set/", follow=elsewhere.url) as model:
        assert model.config["hidden_size"] == 4


@pytest.fixture
def secure(tmp_path, monkeypatch):
    """A server with TLS that is trusted."""
    context, certificate = make_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with range_server({"/m.safetensors": FILE}, context) as running:
        yield running


def test_https_never_becomes_http_unless_that_is_named(secure, elsewhere):
    check_values(sign(secure.url))
    secure.redirects["/m.safetensors"] = f"{elsewhere.url}/x/m.safetensors"
    with pytest.raises(FormatError, match="which is not followed"):
        holdall.open(sign(secure.url))
    same_host = secure.url.replace("https:", "http:")
    secure.redirects["/m.safetensors"] = f"{same_host}/m.safetensors"
    with pytest.raises(FormatError, match=f"is at {same_host}, which is not followed"):
        holdall.open(sign(secure.url), follow=secure.url)
    assert elsewhere.log.requests == []
    secure.redirects["/m.safetensors"] = f"{elsewhere.url}/x/m.safetensors"
    check_values(sign(secure.url), follow=elsewhere.url)
    assert all(set(sent) <= PLAIN for sent in elsewhere.log.headers)


HUB = "/owner/repo/resolve/main/m.safetensors"


def test_the_store_that_the_hub_names_is_asked_without_the_token(home, elsewhere, third, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", home.url)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    home.redirects[HUB] = f"{elsewhere.url}/x/m.safetensors"
    check_values("hf://owner/repo/m.safetensors")
    assert set(home.log.authorizations) == {f"Bearer {TOKEN}"}
    assert elsewhere.log.headers and all(set(sent) <= PLAIN for sent in elsewhere.log.headers)
    elsewhere.redirects["/x/m.safetensors"] = f"{third.url}/x/m.safetensors"  # the store is not the hub
    with pytest.raises(FormatError, match=f"is at {third.url}, which is not followed"):
        holdall.open("hf://owner/repo/m.safetensors")
    assert third.log.requests == []
    check_values("hf://owner/repo/m.safetensors", follow=third.url)
    assert all(set(sent) <= PLAIN for sent in third.log.headers)


def test_not_even_the_hub_leads_from_https_to_http(secure, elsewhere, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", secure.url)
    secure.redirects[HUB] = f"{elsewhere.url}/x/m.safetensors"
    with pytest.raises(FormatError, match="which is not followed"):
        holdall.open("hf://owner/repo/m.safetensors")
    assert elsewhere.log.requests == []


def test_no_log_has_a_secret(home, elsewhere, caplog, monkeypatch):
    """The client logs the path and query of every request; a program may have its logs on."""
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    caplog.set_level(logging.DEBUG)
    home.redirects["/m.safetensors"] = f"{elsewhere.url}/x/m.safetensors?X-Amz-Signature={TOKEN}"
    check_values(sign(home.url), follow=elsewhere.url)
    home.fault = elsewhere.fault = lambda path, start, stop: "503"
    with pytest.raises(holdall.HoldallError):
        holdall.open(sign(home.url), follow=elsewhere.url)
    assert TOKEN not in caplog.text and PASSWORD not in caplog.text
