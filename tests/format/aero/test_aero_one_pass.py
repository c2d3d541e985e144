"""Verifying reads each byte once, however many hashes cover it, and no weight at level structure."""

from __future__ import annotations

import os

import numpy as np
import pytest

import holdall
from holdall.base import platform

MIB = 1 << 20
EVERY_HASH = {"tensor_hash": True, "page_hash": MIB + 4096, "control_hash": True}  # pages end inside tensors
KINDS = {
    "aero": ("aero", {**EVERY_HASH, "max_shard_bytes": 12 * MIB}),
    "aero without hashes": ("aero", {}),
    "aeroset": ("aeroset", {**EVERY_HASH, "max_shard_bytes": 12 * MIB, "part_shards": 1}),
    "aeroset of large parts": ("aeroset", EVERY_HASH),
}


@pytest.fixture
def reads(monkeypatch):
    """What is read from files: the number of each file, and the first byte and the one after the last."""
    found = []
    original = platform.read_at

    def read_at(fd, buffer, offset):
        count = original(fd, buffer, offset)
        found.append((os.fstat(fd).st_ino, offset, offset + count))
        return count

    monkeypatch.setattr(platform, "read_at", read_at)
    return found


@pytest.fixture(params=KINDS)
def path(request, tmp_path):
    format, options = KINDS[request.param]
    rng = np.random.default_rng(3)
    values = {f"t{number}": rng.standard_normal((MIB, 1), np.float32) for number in range(6)}  # 4 MiB each
    values |= {f"small{number}": rng.standard_normal(100, np.float32) for number in range(20)}
    holdall.save(tmp_path / f"x.{format}", values, format=format, fsync=False, **options)
    return tmp_path / f"x.{format}"


def files_of(path):
    return [path] if path.is_file() else sorted(path.iterdir())


def total(reads):
    return sum(stop - start for _, start, stop in reads)


@pytest.mark.parametrize("level", ["full", "strict"])
def test_all_hashes_take_one_pass(path, level, reads):
    size = sum(file.stat().st_size for file in files_of(path))
    assert holdall.verify(path, level=level).ok
    assert 24 * MIB <= total(reads) <= 1.05 * size


def test_one_pass_finds_what_each_hash_covers(path, reads):
    damaged = max(files_of(path), key=lambda file: file.stat().st_size)
    with holdall.open(damaged, format="aero") as model:
        name, place = next((tensor.name, tensor.offset) for tensor in model.tensors if tensor.nbytes > MIB)
    data = bytearray(damaged.read_bytes())
    data[place + 3 * MIB] ^= 1
    damaged.write_bytes(data)
    size = sum(file.stat().st_size for file in files_of(path))
    reads.clear()
    report = holdall.verify(path)
    assert total(reads) <= 1.05 * size
    errors = {each.rule: each.message for each in report.findings if each.severity == "error"}
    expected = {"aero.shard.blake3"}
    if "aero.hash_b3.absent" not in {each.rule for each in report.findings}:
        expected |= {"aero.page.blake3", "aero.tensor.blake3"}
        assert repr(name) in errors["aero.page.blake3"] and repr(name) in errors["aero.tensor.blake3"]
    if path.is_dir():
        expected.add("aeroset.sha256")
        assert repr(damaged.name) in errors["aeroset.sha256"]
    assert set(errors) == expected


def test_level_structure_reads_no_weight(path, reads):
    """It is the reference's ``validate --control``, and more: it reads every chunk that is not a payload."""
    assert holdall.verify(path, level="structure").ok
    touched = list(reads)
    chunks, stored = 0, {}
    for file in files_of(path):
        if file.suffix == ".aero":
            with holdall.open(file, format="aero") as model:
                for chunk in model.native.chunks:
                    if chunk.fourcc in ("WTSH", "PHSH"):
                        stored.setdefault(file.stat().st_ino, []).append((chunk.offset, chunk.offset + chunk.length))
                    chunks += 0 if chunk.fourcc in ("WTSH", "PHSH") else chunk.length
    ends = {file.stat().st_ino: file.stat().st_size for file in files_of(path)}
    # The end of a file is looked at for a second format.
    touched = [(file, start, stop) for file, start, stop in touched if stop < ends[file] or stop - start > 1 << 17]
    for file, start, stop in touched:
        assert not any(start < high and low < stop for low, high in stored.get(file, [])), (start, stop)
    assert total(touched) <= chunks + 8192 * len(files_of(path))  # the control regions, and what chooses the format
    assert sum(high - low for ranges in stored.values() for low, high in ranges) > 24 * MIB


def test_level_structure_finds_a_changed_control_region(tmp_path):
    holdall.save(tmp_path / "x.aero", {"w": np.ones(4, np.float32)}, control_hash=True)
    data = bytearray((tmp_path / "x.aero").read_bytes())
    data[52] ^= 1  # the first byte of the UUID, which only IHSH covers
    report = holdall.verify(bytes(data), level="structure")
    assert [each.rule for each in report.findings] == ["aero.ihsh"]
    assert "header, TOC or string table were changed" in report.findings[0].message
