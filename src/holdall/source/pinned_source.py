"""A remote file that is used only as the file whose SHA-256 a document states."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator

from holdall.base.locks import make_lock
from holdall.errors import HoldallError
from holdall.source.base import CHUNK, Source
from holdall.source.buffers import regroup
from holdall.source.pending_source import empty_buffer

__all__ = ["PinnedSource"]

_PAGE = CHUNK  # bytes that later reads fetch and compare together


class PinnedSource(Source):
    """``origin``, proven whole by its SHA-256 before the first byte after :meth:`pin` is returned.

    The proof passes over all bytes once and remembers a hash of every page. Later reads fetch whole pages and compare
    them, so that a server cannot answer with other bytes after the proof. Bytes that were read before :meth:`pin`,
    such as an index, must be those of the proven file too. ``make_error`` makes the error from the SHA-256 found, or
    from None if the server sent different bytes for the same range.
    """

    is_remote = is_checked = True

    def __init__(self, origin: Source, sha256: str, make_error: Callable[[str | None], HoldallError]) -> None:
        self.name, self.size, self.member = origin.name, origin.size, origin.member
        self._origin = origin
        self._sha256 = sha256
        self._make_error = make_error
        self._is_pinned = False
        self._early: list[tuple[int, bytes]] = []  # what was read before pin()
        self._pages: list[bytes] | None = None  # their hashes, once the file is proven
        self._kept: tuple[int, memoryview] = -1, memoryview(b"")  # the offset and the bytes of a page
        self._lock = make_lock()

    def pin(self) -> None:
        """From now on return proven bytes only."""
        self._is_pinned = True

    @property
    def identity(self) -> tuple[object, ...]:
        return self._origin.identity

    @property
    def parallel_reads(self) -> int:
        return self._origin.parallel_reads

    def read_into(self, offset: int, buffer: memoryview) -> None:
        self._check_inside(offset, len(buffer))
        if not self._is_pinned:
            self._origin.read_into(offset, buffer)
            self._early.append((offset, bytes(buffer)))
            return
        at = 0
        for piece in self.chunks(offset, len(buffer)):
            buffer[at : at + len(piece)] = piece
            at += len(piece)

    def read(self, offset: int, size: int) -> bytes:
        return bytes(self.view(offset, size))

    def view(self, offset: int, size: int) -> memoryview:
        self._check_inside(offset, size)
        buffer = empty_buffer(size)
        self.read_into(offset, buffer)
        return buffer.toreadonly()

    def chunks(self, offset: int, size: int, chunk: int = CHUNK) -> Iterator[memoryview]:
        self._check_inside(offset, size)
        if not self._is_pinned:
            return super().chunks(offset, size, chunk)
        return regroup(self._read_pages(offset, offset + size), chunk)

    def _read_pages(self, start: int, stop: int) -> Iterator[memoryview]:
        """The bytes ``start..stop``, each page compared with its hash. The last page that was read alone is kept."""
        if start >= stop:
            return
        low, high = self._widen(start, stop)
        alone = high - low <= _PAGE
        kept, page = self._kept
        if alone and kept == low:
            yield page[start - low : stop - low]
            return
        hashes = self._prove()
        for at, page in zip(range(low, high, _PAGE), self._origin.chunks(low, high - low, _PAGE), strict=True):
            if _hash(page) != hashes[at // _PAGE]:
                raise self._make_error(None)
            if alone:
                self._kept = at, memoryview(bytes(page))
            yield page[max(0, start - at) : stop - at]

    def _widen(self, start: int, stop: int) -> tuple[int, int]:
        return start - start % _PAGE, min(self.size, stop + -stop % _PAGE)

    def _prove(self) -> list[bytes]:
        with self._lock:
            if self._pages is None:
                running, pages = hashlib.sha256(), []
                for number, page in enumerate(self._origin.chunks(0, self.size, _PAGE)):
                    running.update(page)
                    pages.append(_hash(page))
                    self._compare_early(number * _PAGE, page)
                if running.hexdigest() != self._sha256:
                    raise self._make_error(running.hexdigest())
                self._pages = pages
                self._early.clear()
            return self._pages

    def _compare_early(self, at: int, page: memoryview) -> None:
        for start, data in self._early:
            low, high = max(at, start), min(at + len(page), start + len(data))
            if low < high and page[low - at : high - at] != data[low - start : high - start]:
                raise self._make_error(None)

    def prefetch(self, ranges: Iterable[tuple[int, int]]) -> None:
        if self._pages is not None:
            self._origin.prefetch([self._widen(*each) for each in ranges])

    def close(self) -> None:
        self._origin.close()


def _hash(page: memoryview) -> bytes:
    from blake3 import blake3

    return blake3(page).digest()
