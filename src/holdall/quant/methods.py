"""The eight MCF methods: bits, blocks, and the regions of a quantized payload.

A payload is a structure of arrays: scales, then (k*) sub-scales, then packed codes; every region starts on a
multiple of 64. Blocks of 32 run along the columns and never cross a row; eight blocks make a super-block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

from holdall.errors import ContentError, UnsupportedError
from holdall.source.ranges import ByteRange

__all__ = ["ACTIVATIONS", "ALIGN", "BLOCK", "METHODS", "SUPER", "WEIGHTS", "BlockRegions", "FlatRegions", "Method"]
__all__ += ["find_method"]

ALIGN = 64
BLOCK = 32  # values that share a scale
SUPER = 8  # blocks that share a super-scale

WEIGHTS, ACTIVATIONS = 0, 1  # the two domains of a QuantRecord


def align(size: int) -> int:
    """Round ``size`` up to the next region start."""
    return size + -size % ALIGN


@dataclass(frozen=True, slots=True)
class BlockRegions:
    """The regions of a q* or k* payload, in exact integers."""

    rows: int
    cols: int
    blocks: int  # blocks in one row
    supers: int  # super-blocks in one row; 0 for q*
    scales: ByteRange
    subs: ByteRange  # empty for q*
    codes: ByteRange

    @property
    def size(self) -> int:
        """Bytes of the payload."""
        return self.codes[1]


@dataclass(frozen=True, slots=True)
class FlatRegions:
    """The regions of an int8 or int4 payload: one scale, the zero point of activations, the codes."""

    count: int
    zero: ByteRange | None
    codes: ByteRange

    @property
    def size(self) -> int:
        """Bytes of the payload."""
        return self.codes[1]


@dataclass(frozen=True, slots=True)
class Method:
    """One row of the method table. ``id`` is both the tensor dtype and the method of its QuantRecord.

    >>> METHODS["k4"].lay_out_blocks((1, 8)).size, METHODS["q8"].qmax
    (144, 127)
    """

    name: str
    id: int
    bits: int
    family: Literal["int", "q", "k"]

    @property
    def qmax(self) -> int:
        """The largest code; the most negative number of the bit width stays unused."""
        return (1 << (self.bits - 1)) - 1

    @property
    def block(self) -> int:
        """The QuantRecord's BlockSize."""
        return 0 if self.family == "int" else BLOCK

    @property
    def super(self) -> int:
        """The QuantRecord's SuperSize."""
        return BLOCK * SUPER if self.family == "k" else 0

    @property
    def block_bytes(self) -> int:
        """Packed bytes of one block of codes."""
        return BLOCK * self.bits // 8

    def fits(self, shape: Sequence[int]) -> bool:
        """Whether a tensor of this shape can be stored by this method."""
        return all(dim > 0 for dim in shape) and (self.family == "int" or len(shape) == 2)

    def lay_out_blocks(self, shape: Sequence[int]) -> BlockRegions:
        """Lay out the regions of a q* or k* payload."""
        if self.family == "int" or not self.fits(shape):
            raise ContentError(f"{self.name} holds matrices of at least one row and column, not {list(shape)}")
        rows, cols = shape
        blocks = -(-cols // BLOCK)
        total = rows * blocks
        supers = -(-blocks // SUPER) if self.family == "k" else 0
        scales = (0, 2 * (rows * supers or total))
        first = align(scales[1])
        subs = (first, first + total) if supers else (first, first)
        first = align(subs[1])
        codes = (first, first + total * self.block_bytes)
        return BlockRegions(rows, cols, blocks, supers, scales, subs, codes)

    def lay_out_flat(self, shape: Sequence[int], domain: int = WEIGHTS) -> FlatRegions:
        """Lay out the regions of an int8 or int4 payload."""
        if self.family != "int" or not self.fits(shape):
            raise ContentError(f"{self.name} does not hold the shape {list(shape)}")
        count = prod(shape)
        first = ALIGN if domain == WEIGHTS else 2 * ALIGN
        zero = None if domain == WEIGHTS else (ALIGN, ALIGN + 4)
        return FlatRegions(count, zero, (first, first + (count * self.bits + 7) // 8))

    def nbytes(self, shape: Sequence[int], domain: int = WEIGHTS) -> int:
        """Bytes of the payload of a tensor of this shape."""
        return self.lay_out_flat(shape, domain).size if self.family == "int" else self.lay_out_blocks(shape).size


METHODS: Mapping[str, Method] = {
    method.name: method
    for method in (
        Method("int8", 0x10, 8, "int"),
        Method("int4", 0x11, 4, "int"),
        Method("q8", 0x20, 8, "q"),
        Method("q4", 0x21, 4, "q"),
        Method("k6", 0x30, 6, "k"),
        Method("k4", 0x31, 4, "k"),
        Method("k3", 0x32, 3, "k"),
        Method("k2", 0x33, 2, "k"),
    )
}


def find_method(name: str | Method) -> Method:
    """Find the method called ``name``, such as ``"k4"`` or ``"mcf.k4"``.

    >>> find_method("mcf.k4").bits
    4
    """
    if isinstance(name, Method):
        return name
    found = METHODS.get(name.strip().lower().removeprefix("mcf."))
    if found is None:
        raise UnsupportedError(f"there is no method {name!r}; the methods are {' '.join(METHODS)}")
    return found
