"""What verification looks at beyond the tables: ModelInfo, and the zeros inside quantized payloads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from holdall.check import Check
from holdall.format import Tick
from holdall.formats.mcf import rules
from holdall.formats.mcf.sections import McfNative
from holdall.model import Model
from holdall.payload import Payload
from holdall.quant.encodings import McfEncoding
from holdall.quant.methods import BLOCK, Span
from holdall.source import CHUNK
from holdall.tensor import Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["audit"]


def audit(model: Model, check: Check, tick: Tick) -> None:
    """ModelInfo at level full; quantized payloads at level strict."""
    if isinstance(model.native, McfNative):
        with check.scope():
            model.native.parse_model_info(check)
    seen: set[tuple[int | None, tuple[int, ...], str]] = set()  # tensors may share their bytes
    for tensor in model.tensors:
        if check.wants("strict") and isinstance(tensor.dtype, McfEncoding) and tensor.payload is not None:
            place = (tensor.offset, tensor.shape, str(tensor.dtype))
            if place not in seen:
                seen.add(place)
                with check.scope():
                    check.limit_passes(tensor.nbytes, model.sources[0].size, "mcf: passes over payloads")
                    _Audit(tensor, tensor.dtype, tensor.payload, check).run()
        tick(tensor.nbytes)


class _Audit:
    """One quantized payload."""

    def __init__(self, tensor: Tensor, encoding: McfEncoding, payload: Payload, check: Check) -> None:
        self.name = tensor.name
        self.at = tensor.offset or 0
        self.shape = tensor.shape
        self.method = encoding.method
        self.domain = encoding.domain
        self.payload = payload
        self.check = check

    def run(self) -> None:
        if self.method.family == "int":
            where = self.method.flat(self.shape, self.domain)
            self._gaps([(0, 4), *([where.zero] if where.zero else []), where.codes])
            if where.count * self.method.bits % 8 and self._bytes(where.codes[1] - 1, where.codes[1])[0] >> 4:
                message = f"mcf: tensor {self.name!r}: the spare nibble of its last byte is not 0"
                self.check.note(rules.SPARE, self.at + where.codes[1] - 1, message)
            return
        blocks = self.method.blocks(self.shape)
        self._gaps([blocks.scales, blocks.subs, blocks.codes])
        for start, piece in self._pieces(blocks.subs, CHUNK):
            high = piece > 0x3F
            if high.any():
                at = start + int(high.argmax())
                message = f"mcf: tensor {self.name!r}: the sub-scale {piece[high][0]} has bits beyond its six"
                self.check.note(rules.SUBSCALE, self.at + at, message)
                break
        self._columns(blocks.cols % BLOCK, blocks.blocks * self.method.block_bytes, blocks.codes)

    def _columns(self, used: int, row_bytes: int, codes: Span) -> None:
        """Codes of the last block of each row beyond its last column."""
        if not used:
            return
        whole, bits = divmod(used * self.method.bits, 8)
        tail = self.method.block_bytes - whole  # bytes of a row from the first one with a spare bit on
        mask = np.full(tail, 0xFF, np.uint8)
        if tail:
            mask[0] = 0xFF << bits & 0xFF
        for start, rows in self._rows(row_bytes, tail, codes):
            wrong = (rows & mask).any(axis=1)
            if wrong.any():
                row = start + int(wrong.argmax())
                message = f"mcf: tensor {self.name!r}: codes beyond the last column of row {row} are not 0"
                self.check.note(rules.COLUMNS, self.at + codes[0] + (row + 1) * row_bytes - tail, message)
                return

    def _rows(self, row_bytes: int, tail: int, codes: Span) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        """The last ``tail`` bytes of every row, many rows at a time, with the number of the first."""
        if row_bytes > CHUNK:  # long rows: only their ends are read
            for row, end in enumerate(range(codes[0] + row_bytes, codes[1] + 1, row_bytes)):
                yield row, self._bytes(end - tail, end)[None, :]
            return
        for start, piece in self._pieces(codes, CHUNK // row_bytes * row_bytes):
            rows: NDArray[np.uint8] = piece.reshape(-1, row_bytes)[:, row_bytes - tail :]
            yield (start - codes[0]) // row_bytes, rows

    def _gaps(self, regions: list[Span]) -> None:
        end = 0
        for first, last in regions:
            found = self._bytes(end, first)
            if found.any():
                at = end + int((found != 0).argmax())
                message = f"mcf: tensor {self.name!r}: byte {at} of its payload lies between regions and is not 0"
                self.check.note(rules.GAP, self.at + at, message)
            end = max(end, last)

    def _bytes(self, start: int, stop: int) -> NDArray[np.uint8]:
        return np.frombuffer(self.payload.part(start, stop), np.uint8)

    def _pieces(self, span: Span, size: int) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        for start in range(*span, size):
            yield start, self._bytes(start, min(start + size, span[1]))
