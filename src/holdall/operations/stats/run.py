"""Runs the passes of many tensors as one stream of jobs, so that no core waits for the end of a tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from holdall.base.parallel import map_in_order
from holdall.base.progress import Progress
from holdall.errors import UnsupportedError
from holdall.model.dtypes import DType
from holdall.model.passes import PIECE, is_random_access
from holdall.operations.stats.codes import CodePass
from holdall.operations.stats.measures import TensorPass, TensorStats
from holdall.operations.stats.numbers import NumberPass

if TYPE_CHECKING:
    from holdall.model.model import Model
    from holdall.model.tensor import Tensor

__all__ = ["model_stats", "tensor_stats"]

_SMALL = PIECE // 16  # bytes of a tensor that shares a job with others
_TOGETHER = 64  # tensors of such a job


def tensor_stats(tensor: Tensor, bins: int = 10, progress: Progress | None = None) -> TensorStats:
    """The statistics of ``tensor``, read once and piece by piece; one that is declared without data has a count only.

    ``bins=0`` leaves out the histogram and the median. Up to 1,048,576 elements of four or eight bytes, and any number
    of smaller ones, have equal bins; those of more are as near to equal as one pass allows, with exact counts.

    >>> import numpy as np
    >>> from holdall import Tensor
    >>> tensor_stats(Tensor.of("w", np.array([0.0, 0.5, 4.0]))).zeros
    1
    """
    ((_, found),) = _measure([tensor], bins, progress, tensor.nbytes)
    if isinstance(found, TensorStats):
        return found
    raise found


def model_stats(
    model: Model, names: Iterable[str] | None = None, bins: int = 10, progress: Progress | None = None
) -> Iterator[tuple[Tensor, TensorStats | str]]:
    """Yield the tensors of ``model``, or those called ``names``, with their statistics, or why one has none.

    They come in the order of the file, or of ``names``. Closing the iterator ends the work; ``progress`` receives
    bytes.

    >>> import numpy as np, holdall
    >>> holdall.save("example.oinf", {"w": np.ones(4, np.float32)})
    >>> with holdall.open("example.oinf") as model:
    ...     [(tensor.name, stats.mean) for tensor, stats in model_stats(model)]
    [('w', 1.0)]
    """
    from holdall.model.growth import limit_passes
    from holdall.model.table import ListTable

    wanted = None if names is None else ListTable([model[name] for name in names])
    limit_passes(model, wanted)
    total = model.nbytes if wanted is None else sum(tensor.nbytes for tensor in wanted)
    for tensor, found in _measure(model.tensors if wanted is None else wanted, bins, progress, total):
        yield tensor, found if isinstance(found, TensorStats) else str(found)


def _measure(
    tensors: Iterable[Tensor], bins: int, progress: Progress | None, total: int
) -> Iterator[tuple[Tensor, TensorStats | Exception]]:
    if bins < 0:
        raise ValueError(f"a histogram has at least one bin, or 0 for none, not {bins}")
    complete = begun = 0  # bytes of whole tensors, and of the one after them
    for size, passes in map_in_order(_call, _make_jobs(_begin(tensor, bins) for tensor in tensors)):
        begun += size
        for each in passes:
            yield each.tensor, _settle(each)
            complete += each.tensor.nbytes
            begun = 0
        if progress is not None:
            progress(complete + begun, total)


_Job: TypeAlias = Callable[[], tuple[int, list[TensorPass]]]  # gives the bytes it read, and what is complete after it


def _call(job: _Job) -> tuple[int, list[TensorPass]]:
    return job()


def _begin(tensor: Tensor, bins: int) -> TensorPass:
    payload, dtype = tensor.payload, tensor.dtype
    if payload is None or tensor.count == 0:
        return _NoPass(tensor, TensorStats(tensor.count))
    if not isinstance(dtype, DType):
        return NumberPass(tensor, bins, payload)
    if dtype.kind == "complex":
        return _NoPass(
            tensor, UnsupportedError(f"tensor {tensor.name!r}: complex numbers have no order, hence no statistics")
        )
    return CodePass(tensor, bins, dtype, payload) if dtype.bits <= 16 else NumberPass(tensor, bins, payload)


class _NoPass(TensorPass):
    """A tensor whose statistics are known without reading it."""

    pieces = 0

    def __init__(self, tensor: Tensor, found: TensorStats | UnsupportedError) -> None:
        super().__init__(tensor, 0)
        if isinstance(found, TensorStats):
            self.stats = found
        else:
            self.failure = found

    def split(self) -> Iterator[tuple[int, Callable[[], Any]]]:
        return iter(())

    def finish(self, parts: list[Any]) -> TensorStats | None:
        return self.stats


def _make_jobs(passes: Iterable[TensorPass]) -> Iterator[_Job]:
    """Yield one job for each piece of a large tensor, and one for several small tensors that follow each other."""
    together: list[TensorPass] = []
    size = 0
    for each in passes:
        if _is_small(each):
            together.append(each)
            size += each.tensor.nbytes
            if len(together) < _TOGETHER and size < PIECE:
                continue
        if together:
            yield partial(_run_all, together)
            together, size = [], 0
        if not _is_small(each):
            yield from _make_piece_jobs(each)
    if together:
        yield partial(_run_all, together)


def _is_small(each: TensorPass) -> bool:
    payload = each.tensor.payload
    if each.pieces == 0 or payload is None:
        return True
    return each.pieces == 1 and payload.size <= _SMALL and is_random_access(payload)


def _make_piece_jobs(each: TensorPass) -> Iterator[_Job]:
    number = 0
    for size, job in each.jobs():
        number += 1
        yield partial(_run_piece, size, job, [each] if number == each.pieces else [])
    if number < each.pieces:  # it failed
        yield lambda: (0, [each])


def _run_piece(size: int, job: Callable[[], None], complete: list[TensorPass]) -> tuple[int, list[TensorPass]]:
    job()
    return size, complete


def _run_all(passes: list[TensorPass]) -> tuple[int, list[TensorPass]]:
    size = 0
    for each in passes:
        for read, job in each.jobs():
            job()
            size += read
    return size, passes


def _settle(each: TensorPass) -> TensorStats | Exception:
    """The result of a pass, after another one if only that can have it."""
    if isinstance(each, NumberPass) and each.better_scale is not None:
        each = each.repeat()
        for _ in map_in_order(_call, _make_piece_jobs(each)):
            pass
    found = each.failure or each.stats
    assert found is not None
    return found
