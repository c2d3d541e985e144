"""Folders of formats that are made of several files, and the one place that keeps the paths of members inside.

The names of members come from untrusted files. Every member that a format opens goes through :meth:`Folder.open`,
which follows no link, so that nothing outside the folder can be reached.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection
from pathlib import Path

from holdall.base import platform
from holdall.base.check import Rule
from holdall.base.text import file_text
from holdall.base.urls import find_origin
from holdall.errors import FormatError
from holdall.source.base import Source

__all__ = ["MISSING", "REPLACED", "Folder", "check_followed", "describe_refusal", "reopen", "split_contained"]

ESCAPE = Rule("core.path", "members of a set stay inside its folder")
REPLACED = Rule("core.identity", "what is unpickled is what was pickled")
FOLLOW = Rule("core.follow", "a redirect, or a full URL in a set, leads to an origin that the caller follows")
MISSING = Rule("core.member", "every member of a set is there")

_DRIVE = re.compile(r"^[A-Za-z]:")
_BLOB = re.compile(r"((?:\.\./)+)blobs/([0-9a-f]{40,64})")
_LONGEST = 255  # characters of a name of a file


def split_contained(relative: str) -> list[str]:
    """Split a relative path that stays inside its folder into its components; FormatError for any other path.

    >>> split_contained("shards/part-000.bin")
    ['shards', 'part-000.bin']
    """
    parts = relative.split("/")
    bad = (
        not relative
        or relative.startswith("/")
        or "\\" in relative
        or "\0" in relative
        or _DRIVE.match(relative) is not None
        or "://" in relative
        or any(part in ("", ".", "..") for part in parts)
        or any("\ud800" <= letter <= "\udfff" for letter in relative)  # JSON can state names that no file can have
    )
    if bad:
        message = f"the member path {file_text(relative)!r} is not a plain path inside the folder"
        raise FormatError(ESCAPE.id, None, message)
    return parts


def check_followed(url: str, origins: Collection[str], what: str = "the part") -> None:
    """Raise FormatError unless the URL is plain http or https, at one of ``origins``. Sends nothing.

    >>> check_followed("https://host/part.aero", {"https://host"})
    >>> check_followed("https://other/part.aero", {"https://host"})
    Traceback (most recent call last):
        ...
    holdall.errors.FormatError: the part 'https://other/part.aero' is at https://other, which is not followed: \
allow it with follow='https://other' (--follow https://other)
    """
    origin, shown = find_origin(url), repr(file_text(url))
    if origin is None:
        message = f"{what} {shown} is not a plain http or https URL, without a user and a fragment"
        raise FormatError(FOLLOW.id, None, message)
    if origin not in origins:
        raise FormatError(FOLLOW.id, None, f"{what} {shown} is at {describe_refusal(origin)}")


def describe_refusal(origin: str) -> str:
    """Say that an origin is not followed, and which option would allow it."""
    return f"{origin}, which is not followed: allow it with follow={origin!r} (--follow {origin})"


class Folder:
    """A directory whose members may be opened by relative names."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def names(self) -> list[str]:
        """The plain names in the folder, sorted."""
        return sorted(os.listdir(platform.full_path(self.path)))

    def files(self) -> list[str]:
        """The files in the folder and in its subfolders, one level down, as relative paths, sorted.

        Links are listed like files: opening one decides whether it may be followed. Hidden files and names that are
        not Unicode are left out.
        """
        found: list[str] = []
        with os.scandir(platform.full_path(self.path, _LONGEST)) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                    with os.scandir(entry) as inner:
                        found += (f"{entry.name}/{item.name}" for item in inner if _is_file(item))
                elif _is_file(entry):
                    found.append(entry.name)
        return sorted(name for name in found if not any("\ud800" <= letter <= "\udfff" for letter in name))

    def everything(self) -> list[str]:
        """All files below the folder, hidden ones too, as relative paths, sorted. Links are listed, not followed."""
        found, root = [], platform.full_path(self.path, _LONGEST)
        for folder, _, names in os.walk(root):
            found += [(Path(folder) / name).relative_to(root).as_posix() for name in names]
        return sorted(found)

    def open(self, relative: str) -> int:
        """Open a descriptor of the member ``relative``; FormatError when there is none, or a link leads to it."""
        parts = split_contained(relative)
        if not all(map(platform.allows_name, parts)):
            message = f"the member path {relative!r} has a name that is not a plain file on this system"
            raise FormatError(ESCAPE.id, None, message)
        try:
            return platform.open_beneath(self.path, parts, lambda link: self._open_blob(len(parts) - 1, link))
        except OSError as error:
            self._refuse_links(relative, error)
            if error.errno in platform.ABSENT:
                message = f"the member {relative!r} is not in {os.fspath(self.path)}"
                raise FormatError(MISSING.id, None, message) from error
            raise OSError(error.errno, error.strerror, str(self.path / relative)) from error

    def _open_blob(self, depth: int, link: str) -> int | None:
        """Open a descriptor of the file that a link of a Hugging Face cache means; None for every other link.

        ``REPO/snapshots/REVISION/NAME`` is a link to ``../../blobs/HASH``. The link is not followed: its text must
        have exactly this form, and the blob is opened by its name inside the ``blobs`` folder of the same REPO.
        """
        blob = _BLOB.fullmatch(link)
        snapshot = Path(os.path.realpath(self.path))
        if blob is None or len(blob[1]) != 3 * (depth + 2) or snapshot.parent.name != "snapshots":
            return None
        return platform.open_beneath(snapshot.parent.parent, ["blobs", blob[2]])

    def _refuse_links(self, relative: str, error: OSError) -> None:
        """Raise FormatError when a member could not be opened because of a link: the system does not say so."""
        path = platform.full_path(self.path, len(relative))
        for part in split_contained(relative):
            path = path / part
            try:
                status = os.lstat(path)
            except OSError:
                return
            if platform.is_link(status):
                message = f"the member {relative!r} is reached through the symbolic link {str(path)!r}"
                raise FormatError(ESCAPE.id, None, message) from error


def _is_file(entry: os.DirEntry[str]) -> bool:
    return not entry.name.startswith(".") and (entry.is_file(follow_symlinks=False) or entry.is_symlink())


def reopen(opener: Callable[[], Source], identity: tuple[object, ...]) -> Source:
    """Open a pickled source again; FormatError when it is not the same any more."""
    source = opener()
    if source.identity != identity:
        source.close()
        raise FormatError(REPLACED.id, None, f"{source.name}: has been replaced since it was pickled")
    return source
