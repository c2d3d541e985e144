import json
import os
from pathlib import Path

import pytest

from holdall.errors import FormatError, UnsupportedError
from holdall.source import FileSource, Folder, FolderSource, split_contained
from tests.process import descriptors_of


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "outside").write_bytes(b"secret")
    inside = tmp_path / "set"
    (inside / "parts").mkdir(parents=True)
    (inside / "main").write_bytes(b"main")
    (inside / "parts" / "one").write_bytes(b"one")
    return inside


@pytest.mark.parametrize(
    "name",
    [
        "", "/", "/etc/passwd", "..", "../outside", "parts/../../outside", "parts/..", ".", "./main", "parts//one",
        "parts/", "a\\b", "..\\outside", "C:\\x", "C:x", "c:/x", "main\0", "\0", "file:///etc/passwd", "http://x/y",
        "\ud800", json.loads('"part-\\udcff"'),
    ],
)  # fmt: skip
def test_paths_that_leave_are_refused(folder, name):
    for refuse in (
        split_contained,
        Folder(folder).open,
        FolderSource(folder).sibling,
        FileSource(folder / "main").sibling,
    ):
        with pytest.raises(FormatError) as caught:
            refuse(name)
        assert caught.value.rule == "core.path"


@pytest.mark.parametrize("name", ["nothing", "main/inner", "parts/two", "x" * 300, "a/" * 3000 + "b"])
def test_members_that_are_not_there(folder, name):
    with pytest.raises(FormatError) as caught:
        FolderSource(folder).sibling(name)
    assert caught.value.rule == "core.member"


@pytest.mark.parametrize("target", ["outside", "set/main"])
def test_links_are_refused_wherever_they_lead(folder, target):
    (folder / "link").symlink_to(folder.parent / target)
    (folder / "away").symlink_to(folder.parent)
    (folder / "loop").symlink_to("loop")
    for name in ("link", "away/outside", "away", "loop", "loop/x"):
        with pytest.raises(FormatError, match="symbolic link") as caught:
            FolderSource(folder).sibling(name)
        assert caught.value.rule == "core.path"


def test_a_folder_swapped_for_a_link_is_not_followed(folder, monkeypatch):
    """The walk is by descriptors: what a name means is settled once."""
    opened = []
    plain = os.open

    def watching(path, flags, mode=0o777, *, dir_fd=None):
        opened.append((path, dir_fd is not None, bool(flags & os.O_NOFOLLOW)))
        return plain(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", watching)
    assert FolderSource(folder).sibling("parts/one").read(0, 3) == b"one"
    assert opened[1:] == [("parts", True, True), ("one", True, True)]


def test_members_that_are_no_files(folder):
    os.mkfifo(folder / "pipe")
    for name in ("pipe", "parts"):
        with pytest.raises(UnsupportedError):
            FolderSource(folder).sibling(name)


def test_no_descriptor_is_lost(folder):
    (folder / "link").symlink_to("main")
    for name in ("nothing", "link", "parts/none", "parts", "main", "parts/one"):
        try:
            FolderSource(folder).sibling(name).close()
        except (FormatError, UnsupportedError):
            continue
    assert descriptors_of(folder) == set()


def test_siblings_and_names(folder):
    main = FileSource(folder / "main")
    assert main.names() == ["main", "parts"]
    assert main.sibling("parts/one").read(0, 3) == b"one"
    given = FolderSource(folder, map=False)
    assert given.names() == ["main", "parts"]
    member = given.sibling("main")
    assert not member.is_mapped
    assert member.sibling("parts/one").size == 3


def test_a_relative_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert FileSource("main").sibling("parts/one").read(0, 3) == b"one"
    assert FolderSource(".").sibling("main").read(0, 4) == b"main"
    monkeypatch.chdir(Path("/"))


def test_a_folder_has_no_bytes(folder):
    source = FolderSource(folder)
    assert source.is_folder
    assert source.read(0, 0) == b""
    with pytest.raises(FormatError):
        source.read(0, 1)
