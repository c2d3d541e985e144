"""Makes the payload of a quantized tensor when the sink asks for it: on all cores, and in bounded memory.

A job reads some rows of the source, widens them and quantizes them, all on its own thread. What it makes goes to its
place in the payload, or into memory that is used again once the sink has written it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np

from holdall.base.buffer_sizes import buffer_size
from holdall.base.memory import lend_memory
from holdall.base.parallel import map_in_order
from holdall.errors import ContentError
from holdall.model.payload import Computed
from holdall.model.portions import Portion, fill_in_order
from holdall.model.tensor import Tensor
from holdall.quant.arrays import GIVEN, check_mode, importance_of, quantize_rows, slice_rows
from holdall.quant.encodings import encoding_of
from holdall.quant.flat import choose_scale
from holdall.quant.methods import BlockRegions, Method
from holdall.quant.record import DOMAINS, Domain, QuantRecord
from holdall.quant.source_rows import split_rows, use_rows
from holdall.source import CHUNK

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["TensorQuantizer"]

R = TypeVar("R")
Bounds: TypeAlias = tuple[float, float]

_HELD = buffer_size(32 << 20)  # payloads up to this are made in memory, larger ones in two passes over their source
_SEARCHED = buffer_size(1 << 18)  # values of a job: some milliseconds with a search for scales,
_QUICK = buffer_size(1 << 19)  # and half of one without


@dataclass(frozen=True, slots=True)
class TensorQuantizer:
    """How one tensor is quantized. ``clip``: the bounds to which its values are cut, if the caller stated any."""

    tensor: Tensor
    method: Method
    mode: str
    domain: Domain
    clip: Bounds | None
    importance: NDArray[np.float32] | None
    threads: int | None

    @classmethod
    def of(
        cls,
        tensor: Tensor,
        method: Method,
        mode: str,
        domain: Domain,
        clip: Bounds | None,
        importance: ArrayLike | None,
        threads: int | None,
    ) -> TensorQuantizer:
        """Check that ``tensor`` can be quantized so. No values are read."""
        check_mode(method, mode, domain)
        if tensor.scaling is not None:
            reason = "is scaled by quantization parameters: dequantize it before quantizing"
            raise ContentError(f"tensor {tensor.name!r} {reason}")
        if not method.fits(tensor.shape):
            raise ContentError(f"tensor {tensor.name!r}: {method.name} does not hold the shape {list(tensor.shape)}")
        cols = tensor.shape[-1] if tensor.shape else 1
        weights = importance_of(importance, cols, method, mode, tensor.name)
        return cls(tensor, method, mode, domain, clip, weights, threads)

    @property
    def cols(self) -> int:
        """The values of a row."""
        return self.tensor.shape[-1] if self.tensor.shape else 1

    def make_tensor(self, bounds: Bounds) -> Tensor:
        """The tensor in quantized form, with a payload that is made when asked for; ``bounds`` are for its record."""
        tensor, number = self.tensor, DOMAINS[self.domain]

        def make() -> Iterator[memoryview]:
            return self._make_flat(bounds) if self.method.family == "int" else self._make_blocks(bounds)

        size = self.method.nbytes(tensor.shape, number)
        payload = Computed(size, make, tensor.payloads, is_held=self.method.family != "int" and size <= _HELD)
        record = QuantRecord(self.method.name, self.domain, *bounds)
        return Tensor(tensor.name, encoding_of(self.method, number), tensor.shape, payload, record)

    def _make_flat(self, bounds: Bounds) -> Iterator[memoryview]:
        """Make the payload of int8 or int4."""
        number, bits = DOMAINS[self.domain], self.method.bits

        def map_floats(work: Callable[[NDArray[np.float32], int], R]) -> Iterator[R]:
            def take(portion: Portion) -> R:
                return use_rows(portion, self.cols, lambda rows: work(rows.reshape(-1), portion.first))

            return map_in_order(take, split_rows(self.tensor, self.cols), self.threads)

        scale = choose_scale(self.method, number, self.mode, bounds, self.clip is not None, map_floats)

        def encode(portion: Portion, out: memoryview) -> None:
            use_rows(portion, self.cols, lambda rows: scale.encode_into(rows.reshape(-1), out))

        yield memoryview(scale.encode_head())
        yield from self._fill(lambda count: (count * bits + 7) // 8, encode)

    def _make_blocks(self, bounds: Bounds) -> Iterator[memoryview]:
        """Make the payload of q* or k*: scales first, then (k*) sub-scales, then codes."""
        where = self.method.lay_out_blocks(self.tensor.shape)
        cut = bounds if self.clip is not None else (-inf, inf)
        return self._make_in_memory(where, cut) if where.size <= _HELD else self._make_in_two_passes(where, cut)

    def _make_in_memory(self, where: BlockRegions, cut: Bounds) -> Iterator[memoryview]:
        payload = np.zeros(where.size, np.uint8)
        regions = [payload[start:stop] for start, stop in (where.scales, where.subs, where.codes)]

        def quantize(portion: Portion) -> None:
            self._quantize(portion, self.mode, cut, *self._slice(portion, regions))

        portions: Iterable[Portion] = self._split(self.mode)
        if self.tensor.count <= _SEARCHED:  # one portion, for which a thread would cost more than it saves
            portions = list(portions)
        for _ in map_in_order(quantize, portions, self.threads):
            pass
        for start in range(0, where.size, CHUNK):
            yield payload[start : start + CHUNK].data

    def _make_in_two_passes(self, where: BlockRegions, cut: Bounds) -> Iterator[memoryview]:
        """Keep only scales and sub-scales, which the first pass finds; the second makes the codes by them."""
        width = where.blocks * self.method.block_bytes
        kept = [np.empty(stop - start, np.uint8) for start, stop in (where.scales, where.subs)]

        def find_scales(portion: Portion) -> memoryview:
            scales, subs = self._slice(portion, kept)
            with lend_memory(portion.count // self.cols * width) as codes:
                self._quantize(portion, self.mode, cut, scales, subs, codes)
            return scales.data

        yield from map_in_order(find_scales, self._split(self.mode), self.threads)
        yield memoryview(bytes(where.subs[0] - where.scales[1]))
        yield kept[1].data
        yield memoryview(bytes(where.codes[0] - where.subs[1]))
        # The reference makes its codes by scales before they are truncated: those are not stored, so it repeats itself.
        mode = self.mode if self.mode == "reference" else GIVEN

        def make_codes(portion: Portion, codes: memoryview) -> None:
            scales, subs = self._slice(portion, kept)
            self._quantize(portion, mode, cut, scales, subs, codes)

        yield from self._fill(lambda count: count // self.cols * width, make_codes)

    def _split(self, mode: str | int) -> Iterator[Portion]:
        return split_rows(self.tensor, self.cols, _SEARCHED if mode == "best" else _QUICK)

    def _fill(self, size_of: Callable[[int], int], fill: Callable[[Portion, memoryview], None]) -> Iterator[memoryview]:
        return (made for made, _ in fill_in_order(self._split(GIVEN), size_of, fill, self.threads))

    def _slice(self, portion: Portion, regions: Sequence[NDArray[np.uint8]]) -> list[NDArray[np.uint8]]:
        """The parts of regions that belong to the rows of a portion."""
        start, rows = portion.first // self.cols, self.tensor.shape[0]
        return [slice_rows(region, rows, start, start + portion.count // self.cols) for region in regions]

    def _quantize(
        self,
        portion: Portion,
        mode: str | int,
        cut: Bounds,
        scales: NDArray[np.uint8],
        subs: NDArray[np.uint8],
        codes: NDArray[np.uint8] | memoryview,
    ) -> None:
        """Quantize the rows of a portion into the parts of the regions that belong to them."""

        def quantize(rows: NDArray[np.float32]) -> float:
            return quantize_rows(self.method, mode, rows, cut, self.importance, scales, subs, codes)

        use_rows(portion, self.cols, quantize)
