"""Servers that lie, change their mind, drop, stall or are busy: survived or reported, never believed."""

from __future__ import annotations

import time

import numpy as np
import pytest

import holdall
from holdall.errors import FormatError, UnsupportedError
from holdall.source.remote.remote_source import RemoteError, RemoteSource
from tests.remote.servers import range_server
from tests.remote.shelf import BIG


@pytest.fixture
def url(server, folder):
    return f"{server.url}/{folder[1]['oinf']}"


def first(count, fault):
    """``fault`` for the first ``count`` answers."""
    left = [count]

    def choose(path, start, stop):
        left[0] -= 1
        return fault if left[0] >= 0 else None

    return choose


@pytest.mark.parametrize("fault", ["503", "drop", "shifted"])
def test_two_failures_are_survived(server, url, folder, fault):
    server.fault = first(2, fault)
    with holdall.open(url) as model, holdall.open(folder[0] / folder[1]["oinf"]) as here:
        server.fault = first(2, fault)
        np.testing.assert_array_equal(model[BIG].numpy(), here[BIG].numpy())


CAUSES = {
    "503": "could not be read: the server answers 503 (5 attempts)",
    "drop": "could not be read: the connection was cut (5 attempts)",
    "shifted": "could not be read: the server sends other bytes than those asked for (5 attempts)",
}


@pytest.mark.parametrize("fault", ["503", "drop", "shifted", "short", "whole", "smaller"])
def test_a_server_that_never_gets_it_right_is_reported(server, url, fault, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    with holdall.open(url) as model:
        server.fault = lambda path, start, stop: fault
        with pytest.raises((FormatError, RemoteError)) as caught:
            model[BIG].numpy()
        assert url in str(caught.value)
        assert CAUSES.get(fault, "") in str(caught.value)
    with pytest.raises((FormatError, RemoteError)):
        holdall.open(url)


def test_verify_reports_a_server_that_ignores_ranges(server, url):
    server.fault = lambda path, start, stop: "whole"
    with pytest.raises(FormatError, match="ignores byte ranges"):
        holdall.verify(url)


def test_a_stall_is_survived(server, url, monkeypatch):
    monkeypatch.setenv("HOLDALL_HTTP_TIMEOUT", "0.4")
    server.stall = 1.2
    server.fault = first(1, "stall")
    began = time.monotonic()
    with holdall.open(url) as model:
        assert len(model) > 2000
    assert time.monotonic() - began < 5


def test_a_stall_without_end_is_reported(server, url, monkeypatch):
    monkeypatch.setenv("HOLDALL_HTTP_TIMEOUT", "0.1")
    monkeypatch.setattr("holdall.source.remote.remote_object._FIRST_WAIT", 0.01)
    server.stall = 0.6
    with holdall.open(url) as model:
        server.fault = lambda path, start, stop: "stall"
        with pytest.raises(RemoteError, match=r"could not be read: no answer in time \(5 attempts\)"):
            model[BIG].numpy()


def test_a_replaced_object_is_an_error(server, url):
    with holdall.open(url) as model:
        server.tags[url.removeprefix(server.url)] = '"another"'
        with pytest.raises(FormatError) as caught:
            model[BIG].numpy()
        assert caught.value.rule == "core.remote.changed"


@pytest.mark.parametrize("change", ["date", "size"])
def test_a_replaced_object_is_noticed_without_tags(server, url, change):
    server.tagged = False
    path = url.removeprefix(server.url)
    with holdall.open(url) as model:
        if change == "date":
            server.dates[path] = "Mon, 02 Nov 2026 00:00:00 GMT"
        else:
            server.files[path] += b"more"
        with pytest.raises(FormatError, match="was replaced"):
            model[BIG].numpy()


def test_a_replacement_in_the_middle_of_a_large_read_is_no_mixture():
    data = bytes(range(256)) * (1 << 17)  # 32 MiB: several requests side by side
    with range_server({"/x": data}) as running:
        source = RemoteSource(running.url + "/x")

        def change(path, start, stop):
            if start > 20 << 20:
                running.tags["/x"] = '"another"'

        running.fault = change
        with pytest.raises(FormatError, match="was replaced"):
            for _ in range(3):  # the other requests of the first round may have been answered before
                source.view(1 << 20, 30 << 20)


def test_what_is_not_there():
    with range_server({"/empty": b""}) as running:
        with pytest.raises(RemoteError, match="is not there"):
            holdall.open(running.url + "/model.oinf")
        assert len(running.log.requests) == 1  # no use in asking again
        with pytest.raises(FormatError, match="empty"):
            holdall.open(running.url + "/empty")


def test_a_port_without_a_server(monkeypatch):
    from tests.remote.servers import free_port

    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    with pytest.raises(RemoteError, match=r"could not be read: Connection refused \(5 attempts\)"):
        holdall.open(f"http://127.0.0.1:{free_port()}/model.oinf")


def test_a_name_that_no_host_has(monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    with pytest.raises(RemoteError, match="the name of the host is not known"):
        holdall.open("http://nothing.invalid/model.oinf")


@pytest.mark.parametrize("scheme", ["ftp", "file", "S3N"])
def test_other_schemes_are_named(scheme, tmp_path, monkeypatch):
    with pytest.raises(UnsupportedError, match=f"the scheme {scheme} is none of http https s3 gs az abfs hf"):
        holdall.open(f"{scheme}://host/model.oinf")
    monkeypatch.chdir(tmp_path)  # unless a folder is called so
    (tmp_path / f"{scheme}:").mkdir()
    holdall.save(tmp_path / f"{scheme}:" / "model.oinf", {"w": np.ones(2)})
    with holdall.open(f"{scheme}://model.oinf") as model:
        assert "w" in model


def test_a_failure_in_the_middle_of_a_conversion_leaves_nothing(server, url, tmp_path, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    target = tmp_path / "copy.safetensors"
    target.write_bytes(b"old")
    server.fault = lambda path, start, stop: "503" if start > 3_000_000 else None
    with pytest.raises(RemoteError):
        holdall.convert(url, target)
    assert [path.name for path in tmp_path.iterdir()] == ["copy.safetensors"]
    assert target.read_bytes() == b"old"
