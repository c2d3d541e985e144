"""Fetched ranges kept on disk: by URL and ETag, bounded, shared by several processes."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path

from holdall.errors import UnsupportedError

__all__ = ["RangeCache", "default_cache"]

_DEFAULT_BYTES = 4 << 30
_SEAL = 32  # bytes of BLAKE3 behind the range


class RangeCache:
    """A folder of ranges. A file appears whole or not at all, so readers need no lock.

    The key has the ETag in it: what was kept of an object that has changed since is never found again, and goes
    when room is needed, oldest use first. Each file ends with a hash of its bytes: one that a crash or a failing
    disk has damaged is fetched anew.
    """

    def __init__(self, folder: str | os.PathLike[str], max_bytes: int = _DEFAULT_BYTES) -> None:
        self.folder = Path(folder)
        self.max_bytes = max_bytes
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def get(self, identity: tuple[object, ...], start: int, stop: int, fetch: Callable[[], memoryview]) -> memoryview:
        """The range from the folder, or fetched now and kept. Objects without an ETag are not kept."""
        if identity[2] is None:
            return fetch()
        key = hashlib.sha256(repr((identity, start, stop)).encode()).hexdigest()
        path = self.folder / key[:2] / key
        with contextlib.suppress(OSError):
            data = memoryview(path.read_bytes())
            if len(data) == stop - start + _SEAL and _seal(data[:-_SEAL]) == data[-_SEAL:]:
                os.utime(path)
                return data[:-_SEAL]
        data = fetch()
        with contextlib.suppress(OSError):  # a cache that cannot be written is no reason to fail
            self._store(path, data)
        return data

    def _store(self, path: Path, data: memoryview) -> None:
        if len(data) + _SEAL > self.max_bytes:
            return
        self._make_room(len(data) + _SEAL)
        path.parent.mkdir(exist_ok=True, mode=0o700)
        part = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
        try:
            with part.open("xb") as file:
                file.write(data)
                file.write(_seal(data))
            os.replace(part, path)
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


def _seal(data: memoryview) -> bytes:
    from blake3 import blake3

    return blake3(data).digest()


def default_cache() -> RangeCache | None:
    """The cache that ``HOLDALL_CACHE`` names, of ``HOLDALL_CACHE_BYTES`` at most; None when it is not set."""
    folder = os.environ.get("HOLDALL_CACHE")
    if not folder:
        return None
    most = os.environ.get("HOLDALL_CACHE_BYTES", str(_DEFAULT_BYTES))
    if not most.isdecimal():
        raise UnsupportedError(f"HOLDALL_CACHE_BYTES is a number of bytes, not {most!r}")
    return RangeCache(folder, int(most))
