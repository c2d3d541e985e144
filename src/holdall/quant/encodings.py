"""The MCF methods as encodings: what stands as the dtype of a quantized tensor.

>>> str(MCF["mcf.k4"]), MCF["mcf.k4"].nbytes((4096, 4096)) * 8 / 4096**2
('mcf.k4', 4.3125)
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from holdall.encodings import Encoding
from holdall.errors import ContentError
from holdall.quant.methods import ACTIVATIONS, ALIGN, METHODS, SUPER, WEIGHTS, Method, method_named

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["MCF", "BlockEncoding", "FlatEncoding", "McfEncoding", "encoding_of"]


class McfEncoding(Encoding):
    """One method as the dtype of a tensor."""

    domain = WEIGHTS

    def __init__(self, method: Method) -> None:
        self.method = method
        self.name = f"mcf.{method.name}"

    def __repr__(self) -> str:
        return f"<Encoding {self.name}>"

    def decode(self, data: memoryview, shape: Sequence[int]) -> NDArray[Any]:
        if data.nbytes != self.nbytes(shape):
            raise ContentError(f"{self.name}{list(shape)} takes {self.nbytes(shape)} bytes, not {data.nbytes}")
        return self._decode([data[start:stop] for start, stop in self._regions(shape)], shape)

    def decode_rows(self, ranges: Sequence[memoryview], shape: Sequence[int]) -> NDArray[Any]:
        return self._decode(ranges, shape)

    @abstractmethod
    def _regions(self, shape: Sequence[int]) -> list[tuple[int, int]]:
        """The regions of a payload, in the order of :meth:`rows`."""

    @abstractmethod
    def _decode(self, regions: Sequence[memoryview], shape: Sequence[int]) -> NDArray[Any]:
        """The values of ``shape`` whose scales, sub-scales and codes are ``regions``."""


class BlockEncoding(McfEncoding):
    """A q* or k* payload: matrices only, every row on its own."""

    def nbytes(self, shape: Sequence[int]) -> int:
        return self.method.blocks(shape).size

    def rows(self, shape: Sequence[int], start: int, stop: int) -> list[tuple[int, int]]:
        where = self.method.blocks(shape)

        def part(first: int, width: int) -> tuple[int, int]:
            return first + start * width, first + stop * width

        if not where.supers:
            return [part(0, 2 * where.blocks), part(where.codes[0], where.blocks * self.method.block_bytes)]
        return [
            part(0, 2 * where.supers),
            part(where.subs[0], where.blocks),
            part(where.codes[0], where.blocks * self.method.block_bytes),
        ]

    def _regions(self, shape: Sequence[int]) -> list[tuple[int, int]]:
        where = self.method.blocks(shape)
        return [where.scales, where.subs, where.codes] if where.supers else [where.scales, where.codes]

    def _decode(self, regions: Sequence[memoryview], shape: Sequence[int]) -> NDArray[Any]:
        import numpy as np

        out = np.empty((shape[0], shape[1]), np.float32)
        self._fill(regions, out, None)
        return out

    def decode_into(self, data: memoryview, out: NDArray[Any], threads: int | None = None) -> None:
        """Decode a whole payload into a contiguous float32 matrix that is there already."""
        self._fill([data[start:stop] for start, stop in self._regions(out.shape)], out, threads)

    def _fill(self, regions: Sequence[memoryview], out: NDArray[Any], threads: int | None) -> None:
        from holdall.quant.engine import dequantize_blocks
        from holdall.quant.parallel import spread

        rows, cols = out.shape
        if not out.size:
            return
        widths = [len(region) // rows for region in regions]
        group = SUPER if self.method.super else 0

        def decode(start: int, stop: int) -> None:
            parts = [region[start * width : stop * width] for region, width in zip(regions, widths, strict=True)]
            subs = parts[1] if group else b""
            dequantize_blocks(
                self.method.bits, group, stop - start, cols, parts[0], subs, parts[-1], out[start:stop]
            )  # fmt: skip

        spread(decode, rows, cols, threads)


class FlatEncoding(McfEncoding):
    """An int8 or int4 payload: any shape, one scale, and for activations one zero point."""

    def __init__(self, method: Method, domain: int = WEIGHTS) -> None:
        super().__init__(method)
        self.domain = domain

    def nbytes(self, shape: Sequence[int]) -> int:
        return self.method.flat(shape, self.domain).size

    def rows(self, shape: Sequence[int], start: int, stop: int) -> list[tuple[int, int]] | None:
        bits = self.method.bits * prod(shape[1:])
        if bits % 8:
            return None  # rows that begin inside a byte
        head, codes = self._regions(shape)
        return [head, (codes[0] + start * bits // 8, codes[0] + stop * bits // 8)]

    def _regions(self, shape: Sequence[int]) -> list[tuple[int, int]]:
        where = self.method.flat(shape, self.domain)
        return [(0, where.codes[0]), where.codes]

    def _decode(self, regions: Sequence[memoryview], shape: Sequence[int]) -> NDArray[Any]:
        import numpy as np

        from holdall.quant.engine import dequantize_flat

        out = np.empty(tuple(shape), np.float32)
        scale, zero = self.scale_and_zero(regions[0])
        dequantize_flat(self.method.bits, out.size, scale, zero, regions[1], out)
        return out

    def scale_and_zero(self, head: memoryview) -> tuple[float, float]:
        """Scale and zero point out of the bytes before the codes; 0 for weights."""
        import struct

        (scale,) = struct.unpack_from("<f", head, 0)
        (zero,) = struct.unpack_from("<f", head, ALIGN) if self.domain == ACTIVATIONS else (0.0,)
        return scale, zero


def encoding_of(method: str | Method, domain: int = WEIGHTS) -> McfEncoding:
    """The encoding of a method. Only int8 and int4 know the domain of activations."""
    found = method_named(method)
    if domain == WEIGHTS:
        return MCF[f"mcf.{found.name}"]
    if found.family != "int":
        raise ContentError(f"{found.name} holds weights only")
    return _OF_ACTIVATIONS[found.name]


MCF: Mapping[str, McfEncoding] = {
    f"mcf.{method.name}": FlatEncoding(method) if method.family == "int" else BlockEncoding(method)
    for method in METHODS.values()
}

_OF_ACTIVATIONS = {name: FlatEncoding(METHODS[name], ACTIVATIONS) for name in ("int8", "int4")}
