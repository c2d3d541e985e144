"""Checks ModelInfo, and the bytes of quantized payloads that must be zero."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from holdall.base.check import Check
from holdall.format.base import OnProgress
from holdall.format.mcf import rules
from holdall.format.mcf.sections import McfNative
from holdall.model.model import Model
from holdall.model.payload import Payload
from holdall.model.tensor import Tensor
from holdall.quant.encodings import McfEncoding
from holdall.quant.methods import BLOCK
from holdall.source import CHUNK
from holdall.source.ranges import ByteRange

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["audit"]


def audit(model: Model, check: Check, on_progress: OnProgress) -> None:
    """Check ModelInfo at level full, quantized payloads at level strict."""
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
                    _PayloadAudit(tensor, tensor.dtype, tensor.payload, check).run()
        on_progress(tensor.nbytes)


class _PayloadAudit:
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
            where = self.method.lay_out_flat(self.shape, self.domain)
            self._check_gaps([(0, 4), *([where.zero] if where.zero else []), where.codes])
            if where.count * self.method.bits % 8 and self._read(where.codes[1] - 1, where.codes[1])[0] >> 4:
                message = f"mcf: tensor {self.name!r}: the spare nibble of its last byte is not 0"
                self.check.note(rules.SPARE, self.at + where.codes[1] - 1, message)
            return
        blocks = self.method.lay_out_blocks(self.shape)
        self._check_gaps([blocks.scales, blocks.subs, blocks.codes])
        for start, piece in self._iter_pieces(blocks.subs, CHUNK):
            high = piece > 0x3F
            if high.any():
                at = start + int(high.argmax())
                message = f"mcf: tensor {self.name!r}: the sub-scale {piece[high][0]} has bits beyond its six"
                self.check.note(rules.SUBSCALE, self.at + at, message)
                break
        self._check_columns(blocks.cols % BLOCK, blocks.blocks * self.method.block_bytes, blocks.codes)

    def _check_columns(self, used: int, row_bytes: int, codes: ByteRange) -> None:
        """Check that the codes of each row beyond its last column are 0."""
        if not used:
            return
        whole, bits = divmod(used * self.method.bits, 8)
        tail = self.method.block_bytes - whole  # bytes of a row from the first one with a spare bit on
        mask = np.full(tail, 0xFF, np.uint8)
        if tail:
            mask[0] = 0xFF << bits & 0xFF
        for start, rows in self._iter_row_ends(row_bytes, tail, codes):
            wrong = (rows & mask).any(axis=1)
            if wrong.any():
                row = start + int(wrong.argmax())
                message = f"mcf: tensor {self.name!r}: codes beyond the last column of row {row} are not 0"
                self.check.note(rules.COLUMNS, self.at + codes[0] + (row + 1) * row_bytes - tail, message)
                return

    def _iter_row_ends(self, row_bytes: int, tail: int, codes: ByteRange) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        """The last ``tail`` bytes of every row, in arrays of many rows, each with the number of its first row."""
        if row_bytes > CHUNK:  # long rows: only their ends are read
            for row, end in enumerate(range(codes[0] + row_bytes, codes[1] + 1, row_bytes)):
                yield row, self._read(end - tail, end)[None, :]
            return
        for start, piece in self._iter_pieces(codes, CHUNK // row_bytes * row_bytes):
            rows: NDArray[np.uint8] = piece.reshape(-1, row_bytes)[:, row_bytes - tail :]
            yield (start - codes[0]) // row_bytes, rows

    def _check_gaps(self, regions: list[ByteRange]) -> None:
        end = 0
        for first, last in regions:
            found = self._read(end, first)
            if found.any():
                at = end + int((found != 0).argmax())
                message = f"mcf: tensor {self.name!r}: byte {at} of its payload lies between regions and is not 0"
                self.check.note(rules.GAP, self.at + at, message)
            end = max(end, last)

    def _read(self, start: int, stop: int) -> NDArray[np.uint8]:
        return np.frombuffer(self.payload.slice(start, stop), np.uint8)

    def _iter_pieces(self, span: ByteRange, size: int) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        for start in range(*span, size):
            yield start, self._read(start, min(start + size, span[1]))
