"""Whole models, quantized lazily: a survey for what must be known first, then payloads made block by block."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from holdall.encodings import Encoding
from holdall.errors import ContentError
from holdall.model import Model
from holdall.payload import Made
from holdall.quant.arrays import GIVEN, check_mode, clip_bounds, fill, importance_of
from holdall.quant.encodings import encoding_of
from holdall.quant.flat import flat_scale
from holdall.quant.methods import WEIGHTS, BlockRegions, Method, method_named
from holdall.quant.parallel import threads_of
from holdall.quant.policy import Policy, Rule, parse_rules
from holdall.quant.values import extremes, row_blocks
from holdall.sizes import tuned
from holdall.source import CHUNK
from holdall.tensor import Tensor

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["dequantize_model", "quantize_model", "quantize_tensor"]

_HELD = tuned(32 << 20)  # payloads up to this are made in memory, larger ones in two passes over their source

Progress = Callable[[int, int], None]  # source bytes surveyed, source bytes to survey


def quantize_model(
    model: Model,
    method: str = "k4",
    *,
    mode: str = "best",
    rules: Iterable[str | Rule] = (),
    sensitive: str | None = None,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    min_size: int = 0,
    policy: Policy | None = None,
    clip: tuple[float, float] | None = None,
    importance: Mapping[str, ArrayLike] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    survey: bool = True,
) -> Model:
    """``model`` with the tensors that the policy chooses in quantized form, to be written with :func:`holdall.save`.

    Surveying reads every chosen tensor once: values that are not finite are refused here, naming tensor and
    position, before anything is written. ``survey=False`` leaves that out, and the clip bounds at 0: for a plan that
    is only looked at. Payloads are made when the sink asks for them, in bounded memory. ``sensitive`` is the method
    for the matrices where errors tell most (:data:`holdall.quant.policy.SENSITIVE`), unless a rule says otherwise.

    >>> import numpy as np, holdall
    >>> from holdall.model import model_of
    >>> small = quantize_model(model_of({"w": np.ones((4, 64), np.float32), "b": np.ones(4, np.float32)}), "q8")
    >>> [str(t.dtype) for t in small.tensors]
    ['mcf.q8', 'f32']
    """
    if policy is None:
        policy = policy_of(
            method, mode, rules=rules, sensitive=sensitive, include=include, exclude=exclude, min_size=min_size
        )
    tensors = list(model.tensors)
    chosen = {row: found for row, t in enumerate(tensors) if (found := policy.choose(t).method) is not None}
    weights = dict(importance or {})
    total, done = sum(tensors[row].nbytes for row in chosen), 0

    def tick(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(done, total)

    for row, found in chosen.items():
        columns = weights.get(tensors[row].name)
        tensors[row] = quantize_tensor(
            tensors[row], found, mode=mode, clip=clip, importance=columns, threads=threads,
            tick=tick, survey=survey,
        )  # fmt: skip
    return model.replace(tensors=tensors)


def policy_of(
    method: str,
    mode: str,
    *,
    rules: Iterable[str | Rule] = (),
    sensitive: str | None = None,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    min_size: int = 0,
) -> Policy:
    """The policy of these choices; mode ``reference`` without any takes the reference's own: every matrix of floats."""
    found = parse_rules(rules)
    for name in (method, sensitive, *(rule.method for rule in found)):
        if name is not None:
            check_mode(method_named(name), mode, "weights")
    every = mode == "reference" and not (found or sensitive or include or exclude or min_size)
    return Policy(method, found, tuple(include), tuple(exclude), min_size, every, sensitive)


def dequantize_model(model: Model, dtype: str = "f32") -> Model:
    """``model`` with every encoded tensor that can be decoded as plain floats, made lazily."""
    from holdall.casts import cast, dequantized
    from holdall.dtypes import named

    kind = named(dtype)
    changed = [cast(dequantized(t), kind) if isinstance(t.dtype, Encoding) else t for t in model.tensors]
    return model.replace(tensors=changed)


def quantize_tensor(
    tensor: Tensor,
    method: Method,
    *,
    mode: str = "best",
    clip: tuple[float, float] | None = None,
    importance: ArrayLike | None = None,
    threads: int | None = None,
    tick: Callable[[int], None] = lambda _: None,
    survey: bool = True,
) -> Tensor:
    """``tensor`` in quantized form: surveyed now, made when asked for."""
    from holdall.formats.mcf.quantinfo import QuantRecord

    check_mode(method, mode, "weights")
    if not method.fits(tensor.shape):
        raise ContentError(f"tensor {tensor.name!r}: {method.name} does not hold the shape {list(tensor.shape)}")
    cols = tensor.shape[-1] if tensor.shape else 1
    bounds = _survey(tensor, cols, clip, tick) if survey else (0.0, 0.0)
    columns = importance_of(importance, cols, method, mode, tensor.name)
    job = _Job(tensor, method, mode, bounds, clip is not None, columns, threads_of(threads))
    record = QuantRecord(method.name, "weights", *bounds)
    make = job.flat if method.family == "int" else job.blocks
    payload = Made(method.nbytes(tensor.shape), make, tensor.payloads)
    return Tensor(tensor.name, encoding_of(method), tensor.shape, payload, record)


def _survey(
    tensor: Tensor, cols: int, clip: tuple[float, float] | None, tick: Callable[[int], None]
) -> tuple[float, float]:
    """The clip bounds, and on the way the refusal of what is not finite."""
    low, high, at = float("inf"), float("-inf"), 0
    width = tensor.nbytes // max(1, tensor.count)
    for block in row_blocks(tensor, cols):
        least, most = extremes(block, tensor.name, tensor.shape, at)
        low, high, at = min(low, least), max(high, most), at + block.size
        tick(block.size * width)
    return clip_bounds(low, high, clip, "weights")


@dataclass(frozen=True, slots=True)
class _Job:
    """One tensor on its way into a payload."""

    tensor: Tensor
    method: Method
    mode: str
    clip: tuple[float, float]
    given: bool
    importance: NDArray[np.float32] | None
    threads: int

    @property
    def cols(self) -> int:
        return self.tensor.shape[-1] if self.tensor.shape else 1

    def flat(self) -> Iterator[memoryview]:
        """The payload of int8 or int4."""

        def blocks() -> Iterator[NDArray[np.float32]]:
            return row_blocks(self.tensor, self.cols)

        scale = flat_scale(self.method, WEIGHTS, self.mode, self.clip, self.given, blocks)
        yield memoryview(scale.head())
        for block in blocks():  # of a multiple of 8 rows: no code is split
            yield scale.codes(block.reshape(-1)).data

    def blocks(self) -> Iterator[memoryview]:
        """The payload of q* or k*: scales first, then (k*) sub-scales, then codes."""
        where = self.method.blocks(self.tensor.shape)
        if where.size <= _HELD:
            payload = np.zeros(where.size, np.uint8)
            regions = [payload[start:stop] for start, stop in (where.scales, where.subs, where.codes)]
            at = 0
            for parts in self._quantized(where, self.mode, None):
                for region, part in zip(regions, parts, strict=True):
                    width = region.size // where.rows
                    region[at * width : at * width + part.size] = part
                at += parts[2].size // (where.blocks * self.method.block_bytes)
            for start in range(0, where.size, CHUNK):
                yield payload[start : start + CHUNK].data
            return
        # Scales go out as they are found; only they are kept, and the second pass makes the codes by them.
        scales, subs = np.empty(where.scales[1], np.uint8), np.empty(where.subs[1] - where.subs[0], np.uint8)
        kept, sub_kept = 0, 0
        for found, sub_found, _ in self._quantized(where, self.mode, None):
            scales[kept : kept + found.size], kept = found, kept + found.size
            subs[sub_kept : sub_kept + sub_found.size], sub_kept = sub_found, sub_kept + sub_found.size
            yield found.data
        yield memoryview(bytes(where.subs[0] - where.scales[1]))
        yield subs.data
        yield memoryview(bytes(where.codes[0] - where.subs[1]))
        again = self.mode if self.mode == "reference" else GIVEN
        for _, _, codes in self._quantized(where, again, (scales, subs)):
            yield codes.data

    def _quantized(
        self, where: BlockRegions, mode: str | int, known: tuple[NDArray[np.uint8], NDArray[np.uint8]] | None
    ) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8]]]:
        """The three regions of some rows at a time, in order, made on several threads."""
        infinity = float("inf")
        cut = self.clip if self.given else (-infinity, infinity)
        widths = (where.scales[1] // where.rows, (where.subs[1] - where.subs[0]) // where.rows)
        code_width = where.blocks * self.method.block_bytes

        def work(block: NDArray[np.float32], row: int) -> tuple[Any, Any, Any]:
            rows = len(block)
            if known is None:
                scales, subs = (np.empty(rows * width, np.uint8) for width in widths)
            else:
                scales, subs = (k[row * w : (row + rows) * w].copy() for k, w in zip(known, widths, strict=True))
            codes = np.empty(rows * code_width, np.uint8)
            fill(self.method, mode, block, cut, self.importance, scales, subs, codes)
            return scales, subs, codes

        row = 0
        waiting: deque[Future[tuple[Any, Any, Any]]] = deque()
        with ThreadPoolExecutor(self.threads, "holdall-quant") as pool:
            for block in row_blocks(self.tensor, self.cols):
                waiting.append(pool.submit(work, block, row))
                row += len(block)
                if len(waiting) > 2 * self.threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
