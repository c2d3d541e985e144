"""The outline of a JSON document, also of a broken one, as far as the tokenizer came.

>>> [(item.start, item.stop, item.name, item.value) for item in outline_json(b'{"a": [1, 2], "b": {"c": [[]]}}')]
[(0, 31, '', None), (6, 12, 'a', [1, 2]), (19, 30, 'b', None), (25, 29, 'c', None), (26, 28, '[0]', [])]
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

from holdall.binary.documents.json import DEPTH, Tape, tokenize
from holdall.binary.documents.outline import LONGEST, SHOWN, Item
from holdall.binary.kernels import json_tokens as tokens
from holdall.binary.kernels.json_tokens import ARRAY, DEPTH_SHIFT, KEY, KIND, OBJECT, STRING

__all__ = ["outline_json"]

_SMALL = 80  # bytes of a container without containers inside that is one item
_FEW = 24  # and its tokens
_BLOCK = 1024  # tokens
_NAMES = {OBJECT: "object", ARRAY: "array", STRING: "string", tokens.INT: "integer", tokens.FLOAT: "number",
          tokens.TRUE: "boolean", tokens.FALSE: "boolean", tokens.NULL: "null"}  # fmt: skip


def outline_json(data: bytes, base: int = 0, since: int = 0, depth: int = DEPTH) -> Iterator[Item]:
    """List the values of the document in ``data``, which begins at byte ``base`` and may be broken.

    Values that end at or before byte ``since`` are left out. What is wrong is raised at the end, as DocumentError.
    """
    from holdall.binary import kernels

    stored, at, reason = kernels.json_tape(data, 0, len(data), depth)
    yield from _Walk(Tape(data, stored), base, since - base, len(data) if reason is None else at).items()
    if reason is not None:
        tokenize(data, depth=depth)  # raises, with the path


class _Walk:
    def __init__(self, tape: Tape, base: int, since: int, reached: int) -> None:
        self._tape = tape
        self._base = base
        self._since = since
        self._reached = reached  # where an unfinished container ends
        self._first = 0
        self._rows: list[list[int]] = []  # tokens as Python integers from there on, a block at a time

    def items(self) -> Iterator[Item]:
        """Every value, but for those that end before the first wanted byte."""
        tape, index, key = self._tape, 0, -1
        places: Counter[int] = Counter()  # the next place in the array at each depth
        while index < len(tape):
            kind, start, end, link = self._row(index)
            if kind & KIND == KEY:
                key, index = index, index + 1
                continue
            depth = kind >> DEPTH_SHIFT
            name = tape.text(key) if key >= 0 else f"[{places[depth]}]" if depth else ""
            places[depth] += 1
            places[depth + 1] = 0
            quoted = kind & KIND == STRING
            first, stop = start - quoted, end + quoted if end else self._reached
            after = link if end else index + 1
            if stop > self._since:
                small = self._is_small(index, after, stop - first) if end else False
                yield self._item(index, name, key, first, stop, small)
                after = after if small else index + 1
            index, key = after, -1

    def _row(self, index: int) -> list[int]:
        place = index - self._first
        if not 0 <= place < len(self._rows):
            self._first, place = index, 0
            self._rows = self._tape.table[index : index + _BLOCK].tolist()
        return self._rows[place]

    def _is_small(self, index: int, after: int, size: int) -> bool:
        kinds = self._tape.table[index:after, 0] & KIND if after - index <= _FEW else None
        return size <= _SMALL and kinds is not None and not ((kinds[1:] == OBJECT) | (kinds[1:] == ARRAY)).any()

    def _item(self, index: int, name: str, key: int, start: int, stop: int, small: bool) -> Item:
        tape, base = self._tape, self._base
        kind, _, end, link = tape.row(index)
        what, container = kind & KIND, kind & KIND in (OBJECT, ARRAY)
        count = value = None
        whole = True
        if container and not small:
            if end:
                inside = (tape.table[index + 1 : link, 0] >> DEPTH_SHIFT) == (kind >> DEPTH_SHIFT) + 1
                count = int(inside.sum()) // (2 if what == OBJECT else 1)
        else:
            value, whole = _make_value(tape.data[start : min(stop, start + LONGEST)], stop - start <= LONGEST)
        place = None if key < 0 else base + tape.offset(key)
        shown = tape.data[start : min(stop, start + SHOWN)]
        return Item(
            base + start, base + stop, kind >> DEPTH_SHIFT, name, _NAMES[what], value, shown, place, count, whole
        )


def _make_value(text: bytes, whole: bool) -> tuple[object, bool]:
    """The value of ``text``; the text itself if it is only a beginning, or a number that Python does not make."""
    try:
        return (json.loads(text), True) if whole else (text.decode("utf-8", "replace"), False)
    except ValueError:
        return text.decode("utf-8", "replace"), False
