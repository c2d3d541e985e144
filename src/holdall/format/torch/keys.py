"""The names of what is in a container: keys of dicts that are text, a text for every other key, places in lists.

A dict of Python may have any value as a key that can be hashed. Names never meet: text stands for itself, and where
another key would be called like a text or like a key before it, a number is added.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

__all__ = ["name_items", "spell_keys"]


def name_items(container: Any, leading: Iterable[str] = ()) -> Iterator[tuple[str, Any, Any]]:
    """The name, the key and the value of each item of a dict, list or tuple; ``leading`` are names that are taken.

    >>> list(name_items({"a": 1, None: 2, "None": 3}))
    [('a', 'a', 1), ('None#2', None, 2), ('None', 'None', 3)]
    """
    if not isinstance(container, dict):
        yield from ((str(place), place, value) for place, value in enumerate(container))
    elif all(type(key) is str for key in container):
        yield from ((key, key, value) for key, value in container.items())
    else:
        names = spell_keys(container, leading)
        yield from ((name, key, value) for name, (key, value) in zip(names, container.items(), strict=True))


def spell_keys(keys: Collection[Any], leading: Iterable[str] = ()) -> list[str]:
    """A text for each key, all different.

    >>> spell_keys([1, "1", (1, "a"), 1.5, b"x", False])
    ['1#2', '1', '(1, a)', '1.5', "b'x'", 'False']
    """
    taken = {*leading, *(key for key in keys if type(key) is str)}
    numbers: dict[str, int] = {}  # by spelling: keys with one spelling must not look for a free number from 2 on
    names: list[str] = []
    for key in keys:
        name = spelling = key if type(key) is str else _spell(key)
        while type(key) is not str and name in taken:
            numbers[spelling] = numbers.get(spelling, 1) + 1
            name = f"{spelling}#{numbers[spelling]}"
        taken.add(name)
        names.append(name)
    return names


def _spell(key: Any) -> str:
    return f"({', '.join(map(_spell, key))})" if isinstance(key, tuple) else str(key)
