"""Quantizes models lazily: a survey finds the clip bounds of each tensor, then payloads are made block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Any

from holdall.base.buffer_sizes import buffer_size
from holdall.base.parallel import map_in_order
from holdall.base.progress import Progress
from holdall.model.casts import cast, dequantize
from holdall.model.dtypes import find_dtype
from holdall.model.model import Model
from holdall.model.portions import Portion
from holdall.model.replaced_table import ReplacedTable
from holdall.model.tensor import Tensor
from holdall.quant.arrays import clip_bounds
from holdall.quant.methods import Method, find_method
from holdall.quant.payloads import TensorQuantizer
from holdall.quant.plan import PlannedTensor, Quantization, QuantPlan, plan_model
from holdall.quant.record import Domain
from holdall.quant.source_rows import find_extremes, split_rows

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["apply_plan", "dequantize_model", "quantize_model", "quantize_tensor"]

_SURVEYED = buffer_size(1 << 20)  # values of one portion at most,
_TOGETHER = buffer_size(1 << 13)  # and of a job of several at least


def quantize_model(model: Model, method: str = "k4", *, progress: Progress | None = None, **choices: Any) -> Model:
    """Return ``model`` with some tensors in quantized form, to be written with :func:`holdall.save`.

    ``choices`` are those of :class:`~holdall.quant.plan.Quantization`: mode, rules, sensitive, include, exclude,
    min_size, clip, clips, importance, threads, domain. Every chosen tensor is read once now: values that are not finite
    are refused, naming tensor and position. Payloads are made when the sink asks for them, in bounded memory.
    Weights of an opened model that are made of several tensors are quantized anew from their numbers.

    >>> import numpy as np, holdall
    >>> from holdall.model.model import model_of
    >>> small = quantize_model(model_of({"w": np.ones((4, 64), np.float32), "b": np.ones(4, np.float32)}), "q8")
    >>> [str(t.dtype) for t in small.tensors]
    ['mcf.q8', 'f32']
    """
    model = model.decoded
    return apply_plan(model, plan_model(model, Quantization(method, **choices)), on_progress=progress)


def apply_plan(model: Model, plan: QuantPlan, *, on_progress: Progress | None = None, survey: bool = True) -> Model:
    """Return ``model`` with its tensors quantized as ``plan`` says.

    ``survey=False`` reads no values and leaves the clip bounds at 0: for a dry run, which needs sizes only.
    """
    table, request = model.tensors, plan.request
    total = sum(planned.nbytes for planned in plan.tensors if planned.method is not None)
    done = 0

    def add_progress(count: int) -> None:
        nonlocal done
        done += count
        if on_progress is not None:
            on_progress(done, total)

    rows = [row for row, planned in enumerate(plan.tensors) if planned.method is not None]
    quantizers = [_prepare(table.tensor(row), plan.tensors[row], request) for row in rows]
    bounds = _survey(quantizers, request.threads, add_progress) if survey else [(0.0, 0.0)] * len(rows)
    made = {row: each.make_tensor(found) for row, each, found in zip(rows, quantizers, bounds, strict=True)}
    return model.replace(tensors=ReplacedTable(table, made))


def _prepare(tensor: Tensor, planned: PlannedTensor, request: Quantization) -> TensorQuantizer:
    assert planned.method is not None
    return TensorQuantizer.of(
        tensor,
        find_method(planned.method),
        request.mode,
        request.domain,
        request.clip_for(planned.name),
        request.importance.get(planned.name),
        request.threads,
    )


def dequantize_model(model: Model, dtype: str = "f32") -> Model:
    """Return ``model`` with every quantized tensor that can be decoded as plain floats, made lazily.

    So are weights of an opened model that are made of several tensors.
    """
    kind, whole = find_dtype(dtype), model.decoded
    changed = []
    for tensor in whole.tensors:
        plain = dequantize(tensor)
        is_stored = plain is tensor and (whole is model or _has_form_of(tensor, model.get(tensor.name)))
        changed.append(tensor if is_stored else cast(plain, kind))
    return whole.replace(tensors=changed)


def _has_form_of(tensor: Tensor, stored: Tensor | None) -> bool:
    return stored is not None and (tensor.dtype, tensor.shape) == (stored.dtype, stored.shape)


def quantize_tensor(
    tensor: Tensor,
    method: Method,
    *,
    mode: str = "best",
    domain: Domain = "weights",
    clip: tuple[float, float] | None = None,
    importance: ArrayLike | None = None,
    threads: int | None = None,
) -> Tensor:
    """Return ``tensor`` in quantized form: surveyed now, made when asked for."""
    quantizer = TensorQuantizer.of(tensor, method, mode, domain, clip, importance, threads)
    return quantizer.make_tensor(*_survey([quantizer], threads))


def _survey(
    quantizers: Sequence[TensorQuantizer],
    threads: int | None,
    on_progress: Callable[[int], None] = lambda _: None,
) -> list[tuple[float, float]]:
    """Find the bounds of each tensor, and refuse values that are not finite.

    The jobs of all tensors are in one list, so that many small tensors keep all threads busy as well.
    """
    ends = [(inf, -inf)] * len(quantizers)

    def list_jobs() -> Iterator[list[tuple[int, Portion]]]:
        """Jobs of one portion, or of several small ones."""
        job, values = list[tuple[int, Portion]](), 0
        for number, each in enumerate(quantizers):
            for portion in split_rows(each.tensor, each.cols, _SURVEYED):
                job.append((number, portion))
                values += portion.count
                if values >= _TOGETHER:
                    yield job
                    job, values = [], 0
        yield job

    def find_ends(job: list[tuple[int, Portion]]) -> list[tuple[int, int, tuple[float, float]]]:
        found = []
        for number, portion in job:
            find = partial(find_extremes, name=portion.tensor.name, shape=portion.tensor.shape, first=portion.first)
            found.append((number, portion.count, portion.use(find)))
        return found

    for number, count, (low, high) in chain.from_iterable(map_in_order(find_ends, list_jobs(), threads)):
        ends[number] = min(ends[number][0], low), max(ends[number][1], high)
        tensor = quantizers[number].tensor
        on_progress(count * (tensor.nbytes // max(1, tensor.count)))
    return [clip_bounds(*found, each.clip, each.domain) for found, each in zip(ends, quantizers, strict=True)]
