"""What holds on Windows only; run by tests/platforms/reduced.py."""

import errno
import ntpath
import os
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import holdall
from holdall.base import platform
from holdall.base.platform import windows
from holdall.errors import ContentError, FormatError
from holdall.sink import write_file, write_folder
from holdall.sink.plan import FolderPlan, Plan
from holdall.source import FileSource, FolderSource
from holdall.source.descriptors import release_files
from tests.platforms import reduced


def plan_of(data):
    plan = Plan()
    plan.put(data)
    return plan


def test_the_platform_is_windows():
    assert platform.read_at is windows.read_at
    assert sorted([*windows.__all__, "new_memory"]) == sorted(platform.__all__)
    assert not hasattr(windows.os, "preadv")


def test_positions_are_not_mixed_up_between_threads(tmp_path):
    data = np.random.default_rng(0).bytes(5 << 20)
    step = 64 << 10
    offsets = range(0, len(data), step)
    fd = platform.open_new(tmp_path / "file")
    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda at: platform.write_at(fd, memoryview(data)[at : at + step], at), offsets))

            def read(at):
                buffer = bytearray(step)
                assert platform.read_at(fd, memoryview(buffer), at) == step
                return bytes(buffer)

            assert b"".join(pool.map(read, offsets)) == data
        assert platform.read_at(fd, memoryview(bytearray(9)), len(data)) == 0
    finally:
        os.close(fd)
    assert (tmp_path / "file").read_bytes() == data


@pytest.mark.parametrize("clobber", [True, False])
def test_a_file_that_stays_open_elsewhere_is_not_replaced(tmp_path, monkeypatch, clobber):
    def blocked(*arguments):
        raise PermissionError(errno.EACCES, "being used by another process")

    waits = []
    (tmp_path / "m").write_bytes(b"old") if clobber else None
    monkeypatch.setattr(os, "replace" if clobber else "rename", blocked)
    monkeypatch.setattr(time, "sleep", waits.append)
    with pytest.raises(PermissionError, match="another program, or an array of this one, has the file open") as caught:
        write_file(tmp_path / "m", plan_of(b"new"), clobber=clobber)
    assert caught.value.filename == str(tmp_path / "m")
    assert waits == sorted(waits)
    assert 1 < sum(waits) < 3
    assert os.listdir(tmp_path) == (["m"] if clobber else [])
    assert not clobber or (tmp_path / "m").read_bytes() == b"old"


def test_a_file_that_is_soon_closed_is_replaced(tmp_path):
    (tmp_path / "m").write_bytes(b"old")
    reader = (tmp_path / "m").open("rb")
    timer = threading.Timer(0.2, reader.close)
    timer.start()
    write_file(tmp_path / "m", plan_of(b"new"))
    timer.join()
    assert (tmp_path / "m").read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["m"]


def test_an_array_of_the_file_blocks_and_without_it_the_file_is_replaced(tmp_path):
    path = tmp_path / "m.oinf"
    holdall.save(path, {"w": np.arange(1 << 20, dtype=np.float32)})
    before = path.read_bytes()
    with holdall.open(path) as model:
        view = model["w"].numpy()
        with pytest.raises(PermissionError, match="has the file open"):
            holdall.save(path, model)
        assert view[12345] == 12345
        assert path.read_bytes() == before
        del view
        holdall.save(path, model)
        assert path.read_bytes() == before
        with pytest.raises(FormatError, match="another file has taken its place"):
            model["w"].numpy()
    assert os.listdir(tmp_path) == ["m.oinf"]


@pytest.mark.parametrize("mapped", [False, True])
def test_maps_that_a_save_closes_do_not_disturb_readers_of_other_files(tmp_path, mapped):
    """At each line of a read in turn, another thread saves a file, which closes the maps that no array uses."""
    data = np.random.default_rng(0).bytes(5 << 20)
    (tmp_path / "read").write_bytes(data)
    reached = 0

    def read(stop):
        nonlocal reached
        source, reached = FileSource(tmp_path / "read"), 0
        if mapped:
            assert source.view(1, 1) == data[1:2]

        def trace(frame, event, argument):
            nonlocal reached
            reached += event == "line"
            if event == "line" and reached == stop:
                release_files()
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            found = source.view(3, (4 << 20) + 1)
        finally:
            sys.settrace(before)
        assert found == data[3 : (4 << 20) + 4]
        source.close()

    read(0)
    lines = reached
    assert lines > 10
    for stop in range(1, lines + 1):
        read(stop)


def test_the_lock_of_a_living_writer_stays_and_that_of_a_dead_one_goes(tmp_path):
    part = tmp_path / ".m.0.holdall.part"
    with pytest.raises(FileNotFoundError):
        platform.lock_part(part)
    part.write_bytes(b"half")
    held = platform.lock_part(part)
    assert held is not None
    assert platform.lock_part(part) is None
    write_file(tmp_path / "m", plan_of(b"new"))
    assert part.read_bytes() == b"half"
    held.close()
    (tmp_path / ".m.0.holdall.part.lock").touch()  # what a writer leaves that is killed
    write_file(tmp_path / "m", plan_of(b"newer"))
    assert os.listdir(tmp_path) == ["m"]
    assert (tmp_path / "m").read_bytes() == b"newer"


def test_folders_get_their_names(tmp_path):
    (tmp_path / "set").mkdir()
    write_folder(tmp_path / "set", FolderPlan({"a": plan_of(b"new"), "deep/b": plan_of(b"b")}))
    assert (tmp_path / "set/deep/b").read_bytes() == b"b"
    with pytest.raises(FileExistsError):
        write_folder(tmp_path / "set", FolderPlan({"a": plan_of(b"newer")}))
    assert os.listdir(tmp_path) == ["set"]


@pytest.mark.parametrize("name", ["con", "NUL.bin", "com1.x", "a:b", "w.", "w ", "deep/aux", "LPT¹"])
def test_names_that_mean_something_else_are_refused(tmp_path, name):
    (tmp_path / "in/deep").mkdir(parents=True)
    (tmp_path / "in" / name).write_bytes(b"device")
    with pytest.raises(FormatError, match="plain"):
        FolderSource(tmp_path / "in").sibling(name)
    with pytest.raises(ContentError, match="is not the name of a plain file on this system"):
        write_folder(tmp_path / "out", FolderPlan({name: plan_of(b"x")}))
    assert os.listdir(tmp_path) == ["in"]


@pytest.mark.parametrize("name", ["con.oinf", "x.oinf.", "x.oinf ", "x:y.oinf", "NUL", "lpt1.safetensors"])
def test_destinations_that_mean_something_else_are_refused(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    for path in (name, tmp_path / name):
        for form in ("oinf", "hf"):
            with pytest.raises(ContentError, match="is not the name of a plain file on this system") as caught:
                holdall.save(path, {"w": np.ones(3, np.float32)}, format=form)
            assert repr(os.fspath(path)) in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_folders_on_the_way_to_a_destination_are_not_asked_about(tmp_path, monkeypatch):
    """Drives have a colon, and what exists can be written into."""
    (tmp_path / "c:/set").mkdir(parents=True)
    write_file(tmp_path / "c:/m", plan_of(b"new"))
    monkeypatch.chdir(tmp_path / "c:/set")
    write_folder("../../c:/other", FolderPlan({"a": plan_of(b"new")}))
    assert sorted(os.listdir(tmp_path / "c:")) == ["m", "other", "set"]
    write_folder(".", FolderPlan({"a": plan_of(b"new")}))
    assert (tmp_path / "c:/set/a").read_bytes() == b"new"


def test_the_simulation_opens_no_file_that_is_being_removed(tmp_path, monkeypatch):
    path = tmp_path / "m"
    path.write_bytes(b"old")
    look, opened = reduced.is_open, []

    def open_it():
        try:
            opened.append(os.close(platform.open_to_read(path)))
        except FileNotFoundError as error:
            opened.append(error.filename)

    thread = threading.Thread(target=open_it)

    def look_slowly(name):
        found = look(name)
        thread.start()
        thread.join(0.3)  # all that time the file is about to be removed
        return found

    monkeypatch.setattr(reduced, "is_open", look_slowly)
    windows.os.unlink(path)
    thread.join()
    assert opened == [str(path)]


def test_threads_that_save_one_name_do_not_disturb_each_other(tmp_path):
    def save(value):
        for _ in range(6):
            holdall.save(tmp_path / "m.oinf", {"w": np.full(5000, value, np.float32)}, fsync=False)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(save, range(4)))
    assert len(set(holdall.open(tmp_path / "m.oinf")["w"].numpy())) == 1
    save(9)  # a part that a writer could not remove while another looked at it goes with the next write
    assert os.listdir(tmp_path) == ["m.oinf"]


def test_what_is_swapped_while_it_is_opened_is_refused(tmp_path, monkeypatch):
    (tmp_path / "set/parts").mkdir(parents=True)
    (tmp_path / "set/parts/one").write_bytes(b"inside")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/one").write_bytes(b"outside")
    plain = windows.open_to_read

    def swap(path):
        os.rename(tmp_path / "set/parts", tmp_path / "set/old")
        (tmp_path / "set/parts").symlink_to(tmp_path / "outside")
        return plain(path)

    monkeypatch.setattr(windows, "open_to_read", swap)
    with pytest.raises(FormatError, match="symbolic link"):
        FolderSource(tmp_path / "set").sibling("parts/one")
    (tmp_path / "set/parts").unlink()
    os.rename(tmp_path / "set/old", tmp_path / "set/parts")

    def swap_file(path):
        os.rename(tmp_path / "outside/one", path)
        return plain(path)

    monkeypatch.setattr(windows, "open_to_read", swap_file)
    with pytest.raises(OSError, match="was moved while it was opened"):
        FolderSource(tmp_path / "set").sibling("parts/one")


def test_junctions_are_links_and_placeholders_of_clouds_are_files():
    junction, cloud = (SimpleNamespace(st_mode=stat.S_IFDIR, st_reparse_tag=tag) for tag in (0xA0000003, 0x9000001A))
    assert platform.is_link(junction)
    assert not platform.is_link(cloud)


def test_long_paths_get_the_long_form(monkeypatch):
    monkeypatch.setattr(os.path, "abspath", lambda path: ntpath.normpath(str(path)))
    long = "x" * 250
    assert str(platform.full_path("C:\\models\\..\\m")) == "C:\\m"
    assert str(platform.full_path(f"C:\\{long}")) == f"\\\\?\\C:\\{long}"
    assert str(platform.full_path(f"\\\\server\\share\\{long}")) == f"\\\\?\\UNC\\server\\share\\{long}"
    assert str(platform.full_path(f"\\\\?\\C:\\{long}")) == f"\\\\?\\C:\\{long}"


@pytest.fixture
def limited(tmp_path, monkeypatch):
    r"""Paths of 260 characters and folders of 248 are refused, unless they are in the long form."""

    def limit(function, most):
        def call(path, *more, **named):
            if isinstance(path, int):
                return function(path, *more, **named)
            text = os.fspath(path)
            assert text.startswith("\\\\?\\") or len(text) < most, f"{len(text)} characters: {text}"
            more = [each if isinstance(each, int) else plain(os.fspath(each)) for each in more]
            return function(plain(text), *more, **named)

        return call

    def plain(text):
        return text.removeprefix("\\\\?\\").removeprefix("C:")

    def find_absolute(path):
        return str(path) if str(path).startswith("\\\\?\\") else "C:" + absolute(plain(str(path)))

    def find_real(path):  # there are no links
        assert str(path).startswith("\\\\?\\") or len(str(path)) < 260
        return find_absolute(path)

    absolute = os.path.abspath
    monkeypatch.setattr(os.path, "abspath", find_absolute)
    monkeypatch.setattr(os.path, "realpath", find_real)
    calls = ("lstat", "stat", "open", "unlink", "rmdir", "replace", "rename", "scandir", "listdir", "access", "statvfs")
    for name in calls:
        monkeypatch.setattr(os, name, limit(getattr(os, name), 260))
    monkeypatch.setattr(os, "mkdir", limit(os.mkdir, 248))
    return tmp_path


LONG_NAMES = ["x" * 90, "deep" * 20 + "/" + "y" * 100, "e" * 66 + "/z"]


def test_members_of_a_short_folder_may_be_written_under_long_names(limited):
    folder = limited / ("d" * (185 - len(str(limited)) - 1))
    write_folder(folder, FolderPlan({name: plan_of(name.encode()) for name in LONG_NAMES}), fsync=False)
    for name in LONG_NAMES:
        assert len(str(folder / name)) > 248
        assert (folder / name).read_bytes() == name.encode()
    assert os.listdir(limited) == [folder.name]


@pytest.mark.parametrize("name", LONG_NAMES[:2])
def test_members_of_a_short_folder_may_be_read_under_long_names(limited, name):
    folder = limited / ("d" * (185 - len(str(limited)) - 1))
    path = folder / name
    subprocess.run(["mkdir", "-p", path.parent], check=True)
    path.write_bytes(name.encode())
    member = FolderSource(folder).sibling(name)
    assert bytes(member.view(0, member.size)) == name.encode()
    member.close()


def test_the_folder_of_a_part_has_the_access_list_of_its_parent(tmp_path, monkeypatch):
    made, plain = [], Path.mkdir

    def mkdir(self, mode=0o777, **more):
        made.append(mode)
        plain(self, mode, **more)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    write_folder(tmp_path / "set", FolderPlan({"a": plan_of(b"new")}))
    assert made == [0o777], "0o700 would give it an access list of its own"


def test_memory_is_measured():
    block = np.ones(32 << 20, np.uint8)
    assert block.nbytes < platform.resident_memory() <= platform.peak_memory()


def test_models_at_long_paths_are_saved_opened_and_replaced(limited):
    """One file, a folder of shards, and a conversion into the file that it reads."""
    deep = limited / ("d" * 120) / ("e" * 120)
    subprocess.run(["mkdir", "-p", deep], check=True)
    path = deep / "model.safetensors"
    holdall.save(path, {"w": np.arange(4.0)}, fsync=False)
    assert holdall.convert(path, deep / "all", format="hf", fsync=False).size > 0
    with holdall.open(deep / "all") as model:
        assert model["w"].numpy().tolist() == [0, 1, 2, 3]
    with pytest.raises(holdall.UnsupportedError, match="the file that is being read"):
        holdall.convert(path, path, cast="bf16", fsync=False)
    with pytest.raises(FileExistsError):
        holdall.convert(path, path, clobber=False, fsync=False)
    holdall.convert(path, path, fsync=False)
    with holdall.open(path) as model:
        assert model["w"].numpy().tolist() == [0, 1, 2, 3]
