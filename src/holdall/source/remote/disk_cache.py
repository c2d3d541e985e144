"""A cache of fetched ranges on disk, by URL and ETag, of bounded size and shared by the processes of one user."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from holdall.base.platform import is_private, open_to_read, replace_file
from holdall.base.platform.open_descriptor import open_descriptor
from holdall.base.text import file_text
from holdall.errors import UnsupportedError

__all__ = ["RangeCache", "default_cache"]

_DEFAULT_BYTES = 4 << 30
_SEAL = 32  # bytes of the HMAC that follows the range in its file
_KEY = 32  # bytes of the key of those HMACs


class RangeCache:
    """A folder with one file for each range. Files appear complete or not at all, so readers need no lock.

    The ETag is part of the key, so the ranges of an object that was replaced are never found again; they are removed
    when room is needed, the least recently used file first.

    Each file ends with an HMAC of its name and of its bytes. So a file that a crash or a failing disk has damaged,
    that another program put there, or that has the name of another, is removed and fetched again. The key lies in
    the folder, which only its owner may enter.
    """

    def __init__(self, folder: str | os.PathLike[str], max_bytes: int = _DEFAULT_BYTES) -> None:
        self.folder = Path(folder)
        self.max_bytes = max_bytes
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not (is_private(self.folder) and self.folder.is_dir()):
            message = "is not a folder that belongs to you and that only you may enter (mode 0700, not a link)"
            raise UnsupportedError(f"the cache {file_text(str(folder))} {message}")
        self._key = self._load_key()

    def get(self, identity: tuple[object, ...], start: int, stop: int, fetch: Callable[[], memoryview]) -> memoryview:
        """Return the range from its file, else from ``fetch``, and store it. Objects without an ETag are not stored."""
        if identity[2] is None:
            return fetch()
        name = hashlib.sha256(repr((identity, start, stop)).encode()).hexdigest()
        path = self.folder / name[:2] / name
        with contextlib.suppress(OSError):
            found = self._load(path, stop - start)
            if found is not None:
                return found
        data = fetch()
        with contextlib.suppress(OSError):  # reading goes on if the cache cannot be written
            self._store(path, data)
        return data

    def _load(self, path: Path, size: int) -> memoryview | None:
        with _open_regular(path) as file:
            data = memoryview(file.read(size + _SEAL + 1))
        if len(data) == size + _SEAL and hmac.compare_digest(self._seal(path.name, data[:-_SEAL]), data[-_SEAL:]):
            os.utime(path)
            return data[:-_SEAL]
        path.unlink()
        return None

    def _seal(self, name: str, data: memoryview) -> bytes:
        """The HMAC of a range and its name, which stands for URL, ETag and place. BLAKE3 is the fast part of it."""
        from blake3 import blake3

        return hmac.digest(self._key, name.encode() + blake3(data).digest(), "sha256")

    def _load_key(self) -> bytes:
        """Read the key, or make one; what an older key has sealed is then fetched again."""
        path = self.folder / "key"
        with contextlib.suppress(OSError):
            with _open_regular(path) as file:
                key = file.read(_KEY + 1)
            if len(key) == _KEY and is_private(path):
                return key
        made = secrets.token_bytes(_KEY)
        with contextlib.suppress(OSError):  # a cache that cannot be written is of no use, and does no harm
            with self._write_part(path) as file:
                file.write(made)
            with _open_regular(path) as file:  # another process may have made one at the same moment
                made = file.read(_KEY)
        return made

    def _store(self, path: Path, data: memoryview) -> None:
        if len(data) + _SEAL > self.max_bytes:
            return
        self._make_room(len(data) + _SEAL)
        path.parent.mkdir(exist_ok=True, mode=0o700)
        with self._write_part(path) as file:
            file.write(data)
            file.write(self._seal(path.name, data))

    @contextlib.contextmanager
    def _write_part(self, path: Path) -> Iterator[IO[bytes]]:
        """Write a file that appears at ``path`` when the block ends; only its owner may read it."""
        part = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
        try:
            with open(part, "xb", opener=_open_private) as file:
                yield file
            replace_file(part, path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise

    def _make_room(self, needed: int) -> None:
        files = []
        for path in self.folder.glob("*/*"):
            with contextlib.suppress(OSError):  # another process may be making room as well
                status = path.stat()
                files.append((status.st_mtime_ns, status.st_size, path))
        held = needed + sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if held <= self.max_bytes:
                break
            with contextlib.suppress(OSError):
                path.unlink()
            held -= size


def _open_regular(path: Path) -> IO[bytes]:
    """Open a file to read; OSError for a pipe or device, which could keep the caller waiting."""
    file = os.fdopen(open_to_read(path), "rb")  # the descriptor waits for no writer
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise OSError(errno.EINVAL, "is not a regular file", os.fspath(path))


def _open_private(path: str, flags: int) -> int:
    return open_descriptor(path, flags, 0o600)


def default_cache() -> RangeCache | None:
    """The cache in the folder ``HOLDALL_CACHE``, of at most ``HOLDALL_CACHE_BYTES``; None if that is not set."""
    folder = os.environ.get("HOLDALL_CACHE")
    if not folder:
        return None
    most = os.environ.get("HOLDALL_CACHE_BYTES", str(_DEFAULT_BYTES))
    if not most.isdecimal():
        raise UnsupportedError(f"HOLDALL_CACHE_BYTES is a number of bytes, not {most!r}")
    return RangeCache(folder, int(most))
