"""The cache on disk: by URL and ETag, bounded, sound when several use it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context

import pytest

import holdall
from holdall.source.cache import RangeCache
from tests.remote import shelf


@pytest.fixture
def url(server, folder, tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDALL_CACHE", str(tmp_path / "cache"))
    return f"{server.url}/{folder[1]['oinf']}"


def read(url: str) -> float:
    with holdall.open(url) as model:
        return float(model[shelf.BIG].numpy().sum())


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
    (tmp_path / "cache").mkdir()
    for number in range(256):
        (tmp_path / "cache" / f"{number:02x}").write_text("a file where a folder should be")
    read(url)


def test_a_size_that_is_none(url, monkeypatch):
    monkeypatch.setenv("HOLDALL_CACHE_BYTES", "many")
    with pytest.raises(holdall.UnsupportedError, match="HOLDALL_CACHE_BYTES"):
        read(url)
