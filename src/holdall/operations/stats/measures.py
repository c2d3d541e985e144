"""What is known of the values of a tensor, and the pass over its bytes that finds it out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from holdall.base.parallel import thread_count
from holdall.errors import ContentError, FormatError, UnsupportedError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.model.tensor import Tensor

__all__ = ["Bin", "Counters", "Number", "TensorPass", "TensorStats"]

Number: TypeAlias = int | float


class Bin(NamedTuple):
    """How many elements lie in ``low <= x < high``; the last bin includes ``high``, a single value has both equal."""

    low: Number
    high: Number
    count: int  # type: ignore[assignment]  # a tuple has a method of this name


class TensorStats(NamedTuple):
    """What the values of a tensor are like. NaN and infinities are counted, and left out of everything else.

    Without a finite element ``min`` to ``std`` are None. ``median`` is exact, and None if elements of four or eight
    bytes are more than 1,048,576. ``std`` is that of a population. ``histogram`` has the bins that are not empty.
    """

    count: int  # type: ignore[assignment]  # a tuple has a method of this name
    nan: int = 0
    inf: int = 0
    zeros: int = 0
    min: Number | None = None
    max: Number | None = None
    mean: float | None = None
    median: Number | None = None
    std: float | None = None
    histogram: tuple[Bin, ...] = ()


class TensorPass(ABC):
    """One pass over a tensor: jobs for any threads, of which the last to end computes the statistics.

    What only this tensor cannot have, statistics of bytes without a decoder for example, is its ``failure``; a file
    that is damaged ends the pass with a FormatError.
    """

    pieces: int  # how many jobs there are

    def __init__(self, tensor: Tensor, bins: int) -> None:
        self.tensor = tensor
        self.bins = bins
        self.stats: TensorStats | None = None
        self.failure: ContentError | UnsupportedError | None = None
        self._parts: dict[int, Any] = {}
        self._lock = Lock()

    @abstractmethod
    def split(self) -> Iterator[tuple[int, Callable[[], Any]]]:
        """Yield the jobs with the bytes that each reads, in the order of the elements: :attr:`pieces` of them."""

    @abstractmethod
    def finish(self, parts: list[Any]) -> TensorStats | None:
        """The statistics, from the results of all jobs in order; None if only another pass can have them."""

    def jobs(self) -> Iterator[tuple[int, Callable[[], None]]]:
        """Yield what remains to be done, with the bytes that each job reads."""
        with self._catch():
            for number, (size, job) in enumerate(self.split()):
                yield size, partial(self._run, number, job)

    def _run(self, number: int, job: Callable[[], Any]) -> None:
        with self._catch():
            part = job()
            with self._lock:
                self._parts[number] = part
                is_last = len(self._parts) == self.pieces
            if is_last:
                self.stats = self.finish([self._parts.pop(number) for number in range(self.pieces)])

    @contextmanager
    def _catch(self) -> Iterator[None]:
        try:
            yield
        except FormatError:
            raise
        except (ContentError, UnsupportedError) as error:
            self.failure = self.failure or error


class Counters:
    """Tables of counts, one for each thread that counts at the same time: sums do not depend on who counted what."""

    def __init__(self, codes: int) -> None:
        self._codes = codes
        self._all: list[NDArray[np.uint64]] = []
        self._free: list[NDArray[np.uint64]] = []

    @contextmanager
    def lend(self) -> Iterator[NDArray[np.uint64]]:
        """A block with a table to add to."""
        try:
            table = self._free.pop()
        except IndexError:
            table = _take_table(self._codes)
            self._all.append(table)
        yield table
        self._free.append(table)

    @contextmanager
    def total(self) -> Iterator[NDArray[np.uint64]]:
        """A block with the sum of all tables. They are given up, and used again for other tensors."""
        found, *others = self._all
        for table in others:
            found += table
        yield found
        for table in self._all:
            _keep_table(table)
        self._all, self._free = [], []


# Tables of zeros. To get fresh pages for them takes as long as to count, and threads wait for each other's.
_tables: dict[int, list[NDArray[np.uint64]]] = {}


def _take_table(codes: int) -> NDArray[np.uint64]:
    try:
        return _tables[codes].pop()
    except (KeyError, IndexError):
        return np.zeros(codes, np.uint64)


def _keep_table(table: NDArray[np.uint64]) -> None:
    kept = _tables.setdefault(table.size, [])
    if len(kept) < thread_count():
        table.fill(0)
        kept.append(table)
