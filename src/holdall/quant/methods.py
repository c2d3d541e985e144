"""The eight MCF methods: bits, blocks, and where each region of a quantized payload lies.

A payload is a structure of arrays: scales, then (k*) sub-scales, then packed codes; every region starts on a
multiple of 64. Blocks of 32 run along the columns and never cross a row; eight blocks make a super-block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

from holdall.errors import ContentError, UnsupportedError

__all__ = [
    "ACTIVATIONS",
    "ALIGN",
    "BLOCK",
    "METHODS",
    "SUPER",
    "WEIGHTS",
    "BlockRegions",
    "FlatRegions",
    "Method",
    "method_named",
]

ALIGN = 64
BLOCK = 32  # values that share a scale
SUPER = 8  # blocks that share a super-scale

WEIGHTS, ACTIVATIONS = 0, 1  # the two domains of a QuantRecord

Span = tuple[int, int]  # first byte, byte after the last


def align(size: int) -> int:
    """``size`` rounded up to the next region start."""
    return size + -size % ALIGN


@dataclass(frozen=True, slots=True)
class BlockRegions:
    """Where the regions of a q* or k* payload lie, in exact integers."""

    rows: int
    cols: int
    blocks: int  # of one row
    supers: int  # of one row; 0 for q*
    scales: Span
    subs: Span  # empty for q*
    codes: Span

    @property
    def size(self) -> int:
        """Bytes of the payload."""
        return self.codes[1]


@dataclass(frozen=True, slots=True)
class FlatRegions:
    """Where the regions of an int8 or int4 payload lie: one scale, the zero point of activations, the codes."""

    count: int
    zero: Span | None
    codes: Span

    @property
    def size(self) -> int:
        """Bytes of the payload."""
        return self.codes[1]


@dataclass(frozen=True, slots=True)
class Method:
    """One row of the method table. ``id`` is both the tensor dtype and the method of its QuantRecord.

    >>> METHODS["k4"].blocks((1, 8)).size, METHODS["q8"].qmax
    (144, 127)
    """

    name: str
    id: int
    bits: int
    family: Literal["int", "q", "k"]

    @property
    def qmax(self) -> int:
        """The largest code; the most negative one of the bit width stays unused."""
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

    def blocks(self, shape: Sequence[int]) -> BlockRegions:
        """The regions of a q* or k* payload."""
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

    def flat(self, shape: Sequence[int], domain: int = WEIGHTS) -> FlatRegions:
        """The regions of an int8 or int4 payload."""
        if self.family != "int" or not self.fits(shape):
            raise ContentError(f"{self.name} does not hold the shape {list(shape)}")
        count = prod(shape)
        first = ALIGN if domain == WEIGHTS else 2 * ALIGN
        zero = None if domain == WEIGHTS else (ALIGN, ALIGN + 4)
        return FlatRegions(count, zero, (first, first + (count * self.bits + 7) // 8))

    def nbytes(self, shape: Sequence[int], domain: int = WEIGHTS) -> int:
        """Bytes of the payload of a tensor of this shape."""
        return self.flat(shape, domain).size if self.family == "int" else self.blocks(shape).size


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


def method_named(name: str | Method) -> Method:
    """The method called ``name``, with or without its ``mcf.``.

    >>> method_named("mcf.k4").bits
    4
    """
    if isinstance(name, Method):
        return name
    found = METHODS.get(name.strip().lower().removeprefix("mcf."))
    if found is None:
        raise UnsupportedError(f"there is no method {name!r}; the methods are {' '.join(METHODS)}")
    return found
