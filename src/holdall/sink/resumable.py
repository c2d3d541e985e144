"""Writes from URLs that can be continued: what was fetched stays when they are interrupted, and the next one goes on.

The part is a folder that only its owner may enter. Its ``content`` gets the name of the destination. Its ``notes`` say,
for each file, what the bytes in it are: a file is continued only if the source says the same now.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Collection, Iterator
from pathlib import Path

from holdall.base import platform
from holdall.sink.output import Output, rename_error
from holdall.sink.staging import CLEANED, Staging, lock_part, part_path, remove_part, vacate_part
from holdall.source.descriptors import with_room

__all__ = ["INSIDE", "ResumableStaging"]

INSIDE = len("notes/") + 64  # characters of the longest name inside a part, apart from members: a note has a SHA-256


_NOTE = 1 << 16  # bytes of a note that are read; an identity is much shorter


def _says(note: Path, identity: str) -> bool:
    """Whether a note is a file with this text. One that is damaged says something else."""
    if note.is_symlink() or not note.is_file():
        return False
    with note.open("rb") as stream:
        return stream.read(_NOTE) == identity.encode()


class ResumableStaging(Staging):
    """A part that is left when its write fails, and taken over by the next write to the same destination."""

    _is_done = False

    @property
    def path(self) -> Path:
        return self._part / "content"

    @property
    def _notes(self) -> Path:
        return self._part / "notes"

    def make_folder(self) -> Path:
        """Make the content a folder, or take over the one of a write that was interrupted."""
        self._make_part()
        with self._naming_errors():
            if self.path.is_file():  # a file was fetched to the same name before
                self.path.unlink()
            self.path.mkdir(exist_ok=True)
        return self.path

    def widen_folder(self) -> None:
        """Do nothing: the content has the permissions of a new folder, and the part around it is private."""

    def make_or_continue(self, identity: str, size: int, fsync: bool) -> tuple[Output, int]:
        """Make the content a file, or take over that of a write that was interrupted, with the bytes that it has."""
        self._make_part()
        self._fd, written = self.open_file("", identity, size)
        return Output(self._fd, self.name, fsync), written

    def _make_part(self) -> None:
        if not self._take_over():
            self._make(folder=True)
            with self._naming_errors():
                self._notes.mkdir()

    def _take_over(self) -> bool:
        """Lock the first part that a dead writer left and that can be continued, and remove those after it.

        Returns False if there is none.
        """
        for number in range(CLEANED):
            path = part_path(self.target, number)
            try:
                lock = lock_part(self.name, path)
            except OSError:  # nothing is there, or something that is not ours
                continue
            if lock is None:
                continue
            if lock.excludes and not self._exists and platform.is_private(path) and (path / "notes").is_dir():
                self._part, self._lock, self._exists = path, lock, True
                continue
            lock.close()
            if self._exists:
                with contextlib.suppress(OSError):
                    vacate_part(path)
        return self._exists

    def keep_only(self, names: Collection[str]) -> int:
        """Remove what was left of files other than ``names``. Returns the bytes of those that stay."""
        held = 0
        with self._naming_errors():
            for folder, folders, files in os.walk(self.path, topdown=False):
                links = [name for name in folders if Path(folder, name).is_symlink()]
                for path in (Path(folder, name) for name in (*files, *links)):
                    if path.relative_to(self.path).as_posix() in names:
                        held += path.lstat().st_size
                    else:
                        path.unlink()
                if Path(folder) != self.path:
                    with contextlib.suppress(OSError):  # it has files that stay
                        Path(folder).rmdir()
        return held

    def open_file(self, name: str, identity: str, size: int | None) -> tuple[int, int]:
        """Open a file of the content, and return how many of its bytes are there: 0 unless they are of ``identity``.

        The name is empty where the content is a file itself.
        """
        path, note = self.path / name, self._find_note(name)
        with self._naming_errors():
            if _says(note, identity) and path.exists() and not path.is_symlink():
                fd = with_room(self.name, lambda: platform.open_to_continue(path))
                status = os.fstat(fd)
                if stat.S_ISREG(status.st_mode) and (size is None or status.st_size <= size):
                    return fd, status.st_size
                os.close(fd)
            remove_part(path)  # first: the note must never describe bytes that it was not written for
            remove_part(note)  # it may be anything but a file
            note.write_text(identity, "utf-8")
            return with_room(self.name, lambda: platform.open_new(path)), 0

    def discard_file(self, name: str) -> None:
        """Remove a file whose bytes are wrong, so that the next write begins it again."""
        remove_part(self.path / name)
        self._find_note(name).unlink(missing_ok=True)

    def _find_note(self, name: str) -> Path:
        return self._notes / hashlib.sha256(name.encode()).hexdigest()

    def publish(self, clobber: bool = True) -> None:
        try:
            super().publish(clobber)
        except FileExistsError:  # another write was first
            self._is_done = True
            raise
        self._is_done = True

    def __exit__(self, problem: type[BaseException] | None, *more: object) -> None:
        try:
            self._close_file()
            if self._lock is None:
                return  # what has this name is another writer's
            if self._is_done or not self._has_bytes():
                remove_part(self._part)
            elif more and isinstance(more[0], BaseException):
                more[0].add_note("what was fetched is kept, and the same command goes on with it")
        finally:
            self._unlock()

    def _has_bytes(self) -> bool:
        with contextlib.suppress(OSError):
            found = [self.path] if self.path.is_file() else self.path.rglob("*")
            return any(path.is_file() and path.stat().st_size for path in found)
        return False

    @contextlib.contextmanager
    def _naming_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise rename_error(error, self.name) from error
