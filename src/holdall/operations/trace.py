"""Compares two traces of one program, step by step in execution order, and finds where they part."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Literal

import numpy as np

from holdall.base.parallel import map_in_order
from holdall.base.progress import Progress
from holdall.base.text import plural
from holdall.errors import ContentError
from holdall.format.proof import Prover, proofs_of
from holdall.model.model import Model
from holdall.operations.diff import Distance, TensorDifference, compare_pair, name_of
from holdall.operations.open_save import open_model
from holdall.operations.paired_tables import PairedTables
from holdall.operations.trace_order import Order, order_steps

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.limits import Limits
    from holdall.model.table import TensorTable
    from holdall.source import Openable

__all__ = ["TraceDifference", "TraceStep", "diff_trace"]

Verdict = Literal["within", "beyond", "only a", "only b"]


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One tensor of a trace.

    ``error`` is the largest absolute difference of two elements: infinite where a value is finite on one side only and
    where shapes differ, None where one trace lacks the step.
    """

    number: int  # from 1, in execution order
    name: str
    verdict: Verdict
    error: float | None
    detail: str = ""
    distance: Distance | None = None


@dataclass(slots=True)
class TraceDifference:
    """Two traces, step by step; true when a step is beyond the tolerance or one trace lacks it."""

    a: str
    b: str
    tolerance: float
    order: Order
    steps: list[TraceStep] = field(default_factory=list)

    @property
    def first(self) -> TraceStep | None:
        """The first step beyond the tolerance."""
        return next((step for step in self.steps if step.verdict == "beyond"), None)

    @property
    def missing(self) -> list[TraceStep]:
        """The steps that one of the traces lacks."""
        return [step for step in self.steps if step.verdict in ("only a", "only b")]

    def __bool__(self) -> bool:
        return any(step.verdict != "within" for step in self.steps)

    def __str__(self) -> str:
        first, missing = self.first, len(self.missing)
        lacking = f"; {plural(missing, 'step')} in one trace only" if missing else ""
        if first is None:
            shared = len(self.steps) - missing
            what = f"{plural(shared, 'step')} within {self.tolerance:g}" if shared else "no step is in both"
            return f"{self.a} and {self.b}: {what}{lacking}"
        beyond = sum(step.verdict == "beyond" for step in self.steps)
        why = first.detail or f"differs by {first.error:.4g}"
        what = f"the first beyond {self.tolerance:g} is step {first.number} of {len(self.steps)}, {first.name!r}: {why}"
        return f"{self.a} and {self.b}: {what}; {plural(beyond, 'step')} beyond{lacking}"


def diff_trace(
    a: Openable | Model,
    b: Openable | Model,
    *,
    tolerance: float = 1e-5,
    order: Iterable[str] | None = None,
    limits: Limits | None = None,
    allowed: Collection[str] | None = None,
    progress: Progress | None = None,
    check: bool = True,
) -> TraceDifference:
    """Compare two traces in execution order: each step is within the absolute ``tolerance`` or beyond it.

    ``order`` lists the names of steps in the order in which they ran. Without it, the order of a file counts that is
    not sorted by name, else the names themselves: input, stem, blocks by number, head, logits.

    >>> import holdall, numpy as np
    >>> holdall.save("a.gptrsten", {"input": np.ones(2, np.float32), "logits": np.zeros(2, np.float32)})
    >>> holdall.save("b.gptrsten", {"input": np.ones(2, np.float32), "logits": np.full(2, 0.5, np.float32)})
    >>> holdall.diff_trace("a.gptrsten", "b.gptrsten").first.name
    'logits'
    """
    if not 0 <= tolerance < inf:
        raise ContentError(f"a tolerance is a number from 0 up, not {tolerance}")
    with ExitStack() as stack:
        opening = partial(open_model, mmap=False, limits=limits, allowed=allowed, check=None if check else False)
        left, right = (x if isinstance(x, Model) else stack.enter_context(opening(x)) for x in (a, b))
        names, source = order_steps(left.tensors.names, right.tensors.names, order)
        found = TraceDifference(name_of(left), name_of(right), tolerance, source)
        with Prover([*proofs_of(left), *proofs_of(right)] if check else []) as prover:
            for number, item in enumerate(_compare(left.tensors, right.tensors, names), 1):
                prover.raise_failure()
                found.steps.append(_judge(number, item, tolerance))
                if progress is not None:
                    progress(number, len(names))
    return found


def _compare(a: TensorTable, b: TensorTable, names: Sequence[str]) -> Iterator[TensorDifference]:
    """Compare the tensors called ``names``, in that order."""
    tables = PairedTables(a, b)
    rows = {name: row for row, name in enumerate(a.names)}
    found = [rows.get(name, -1) for name in names]
    shared = np.array([row for row in found if row >= 0 and tables.partners[row] >= 0], np.intp)

    def compare_block(block: NDArray[np.intp]) -> list[TensorDifference]:
        differ = set((block if len(block) == 1 else tables.drop_equal(block)).tolist())
        return [
            compare_pair(a.tensor(row), b.tensor(int(tables.partners[row])))
            if row in differ
            else TensorDifference(a.names[row], "equal")
            for row in block.tolist()
        ]

    compared = chain.from_iterable(map_in_order(compare_block, tables.divide(shared)))
    for name, row in zip(names, found, strict=True):
        if row < 0 or tables.partners[row] < 0:
            yield TensorDifference(name, "only b" if row < 0 else "only a")
        else:
            yield next(compared)


def _judge(number: int, item: TensorDifference, tolerance: float) -> TraceStep:
    """Turn a comparison into a step of the trace."""
    if item.verdict == "only a" or item.verdict == "only b":
        return TraceStep(number, item.name, item.verdict, None)
    distance = item.distance
    if distance is not None:
        wild = f"{plural(distance.wild, 'value')} not finite on one side" if distance.wild else ""
        verdict: Verdict = "within" if distance.max <= tolerance else "beyond"
        return TraceStep(number, item.name, verdict, distance.max, wild, distance)
    if item.verdict == "equal":
        return TraceStep(number, item.name, "within", 0.0)
    return TraceStep(number, item.name, "beyond", inf, item.detail)
