"""Fetched ranges kept on disk: by URL and ETag, bounded, shared by several processes."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path

__all__ = ["RangeCache", "default_cache"]

_DEFAULT_BYTES = 4 << 30


class RangeCache:
    """A folder of ranges. A file appears whole or not at all, so readers need no lock.

    The key has the ETag in it: what was kept of an object that has changed since is never found again, and goes
    when room is needed, oldest use first.
    """

    def __init__(self, folder: str | os.PathLike[str], max_bytes: int = _DEFAULT_BYTES) -> None:
        self.folder = Path(folder)
        self.max_bytes = max_bytes
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def get(self, identity: tuple[object, ...], start: int, stop: int, fetch: Callable[[], bytes]) -> bytes:
        """The range from the folder, or fetched now and kept. Objects without an ETag are not kept."""
        if identity[2] is None:
            return fetch()
        key = hashlib.sha256(repr((identity, start, stop)).encode()).hexdigest()
        path = self.folder / key[:2] / key
        with contextlib.suppress(OSError):
            data = path.read_bytes()
            if len(data) == stop - start:
                os.utime(path)
                return data
        data = fetch()
        with contextlib.suppress(OSError):  # a cache that cannot be written is no reason to fail
            self._store(path, data)
        return data

    def _store(self, path: Path, data: bytes) -> None:
        path.parent.mkdir(exist_ok=True)
        part = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
        try:
            part.write_bytes(data)
            os.replace(part, path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        self._make_room()

    def _make_room(self) -> None:
        files = []
        for path in self.folder.glob("*/*"):
            with contextlib.suppress(OSError):  # another process may be making room as well
                status = path.stat()
                files.append((status.st_mtime_ns, status.st_size, path))
        held = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if held <= self.max_bytes:
                break
            with contextlib.suppress(OSError):
                path.unlink()
            held -= size


def default_cache() -> RangeCache | None:
    """The cache that ``HOLDALL_CACHE`` names, of ``HOLDALL_CACHE_BYTES`` at most; None when it is not set."""
    folder = os.environ.get("HOLDALL_CACHE")
    if not folder:
        return None
    return RangeCache(folder, int(os.environ.get("HOLDALL_CACHE_BYTES", _DEFAULT_BYTES)))
