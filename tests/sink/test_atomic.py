"""Whatever happens, a path holds the old file or the new one, and nothing is left lying about."""

import errno
import os
import stat
import subprocess
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import holdall
from holdall.errors import FormatError, UnsupportedError
from holdall.model.payload import Computed, SourceRange
from holdall.sink import destination, write_file, write_folder
from holdall.sink.plan import FolderPlan, Plan
from holdall.source import CHUNK, FileSource


def failing(error, size=3 * CHUNK):
    def make():
        yield bytes(CHUNK)
        raise error

    plan = Plan()
    plan.put(b"new")
    plan.stream(Computed(size, make))
    return plan


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), MemoryError(), SystemExit(3)])
@pytest.mark.parametrize("size", [100, 3 * CHUNK])
def test_an_error_leaves_the_old_file_and_no_part(tmp_path, error, size):
    path = tmp_path / "m"
    path.write_bytes(b"old")
    with pytest.raises(type(error)):
        write_file(path, failing(error, size))
    assert os.listdir(tmp_path) == ["m"]
    assert path.read_bytes() == b"old"
    with pytest.raises(type(error)):
        write_folder(tmp_path / "set", FolderPlan({"one": failing(error, size)}))
    assert os.listdir(tmp_path) == ["m"]


def test_a_full_disk_is_said_before_anything_is_written(tmp_path, monkeypatch):
    usage = SimpleNamespace(total=100, free=10)
    monkeypatch.setattr(destination.shutil, "disk_usage", lambda folder: usage)
    plan = Plan()
    plan.put(bytes(11))
    plan.tail("t", (), lambda results: b"")
    with pytest.raises(OSError, match="11 bytes are needed and 10 are free") as caught:
        write_file(tmp_path / "m", plan)
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.filename == str(tmp_path / "m")
    with pytest.raises(OSError, match="are needed") as caught:
        write_folder(tmp_path / "set", FolderPlan({"a": plan}))
    assert caught.value.filename == str(tmp_path / "set")
    assert os.listdir(tmp_path) == []


def test_a_folder_that_is_not_there_is_an_error_of_the_destination(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError) as caught:
        write_file("no/m", failing(AssertionError("never reached")))
    assert caught.value.filename == "no/m"


def test_in_a_working_folder_that_was_removed_the_error_has_the_name_of_the_destination(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(FileNotFoundError) as caught:
        write_file("m", failing(AssertionError("never reached")))
    assert caught.value.filename == "m"
    with pytest.raises(FileNotFoundError) as caught:
        write_folder("set", FolderPlan({"a": failing(AssertionError("never reached"))}))
    assert caught.value.filename == "set"


@pytest.mark.parametrize("kind", [["ramfs"], ["tmpfs", "-o", "size=0"]])
def test_a_file_system_without_a_size_of_its_own_has_room(tmp_path, kind):
    endless = tmp_path / "endless"
    endless.mkdir()
    if subprocess.run(["mount", "-t", *kind, "none", str(endless)], capture_output=True).returncode:
        pytest.skip("only root mounts")
    data = np.random.default_rng(0).bytes((5 << 20) + 3)
    plan = Plan()
    plan.put(data)
    try:
        write_file(endless / "m", plan)
        write_folder(endless / "set", FolderPlan({"a": plan}))
        assert (endless / "m").read_bytes() == (endless / "set/a").read_bytes() == data
    finally:
        subprocess.run(["umount", str(endless)], check=True)


def test_a_disk_that_fills_up_on_the_way(tmp_path, monkeypatch):
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root mounts")
    try:
        monkeypatch.setattr("holdall.sink.file.check_space", lambda target, name, size: None)
        (small / "m").write_bytes(b"old")
        with pytest.raises(OSError) as caught:
            write_file(small / "m", failing(AssertionError("never reached")))
        assert caught.value.errno == errno.ENOSPC
        assert os.listdir(small) == ["m"]
        assert (small / "m").read_bytes() == b"old"
    finally:
        subprocess.run(["umount", str(small)], check=True)


@pytest.mark.parametrize(
    "name",
    ["a" + "模型" * 40, "é" * 120, "aé" * 80, "ab🙂" * 40, "x" * 250, "m" + "\udcff" * 230],
    ids=["three bytes", "two bytes", "mixed", "four bytes", "one byte", "not UTF-8"],
)
def test_a_long_name_is_cut_between_its_characters(tmp_path, name):
    parts = []
    plan = Plan()
    plan.put(b"new")
    write_file(tmp_path / name, plan, approve=lambda part, results: parts.append(part.name))
    assert (tmp_path / name).read_bytes() == b"new"
    shown = parts[0].removesuffix(".0.holdall.part").removeprefix(".")
    assert name.startswith(shown)
    assert 197 <= len(os.fsencode(shown)) <= 200
    assert len(os.fsencode(parts[0] + ".lock")) <= 255, "Windows puts a lock beside it"
    assert os.listdir(tmp_path) == [name]


def test_permissions_stay_and_new_files_follow_the_mask(tmp_path):
    plan = Plan()
    plan.put(b"new")
    (tmp_path / "old").write_bytes(b"old")
    (tmp_path / "old").chmod(0o640)
    mask = os.umask(0o027)
    try:
        write_file(tmp_path / "old", plan)
        write_file(tmp_path / "new", plan)
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "old").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640


def test_a_link_keeps_pointing(tmp_path):
    plan = Plan()
    plan.put(b"new")
    (tmp_path / "deep").mkdir()
    (tmp_path / "link").symlink_to("deep/file")
    write_file(tmp_path / "link", plan)
    write_file(tmp_path / "link", plan)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "deep/file").read_bytes() == b"new"
    assert os.listdir(tmp_path / "deep") == ["file"]


def test_folders_pipes_and_devices_are_not_replaced(tmp_path):
    plan = Plan()
    plan.put(b"new")
    with pytest.raises(IsADirectoryError):
        write_file(tmp_path, plan)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "null").symlink_to("/dev/null")
    for name in ("pipe", "null"):
        with pytest.raises(UnsupportedError, match="regular"):
            write_file(tmp_path / name, plan)
    assert Path("/dev/null").is_char_device()
    with pytest.raises(FileNotFoundError):
        write_file(tmp_path / "nowhere/m", plan)


def test_folders_take_new_or_empty_names_only(tmp_path):
    plan = Plan()
    plan.put(b"new")
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full/x").touch()
    (tmp_path / "file").touch()
    write_folder(tmp_path / "empty", FolderPlan({"a": plan}))
    assert (tmp_path / "empty/a").read_bytes() == b"new"
    for name in ("full", "file"):
        with pytest.raises(FileExistsError):
            write_folder(tmp_path / name, FolderPlan({"a": plan}))
    assert sorted(os.listdir(tmp_path)) == ["empty", "file", "full"]


@pytest.mark.parametrize("tail", [False, True])
def test_progress_never_goes_back(tmp_path, tail):
    plan = Plan()
    plan.put(b"head")
    plan.stream(Computed(2 * CHUNK + 5, lambda: [bytes(CHUNK), bytes(CHUNK), bytes(5)]))
    plan.late("late", 4, (), lambda results: b"late")
    if tail:
        plan.tail("tail", (), lambda results: b"tail")
    for write in (write_file, lambda p, x, **o: write_folder(p.with_suffix(".d"), FolderPlan({"a": x, "b": x}), **o)):
        steps = []
        write(tmp_path / "m", plan, progress=lambda done, total, steps=steps: steps.append((done, total)))
        done = [step[0] for step in steps]
        assert done == sorted(done)
        assert done[-1] >= plan.cursor
        totals = {total for _, total in steps}
        assert len(totals) == 1
        assert totals == {None} if tail else done[-1] in totals


@pytest.fixture
def original(tmp_path):
    data = np.random.default_rng(0).bytes(3 * CHUNK + 7)
    (tmp_path / "in").write_bytes(data)
    return data


@pytest.mark.parametrize("code", [errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM])
def test_copies_in_the_kernel_fall_back(tmp_path, original, monkeypatch, code):
    calls = []

    def refuse(*arguments):
        calls.append(arguments)
        raise OSError(code, "cannot")

    monkeypatch.setattr(os, "copy_file_range", refuse)
    plan = Plan()
    plan.put(b"abc")
    plan.stream(SourceRange(FileSource(tmp_path / "in"), 3, len(original) - 3))
    write_file(tmp_path / "out", plan)
    assert calls
    assert (tmp_path / "out").read_bytes() == b"abc" + original[3:]


def test_copies_in_the_kernel_copy(tmp_path, original, monkeypatch):
    moved = []
    plain = os.copy_file_range

    def count(*arguments):
        moved.append(plain(*arguments))
        return moved[-1]

    monkeypatch.setattr(os, "copy_file_range", count)
    plan = Plan()
    plan.put(b"abc")
    plan.stream(SourceRange(FileSource(tmp_path / "in"), 3, len(original) - 3))
    write_file(tmp_path / "out", plan)
    assert (tmp_path / "out").read_bytes() == b"abc" + original[3:]
    if sum(moved) == 0:
        pytest.skip("this file system does not copy in the kernel")
    assert sum(moved) == len(original) - 3


def test_ranges_that_lie_otherwise_in_their_pages_are_copied_too(tmp_path, original, monkeypatch):
    monkeypatch.setattr(os, "copy_file_range", lambda *arguments: pytest.fail("slow in the kernel"))
    plan = Plan()
    plan.put(b"abc")
    plan.stream(SourceRange(FileSource(tmp_path / "in"), 1, len(original) - 1))
    write_file(tmp_path / "out", plan)
    assert (tmp_path / "out").read_bytes() == b"abc" + original[1:]


def test_a_source_cut_while_it_is_copied(tmp_path, original):
    for tapped in (False, True):
        (tmp_path / "in").write_bytes(original)
        source = FileSource(tmp_path / "in")
        os.truncate(tmp_path / "in", CHUNK)
        plan = Plan()
        plan.stream(SourceRange(source, 0, len(original)))
        if tapped:
            plan.tap("sum", "crc32", 0, None)
        with pytest.raises(FormatError, match="cut while open"):
            write_file(tmp_path / "out", plan)
        assert os.listdir(tmp_path) == ["in"]


def test_a_model_can_be_saved_over_the_file_it_comes_from(tmp_path):
    path = tmp_path / "m.oinf"
    holdall.save(path, {"w": np.arange(1 << 20, dtype=np.float32), "v": np.ones(3, np.int8)})
    before = path.read_bytes()
    with holdall.open(path) as model:
        view = model["w"].numpy()
        holdall.save(path, model)
        assert view[12345] == 12345
    assert path.read_bytes() == before


@pytest.mark.parametrize("advice", ["taken", "refused"])
def test_the_disk_starts_while_a_synced_file_is_written(tmp_path, monkeypatch, advice):
    data = os.urandom(CHUNK)
    plan = Plan()
    plan.stream(Computed(9 * CHUNK, lambda: iter([data] * 9)))
    given = []

    def advise(fd, start, size, what):
        given.append((start, size))
        if advice == "refused":
            raise OSError(errno.EINVAL, "no")

    monkeypatch.setattr(os, "posix_fadvise", advise)
    write_file(tmp_path / "m", plan, fsync=True)
    assert given
    assert given[0][0] == 0
    assert all(start + size == after for (start, size), (after, _) in pairwise(given))
    assert (tmp_path / "m").read_bytes() == 9 * data
    given.clear()
    write_file(tmp_path / "m", plan, fsync=False)
    assert not given


def test_a_read_only_file_is_not_replaced(tmp_path, monkeypatch):
    path = tmp_path / "kept.oinf"
    holdall.save(path, {"w": np.ones(2, np.float32)})
    before = path.read_bytes()
    monkeypatch.setattr(os, "access", lambda where, mode: False)  # root may write everywhere
    with pytest.raises(PermissionError, match="is read-only"):
        holdall.save(path, {"w": np.zeros(2, np.float32)})
    assert path.read_bytes() == before
