"""The names of tensors as a tree: what a model is made of, by bytes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Branch", "branch_out", "split_place"]

_BREAK = re.compile(r"[./]")
_DIGITS = re.compile(r"[0-9]{1,9}")


@dataclass(slots=True)
class Branch:
    """The tensors whose names begin alike. ``place`` is that beginning; a single tensor has its whole name there."""

    place: str
    label: str
    rows: list[int] = field(default_factory=list)
    size: int = 0
    is_tensor: bool = False


def branch_out(names: Sequence[str], sizes: NDArray[np.uint64], rows: Sequence[int], place: str) -> list[Branch]:
    """The branches of the names in ``rows``, which begin with ``place``, the largest first.

    >>> import numpy as np
    >>> names = ["h.0.w", "h.1.w", "head"]
    >>> [(b.place, b.label, b.rows) for b in branch_out(names, np.array([4, 4, 2], np.uint64), range(3), "")]
    [('h.', 'h', [0, 1]), ('head', 'head', [2])]
    """
    found: dict[str, Branch] = {}
    start = len(place)
    for row in rows:
        name = names[row]
        end = _BREAK.search(name, start)
        key = name if end is None else name[: end.end()]
        branch = found.get(key)
        if branch is None:
            label = name[start:] if end is None else name[start : end.start()]
            branch = found[key] = Branch(key, label, is_tensor=end is None)
        branch.rows.append(row)
        branch.size += int(sizes[row])
    branches = [_skip_single(names, branch) for branch in found.values()]
    return sorted(branches, key=lambda branch: (-branch.size, _number(branch.label)))


def _number(label: str) -> tuple[int, str]:
    """A key that sorts 2 before 10."""
    found = _DIGITS.search(label[:64])
    return (int(found[0]) if found is not None else -1, label)


def _skip_single(names: Sequence[str], branch: Branch) -> Branch:
    """A branch with a single tensor is that tensor: a way of single steps leads nowhere else."""
    if len(branch.rows) == 1 and not branch.is_tensor:
        name = names[branch.rows[0]]
        branch.label += name[len(branch.place) - 1 :]
        branch.place, branch.is_tensor = name, True
    return branch


def split_place(place: str) -> list[tuple[str, str]]:
    """The steps to a place, each with its label.

    >>> split_place("h.0.")
    [('h.', 'h'), ('h.0.', '0')]
    """
    steps, start = [], 0
    for found in _BREAK.finditer(place):
        steps.append((place[: found.end()], place[start : found.start()]))
        start = found.end()
    return steps
