"""No other user can open a file before it is complete; then its permissions are those that a plain open gives."""

from __future__ import annotations

import errno
import os
import signal
import stat
import struct
import subprocess
import sys
import threading
from contextlib import contextmanager

import numpy as np
import pytest

import holdall
from holdall.base import platform
from holdall.model.payload import Computed
from holdall.sink import write_file, write_folder
from holdall.sink.plan import FolderPlan, Plan

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="permissions of POSIX")

MASKS = [0o022, 0o027, 0o077, 0o002, 0]


@contextmanager
def umask(mask):
    held = os.umask(mask)
    try:
        yield
    finally:
        os.umask(held)


def mode(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


def tree(folder):
    """The permissions of all that is in a folder, by relative path."""
    return {str(path.relative_to(folder)): mode(path) for path in sorted(folder.rglob("*"))}


def watched(folder, seen, size=5 << 20):
    """A payload beyond every buffer that looks at the folder while it is written."""

    def make():
        for _ in range(size >> 20):
            seen.append(tree(folder))
            yield memoryview(bytes(1 << 20))

    return Computed(size, make)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("resumable", [False, True], ids=["file", "download"])
def test_a_file_is_private_until_it_is_complete(tmp_path, mask, resumable):
    seen, plan = [], Plan()
    plan.put(b"head")
    plan.stream(watched(tmp_path, seen))
    if resumable:
        plan.identify = lambda: "the same source"
    with umask(mask):
        write_file(tmp_path / "new", plan, approve=lambda part, _: seen.append({"approved": mode(part)}))
        (tmp_path / "plain").touch()
    assert len(seen) == 6 and all(seen)
    for found in seen:
        parts = {name: bits for name, bits in found.items() if "notes" not in name}
        assert set(parts.values()) <= {0o600, 0o700}
    assert mode(tmp_path / "new") == mode(tmp_path / "plain") == 0o666 & ~mask


@pytest.mark.parametrize("mask", MASKS)
def test_a_folder_is_private_until_it_is_complete(tmp_path, mask):
    seen, plan = [], FolderPlan()
    for name in ("a.bin", "sub/deep/b.bin", "c.bin"):
        file = Plan()
        file.stream(watched(tmp_path, seen))
        plan.files[name] = file
    with umask(mask):
        write_folder(tmp_path / "new", plan)
        (tmp_path / "plain" / "sub" / "deep").mkdir(parents=True)
        for name in ("a.bin", "sub/deep/b.bin", "c.bin"):
            (tmp_path / "plain" / name).touch()
    assert seen
    for found in seen:
        assert found[".new.0.holdall.part"] == 0o700
    assert tree(tmp_path / "new") == tree(tmp_path / "plain")
    assert mode(tmp_path / "new") == mode(tmp_path / "plain") == 0o777 & ~mask


@pytest.mark.parametrize("old", [0o600, 0o640, 0o644, 0o666, 0o755])
@pytest.mark.parametrize("resumable", [False, True], ids=["file", "download"])
def test_a_replaced_file_leaves_its_permissions_to_the_new_one(tmp_path, old, resumable):
    seen, plan = [], Plan()
    plan.stream(watched(tmp_path, seen))
    if resumable:
        plan.identify = lambda: "the same source"
    (tmp_path / "x").write_bytes(b"old")
    (tmp_path / "x").chmod(old)
    with umask(0o027):
        write_file(tmp_path / "x", plan)
    bits = {each for found in seen for name, each in found.items() if "part" in name and "notes" not in name}
    assert bits and bits <= {0o600, 0o700}
    assert mode(tmp_path / "x") == old


@pytest.mark.parametrize("name", ["m.safetensors", "m.gguf", "m.npz", "m.oinf", "m.aero"])
def test_formats_give_the_permissions_of_a_new_file(tmp_path, name):
    with umask(0o027):
        holdall.save(tmp_path / name, {"w": np.zeros(3, np.float32)})
    assert mode(tmp_path / name) == 0o640


def test_every_creation_of_a_write_asks_for_no_more_than_its_owner(tmp_path):
    """By audit events: the mode is that of the call which makes the file, not one that is set after it."""
    code = f"""
import os, sys, numpy as np
made = []
def watch(event, given):
    if event == "os.mkdir" and ".part" in os.fspath(given[0]):
        made.append(given[1])
plain = os.open
def opens(path, flags, mode=0o777, **more):
    if flags & os.O_CREAT and ".part" in os.fspath(path):
        made.append(mode)
    return plain(path, flags, mode, **more)
sys.addaudithook(watch)
os.open = opens
os.umask(0)
import holdall
holdall.save({str(tmp_path / "m.safetensors")!r}, {{"w": np.zeros(3, np.float32)}})
holdall.convert({str(tmp_path / "m.safetensors")!r}, {str(tmp_path / "h")!r}, format="hf")
print(sorted(set(map(oct, made))), len(made))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    made, count = done.stdout.rsplit(" ", 1)
    assert made == "['0o600', '0o700']" and int(count) >= 3, done.stdout


@pytest.mark.parametrize("kind", ["file", "folder", "download"])
def test_a_killed_write_leaves_private_parts(tmp_path, kind):
    code = f"""
import os, sys, time
from holdall.model.payload import Computed
from holdall.sink import write_file, write_folder
from holdall.sink.plan import FolderPlan, Plan
os.umask(0)
def make():
    yield memoryview(bytes(8 << 20))
    print("writing", flush=True)
    time.sleep(60)
    yield memoryview(bytes(8 << 20))
plan = Plan()
plan.stream(Computed(16 << 20, make))
if {kind!r} == "folder":
    write_folder({str(tmp_path / "x")!r}, FolderPlan({{"a.bin": plan}}))
else:
    if {kind!r} == "download":
        plan.identify = lambda: "source"
    write_file({str(tmp_path / "x")!r}, plan)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        assert child.stdout.readline() == b"writing\n"
        child.send_signal(signal.SIGKILL)
    (outer,) = tmp_path.iterdir()
    assert outer.name == ".x.0.holdall.part"
    assert mode(outer) == (0o600 if kind == "file" else 0o700)
    content = {"file": outer, "folder": outer / "a.bin", "download": outer / "content"}[kind]
    assert content.stat().st_size >= 4 << 20
    assert mode(content) == 0o600


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS])
def test_a_file_system_without_permissions_is_written_to(tmp_path, monkeypatch, number):
    calls = []

    def refuse(fd, bits):
        calls.append(bits)
        raise OSError(number, os.strerror(number))

    plan = Plan()
    plan.put(b"new")
    with umask(0o022):
        monkeypatch.setattr(os, "fchmod", refuse)
        write_file(tmp_path / "x", plan)
        write_folder(tmp_path / "f", FolderPlan({"a": plan}))
    assert (tmp_path / "x").read_bytes() == (tmp_path / "f" / "a").read_bytes() == b"new"
    assert calls == [0o644, 0o644, 0o755]


def test_another_failure_keeps_the_old_file(tmp_path, monkeypatch):
    def fail(fd, bits):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    plan = Plan()
    plan.put(b"new")
    (tmp_path / "x").write_bytes(b"old")
    (tmp_path / "x").chmod(0o644)
    monkeypatch.setattr(os, "fchmod", fail)
    with pytest.raises(OSError, match="x") as caught:
        write_file(tmp_path / "x", plan)
    assert caught.value.filename == str(tmp_path / "x")
    with pytest.raises(OSError, match="f"):
        write_folder(tmp_path / "f", FolderPlan({"a": plan}))
    assert (tmp_path / "x").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["x"]


def test_a_folder_that_gives_its_group_goes_on_giving_it(tmp_path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o2775)
    plan = Plan()
    plan.put(b"new")
    with umask(0o002):
        write_folder(tmp_path / "shared" / "new", FolderPlan({"sub/a": plan}))
        (tmp_path / "shared" / "plain").mkdir()
    assert mode(tmp_path / "shared" / "new") == mode(tmp_path / "shared" / "plain")
    assert mode(tmp_path / "shared" / "new") & 0o777 == 0o775


def access_list(entries):
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


NONE = 0xFFFF_FFFF
LISTS = {
    "plain": [(1, 7, NONE), (4, 5, NONE), (32, 0, NONE)],
    "named user": [(1, 7, NONE), (2, 7, 1000), (4, 5, NONE), (16, 7, NONE), (32, 4, NONE)],
    "narrow mask": [(1, 6, NONE), (2, 7, 1000), (4, 7, NONE), (16, 4, NONE), (32, 5, NONE)],
}


@pytest.mark.parametrize("entries", LISTS.values(), ids=list(LISTS))
@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="access lists of Linux")
def test_the_default_access_list_of_a_folder_counts(tmp_path, entries):
    parent = tmp_path / "shared"
    parent.mkdir()
    try:
        os.setxattr(parent, "system.posix_acl_default", access_list(entries))
    except OSError as error:
        pytest.skip(f"this file system has no access lists: {error}")
    plan = Plan()
    plan.put(b"new")
    with umask(0o077):
        write_file(parent / "new", plan)
        write_folder(parent / "new folder", FolderPlan({"a": plan}))
        (parent / "plain").touch()
        (parent / "plain folder").mkdir()
        (parent / "plain folder" / "a").touch()
    for name in ("", " folder", " folder/a"):
        new, plain = parent / f"new{name}", parent / f"plain{name}"
        assert mode(new) == mode(plain)
        for kind in ("system.posix_acl_access", "system.posix_acl_default"):
            assert read_list(new, kind) == read_list(plain, kind)


def read_list(path, kind):
    try:
        return os.getxattr(path, kind)
    except OSError:
        return None


@pytest.mark.parametrize("mask", MASKS)
def test_the_umask_is_known_without_proc(tmp_path, mask, monkeypatch):
    """As on macOS, where only changing it tells it: no thread sees a wider one, and it is what it was after it."""
    monkeypatch.setattr("holdall.base.platform.posix.read_umask", lambda: None)
    found = []

    def ask():
        found.extend(platform.new_mode(tmp_path) for _ in range(200))

    with umask(mask):
        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        after = os.umask(mask)
    assert after == mask
    assert set(found) == {0o666 & ~mask} and len(found) == 800
