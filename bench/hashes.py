"""What a file with checksums cannot do without: the same hashes over the same bytes, as fast as there are any."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["beside", "hash_arrays", "hash_file", "reader"]

CHUNK = 4 << 20


def _running(kind: str) -> Callable[[Any], object]:
    """A function that takes the next bytes."""
    match kind:
        case "crc32":
            from isal.isal_zlib import crc32

            total = 0

            def update(data: Any) -> None:
                nonlocal total
                total = crc32(data, total)

            return update
        case "zlib.crc32":
            import zlib

            so_far = 0

            def update_slowly(data: Any) -> None:
                nonlocal so_far
                so_far = zlib.crc32(data, so_far)

            return update_slowly
        case "sha256":
            import hashlib

            return hashlib.sha256().update
        case _:
            from blake3 import blake3

            return blake3(max_threads=blake3.AUTO).update


def reader(path: str) -> Iterable[memoryview]:
    """All bytes of a file by positioned reads into one buffer."""
    buffer = memoryview(bytearray(CHUNK))
    fd, at = os.open(path, os.O_RDONLY), 0
    try:
        while got := os.preadv(fd, [buffer], at):
            yield buffer[:got]
            at += got
    finally:
        os.close(fd)


def hash_file(path: str, kinds: Sequence[str]) -> None:
    """One pass of reading and hashing for every kind."""
    for kind in kinds:
        update = _running(kind)
        for piece in reader(path):
            update(piece)


def hash_arrays(arrays: Sequence[NDArray[Any]], kinds: Sequence[str]) -> None:
    """The hashes over arrays in memory, all in one pass."""
    updates = [_running(kind) for kind in kinds]
    for array in arrays:
        data = array.reshape(-1).view("u1").data
        for at in range(0, len(data), CHUNK):
            for update in updates:
                update(data[at : at + CHUNK])


def beside(hashing: Callable[[], None], action: Callable[[], None]) -> None:
    """Both at the same time, in two processes: neither waits for the other's interpreter lock."""
    child = os.fork()
    if not child:
        code = 1
        try:
            hashing()
            code = 0
        finally:
            os._exit(code)
    action()
    _, status = os.waitpid(child, 0)
    if status:
        raise RuntimeError("hashing failed")
