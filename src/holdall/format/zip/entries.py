"""The entries of a zip archive that is planned: single ones, and one for each tensor of a table."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeGuard, cast

import numpy as np

from holdall.base.buffer_sizes import buffer_size
from holdall.model.payload import InMemory, Payload

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.model.table import TensorTable

__all__ = ["Rows", "Single", "sum_known"]

_SMALL: Final = buffer_size(1 << 16)  # bytes of a payload whose CRC-32 is taken before its header is written


class Single:
    """One entry, made of parts one after the other. ``crc`` is their CRC-32, None if it is not known yet."""

    def __init__(self, name: str, parts: tuple[bytes | Payload, ...], crc: int | None) -> None:
        self.parts = parts
        self._name = name.encode()
        self.sizes = np.array([sum(len(part) if isinstance(part, bytes) else part.size for part in parts)], np.uint64)
        self.crcs = np.array([crc or 0], np.uint32)
        self.known = np.array([crc is not None])

    def name(self, row: int) -> bytes:
        """The name of the entry."""
        return self._name


class Rows:
    """One entry for each of the ``rows`` of a table: ``head_of(row)``, which few rows differ in, and the payload.

    The CRC-32 of a small payload is taken when its entry is made, and counts as known.
    """

    def __init__(
        self, table: TensorTable, rows: NDArray[np.intp], name_of: Callable[[int], str], head_of: Callable[[int], bytes]
    ) -> None:
        self.table = table
        self.rows = memoryview(cast(Any, rows))
        self.head_of = head_of
        self._name_of = name_of
        self.sizes = table.forms().sizes()[rows]
        self.crcs = np.zeros(len(rows), np.uint32)
        self.known = self.sizes <= _SMALL
        if any(source.is_remote for source in table.sources()):  # whose ranges the sink asks for, many in one request
            self.known &= np.fromiter((type(table.payload(row)) is InMemory for row in self.rows), np.bool_, len(rows))
        self.sizes += np.fromiter((len(head_of(row)) for row in self.rows), np.uint64, len(rows))
        self._heads: dict[bytes, int] = {b"": 0}  # and the CRC-32 of each

    def name(self, row: int) -> bytes:
        """The name of an entry."""
        return self._name_of(row).encode()

    def payload(self, row: int) -> Payload:
        """The payload of an entry."""
        return self.table.payload(self.rows[row]) or InMemory(b"")

    def read(self, rows: range) -> list[tuple[bytes, bytes | memoryview, int]]:
        """Read the entries in ``rows``: the head and the payload of each, and their CRC-32."""
        from isal.isal_zlib import crc32

        found = []
        payloads = self.table.read(np.array(self.rows[rows.start : rows.stop], np.intp))
        for row, data in zip(rows, payloads, strict=True):
            head = self.head_of(self.rows[row])
            if head not in self._heads:
                self._heads[head] = crc32(head)
            found.append((head, data, crc32(data, self._heads[head])))
        return found


def sum_known(parts: Iterable[bytes | Payload]) -> int | None:
    """The CRC-32 of bytes and small payloads in memory: it spares the sink a late piece; None if others are there."""
    crc = 0
    for part in parts:
        if isinstance(part, bytes):
            crc = zlib.crc32(part, crc)
        elif _is_small(part):
            crc = zlib.crc32(part.data, crc)
        else:
            return None
    return crc


def _is_small(part: Payload) -> TypeGuard[InMemory]:
    return isinstance(part, InMemory) and part.size <= _SMALL
