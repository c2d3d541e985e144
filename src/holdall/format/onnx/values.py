"""Values of a tensor that are not raw bytes but repeated numbers, packed or one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from holdall.errors import FormatError
from holdall.format.onnx import rules
from holdall.model.payload import Computed, Payload, SourceRange

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.source import Source

__all__ = ["Numbers"]


@dataclass(frozen=True, slots=True)
class Numbers:
    """The ranges of a repeated field: ``varints`` become ``width`` bytes each, fixed numbers are bytes already."""

    source: Source
    spans: tuple[tuple[int, int], ...]  # start and stop of each
    size: int  # bytes of the values
    width: int
    varints: bool
    what: str

    def payload(self) -> Payload:
        """The values as little-endian bytes."""
        if not self.varints and len(self.spans) == 1:
            return SourceRange(self.source, self.spans[0][0], self.size)
        places = (SourceRange(self.source, start, stop - start) for start, stop in self.spans)
        return Computed(self.size, self._read_blocks, tuple(places))

    def _read_blocks(self) -> Iterator[memoryview]:
        made = 0
        for start, stop in self.spans:
            for block in self._decode_varints(start, stop) if self.varints else self.source.chunks(start, stop - start):
                made += len(block)
                if made > self.size:
                    break
                yield block
        if made != self.size:
            message = f"{self.what}: {made} bytes of values came where {self.size} are needed"
            raise FormatError(rules.SIZE.id, self.spans[0][0], message)

    def _decode_varints(self, start: int, stop: int) -> Iterator[memoryview]:
        rest = b""
        for chunk in self.source.chunks(start, stop - start):
            data = np.frombuffer(rest + bytes(chunk), np.uint8)
            ends = (data < 0x80).nonzero()[0]
            cut = int(ends[-1]) + 1 if ends.size else 0
            rest = data[cut:].tobytes()
            if len(rest) >= 10:
                raise self._make_error(start)
            yield self._join_varints(data[:cut], ends, start).data
        if rest:
            raise self._make_error(start)

    def _join_varints(self, data: NDArray[np.uint8], ends: NDArray[np.intp], at: int) -> NDArray[np.uint8]:
        """Return the numbers whose last bytes are at ``ends``, as integers of ``width`` bytes."""
        starts = np.concatenate([np.zeros(1, np.intp), ends[:-1] + 1]) if ends.size else ends
        lengths = ends - starts + 1
        if lengths.size and int(lengths.max()) > 10:
            raise self._make_error(at)
        values = np.zeros(ends.size, np.uint64)
        for step in range(int(lengths.max()) if lengths.size else 0):
            rows = lengths > step
            values[rows] |= (data[starts[rows] + step] & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * step)
        return values.astype(f"<u{self.width}").view(np.uint8)

    def _make_error(self, at: int) -> FormatError:
        return FormatError(rules.VARINT.id, at, f"{self.what}: a number does not end, or has more than 64 bits")
