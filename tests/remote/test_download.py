"""Downloading a set: in parallel ranges, continued after any interruption, whole or not there at all."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import holdall
from holdall.errors import FormatError, HashError
from holdall.source.remote.remote_source import RemoteError
from tests.remote.servers import RangeServer, range_server

CHUNK = 4 << 20  # bytes of one request
UNDER_WAY = 10 * CHUNK  # requests that may be lost by an interrupt
SECRET = "sesame-8f3a"
LARGE = "part-000.aero"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a set: a part of 80 MB, and two small ones."""
    folder = tmp_path_factory.mktemp("made") / "set"
    values = {
        "big": np.random.default_rng(6).integers(0, 255, (20, 4_000_000), np.uint8),
        "first": np.arange(12, dtype=np.float32),
        "last": np.ones(70_000, np.float32),
    }
    holdall.save(folder, values, format="aeroset", part_shards=1, max_shard_bytes=1 << 16)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def store(made):
    with range_server({f"/set/{name}": data for name, data in made.items()}) as running:
        running.stall = 0.15
        yield running


def read_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def left(folder: Path) -> list[Path]:
    return sorted(folder.glob(".*.holdall.part"))


def download(store: RangeServer, target: Path, **options):
    return holdall.convert(f"{store.url}/set/model.aeroset.json", target, format="aeroset", **options)


def start(store: RangeServer, target: Path) -> subprocess.Popen[bytes]:
    """The command in a process of its own."""
    command = [sys.executable, "-m", "holdall", "convert", f"{store.url}/set/model.aeroset.json", str(target)]
    return subprocess.Popen([*command, "--format", "aeroset"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def wait_for(condition, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.01)


def held(folder: Path) -> int:
    """The bytes of the large part that are on the disk."""
    return sum(path.stat().st_size for part in left(folder) for path in part.glob(f"content/{LARGE}"))


def is_tail(store: RangeServer, path: str, start: int) -> bool:
    """Whether a request is that for the last bytes, which opening sends."""
    return start >= len(store.files[path]) - (66 << 10)


@pytest.mark.parametrize("way", ["document", "folder", "followed", "urls"])
def test_a_downloaded_set_is_the_set(made, store, tmp_path, way):
    url, target, seen = f"{store.url}/set/model.aeroset.json", tmp_path / "copy", []
    document = json.loads(made["model.aeroset.json"])
    if way == "folder":
        url = f"{store.url}/set/"
    elif way != "document":
        url = tmp_path / "model.aeroset.json"
        if way == "followed":
            document["base_url"] = f"{store.url}/set?sig={SECRET}"
        else:
            for file in (*document["parts"], document["global_tidx"]):
                file["path"] = f"{store.url}/set/{file['path']}?sig={SECRET}"
        url.write_text(json.dumps(document))
    report = holdall.convert(
        url, target, format="aeroset", follow=store.url, progress=lambda done, total: seen.append((done, total))
    )
    got = read_files(target)
    if way in ("followed", "urls"):  # a copy needs no URLs
        assert json.loads(got.pop("model.aeroset.json")) == json.loads(made["model.aeroset.json"])
        assert got == {name: data for name, data in made.items() if name.endswith(".aero")}
        assert SECRET not in repr(report)
    else:
        assert got == made
    assert report.checked
    said = {
        "followed": "model.aeroset.json: base_url is left out, since the copy has all files",
        "urls": f"model.aeroset.json: the names of files replace {len(got)} URLs, since the copy has all files",
    }
    if way in said:
        assert report.changes == ["is aeroset already: its files are copied, all but one unchanged", said[way]]
    else:
        assert report.changes == ["is aeroset already: copied as it is"]
    assert holdall.verify(target).ok
    assert seen == sorted(seen) and seen[-1][0] == seen[-1][1] >= sum(map(len, made.values()))
    assert left(tmp_path) == []
    (tmp_path / "other").mkdir()
    assert target.stat().st_mode == (tmp_path / "other").stat().st_mode
    sizes = sum(len(data) for name, data in made.items() if name.endswith(".aero"))
    assert store.log.sent < sizes + (1 << 20), "nothing is fetched twice"


def test_its_ranges_are_fetched_in_parallel(store, tmp_path):
    lock, under_way, most = threading.Lock(), 0, 0

    def count(path, start, stop):
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        time.sleep(0.05)
        with lock:
            under_way -= 1

    store.fault = count
    download(store, tmp_path / "copy")
    assert 4 <= most <= 9


def test_when_the_server_goes_away_the_next_run_goes_on(made, store, tmp_path, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    path = f"/set/{LARGE}"
    store.fault = lambda path, start, stop: "503" if start >= 60_000_000 and not is_tail(store, path, start) else None
    with pytest.raises(RemoteError, match="503"):
        download(store, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    (part,) = left(tmp_path)
    assert stat.S_IMODE(part.stat().st_mode) == 0o700
    assert part.joinpath("content", LARGE).read_bytes() == made[LARGE][: held(tmp_path)]
    assert held(tmp_path) >= 60_000_000 - 2 * CHUNK
    store.fault = lambda path, start, stop: None
    store.log.clear()
    download(store, tmp_path / "copy")
    assert read_files(tmp_path / "copy") == made
    assert left(tmp_path) == []
    assert store.log.sent < len(made[path.removeprefix("/set/")]) - 60_000_000 + 4 * CHUNK


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_download_goes_on_where_it_stopped(made, store, tmp_path, how):
    target = tmp_path / "copy"
    store.fault = lambda path, start, stop: "stall" if path.endswith(LARGE) else None
    process = start(store, target)
    wait_for(lambda: held(tmp_path) >= 20_000_000 or process.poll() is not None)
    process.send_signal(how)
    said = process.communicate(timeout=60)[1].decode()
    assert process.returncode == {signal.SIGKILL: -9, signal.SIGINT: 130, signal.SIGTERM: 143}[how], said
    noted = "what was fetched is kept, and the same command goes on with it" in said
    assert noted == (how == signal.SIGINT), said
    assert not target.exists()
    before = held(tmp_path)
    assert 20_000_000 <= before < len(made[LARGE])
    first, total = store.log.sent, sum(map(len, made.values()))
    store.fault = lambda path, start, stop: None
    process = start(store, target)
    said = process.communicate(timeout=120)[1].decode()
    assert process.returncode == 0, said
    assert read_files(target) == made
    assert left(tmp_path) == []
    twice = store.log.sent - total
    assert twice <= UNDER_WAY, f"{twice} bytes came twice; {before} were there, {first} had been sent"
    asked = [range for _, path, range in store.log.requests if path.endswith(LARGE)]
    assert f"bytes={before}-" in " ".join(asked)


def interrupt(store: RangeServer, target: Path) -> None:
    """Leave a part of the large file of a download."""
    store.fault = lambda path, start, stop: "503" if start >= 40_000_000 and not is_tail(store, path, start) else None
    with pytest.raises(RemoteError):
        download(store, target)
    store.fault = lambda path, start, stop: None
    assert held(target.parent) > 30_000_000
    store.log.clear()


def asked_from_start(store: RangeServer) -> bool:
    """Whether the large part was asked for from its first bytes on, beyond those that opening takes."""
    return ("GET", f"/set/{LARGE}", f"bytes=65536-{CHUNK - 1}") in store.log.requests


@pytest.mark.parametrize("change", ["etag", "date", "document", "size"])
def test_a_part_that_changed_is_begun_again(made, store, tmp_path, monkeypatch, change):
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    target = tmp_path / "copy"
    interrupt(store, target)
    new = dict(made)
    if change == "etag":
        store.tags[f"/set/{LARGE}"] = '"another"'
    elif change == "date":
        store.dates[f"/set/{LARGE}"] = "Mon, 02 Nov 2026 00:00:00 GMT"
    else:
        again = tmp_path / "again"
        shape = (20, 4_000_000) if change == "document" else (19, 4_000_000)
        values = {"big": np.zeros(shape, np.uint8), "first": np.ones(3, np.float32)}
        holdall.save(again, values, format="aeroset", part_shards=1, max_shard_bytes=1 << 16)
        new = read_files(again)
        shutil.rmtree(again)
        store.files = {f"/set/{name}": data for name, data in new.items()}
    download(store, target)
    assert asked_from_start(store)
    assert read_files(target) == new
    assert left(tmp_path) == []


def test_without_a_change_it_is_not_begun_again(made, store, tmp_path, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    interrupt(store, tmp_path / "copy")
    download(store, tmp_path / "copy")
    assert not asked_from_start(store)
    assert read_files(tmp_path / "copy") == made


def test_bytes_that_changed_on_the_disk_are_noticed(made, store, tmp_path, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    target = tmp_path / "copy"
    interrupt(store, target)
    unfinished = left(tmp_path)[0] / "content" / LARGE
    data = bytearray(unfinished.read_bytes())
    data[12_345_678] ^= 1
    unfinished.write_bytes(data)
    with pytest.raises(HashError, match="SHA-256"):
        download(store, target)
    assert not target.exists()
    store.log.clear()
    download(store, target)
    assert asked_from_start(store)
    assert read_files(target) == made


def test_a_wrong_hash_publishes_nothing_and_keeps_the_right_parts(made, store, tmp_path):
    target, path = tmp_path / "copy", "/set/part-002.aero"
    store.files[path] = made["part-002.aero"][:-1] + b"x"
    with pytest.raises(HashError, match=r"'part-002\.aero'") as caught:
        download(store, target)
    assert caught.value.rule == "aeroset.sha256"
    with pytest.raises(HashError):
        download(store, target, check=False)
    assert not target.exists()
    (part,) = left(tmp_path)
    assert not part.joinpath("content", "part-002.aero").exists()
    store.files[path] = made["part-002.aero"]
    store.log.clear()
    download(store, target)
    assert read_files(target) == made
    assert store.log.sent < 1 << 20, "the large part was there"


def test_a_wrong_size_publishes_nothing(made, store, tmp_path):
    store.files[f"/set/{LARGE}"] += b"\0"
    with pytest.raises(FormatError) as caught:
        download(store, tmp_path / "copy")
    assert caught.value.rule == "aeroset.size"
    assert list(tmp_path.iterdir()) == [], "nothing was fetched, so nothing is left"


def test_what_is_left_of_another_set_is_not_published(made, store, tmp_path, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    interrupt(store, tmp_path / "copy")
    content = left(tmp_path)[0] / "content"
    (content / "sub").mkdir()
    (content / "sub" / "stranger").write_bytes(b"x")
    (content / "link").symlink_to("/etc/passwd")
    (content / "model.aeroset.json").write_bytes(b"{}")
    download(store, tmp_path / "copy")
    assert read_files(tmp_path / "copy") == made


@pytest.mark.parametrize("how", ["open to others", "a link", "no notes"])
def test_a_part_that_others_could_have_made_is_not_used(made, store, tmp_path, monkeypatch, how):
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    interrupt(store, tmp_path / "copy")
    (part,) = left(tmp_path)
    if how == "open to others":
        part.chmod(0o755)
    elif how == "a link":
        part.rename(tmp_path / "elsewhere")
        part.symlink_to(tmp_path / "elsewhere")
    else:
        shutil.rmtree(part / "notes")
    download(store, tmp_path / "copy")
    assert asked_from_start(store)
    assert read_files(tmp_path / "copy") == made


def test_another_write_to_the_same_name_removes_it(made, store, tmp_path, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    interrupt(store, tmp_path / "copy")
    holdall.save(tmp_path / "copy", {"w": np.ones(3, np.float32)}, format="aeroset")
    assert left(tmp_path) == []


def test_two_downloads_at_once_do_not_share_a_part(made, store, tmp_path):
    target = tmp_path / "copy"
    store.fault = lambda path, start, stop: "stall" if path.endswith(LARGE) else None
    process = start(store, target)
    try:
        wait_for(lambda: held(tmp_path) > 8_000_000 or process.poll() is not None)
        store.fault = lambda path, start, stop: None
        said = ""
        try:
            download(store, target)
        except FileExistsError as error:
            said = str(error)
        said += process.communicate(timeout=60)[1].decode()
        assert said.count("exists already") == 1, "the first has the folder, the other an error"
        assert read_files(target) == made
        assert left(tmp_path) == []
    finally:
        process.kill()
        process.wait()


def test_a_folder_that_exists_is_refused_before_any_part_is_asked_for(store, tmp_path):
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "mine").write_bytes(b"x")
    with pytest.raises(FileExistsError):
        download(store, tmp_path / "copy")
    assert {path for _, path, _ in store.log.requests} == {"/set/model.aeroset.json", "/set/index.aero"}
    assert os.listdir(tmp_path / "copy") == ["mine"]


def test_notes_hold_no_secrets(made, store, tmp_path, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    host = store.url.removeprefix("http://")
    store.fault = lambda path, start, stop: "503" if start >= 40_000_000 and not is_tail(store, path, start) else None
    document = json.loads(made["model.aeroset.json"])
    for file in (*document["parts"], document["global_tidx"]):
        file["path"] = f"{store.url}/set/{file['path']}?sig={SECRET}"
    (tmp_path / "model.aeroset.json").write_text(json.dumps(document))
    with pytest.raises(RemoteError):
        holdall.convert(tmp_path / "model.aeroset.json", tmp_path / "copy", format="aeroset", follow=store.url)
    with pytest.raises(RemoteError):
        holdall.convert(f"http://me:{SECRET}@{host}/set/model.aeroset.json", tmp_path / "two", format="aeroset")
    parts = left(tmp_path)
    notes = [path.read_text() for part in parts for path in part.glob("notes/*")]
    assert len(parts) == 2 and len(notes) == 2
    assert all(LARGE in text and SECRET not in text for text in notes)


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """One file of 80 MB with hashes, and one without."""
    folder = tmp_path_factory.mktemp("single")
    values = {f"w{n}": np.random.default_rng(n).integers(0, 255, 8_000_000, np.uint8) for n in range(10)}
    holdall.save(folder / "m.aero", values, tensor_hash=True)
    holdall.save(folder / "m.safetensors", values)
    return read_files(folder)


@pytest.mark.parametrize("name", ["m.aero", "m.safetensors"])
def test_a_single_file_goes_on_too(single, tmp_path, monkeypatch, name):
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    with range_server({f"/{name}": single[name]}) as store:

        def fail(path, start, stop):
            return "503" if start >= 50_000_000 and not is_tail(store, path, start) else None

        target = tmp_path / f"copy{Path(name).suffix}"
        for change in ("nothing", "etag", "disk"):
            store.fault = fail
            with pytest.raises(RemoteError, match="503"):
                holdall.convert(f"{store.url}/{name}", target)
            assert not target.exists()
            unfinished = left(tmp_path)[0] / "content"
            there = unfinished.stat().st_size
            assert 20_000_000 < there <= 52_000_000
            store.fault = lambda path, start, stop: None
            store.log.clear()
            if change == "etag":
                store.tags[f"/{name}"] = '"another"'
            elif change == "disk" and name == "m.aero":
                data = bytearray(unfinished.read_bytes())
                data[9_000_000] ^= 1
                unfinished.write_bytes(data)
                with pytest.raises(HashError):
                    holdall.convert(f"{store.url}/{name}", target)
                assert left(tmp_path) == [], "nothing of it can be used"
            report = holdall.convert(f"{store.url}/{name}", target)
            assert target.read_bytes() == single[name]
            (tmp_path / "other").touch()
            assert target.stat().st_mode == (tmp_path / "other").stat().st_mode
            assert left(tmp_path) == [] and "copied as it is" in report.changes[-1]
            if change == "nothing":  # it went on there, at the most a tensor before, whose hash needs all of it
                asked = [int(range.removeprefix("bytes=").partition("-")[0]) for _, _, range in store.log.requests]
                assert min(start for start in asked if start) >= there - 8_000_000
            target.unlink()


def test_a_file_without_an_etag_begins_again(single, tmp_path, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    with range_server({"/m.safetensors": single["m.safetensors"]}) as store:
        store.tagged = False
        store.fault = lambda path, start, stop: (
            "503" if start >= 50_000_000 and not is_tail(store, path, start) else None
        )
        with pytest.raises(RemoteError, match="503"):
            holdall.convert(f"{store.url}/m.safetensors", tmp_path / "copy.safetensors")
        assert list(tmp_path.iterdir()) == []


def test_a_local_set_is_copied_as_it_is_too(made, tmp_path):
    folder = tmp_path / "set"
    folder.mkdir()
    for name, data in made.items():
        (folder / name).write_bytes(data)
    report = holdall.convert(folder, tmp_path / "copy", format="aeroset")
    assert read_files(tmp_path / "copy") == made and report.checked
    (folder / "part-002.aero").write_bytes(made["part-002.aero"][:-1] + b"x")
    with pytest.raises(HashError):
        holdall.convert(folder, tmp_path / "other", format="aeroset")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "set"]
