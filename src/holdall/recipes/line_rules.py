"""Which lines of a recipe are a way there and back, by their names and operations."""

from __future__ import annotations

from holdall.errors import ContentError
from holdall.recipes.rows import Line

__all__ = ["check_line"]

_PILES = {"stack", "unstack"}


def check_line(line: Line) -> None:
    """Raise ContentError for a line that is no way there and back."""
    if line.make is not None:
        if line.sources or line.operations or len(line.targets) != 1 or _has_placeholder(line):
            raise ContentError("a tensor that is made has one name, no source and no operations")
        return
    if not line.sources:
        raise ContentError("a tensor has a key from, or a key make")
    names = [name for name, _ in line.operations]
    if ("drop" in names) is bool(line.targets):
        raise ContentError("a tensor has a key to, unless it is dropped")
    for side in (line.sources, line.targets):
        if len({pattern.fields for pattern in side}) > 1:
            raise ContentError("the names of one side have the same placeholders")
    if "drop" in names:
        if len(names) > 1:
            raise ContentError("a tensor that is dropped has no other operations")
        return
    if any(pattern.is_open for side in (line.sources, line.targets) for pattern in side):
        _check_open(line)
        return
    _check_numbers(line, names)
    _check_counts(line, names)


def _has_placeholder(line: Line) -> bool:
    (target,) = line.targets
    return bool(target.fields) or target.is_open


def _check_open(line: Line) -> None:
    """Raise ContentError for a line of any text that makes new names."""
    names = [[pattern.text for pattern in side] for side in (line.sources, line.targets)]
    if names[0] != names[1] or len(names[0]) > 1 or line.operations:
        raise ContentError("{*} stands for any text, and is for tensors that are dropped or keep their names")


def _check_numbers(line: Line, names: list[str]) -> None:
    """Raise ContentError if a placeholder that one side has is not the one that is stacked or unstacked."""
    before, after = (set(side[0].fields) for side in (line.sources, line.targets))
    piles = [name for name in names if name in _PILES]
    if before != after and not piles:
        fields = ", ".join(sorted(f"{{{field}}}" for field in before ^ after))
        raise ContentError(f"{fields} is on one side only, which needs the operation stack or unstack")
    if not piles:
        return
    if len(piles) > 1 or len(before ^ after) != 1 or len(line.sources) + len(line.targets) > 2:
        raise ContentError("stack and unstack join or part the tensors of one name and one placeholder")
    if (piles[0] == "stack") is not bool(before - after):
        raise ContentError("stack joins what a placeholder of from counts, and unstack parts it for one of to")


def _check_counts(line: Line, names: list[str]) -> None:
    """Raise ContentError if the operations make another number of tensors than there are names."""
    count = len(line.sources), len(line.targets)
    if "fold_norm" in names:
        if count != (5, 2) or names.count("fold_norm") > 1 or {"concatenate", "split"} & set(names):
            raise ContentError(
                "fold_norm makes a weight and a bias of a convolution's weight and its norm: 5 names become 2"
            )
    elif (count[0] > 1) is not ("concatenate" in names) or names.count("concatenate") > 1:
        raise ContentError("several tensors become one by the operation concatenate, and only by it")
    elif (count[1] > 1) is not ("split" in names) or names.count("split") > 1:
        raise ContentError("one tensor becomes several by the operation split, and only by it")
    elif count[0] > 1 and count[1] > 1 and names.index("split") < names.index("concatenate"):
        raise ContentError("several tensors are joined before they are split")
    if line.is_duplicate and (count != (1, 1) or set(names) & _PILES):
        raise ContentError("duplicate is for one tensor that becomes one")
