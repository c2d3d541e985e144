"""How the numbers of packed weights are made: codes become numbers, and scales multiply them.

Each decoder is given its parts as arrays of lines, entries and items (see :class:`~holdall.packed.weight.Part`), and
fills some rows of the weight as float32. All products are those of float32, rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdall.errors import ContentError
from holdall.model.dtypes import DTYPES

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

__all__ = ["FP4", "ColumnCodes", "Looked", "RowCodes", "Stacked", "to_floats", "unpack_bits", "words_unit"]

_AT_ONCE = 1 << 18  # values that are decoded before the next ones: they stay in the cache of a core

# The values of the sixteen codes of a float of four bits (E2M1).
FP4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)


def to_floats(values: NDArray[Any]) -> Floats:
    """Return stored numbers of any type as float32."""
    import numpy as np

    dtype = next((each for each in DTYPES.values() if each.is_small and each.numpy == values.dtype), None)
    if dtype is None:
        return values.astype(np.float32)
    return dtype.widen(values)


def words_unit(bits: int) -> int:
    """How many codes end on a word of 32 bits: those of one word, or of as many words as a code has bits.

    >>> words_unit(4), words_unit(3)
    (8, 32)
    """
    return 32 // bits if 32 % bits == 0 else 32


def unpack_bits(stored: NDArray[Any], bits: int, count: int) -> NDArray[np.uint8]:
    """Unpack the first ``count`` codes of each row of ``stored``: one stream of bits, low bits of a byte first."""
    import numpy as np

    from holdall.binary import kernels

    rows = np.ascontiguousarray(stored).reshape(len(stored), -1).view(np.uint8)
    if bits == 8:
        return rows[:, :count]
    held = rows.shape[1] * 8 // bits
    if bits in (5, 7):  # of which the kernels know nothing, since no dtype has as many
        weights = (1 << np.arange(bits)).astype(np.uint8)
        single = np.unpackbits(rows, axis=1, bitorder="little")[:, : held * bits]
        return (single.reshape(len(rows), held, bits) @ weights)[:, :count]
    codes = np.empty((len(rows), held), np.uint8)
    if rows.shape[1] * 8 == held * bits:  # no bits are left over, so that all rows are one stream
        kernels.unpack(rows.reshape(-1).data, 0, bits, codes.size, 0, codes.reshape(-1))
    else:
        for row, out in zip(rows, codes, strict=True):
            kernels.unpack(row.data, 0, bits, held, 0, out)
    return codes[:, :count]


@dataclass(frozen=True, slots=True)
class RowCodes:
    """Codes that lie row by row. The parts are codes, scales, and if there are ``zeros`` those, or what is added.

    ``bits`` is the size of a code in a stream of bits; 0 for numbers of a type of their own. ``offset`` is subtracted
    from each, and ``table`` has the values of codes that are no numbers. A scale is for ``block`` = (rows, columns);
    ``zeros`` says what the third part does: it is subtracted from codes before they are scaled, or added after it
    (``"bias"``). Zeros of ``zero_bits`` are packed along the rows: an entry is for ``zero_unit`` rows, and with 0 all
    are at hand. ``shared`` says that the last part is one number that multiplies the scales, or divides them
    (``"divide"``).
    ``exponents`` says that scales are powers of two, and ``factor`` multiplies what is scaled.
    """

    bits: int
    block: tuple[int, int]
    offset: int = 0
    table: tuple[float, ...] = ()
    zeros: str = ""
    zero_bits: int = 0
    zero_unit: int = 0
    shared: str = ""
    exponents: bool = False
    factor: float = 0.0

    def decode(self, parts: Sequence[NDArray[Any]], first: int, out: Floats) -> None:
        import numpy as np

        rows = len(out)
        parts = list(parts)
        shared = to_floats(parts.pop().reshape(-1))[0] if self.shared else None
        self._fill(parts[0].reshape(rows, -1), out)
        scales = self._read_scales(parts[1], shared)
        zeros = None
        if self.zeros:
            zeros = self._read_zeros(parts[2], first, rows, scales.shape[1])
        high, wide = self.block
        with np.errstate(invalid="ignore", over="ignore", under="ignore"):
            for start, stop, entry in _list_blocks(first, rows, high):
                scale = scales[entry : entry + stop - start] if high == 1 else scales[entry : entry + 1]
                zero = None if zeros is None else zeros[start:stop] if high == 1 else zeros[entry : entry + 1]
                _scale(out[start:stop], wide, scale, zero, self.zeros == "bias")
            if self.factor:
                out *= np.float32(self.factor)

    def _fill(self, stored: NDArray[Any], out: Floats) -> None:
        import numpy as np

        if not self.bits:
            out[...] = to_floats(stored)
            return
        codes = unpack_bits(stored, self.bits, out.shape[1])
        if self.table:
            np.take(np.array(self.table, np.float32), codes, out=out)
        else:
            np.subtract(codes, np.float32(self.offset), out=out, dtype=np.float32)

    def _read_scales(self, stored: NDArray[Any], shared: np.float32 | None) -> Floats:
        import numpy as np

        codes = stored.reshape(stored.shape[1], -1)
        if self.exponents:  # of two, in a byte; 255 is NaN
            powers = np.ldexp(np.float32(1), codes.astype(np.int32) - 127)
            scales: Floats = np.where(codes == 255, np.float32(np.nan), powers).astype(np.float32)
        else:
            scales = to_floats(codes)
        if shared is not None:
            scales = np.divide(scales, shared) if self.shared == "divide" else np.multiply(scales, shared)
        return scales

    def _read_zeros(self, stored: NDArray[Any], first: int, rows: int, groups: int) -> Floats:
        import numpy as np

        if not self.zero_bits:
            return to_floats(stored.reshape(stored.shape[1], -1))
        # Packed along the rows: each entry has words of every group, and the first row may lie inside of a word.
        words = np.ascontiguousarray(stored.reshape(-1, groups).T)
        skipped = first % self.zero_unit if self.zero_unit else first
        codes = unpack_bits(words, self.zero_bits, skipped + rows)[:, skipped:]
        return np.subtract(codes.T, np.float32(self.offset), dtype=np.float32)


def _list_blocks(first: int, rows: int, high: int) -> list[tuple[int, int, int]]:
    """List the spans of the rows from ``first`` on that share entries of scales: start, stop and the entry."""
    if high <= 1:
        return [(0, rows, 0)]
    spans, start = [], 0
    while start < rows:
        stop = min(rows, (first + start) // high * high + high - first)
        spans.append((start, stop, (first + start) // high - first // high))
        start = stop
    return spans


def _scale(out: Floats, wide: int, scale: Floats, zero: Floats | None, is_bias: bool) -> None:
    """Scale ``out``, where each column of ``scale`` and ``zero`` is for ``wide`` columns."""
    rows, columns = out.shape
    groups = columns // wide
    pieces = [(out[:, : groups * wide].reshape(rows, groups, wide), slice(0, groups))]
    if groups * wide < columns:
        pieces.append((out[:, groups * wide :].reshape(rows, 1, -1), slice(groups, groups + 1)))
    for values, chosen in pieces:
        if zero is not None and not is_bias:
            values -= zero[:, chosen, None]
        values *= scale[:, chosen, None]
        if zero is not None and is_bias:
            values += zero[:, chosen, None]


@dataclass(frozen=True, slots=True)
class ColumnCodes:
    """Codes whose tensor has the rows of the weight as columns, as GPTQ and AWQ store them.

    The parts are codes, scales, zero points, and with ``grouped`` the group of each column of the weight. Words hold
    codes along the columns of the weight, or with ``across`` along its rows, in the ``order`` of their places.
    ``add`` is added to stored zero points, which have as many bits as codes: 15 and 1 are 0.
    """

    bits: int
    columns: int
    group: int
    order: tuple[int, ...]
    across: bool = False
    add: int = 0
    grouped: bool = False
    groups: int = 0

    def decode(self, parts: Sequence[NDArray[Any]], first: int, out: Floats) -> None:
        import numpy as np

        codes, scales, zeros = (part.reshape(len(part), -1) for part in parts[:3])
        order = self._read_order(parts[3].reshape(-1)) if self.grouped else None
        begin = first % words_unit(self.bits)  # the first row may lie inside a word, or group of words
        points = (self._unpack_across(zeros).T + np.uint8(self.add)) & np.uint8((1 << self.bits) - 1)
        step = max(8, _AT_ONCE // max(1, self.columns) // 8 * 8)
        for start in range(0, len(out), step):
            rows = out[start : start + step]
            span = slice(begin + start, begin + start + len(rows))
            stop = start + len(rows)
            if self.across:
                np.copyto(rows, self._unpack_words(codes, span).T)
            else:
                words = np.ascontiguousarray(codes[:, start:stop].T)
                np.copyto(rows, unpack_bits(words, self.bits, self.columns))
            scale, zero = to_floats(scales[:, start:stop]).T, points[span].astype(np.float32)
            if order is None:
                _scale(rows, self.group, np.ascontiguousarray(scale), zero, False)
            else:
                rows -= zero[:, order]
                rows *= scale[:, order]

    def _read_order(self, stored: NDArray[Any]) -> NDArray[np.intp] | None:
        """Return the group of each column; None if groups follow one another."""
        import numpy as np

        groups = stored.astype(np.intp)
        if len(groups) and not (groups.min() >= 0 and groups.max() < self.groups):
            wrong = groups.max() if groups.max() >= self.groups else groups.min()
            raise ContentError(f"has a column in group {wrong} of {self.groups} [packed.gptq.group]")
        return None if np.array_equal(groups, np.arange(self.columns) // self.group) else groups

    def _unpack_words(self, words: NDArray[Any], span: slice) -> NDArray[np.uint8]:
        """Unpack the codes of some rows of the weight, whose words hold several of them."""
        unit = words_unit(self.bits)
        low, high = span.start // unit, -(-span.stop // unit)
        return self._unpack_across(words[:, low:high])[:, span.start - low * unit : span.stop - low * unit]

    def _unpack_across(self, words: NDArray[Any]) -> NDArray[np.uint8]:
        """Unpack the codes of words that hold several columns, in their order."""
        import numpy as np

        codes = unpack_bits(np.ascontiguousarray(words), self.bits, words.shape[1] * 32 // self.bits)
        if not self.order:
            return codes
        places = codes.reshape(len(codes), -1, len(self.order))
        return places[:, :, list(self.order)].reshape(len(codes), -1)


@dataclass(frozen=True, slots=True)
class Looked:
    """Codes of four bits that are looked up in a table and scaled by blocks of the flattened weight.

    The parts are codes, scales of the blocks, and with ``nested`` the table of these, and their own scales. They are
    those of the rows, or with ``whole`` of the weight.
    """

    table: tuple[float, ...]
    block: int
    whole: bool = False
    nested: int = 0
    nested_offset: float = 0.0

    def decode(self, parts: Sequence[NDArray[Any]], first: int, out: Floats) -> None:
        import numpy as np

        pairs = parts[0].reshape(-1)
        codes = np.empty(2 * pairs.size, np.uint8)
        codes[0::2], codes[1::2] = pairs >> 4, pairs & 15
        begin = first * out[0].size
        inside = begin if self.whole else 0  # a row whose parts are read alone begins with a byte and with a block
        flat = out.reshape(-1)
        np.take(np.array(self.table, np.float32), codes[inside : inside + flat.size], out=flat)
        places = (np.arange(flat.size) + inside) // self.block
        with np.errstate(invalid="ignore", over="ignore", under="ignore"):
            flat *= self._read_scales(parts, begin - inside)[places]

    def _read_scales(self, parts: Sequence[NDArray[Any]], begin: int) -> Floats:
        import numpy as np

        stored = parts[1].reshape(-1)
        if not self.nested:
            return to_floats(stored)
        table, outer = to_floats(parts[2].reshape(-1)), to_floats(parts[3].reshape(-1))
        blocks = np.arange(stored.size) + begin // self.block
        scales: Floats = table[stored] * outer[blocks // self.nested] + np.float32(self.nested_offset)
        return scales


@dataclass(frozen=True, slots=True)
class Stacked:
    """A stack of matrices, such as the experts of a layer, which ``inner`` decodes one by one.

    ``entries`` are the entries of each part in one matrix. The axes of the matrices are stored ``swapped``.
    """

    inner: RowCodes
    entries: tuple[int, ...]
    swapped: bool = False

    def decode(self, parts: Sequence[NDArray[Any]], first: int, out: Floats) -> None:
        import numpy as np

        for number, matrix in enumerate(out):
            own = [
                part[:, number].reshape(1, entries, -1) if entries else part
                for part, entries in zip(parts, self.entries, strict=True)
            ]
            if self.swapped:
                values = np.empty(matrix.shape[::-1], np.float32)
                self.inner.decode(own, 0, values)
                matrix[...] = values.T
            else:
                self.inner.decode(own, 0, matrix)
