"""Runs the passes of many tensors as one stream of jobs, so that no core waits for the end of a tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import repeat
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from holdall.base.parallel import map_in_order
from holdall.base.progress import Progress
from holdall.binary.columns import sum_runs
from holdall.errors import UnsupportedError
from holdall.model.dtypes import DType
from holdall.model.passes import PIECE, is_random_access, reads_anywhere
from holdall.operations.preview import Preview, preview_alike
from holdall.operations.stats.alike import FEWEST, can_be_alike, count_together, describe_alike
from holdall.operations.stats.codes import CodePass
from holdall.operations.stats.measures import TensorPass, TensorStats
from holdall.operations.stats.numbers import NumberPass

if TYPE_CHECKING:
    from holdall.model.forms import Form
    from holdall.model.model import Model
    from holdall.model.table import TensorTable
    from holdall.model.tensor import Tensor

__all__ = ["Measured", "measure_rows", "model_stats", "tensor_stats"]

_SMALL = PIECE // 16  # bytes of a tensor that shares a job with others
_TOGETHER = 1024  # tensors of such a job


def tensor_stats(tensor: Tensor, bins: int = 10, progress: Progress | None = None) -> TensorStats:
    """The statistics of ``tensor``, read once and piece by piece; one that is declared without data has a count only.

    ``bins=0`` leaves out the histogram and the median. Up to 1,048,576 elements of four or eight bytes, and any number
    of smaller ones, have equal bins; those of more are as near to equal as one pass allows, with exact counts.

    >>> import numpy as np
    >>> from holdall import Tensor
    >>> tensor_stats(Tensor.of("w", np.array([0.0, 0.5, 4.0]))).zeros
    1
    """
    from holdall.model.table import ListTable

    ((_, found, _),) = _measure_table(ListTable([tensor]), bins, progress)
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
    table = model.tensors if wanted is None else wanted
    for row, found, _ in _measure_table(table, bins, progress):
        yield table.tensor(row), found if isinstance(found, TensorStats) else str(found)


class Measured(NamedTuple):
    """The row of a tensor with its statistics, or why it has none, and its preview if that was read along."""

    row: int
    stats: TensorStats | Exception
    preview: Preview | None = None


def measure_rows(
    model: Model,
    rows: Sequence[int] | None = None,
    bins: int = 10,
    progress: Progress | None = None,
    *,
    previews: bool = False,
) -> Iterator[Measured]:
    """Yield what :func:`model_stats` does, of all tensors of ``model`` or those in ``rows``, without making objects.

    With ``previews`` those of small tensors are made of what was read for the statistics; others have none.
    """
    from holdall.model.arranged_table import ArrangedTable
    from holdall.model.growth import limit_passes

    wanted = None if rows is None else ArrangedTable(model.tensors, np.array(rows, np.intp))
    limit_passes(model, wanted)
    for found in _measure_table(model.tensors if wanted is None else wanted, bins, progress, previews):
        yield found if rows is None else found._replace(row=rows[found.row])


def _measure_table(
    table: TensorTable, bins: int, progress: Progress | None, previews: bool = False
) -> Iterator[Measured]:
    if bins < 0:
        raise ValueError(f"a histogram has at least one bin, or 0 for none, not {bins}")
    sizes = table.forms().sizes()
    total, complete, begun = sum_runs(sizes, [0])[0] if len(sizes) else 0, 0, 0
    for size, found in map_in_order(_call, _Jobs(table, bins, previews).make()):
        begun += size  # bytes of the tensor after those that are complete
        for row, stats, preview in found:
            yield Measured(row, stats if isinstance(stats, TensorStats) else _settle(stats), preview)
            complete += int(sizes[row])
            begun = 0
        if progress is not None:
            progress(complete + begun, total)


_Found: TypeAlias = tuple[int, TensorStats | TensorPass, Preview | None]
_Job: TypeAlias = Callable[[], tuple[int, list[_Found]]]  # gives the bytes it read, and what is complete after it


def _call(job: _Job) -> tuple[int, list[_Found]]:
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


class _Jobs:
    """Divides the tensors of a table among jobs."""

    def __init__(self, table: TensorTable, bins: int, previews: bool) -> None:
        self._table = table
        self._bins = bins
        self._previews = previews
        self._forms = table.forms()

    def make(self) -> Iterator[_Job]:
        """Yield one job for each piece of a large tensor, and one for several small tensors that follow each other."""
        together: list[tuple[int, TensorPass | None]] = []
        size = 0
        alike, sizes = self._find_alike(), self._forms.sizes()
        for row in range(len(self._table)):
            each = None if alike[row] else _begin(self._table.tensor(row), self._bins)
            is_small = each is None or _is_small(each)
            if is_small:
                together.append((row, each))
                size += int(sizes[row])
                if len(together) < _TOGETHER and size < PIECE:
                    continue
            if together:
                yield partial(self._run_all, together)
                together, size = [], 0
            if each is not None and not is_small:
                yield from _make_piece_jobs(row, each)
        if together:
            yield partial(self._run_all, together)

    def _find_alike(self) -> list[bool]:
        """Which tensors can be read, and measured, together with others of their form."""
        kinds = self._forms.table(_can_be_alike, np.bool_)
        if not kinds.any():
            return [False] * len(self._table)
        ranges = self._table.ranges()
        local = np.array([*(reads_anywhere(source) for source in ranges.sources), False], np.bool_)
        found: list[bool] = (kinds[self._forms.codes] & local[ranges.owners]).tolist()
        return found

    def _run_all(self, tensors: list[tuple[int, TensorPass | None]]) -> tuple[int, list[_Found]]:
        size = 0
        found: list[_Found] = []
        known = self._measure_alike([row for row, each in tensors if each is None])
        for row, each in tensors:
            if row in known:
                size += self._forms[row].size or 0
                found.append((row, *known[row]))
                continue
            alone = _begin(self._table.tensor(row), self._bins) if each is None else each
            for read, job in alone.jobs():
                job()
                size += read
            found.append((row, alone, None))
        return size, found

    def _measure_alike(self, rows: list[int]) -> dict[int, tuple[TensorStats, Preview | None]]:
        """The statistics of the tensors among ``rows`` that have enough others of their form, by row."""
        codes = self._forms.codes[rows]
        numbers, inverse, counts = np.unique(codes, return_inverse=True, return_counts=True)
        many = np.array(rows, np.intp)[counts[inverse] >= FEWEST]
        data = dict(zip(many.tolist(), self._table.read(many), strict=True)) if many.size else {}
        found: dict[int, tuple[TensorStats, Preview | None]] = {}
        for number in numbers[counts >= FEWEST].tolist():
            form = self._forms.kinds[number]
            group: list[int] = many[self._forms.codes[many] == number].tolist()
            step = count_together(prod(form.shape))
            for start in range(0, len(group), step):
                part = group[start : start + step]
                for row, stats, preview in zip(part, *self._describe(form, [data[row] for row in part]), strict=True):
                    if stats is not None:
                        found[row] = stats, preview
        return found

    def _describe(
        self, form: Form, data: Sequence[bytes | memoryview]
    ) -> tuple[list[TensorStats | None], Iterable[Preview | None]]:
        assert isinstance(form.dtype, DType)
        stored = form.dtype.decode_flat(memoryview(b"".join(data)), 0, len(data) * prod(form.shape))
        with np.errstate(invalid="ignore"):  # signaling NaN
            values = np.ascontiguousarray(stored.reshape(len(data), -1).T, np.float64)
        previews = preview_alike(values, form.shape) if self._previews else repeat(None, len(data))
        return describe_alike(values, form.dtype, self._bins), previews


def _can_be_alike(form: Form) -> bool:
    return form.size is not None and can_be_alike(form.dtype, prod(form.shape))


def _is_small(each: TensorPass) -> bool:
    payload = each.tensor.payload
    if each.pieces == 0 or payload is None:
        return True
    return each.pieces == 1 and payload.size <= _SMALL and is_random_access(payload)


def _make_piece_jobs(row: int, each: TensorPass) -> Iterator[_Job]:
    number = 0
    for size, job in each.jobs():
        number += 1
        yield partial(_run_piece, size, job, [(row, each, None)] if number == each.pieces else [])
    if number < each.pieces:  # it failed
        yield lambda: (0, [(row, each, None)])


def _run_piece(size: int, job: Callable[[], None], complete: list[_Found]) -> tuple[int, list[_Found]]:
    job()
    return size, complete


def _settle(each: TensorPass) -> TensorStats | Exception:
    """The result of a pass, after another one if only that can have it."""
    if isinstance(each, NumberPass) and each.better_scale is not None:
        each = each.repeat()
        for _ in map_in_order(_call, _make_piece_jobs(0, each)):
            pass
    found = each.failure or each.stats
    assert found is not None
    return found
