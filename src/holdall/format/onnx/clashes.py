"""Paths that another tensor has for a name: a path ends with ``#2`` then, and an initializer keeps its own name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

__all__ = ["part_names"]


def part_names(own: Iterable[str], paths: Sequence[str]) -> list[str]:
    """Return the names of tensors at ``paths``, which differ from each other and from ``own``, those of initializers.

    >>> part_names(["graph.node[0].value", "w"], ["graph.node[0].value", "graph.node[1].value"])
    ['graph.node[0].value#2', 'graph.node[1].value']
    """
    met = set(own)
    taken = met.union(paths)
    numbers: defaultdict[str, int] = defaultdict(lambda: 2)
    names = []
    for path in paths:
        name = path
        if path in met:
            while (name := f"{path}#{numbers[path]}") in taken:
                numbers[path] += 1
            taken.add(name)
        met.add(path)
        names.append(name)
    return names
