"""What tensors get another type: two tables with the same rows, before and after a change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from holdall.model.table import TensorTable

__all__ = ["count_retyped", "list_retyped"]


def count_retyped(before: TensorTable, after: TensorTable) -> Counter[tuple[str, str]]:
    """Count the tensors that get another type, by both types."""
    pairs = Counter(zip(before.forms().codes.tolist(), after.forms().codes.tolist(), strict=True))
    found: Counter[tuple[str, str]] = Counter()
    for (old, new), count in pairs.items() if after is not before else ():
        types = str(before.forms().kinds[old].dtype), str(after.forms().kinds[new].dtype)
        found[types] += count if types[0] != types[1] else 0
    return found


def list_retyped(before: TensorTable, after: TensorTable) -> Iterator[str]:
    """The names of tensors whose bytes become those of another type."""
    for name, old, new in zip(before.names, before.forms(), after.forms(), strict=True):
        if old.size is not None and old.dtype != new.dtype:
            yield name
