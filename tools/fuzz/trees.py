"""One change to a tree of plain values: nested lists, numbers, texts and bytes.

Documents of every kind are taken apart into such trees (:mod:`tools.fuzz.documents`). A change picks one node
and makes it something else; the tree written again is a document that is whole but for that change.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

__all__ = ["NUMBERS", "TEXTS", "Pairs", "change_tree", "damage_bytes", "number"]

# Numbers that broke readers before: the ends of the integer types, and those beside them.
NUMBERS = sorted({
    0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 31, 32, 63, 64, 65, 100, 127, 128, 255, 256, 1000, 4095, 4096, 32768, 65535,
    65536, (1 << 24) - 1, 1 << 30, (1 << 31) - 1, 1 << 31, (1 << 31) + 1, (1 << 32) - 8, (1 << 32) - 1, 1 << 32,
    (1 << 32) + 1, 1 << 40, 1 << 53, (1 << 53) + 1, 1 << 60, 1 << 61, 1 << 62, (1 << 63) - 8, (1 << 63) - 1, 1 << 63,
    (1 << 63) + 1, (1 << 64) - 64, (1 << 64) - 8, (1 << 64) - 1,
})  # fmt: skip

TEXTS = [
    "", "a", "w", "\0", "a\0b", "é", "e\u0301", "😀", "..", "../x", "/etc/passwd", "a/b", "a\\b", "C:x", "\n",
    "\x1b[2J", "__metadata__", "x" * 64, "x" * 300, "F32", "f32", "null", "0", "-1", "1e400", "{}", "[]", "\ufeff",
    "\u202e",
]  # fmt: skip


class Pairs(list[Any]):
    """A mapping as a list of [key, value], in which a key can come twice."""


def number(chance: random.Random, old: int) -> int:
    """Return a number instead of ``old``: one beside it, one that broke readers before, or a similar one."""
    match chance.randrange(6):
        case 0:
            return old + chance.choice((-64, -8, -4, -2, -1, 1, 2, 4, 8, 64))
        case 1:
            return old ^ 1 << chance.randrange(64)
        case 2:
            return chance.choice((old * 2, old // 2, -old, old * 8, old << 32))
        case 3:
            return chance.randrange(32)
        case _:
            return chance.choice(NUMBERS)


def damage_bytes(data: bytes, chance: random.Random) -> bytes:
    """Make one to three small changes to bytes, whatever they mean."""
    out = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 3))):
        at = chance.randrange(len(out) + 1)
        match chance.randrange(7):
            case 0 | 1 if at < len(out):
                out[at] ^= 1 << chance.randrange(8)
            case 2 if at < len(out):
                out[at] = chance.choice((0, 1, 0x7F, 0x80, 0xC0, 0xFE, 0xFF, chance.randrange(256)))
            case 3:
                width = chance.choice((1, 2, 4, 8))
                out[at : at + width] = (chance.choice(NUMBERS) % (1 << 8 * width)).to_bytes(width, "little")
            case 4:
                del out[at : at + chance.choice((1, 2, 4, 8, 16, 64))]
            case 5:
                source = chance.randrange(len(out) + 1)
                out[at:at] = out[source : source + chance.choice((1, 4, 8, 16, 64))]
            case _:
                if chance.random() < 0.3:
                    del out[at:]
                else:
                    out[at:at] = bytes(chance.choice((1, 4, 8, 32)))
    return bytes(out)


def change_tree(tree: Any, chance: random.Random) -> Any:
    """Return the tree with one node changed. The given tree stays unchanged."""
    places = list(_places(tree, ()))
    path = chance.choice(places)
    return _with(tree, path, lambda node: _node(node, chance, tree, places))


def _places(tree: Any, path: tuple[int, ...]) -> Any:
    yield path
    if isinstance(tree, (list, tuple)):
        for place, item in enumerate(tree):
            yield from _places(item, (*path, place))


def _at(tree: Any, path: tuple[int, ...]) -> Any:
    for place in path:
        tree = tree[place]
    return tree


def _with(tree: Any, path: tuple[int, ...], change: Callable[[Any], Any]) -> Any:
    if not path:
        return change(tree)
    items = list(tree)
    items[path[0]] = _with(items[path[0]], path[1:], change)
    return type(tree)(items)


def _node(node: Any, chance: random.Random, tree: Any, places: list[tuple[int, ...]]) -> Any:
    if chance.random() < 0.1:  # a value of another type
        return chance.choice(
            (None, True, False, 0, 1, -1, 1.5, float("nan"), "", "x", b"", [], Pairs(), [[]], 1 << 64, 10**400)
        )
    if chance.random() < 0.1:  # another part of the same tree
        other = _at(tree, chance.choice(places))
        return other if not isinstance(other, (list, tuple)) or len(repr(other)) < 500 else node
    if isinstance(node, bool):
        return not node
    if isinstance(node, int):
        return number(chance, node)
    if isinstance(node, float):
        return chance.choice((0.0, -0.0, 1e308, -node, float("inf"), float("nan"), int(node) if abs(node) < 1e9 else 0))
    if isinstance(node, str):
        return _text(node, chance)
    if isinstance(node, bytes):
        return damage_bytes(node, chance)
    if isinstance(node, (list, tuple)):
        return type(node)(_items(list(node), chance))
    return chance.choice((0, "", [], Pairs()))


def _text(text: str, chance: random.Random) -> str:
    at = chance.randrange(len(text) + 1)
    match chance.randrange(5):
        case 0:
            return chance.choice(TEXTS)
        case 1:
            return text[:at] + chance.choice(TEXTS) + text[at:]
        case 2:
            return text[:at] + text[at + 1 :]
        case 3:
            return text + text
        case _:
            return (
                text[:at]
                + chr(chance.choice((0, 9, 34, 92, 127, 0x80, 0xD7FF, 0xFFFF, chance.randrange(32, 127))))
                + text[at + 1 :]
            )


def _items(items: list[Any], chance: random.Random) -> list[Any]:
    at, other = (chance.randrange(len(items)) if items else 0 for _ in range(2))
    match chance.randrange(6) if items else 5:
        case 0 | 1:
            items.insert(at, items[other])
        case 2:
            del items[at]
        case 3:
            items[at], items[other] = items[other], items[at]
        case 4:
            items[at] = items[other]
        case _:
            item: Any = chance.choice((0, 1, "x", b"x", None, [], Pairs()))
            for _ in range(chance.choice((0, 0, 0, 3, 200))):
                item = [item]
            items.insert(at, item)
    return items
