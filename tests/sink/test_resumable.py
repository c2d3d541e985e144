"""Writes that are continued: what stays of them, who may use it, and when it is begun again."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

import numpy as np
import pytest

from holdall.base import platform
from holdall.errors import ContentError, HashError
from holdall.model.payload import SourceRange
from holdall.sink import write_file, write_folder
from holdall.sink.plan import FolderPlan, Plan
from holdall.source import CHUNK, BytesSource

DATA = np.random.default_rng(3).integers(0, 255, 5 * CHUNK + 11, np.uint8).tobytes()
TORN = 3 * CHUNK + 5


class Failing(BytesSource):
    """Bytes that end with an error at ``fails``; counts what is read."""

    is_remote = True

    def __init__(self, data: bytes = DATA, fails: int | None = None) -> None:
        super().__init__(data)
        self.fails = fails
        self.first = self.size

    def read_into(self, offset: int, buffer: memoryview) -> None:
        if self.fails is not None and offset + len(buffer) > self.fails:
            raise OSError(5, "the server is gone", self.name)
        self.first = min(self.first, offset)
        super().read_into(offset, buffer)


def plan_of(source: BytesSource, identity: str = "one", expected: bytes | None = None) -> Plan:
    def check(results) -> None:
        if expected is not None and results["sha256"] != hashlib.sha256(expected).digest():
            raise HashError("test", None, "another hash")

    plan = Plan(identify=lambda: identity, check=check)
    plan.stream(SourceRange(source, 0, source.size))
    plan.tap("sha256", "sha256", 0, source.size)
    return plan


def write(kind: str, target: Path, source: BytesSource, **more) -> None:
    """Write the source as a file, or as the file ``a/data`` of a folder."""
    clobber = more.pop("clobber", True)
    if kind == "file":
        write_file(target, plan_of(source, **more), fsync=False, clobber=clobber)
        return
    plan = FolderPlan({"a/data": plan_of(source, **more)})
    plan.files["index"] = Plan()
    plan.files["index"].put(b"index")
    write_folder(target, plan, fsync=False, clobber=clobber)


def content(kind: str, target: Path) -> bytes:
    if kind == "file":
        return target.read_bytes()
    assert sorted(path.relative_to(target).as_posix() for path in target.rglob("*")) == ["a", "a/data", "index"]
    return (target / "a" / "data").read_bytes()


def parts(folder: Path) -> list[Path]:
    return sorted(folder.glob(".*.holdall.part"))


@pytest.fixture(params=["file", "folder"])
def kind(request) -> str:
    return request.param


def interrupt(kind: str, target: Path, **more) -> Path:
    with pytest.raises(OSError, match="the server is gone"):
        write(kind, target, Failing(fails=TORN), **more)
    (part,) = parts(target.parent)
    return part


def test_what_was_written_stays_and_is_continued(kind, tmp_path):
    part = interrupt(kind, tmp_path / "x")
    assert stat.S_IMODE(part.stat().st_mode) == 0o700
    assert not (tmp_path / "x").exists()
    source = Failing()
    write(kind, tmp_path / "x", source, expected=DATA)
    assert content(kind, tmp_path / "x") == DATA
    assert source.first == 3 * CHUNK
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_it_may_be_interrupted_again_and_again(kind, tmp_path):
    for chunks in range(1, 5):
        with pytest.raises(OSError, match="the server is gone"):
            write(kind, tmp_path / "x", Failing(fails=chunks * CHUNK))
    write(kind, tmp_path / "x", Failing(), expected=DATA)
    assert content(kind, tmp_path / "x") == DATA


def test_bytes_of_another_identity_are_begun_again(kind, tmp_path):
    interrupt(kind, tmp_path / "x")
    other = Failing(bytes(reversed(DATA)))
    write(kind, tmp_path / "x", other, identity="two")
    assert content(kind, tmp_path / "x") == bytes(reversed(DATA))
    assert other.first == 0


def damage(note: Path, how: str) -> None:
    if how == "huge":
        os.truncate(note, 1 << 40)  # sparse: to read it all would take a terabyte
    elif how in ("a folder", "a link"):
        note.unlink()
        _ = (note / "deep").mkdir(parents=True) if how == "a folder" else note.symlink_to(note.parent.parent / "other")
    else:
        note.write_bytes({"not UTF-8": b"\xff\xfe", "empty": b"", "longer": note.read_bytes() + b"\n"}[how])


@pytest.mark.parametrize("how", ["not UTF-8", "empty", "longer", "huge", "a folder", "a link"])
def test_a_file_whose_note_is_damaged_is_begun_again(kind, how, tmp_path):
    part = interrupt(kind, tmp_path / "x")
    other = part / "other"
    other.write_bytes(b"mine")
    for note in (part / "notes").iterdir():
        damage(note, how)
    with pytest.raises(OSError, match="the server is gone"):
        write(kind, tmp_path / "x", Failing(fails=TORN))
    assert other.read_bytes() == b"mine"
    source = Failing()
    write(kind, tmp_path / "x", source, expected=DATA)
    assert content(kind, tmp_path / "x") == DATA and source.first == 3 * CHUNK


def test_more_bytes_than_the_file_has_are_begun_again(kind, tmp_path):
    part = interrupt(kind, tmp_path / "x")
    unfinished = part / "content" if kind == "file" else part / "content" / "a" / "data"
    unfinished.write_bytes(DATA + b"more")
    source = Failing()
    write(kind, tmp_path / "x", source)
    assert content(kind, tmp_path / "x") == DATA and source.first == 0


def test_all_bytes_may_be_there(kind, tmp_path):
    part = interrupt(kind, tmp_path / "x")
    unfinished = part / "content" if kind == "file" else part / "content" / "a" / "data"
    unfinished.write_bytes(DATA)
    source = Failing(fails=0)
    write(kind, tmp_path / "x", source, expected=DATA)
    assert content(kind, tmp_path / "x") == DATA


def test_a_write_that_cannot_be_continued_leaves_nothing(kind, tmp_path):
    interrupt(kind, tmp_path / "x")
    write_file(tmp_path / "x", Plan(), fsync=False)
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_nothing_is_left_where_nothing_was_written(kind, tmp_path):
    def fail() -> str:
        raise ContentError("the server is not there")

    plan = plan_of(Failing())
    plan.identify = fail
    with pytest.raises(ContentError):
        if kind == "file":
            write_file(tmp_path / "x", plan)
        else:
            write_folder(tmp_path / "x", FolderPlan({"data": plan}))
    assert list(tmp_path.iterdir()) == []


def test_a_locked_part_belongs_to_another_writer(kind, tmp_path):
    part = interrupt(kind, tmp_path / "x")
    lock = platform.lock_part(part)
    assert lock is not None
    source = Failing()
    write(kind, tmp_path / "x", source)
    assert content(kind, tmp_path / "x") == DATA and source.first == 0
    assert parts(tmp_path) == [part], "it is not removed either"
    lock.close()


def test_a_write_that_fails_leaves_the_part_of_another_writer(kind, tmp_path, monkeypatch):
    part = interrupt(kind, tmp_path / "x")
    lock = platform.lock_part(part)

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "no space left")

    monkeypatch.setattr(Path, "mkdir", fail)
    with pytest.raises(OSError, match="no space left"):
        write(kind, tmp_path / "x", Failing())
    assert parts(tmp_path) == [part] and (part / "content").exists()
    assert lock is not None
    lock.close()


@pytest.mark.parametrize("first", ["file", "folder"])
def test_a_file_and_a_folder_of_the_same_name_do_not_mix(first, tmp_path):
    interrupt(first, tmp_path / "x")
    second = "folder" if first == "file" else "file"
    source = Failing()
    write(second, tmp_path / "x", source)
    assert content(second, tmp_path / "x") == DATA and source.first == 0
    assert parts(tmp_path) == []


def test_the_first_of_several_parts_is_continued_and_the_others_go(kind, tmp_path):
    part = interrupt(kind, tmp_path / "x")
    lock = platform.lock_part(part)
    with pytest.raises(OSError, match="the server is gone"):
        write(kind, tmp_path / "x", Failing(fails=TORN))
    assert lock is not None
    lock.close()
    assert len(parts(tmp_path)) == 2
    source = Failing()
    write(kind, tmp_path / "x", source)
    assert source.first == 3 * CHUNK
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_the_target_that_came_first_stays(kind, tmp_path):
    interrupt(kind, tmp_path / "x")
    source = Failing()

    def come_first() -> str:
        if kind == "file":
            (tmp_path / "x").write_bytes(b"mine")
        else:
            (tmp_path / "x").mkdir()
            (tmp_path / "x" / "mine").touch()
        return "one"

    plan = plan_of(source)
    plan.identify = come_first
    with pytest.raises(FileExistsError):
        if kind == "file":
            write_file(tmp_path / "x", plan, clobber=False)
        else:
            write_folder(tmp_path / "x", FolderPlan({"data": plan}))
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path):
    (tmp_path / "x").write_bytes(b"old")
    (tmp_path / "x").chmod(0o640)
    interrupt("file", tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == b"old"
    write("file", tmp_path / "x", Failing())
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o640


def test_a_link_in_the_part_is_not_written_through(tmp_path):
    part = interrupt("folder", tmp_path / "x")
    (tmp_path / "mine").write_bytes(b"mine")
    data = part / "content" / "a" / "data"
    data.unlink()
    data.symlink_to(tmp_path / "mine")
    (part / "content" / "linked").symlink_to(tmp_path, target_is_directory=True)
    write("folder", tmp_path / "x", Failing())
    assert content("folder", tmp_path / "x") == DATA
    assert (tmp_path / "mine").read_bytes() == b"mine"


def test_a_part_of_another_user_is_not_continued(kind, tmp_path, monkeypatch):
    part = interrupt(kind, tmp_path / "x")
    monkeypatch.setattr(os, "geteuid", lambda: part.stat().st_uid + 1)
    source = Failing()
    write(kind, tmp_path / "x", source)
    assert source.first == 0
