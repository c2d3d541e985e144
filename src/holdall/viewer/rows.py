"""The table of all tensors: chosen and sorted here, so that a page holds only the rows that it shows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import translate
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from holdall.base.once import computed_once
from holdall.base.text import count_text, shape_text, shorten, size_text
from holdall.viewer.statistics import COLUMNS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.viewer.subject import Subject

__all__ = ["TensorRows", "format_number"]

_NAME = 300  # letters


def format_number(value: float | None) -> str:
    """A number as a table shows it; empty for one that is unknown.

    >>> format_number(0.123456), format_number(3.0), format_number(None)
    ('0.123', '3', '')
    """
    if value is None or value != value:
        return ""
    return f"{int(value):,}" if abs(value) < 1e15 and value == int(value) else f"{value:.3g}"


class TensorRows:
    """The rows of one model, in the order and number that a page asks for."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._table = subject.model.tensors
        self._last: tuple[object, NDArray[np.intp]] | None = None

    def select(self, wanted: str, order: Sequence[tuple[str, bool]] = ()) -> NDArray[np.intp]:
        """The rows whose names match, sorted by columns, each with whether it falls.

        A text without ``*``, ``?`` and ``[`` matches wherever it stands in a name.
        """
        filled = self._subject.statistics.filled if any(name in COLUMNS for name, _ in order) else 0
        key = (wanted, tuple(order), filled)
        last = self._last  # another page may replace it meanwhile
        if last is None or last[0] != key:
            last = self._last = (key, self._sort(self._match(wanted), order))
        return last[1]

    def _match(self, wanted: str) -> NDArray[np.intp]:
        names = self._table.names
        if not wanted:
            return np.arange(len(names))
        if any(letter in wanted for letter in "*?["):
            match = re.compile(translate(wanted), re.IGNORECASE).match
            found = [row for row, name in enumerate(names) if match(name)]
        else:
            folded = wanted.casefold()
            found = [row for row, name in enumerate(names) if folded in name.casefold()]
        return np.array(found, np.intp)

    def _sort(self, rows: NDArray[np.intp], order: Sequence[tuple[str, bool]]) -> NDArray[np.intp]:
        for name, falls in reversed(order):
            column = self._column(name)
            if column is None:
                continue
            values = column[rows]
            known = ~np.isnan(values)
            chosen = rows[known][np.argsort(-values[known] if falls else values[known], kind="stable")]
            rows = np.concatenate([chosen, rows[~known]])  # what is unknown is last, whatever the order
        return rows

    def _column(self, name: str) -> NDArray[np.float64] | None:
        if name in self._subject.statistics.columns:
            return self._subject.statistics.columns[name]
        return {"name": self._by_name, "type": self._by_type, "shape": self._by_count, "bytes": self._by_size,
                "offset": self._by_offset}.get(name, lambda: None)()  # fmt: skip

    @computed_once
    def _ranks(self) -> NDArray[np.float64]:
        ranks = np.empty(len(self._table))
        order = sorted(range(len(self._table)), key=self._table.names.__getitem__)
        ranks[order] = np.arange(len(order))
        return ranks

    def _by_name(self) -> NDArray[np.float64]:
        return self._ranks

    def _by_type(self) -> NDArray[np.float64]:
        kinds = self._table.forms().kinds
        numbers = {name: number for number, name in enumerate(sorted({str(form.dtype) for form in kinds}))}
        return self._table.forms().column(lambda form: numbers[str(form.dtype)], np.float64)

    def _by_count(self) -> NDArray[np.float64]:
        return self._table.forms().column(lambda form: min(prod(form.shape), 1 << 62), np.float64)

    def _by_size(self) -> NDArray[np.float64]:
        return self._table.forms().sizes().astype(np.float64)

    def _by_offset(self) -> NDArray[np.float64]:
        ranges = self._table.ranges()
        return np.where(ranges.owners >= 0, ranges.starts.astype(np.float64), np.nan)

    def describe(self, rows: Sequence[int]) -> list[dict[str, Any]]:
        """The cells of some rows, as text."""
        return [self._describe(row) for row in rows]

    def _describe(self, row: int) -> dict[str, Any]:
        tensor = self._table.tensor(row)
        statistics = self._subject.statistics
        cells = {
            "row": str(row),
            "name": shorten(tensor.name, _NAME),
            "type": str(tensor.dtype),
            "shape": shape_text(tensor.shape, 6),
            "count": count_text(tensor.count),
            "bytes": size_text(tensor.nbytes) if tensor.has_data else "no data",
            "offset": "" if tensor.offset is None else f"{tensor.offset:#x}",
        }
        found = statistics.describe(row)
        return cells | {name: format_number(value) for name, value in found.items()}
