"""The CRC-32s that a file states of very many ranges, as columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from holdall.format.proof import Proof
    from holdall.source import Source

__all__ = ["ProofRows"]


@dataclass(frozen=True, slots=True, eq=False)
class ProofRows:
    """The CRC-32s of the ranges from ``starts`` to ``stops`` of ``source``, which are in file order.

    ``proof_of(row)`` is one of them as an object, for the few that are long and for messages.
    """

    source: Source
    starts: NDArray[np.uint64]
    stops: NDArray[np.uint64]
    crcs: NDArray[np.uint32]
    proof_of: Callable[[int], Proof]

    @property
    def start(self) -> int:
        """The first byte of the first range."""
        return int(self.starts[0])

    @property
    def size(self) -> int:
        """The bytes of all ranges."""
        return int((self.stops - self.starts).sum())

    @property
    def key(self) -> object:
        """What no other proof has."""
        return id(self)

    def pages(self) -> Iterator[Proof]:
        """One proof for each range."""
        return map(self.proof_of, range(len(self.starts)))

    def split(self, piece: int) -> Iterator[Proof | RowsBatch]:
        """Divide the work: ranges longer than ``piece`` alone, and neighbours that fill a piece together."""
        starts, stops = self.starts.tolist(), self.stops.tolist()
        first = 0  # of the ranges that wait
        for row, (start, stop) in enumerate(zip(starts, stops, strict=True)):
            is_long = stop - start > piece
            if first < row and (is_long or stop - starts[first] > piece):
                yield RowsBatch(self, first, row)
                first = row
            if is_long:
                yield self.proof_of(row)
                first = row + 1
        if first < len(starts):
            yield RowsBatch(self, first, len(starts))


class RowsBatch:
    """Neighbouring small ranges, which are read at once."""

    def __init__(self, proofs: ProofRows, first: int, last: int) -> None:
        self._proofs = proofs
        self._rows = slice(first, last)

    def run(self, buffer: memoryview, step: Callable[[int], Any]) -> None:
        """Read and compare them; ``step`` takes the number of bytes read."""
        from isal.isal_zlib import crc32

        proofs, rows = self._proofs, self._rows
        low = proofs.starts[rows.start]
        starts, stops = (proofs.starts[rows] - low).tolist(), (proofs.stops[rows] - low).tolist()
        data = buffer[: stops[-1]]
        proofs.source.read_into(int(low), data)
        step(sum(stops) - sum(starts))
        found = [crc32(data[start:stop]) for start, stop in zip(starts, stops, strict=True)]
        for row in (proofs.crcs[rows] != found).nonzero()[0].tolist():
            proofs.proof_of(rows.start + row).compare(found[row])
