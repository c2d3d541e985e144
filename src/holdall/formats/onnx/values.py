"""Values of a tensor that are not raw bytes: repeated numbers, in one stretch or one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from holdall.errors import FormatError
from holdall.formats.onnx import rules
from holdall.payload import Made, Payload, Range

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.source import Source

__all__ = ["Numbers"]


@dataclass(frozen=True, slots=True)
class Numbers:
    """The stretches of a repeated field. Varints of ``width`` bytes an element; fixed numbers are bytes already."""

    source: Source
    spans: tuple[tuple[int, int], ...]  # start and stop of each
    size: int  # bytes that they come to
    width: int
    varints: bool
    what: str

    def payload(self) -> Payload:
        """The values as little-endian bytes."""
        if not self.varints and len(self.spans) == 1:
            return Range(self.source, self.spans[0][0], self.size)
        places = (Range(self.source, start, stop - start) for start, stop in self.spans)
        return Made(self.size, self._blocks, tuple(places))

    def _blocks(self) -> Iterator[memoryview]:
        made = 0
        for start, stop in self.spans:
            for block in self._decoded(start, stop) if self.varints else self.source.chunks(start, stop - start):
                made += len(block)
                if made > self.size:
                    break
                yield block
        if made != self.size:
            message = f"{self.what}: {made} bytes of values came where {self.size} are needed"
            raise FormatError(rules.SIZE.id, self.spans[0][0], message)

    def _decoded(self, start: int, stop: int) -> Iterator[memoryview]:
        rest = b""
        for chunk in self.source.chunks(start, stop - start):
            data = np.frombuffer(rest + bytes(chunk), np.uint8)
            ends = (data < 0x80).nonzero()[0]
            cut = int(ends[-1]) + 1 if ends.size else 0
            rest = data[cut:].tobytes()
            if len(rest) >= 10:
                raise self._broken(start)
            yield self._values(data[:cut], ends, start).data
        if rest:
            raise self._broken(start)

    def _values(self, data: NDArray[np.uint8], ends: NDArray[np.intp], at: int) -> NDArray[np.uint8]:
        """The numbers whose last bytes are at ``ends``, cut to their width."""
        starts = np.concatenate([np.zeros(1, np.intp), ends[:-1] + 1]) if ends.size else ends
        lengths = ends - starts + 1
        if lengths.size and int(lengths.max()) > 10:
            raise self._broken(at)
        values = np.zeros(ends.size, np.uint64)
        for step in range(int(lengths.max()) if lengths.size else 0):
            rows = lengths > step
            values[rows] |= (data[starts[rows] + step] & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * step)
        return values.astype(f"<u{self.width}").view(np.uint8)

    def _broken(self, at: int) -> FormatError:
        return FormatError(rules.VARINT.id, at, f"{self.what}: a number does not end, or has more than 64 bits")
