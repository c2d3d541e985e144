"""Proxies and certificate authorities, as the environment names them."""

from __future__ import annotations

import base64

import numpy as np
import pytest

import holdall
from holdall.numpy import save
from holdall.source.remote.remote_source import RemoteError
from tests.remote.servers import make_certificate, range_server, raw_server, relay

PASSWORD = "sesame-8f3a"
FILE = save({"w": np.arange(50_000, dtype=np.float32)}, format="safetensors")


@pytest.fixture
def proxy():
    with raw_server(relay) as running:
        yield running


@pytest.fixture(params=["http", "https"])
def server(request, tmp_path, monkeypatch):
    context = None
    if request.param == "https":
        context, certificate = make_certificate(tmp_path)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with range_server({"/m.safetensors": FILE}, context) as running:
        yield running


def name_proxy(monkeypatch, server, proxy, name="{}_PROXY") -> None:
    url = proxy.url.replace("://", f"://user:{PASSWORD}@")
    monkeypatch.setenv(name.format(server.url.partition(":")[0].upper()), url)


@pytest.mark.parametrize("name", ["{}_PROXY", "ALL_PROXY"])
def test_a_proxy_is_used_and_its_password_stays_there(server, proxy, monkeypatch, name):
    name_proxy(monkeypatch, server, proxy, name)
    with holdall.open(f"{server.url}/m.safetensors") as model:
        assert model["w"].numpy()[-1] == 49_999
    basic = base64.b64encode(f"user:{PASSWORD}".encode())
    assert proxy.heads and all(b"Basic " + basic in head for head in proxy.heads)
    first = proxy.heads[0].split(b" ")
    place = server.url.encode()
    assert first[:2] == ([b"CONNECT", place[8:]] if b"https" in place else [b"GET", place + b"/m.safetensors"])
    assert server.log.headers and all("proxy-authorization" not in sent for sent in server.log.headers)
    if "https" in server.url:
        assert all(b"Range" not in head and b"m.safetensors" not in head for head in proxy.heads)


def test_hosts_without_a_proxy_are_asked_directly(server, proxy, monkeypatch):
    name_proxy(monkeypatch, server, proxy)
    monkeypatch.setenv("NO_PROXY", "example.org,127.0.0.1")
    with holdall.open(f"{server.url}/m.safetensors") as model:
        assert "w" in model
    assert proxy.heads == []


def test_a_proxy_that_is_not_there_is_named_without_its_password(server, monkeypatch):
    monkeypatch.setattr("holdall.source.remote.remote_object._FIRST_WAIT", 0.001)
    monkeypatch.setattr("holdall.source.remote.remote_object._LONGEST_WAIT", 0.001)
    with raw_server(relay) as gone:
        name_proxy(monkeypatch, server, gone)
    with pytest.raises(RemoteError, match="Connection refused") as caught:
        holdall.open(f"{server.url}/m.safetensors")
    assert PASSWORD not in str(caught.value)
    assert server.log.requests == []


def test_a_proxy_of_another_kind_is_refused(server, monkeypatch):
    monkeypatch.setenv("ALL_PROXY", f"socks5://user:{PASSWORD}@127.0.0.1:9")
    with pytest.raises(holdall.UnsupportedError, match="is a socks5 one: holdall uses http and") as caught:
        holdall.open(f"{server.url}/m.safetensors")
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize("name", ["HOLDALL_CA_BUNDLE", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_a_certificate_is_accepted_when_it_is_named(name, tmp_path, monkeypatch):
    monkeypatch.setattr("holdall.source.remote.remote_object._FIRST_WAIT", 0.001)
    monkeypatch.setattr("holdall.source.remote.remote_object._LONGEST_WAIT", 0.001)
    context, certificate = make_certificate(tmp_path)
    with range_server({"/m.safetensors": FILE}, context) as server:
        with pytest.raises(RemoteError, match="the certificate of the server is not accepted"):
            holdall.open(f"{server.url}/m.safetensors")
        assert server.log.requests == []
        monkeypatch.setenv(name, str(certificate))
        with holdall.open(f"{server.url}/m.safetensors") as model:
            assert model["w"].numpy()[-1] == 49_999


def test_certificates_that_cannot_be_read_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDALL_CA_BUNDLE", str(tmp_path / "nothing.pem"))
    with pytest.raises(holdall.UnsupportedError, match="that HOLDALL_CA_BUNDLE names cannot be read: No such file"):
        holdall.open("https://127.0.0.1:9/x")
    (tmp_path / "nothing.pem").write_text("no certificate")
    with pytest.raises(holdall.UnsupportedError, match="are not certificates in PEM"):
        holdall.open("https://127.0.0.1:9/x")


def test_a_python_without_authorities_takes_those_of_certifi(monkeypatch):
    import ssl
    from types import SimpleNamespace

    certifi = pytest.importorskip("certifi")
    from holdall.source.remote import connections

    monkeypatch.setattr(ssl, "create_default_context", lambda: ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: SimpleNamespace(cafile=None, capath=None))
    found = connections._make_context(None).get_ca_certs()
    wanted = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    wanted.load_verify_locations(certifi.where())
    assert found and len(found) == len(wanted.get_ca_certs())
