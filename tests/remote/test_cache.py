"""The cache on disk: by URL and ETag, bounded, sound when several use it."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

import holdall
from holdall.source.remote.disk_cache import RangeCache
from tests.remote import shelf


@pytest.fixture
def url(server, folder, tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDALL_CACHE", str(tmp_path / "cache"))
    return f"{server.url}/{folder[1]['oinf']}"


def read(url: str) -> float:
    with holdall.open(url) as model:
        return float(model[shelf.BIG].numpy().sum())


@pytest.mark.shows("A46")
def test_what_was_fetched_is_not_fetched_again(server, url):
    want = read(url)
    server.log.clear()
    assert read(url) == want
    assert len(server.log.requests) == 1  # is it still the same object?
    assert server.log.sent <= 64 << 10


def test_a_changed_object_is_fetched_anew(server, url):
    want = read(url)
    server.tags[url.removeprefix(server.url)] = '"another"'
    server.log.clear()
    assert read(url) == want
    assert len(server.log.requests) > 1


def test_a_new_signature_is_the_same_object(server, url):
    read(url + "?X-Amz-Signature=1")
    server.log.clear()
    read(url + "?X-Amz-Signature=2")
    assert len(server.log.requests) == 1


def test_objects_without_a_tag_are_not_kept(server, url, tmp_path):
    server.tagged = False
    read(url)
    assert not list((tmp_path / "cache").glob("*/*"))


def test_damage_on_the_disk_is_noticed(server, url, tmp_path):
    want = read(url)
    for path in (tmp_path / "cache").glob("*/*"):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    assert read(url) == want


def list_entries(tmp_path):
    return [path for path in (tmp_path / "cache").glob("*/*") if path.is_file()]


def test_a_forged_entry_is_thrown_away(server, url, tmp_path):
    """Other bytes with a hash that fits them, which anybody can compute."""
    from blake3 import blake3

    want = read(url)
    forged = {}
    for path in list_entries(tmp_path):
        data = bytes(len(path.read_bytes()) - 32)
        path.write_bytes(data + blake3(data).digest())
        forged[path] = path.read_bytes()
    server.log.clear()
    assert read(url) == want
    assert len(server.log.requests) > 1, "what was forged is fetched again"
    assert forged and all(path.read_bytes() != data for path, data in forged.items())
    server.log.clear()
    assert read(url) == want and len(server.log.requests) == 1


def test_a_forged_entry_goes_although_nothing_can_be_fetched(tmp_path):
    cache = RangeCache(tmp_path / "cache")
    identity = ("url", "x", "tag")
    cache.get(identity, 0, 900, lambda: memoryview(bytes(900)))
    (path,) = list_entries(tmp_path)
    path.write_bytes(bytes(932))
    with pytest.raises(ZeroDivisionError):
        cache.get(identity, 0, 900, lambda: 1 // 0)
    assert not path.exists()


def test_an_entry_under_the_name_of_another_is_thrown_away(tmp_path):
    """Its seal is right, for other bytes of the object: those of an old version, say."""
    cache = RangeCache(tmp_path / "cache")
    cache.get(("url", "x", "old"), 0, 900, lambda: memoryview(bytes(900)))
    (old,) = list_entries(tmp_path)
    sealed = old.read_bytes()
    cache.get(("url", "x", "new"), 0, 900, lambda: memoryview(b"n" * 900))
    (new,) = set(list_entries(tmp_path)) - {old}
    new.write_bytes(sealed)
    assert cache.get(("url", "x", "new"), 0, 900, lambda: memoryview(b"n" * 900)) == b"n" * 900


def test_only_its_owner_may_enter_it(server, url, tmp_path):
    before = os.umask(0)  # nothing is left to the umask
    try:
        read(url)
    finally:
        os.umask(before)
    cache = tmp_path / "cache"
    modes = {path.relative_to(cache): path.stat().st_mode & 0o777 for path in cache.rglob("*") if path.is_file()}
    assert cache.stat().st_mode & 0o777 == 0o700
    assert modes[Path("key")] == 0o600 and set(modes.values()) == {0o600}
    assert len((cache / "key").read_bytes()) == 32


@pytest.mark.parametrize("kind", ["mode", "link", "file", "owner"])
def test_a_folder_that_others_may_enter_is_no_cache(server, url, tmp_path, kind, monkeypatch):
    cache = tmp_path / "cache"
    if kind == "file":
        cache.write_bytes(b"")
    elif kind == "link":
        (tmp_path / "real").mkdir(mode=0o700)
        cache.symlink_to(tmp_path / "real")
    else:
        cache.mkdir(mode=0o750 if kind == "mode" else 0o700)
    if kind == "owner":
        monkeypatch.setattr("os.geteuid", lambda: 12345)
    with pytest.raises((holdall.UnsupportedError, FileExistsError), match=r"that only you may enter|File exists"):
        read(url)
    assert server.log.requests == []


@pytest.mark.parametrize("kind", ["short", "readable", "gone", "link"])
def test_a_key_that_is_not_one_is_made_anew(server, url, tmp_path, kind):
    want = read(url)
    key = tmp_path / "cache" / "key"
    before = key.read_bytes()
    if kind == "short":
        key.write_bytes(b"")
    elif kind == "readable":
        key.chmod(0o644)
    else:
        key.unlink()
    if kind == "link":
        (tmp_path / "known").write_bytes(before)
        key.symlink_to(tmp_path / "known")
    server.log.clear()
    assert read(url) == want
    assert len(server.log.requests) > 1, "what the old key sealed is fetched again"
    assert key.read_bytes() != before and key.lstat().st_mode & 0o7777 == 0o600 and not key.is_symlink()


def test_it_stays_within_its_bounds(tmp_path):
    cache = RangeCache(tmp_path / "cache", max_bytes=10_000)
    for number in range(50):
        cache.get(("url", "x", "tag"), number, number + 900, lambda: memoryview(bytes(900)))
        assert sum(path.stat().st_size for path in (tmp_path / "cache").glob("*/*")) <= 10_000
    assert cache.get(("url", "x", "tag"), 0, 20_000, lambda: memoryview(bytes(20_000))) == bytes(20_000)
    cache.get(("url", "x", "tag"), 49, 949, lambda: pytest.fail("the newest is kept"))


def test_several_processes_and_threads_share_it(server, url):
    with ThreadPoolExecutor(4) as pool:
        sums = list(pool.map(read, [url] * 8))
    with get_context("spawn").Pool(2) as pool:
        sums += pool.map(read, [url] * 4)
    assert len(set(sums)) == 1


def test_a_folder_that_cannot_be_written_is_no_reason_to_fail(server, url, tmp_path):
    (tmp_path / "cache").mkdir(mode=0o700)
    for number in range(256):
        (tmp_path / "cache" / f"{number:02x}").write_text("a file where a folder should be")
    read(url)


def test_a_size_that_is_none(url, monkeypatch):
    monkeypatch.setenv("HOLDALL_CACHE_BYTES", "many")
    with pytest.raises(holdall.UnsupportedError, match="HOLDALL_CACHE_BYTES"):
        read(url)
