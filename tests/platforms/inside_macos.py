"""What holds on macOS only; run by tests/platforms/reduced.py."""

import numpy as np

from holdall.base import platform
from holdall.base.platform import macos, posix
from holdall.model.payload import SourceRange
from holdall.sink import write_file
from holdall.sink.plan import Plan
from holdall.source import FileSource
from tests.platforms.reduced import full_syncs


def plan_of(data):
    plan = Plan()
    plan.put(data)
    return plan


def test_the_platform_is_macos():
    assert platform.read_at is macos.read_at
    inside = {"default_access", "limit_memory", "read_umask", "rename_exclusively"}  # the platform alone uses them
    assert set(platform.__all__) | inside == {*posix.__all__, *macos.__all__, "new_memory"}
    assert not hasattr(macos.os, "preadv")
    assert not hasattr(macos.os, "copy_file_range")


def test_a_synced_file_is_synced_in_full(tmp_path):
    full_syncs.clear()
    write_file(tmp_path / "m", plan_of(b"new"), fsync=False)
    assert not full_syncs
    write_file(tmp_path / "m", plan_of(b"new"), fsync=True)
    assert len(full_syncs) == 1


def test_ranges_are_copied_without_the_kernel(tmp_path):
    data = np.random.default_rng(0).bytes((9 << 20) + 7)
    (tmp_path / "in").write_bytes(data)
    plan = Plan()
    plan.put(b"abc")
    plan.stream(SourceRange(FileSource(tmp_path / "in"), 3, len(data) - 3))
    write_file(tmp_path / "out", plan)
    assert (tmp_path / "out").read_bytes() == b"abc" + data[3:]


def test_memory_is_counted_in_bytes_and_cores_are_counted():
    block = np.ones(32 << 20, np.uint8)
    assert platform.core_count() >= 1
    assert block.nbytes < platform.resident_memory() * 1024  # Linux counts ru_maxrss in KiB, macOS in bytes
