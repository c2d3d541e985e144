"""The MCF methods as encodings: the dtypes of quantized tensors.

>>> str(MCF["mcf.k4"]), MCF["mcf.k4"].nbytes((4096, 4096)) * 8 / 4096**2
('mcf.k4', 4.3125)
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from holdall.base.buffer_sizes import buffer_size
from holdall.base.memory import make_floats
from holdall.base.parallel import map_spans
from holdall.errors import ContentError
from holdall.model.encodings import Encoding
from holdall.quant.methods import ACTIVATIONS, ALIGN, METHODS, SUPER, WEIGHTS, Method, find_method

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["MCF", "BlockEncoding", "FlatEncoding", "McfEncoding", "encoding_of"]

# Values that one job decodes, and at least: multiples of 8, so that codes begin on a byte.
_PIECE, _LEAST = buffer_size(1 << 20), buffer_size(1 << 18)


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

    def decode_rows(self, ranges: Sequence[memoryview], shape: Sequence[int], first: int = 0) -> NDArray[Any]:
        return self._decode(ranges, shape)

    @abstractmethod
    def _regions(self, shape: Sequence[int]) -> list[tuple[int, int]]:
        """The regions of a payload, in the order of :meth:`rows`."""

    @abstractmethod
    def _decode(self, regions: Sequence[memoryview], shape: Sequence[int]) -> NDArray[Any]:
        """Decode the values of ``shape`` whose scales, sub-scales and codes are ``regions``."""


class BlockEncoding(McfEncoding):
    """A q* or k* payload: matrices only, whose rows can be decoded alone."""

    def nbytes(self, shape: Sequence[int]) -> int:
        return self.method.lay_out_blocks(shape).size

    def rows(self, shape: Sequence[int], start: int, stop: int) -> list[tuple[int, int]]:
        where = self.method.lay_out_blocks(shape)

        def rows_from(first: int, width: int) -> tuple[int, int]:
            return first + start * width, first + stop * width

        if not where.supers:
            return [rows_from(0, 2 * where.blocks), rows_from(where.codes[0], where.blocks * self.method.block_bytes)]
        return [
            rows_from(0, 2 * where.supers),
            rows_from(where.subs[0], where.blocks),
            rows_from(where.codes[0], where.blocks * self.method.block_bytes),
        ]

    def _regions(self, shape: Sequence[int]) -> list[tuple[int, int]]:
        where = self.method.lay_out_blocks(shape)
        return [where.scales, where.subs, where.codes] if where.supers else [where.scales, where.codes]

    def _decode(self, regions: Sequence[memoryview], shape: Sequence[int]) -> NDArray[Any]:
        out = make_floats((shape[0], shape[1]))
        self._fill(regions, out, None)
        return out

    def decode_into(self, data: memoryview, out: NDArray[Any], threads: int | None = None) -> None:
        """Decode a whole payload into an existing contiguous float32 matrix."""
        self._fill([data[start:stop] for start, stop in self._regions(out.shape)], out, threads)

    def _fill(self, regions: Sequence[memoryview], out: NDArray[Any], threads: int | None) -> None:
        rows, cols = out.shape
        if not out.size:
            return
        widths = [len(region) // rows for region in regions]

        def decode(start: int, stop: int) -> None:
            parts = [region[start * width : stop * width] for region, width in zip(regions, widths, strict=True)]
            self.decode_rows_into(parts, out[start:stop])

        for _ in map_spans(decode, rows, max(1, _PIECE // cols), threads, max(1, _LEAST // cols)):
            pass

    def decode_rows_into(self, ranges: Sequence[memoryview], out: NDArray[Any], first: int = 0) -> None:
        from holdall.quant.engine import dequantize_blocks

        group = SUPER if self.method.super else 0
        subs = ranges[1] if group else b""
        rows, cols = out.shape
        dequantize_blocks(self.method.bits, group, rows, cols, ranges[0], subs, ranges[-1], out)


class FlatEncoding(McfEncoding):
    """An int8 or int4 payload: any shape, one scale, and for activations one zero point."""

    def __init__(self, method: Method, domain: int = WEIGHTS) -> None:
        super().__init__(method)
        self.domain = domain

    def nbytes(self, shape: Sequence[int]) -> int:
        return self.method.lay_out_flat(shape, self.domain).size

    def rows(self, shape: Sequence[int], start: int, stop: int) -> list[tuple[int, int]] | None:
        bits = self.method.bits * prod(shape[1:])
        if bits % 8:
            return None  # rows begin inside a byte
        head, codes = self._regions(shape)
        return [head, (codes[0] + start * bits // 8, codes[0] + stop * bits // 8)]

    def _regions(self, shape: Sequence[int]) -> list[tuple[int, int]]:
        where = self.method.lay_out_flat(shape, self.domain)
        return [(0, where.codes[0]), where.codes]

    def _decode(self, regions: Sequence[memoryview], shape: Sequence[int]) -> NDArray[Any]:
        head, codes = regions
        bits, out = self.method.bits, make_floats(shape)
        flat = out.reshape(-1)

        def decode(start: int, stop: int) -> None:
            self.decode_rows_into([head, codes[start * bits // 8 : (stop * bits + 7) // 8]], flat[start:stop])

        for _ in map_spans(decode, out.size, _PIECE, least=_LEAST):
            pass
        return out

    def decode_rows_into(self, ranges: Sequence[memoryview], out: NDArray[Any], first: int = 0) -> None:
        from holdall.quant.engine import dequantize_flat

        dequantize_flat(self.method.bits, out.size, *self.scale_and_zero(ranges[0]), ranges[1], out)

    def scale_and_zero(self, head: memoryview) -> tuple[float, float]:
        """Scale and zero point from the bytes before the codes; the zero point of weights is 0."""
        import struct

        (scale,) = struct.unpack_from("<f", head, 0)
        (zero,) = struct.unpack_from("<f", head, ALIGN) if self.domain == ACTIVATIONS else (0.0,)
        return scale, zero


def encoding_of(method: str | Method, domain: int = WEIGHTS) -> McfEncoding:
    """The encoding of a method. Only int8 and int4 have the domain of activations."""
    found = find_method(method)
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
