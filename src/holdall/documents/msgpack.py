"""Strict MessagePack documents: one value, text keys that differ, and errors that name byte and path.

The walker of :mod:`holdall.kernels` is the judge of what is MessagePack; values are made only from what it let pass.
A list of maps with known keys, such as an index of tensors, is taken apart into columns without making a value.

>>> decode(b"\\x81\\xa1a\\x93\\x01\\x02\\x03")
{'a': [1, 2, 3]}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdall.documents.base import DocumentError, member_path
from holdall.kernels import msgpack_reference as tokens

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from holdall.kernels.msgpack_reference import Step
    from holdall.layout import Buffer

__all__ = ["DEPTH", "KINDS", "DocumentError", "Rows", "decode", "encode", "rows"]

DEPTH = 128
_LONG = 200  # of a path in a message

KINDS = ("nil", "a bool", "a bool", "an unsigned integer", "a negative integer", "a float", "text", "bytes",
         "an extension", "an array", "a map")  # fmt: skip

_REASONS = {
    tokens.CUT: "the document ends before this value does",
    tokens.RESERVED: "the byte c1 means nothing",
    tokens.DEEP: "nested too deep",
    tokens.KEY: "a map key is not text",
    tokens.TWICE: "the map has a key twice",
    tokens.TEXT: "text is not UTF-8",
    tokens.NOT_MAP: "a map is expected",
}


def decode(data: Buffer, *, depth: int = DEPTH, padded: bool = False) -> Any:
    """The one value in ``data``; anything else raises :class:`DocumentError`.

    ``padded`` lets zero bytes follow it.
    """
    import msgspec

    from holdall import kernels

    data = bytes(data)
    status, end, at, path = kernels.msgpack_walk(data, 0, len(data), depth)
    if status:
        raise _error(data, status, at, "$", path)
    if any(data[end:]) if padded else end < len(data):
        raise DocumentError(end, f"{len(data) - end} more bytes follow the document")
    try:
        return msgspec.msgpack.decode(data[:end])
    except (msgspec.MsgspecError, ValueError) as error:  # a timestamp out of range
        raise DocumentError(0, str(error)) from None


def encode(value: Any) -> bytes:
    """``value`` in the shortest form, maps in their own order.

    >>> encode({"a": 300}).hex()
    '81a161cd012c'
    """
    import msgspec

    return msgspec.msgpack.encode(value)


class Rows:
    """Maps taken apart: for each known key a column of kinds, places, numbers and ends.

    ``kind(key)`` is what each map has under ``key`` (``tokens.ABSENT``: nothing), ``at(key)`` where it starts (of text
    and bytes: their content), ``value(key)`` its number, or how many bytes, items or pairs it has, ``end(key)``
    where it ends. ``starts`` is where each map starts, ``extras`` whether it has other keys, ``stop`` where the last
    one ends.
    """

    def __init__(self, keys: Sequence[str], count: int) -> None:
        import numpy as np

        self._row = {key: row for row, key in enumerate(keys)}
        self.kinds = np.empty((len(keys), count), np.uint8)
        self.ats, self.values, self.ends = (np.empty((len(keys), count), np.uint64) for _ in range(3))
        self.starts = np.empty(count, np.uint64)
        self.extras = np.empty(count, np.uint8)
        self.stop = 0

    def __len__(self) -> int:
        return len(self.starts)

    def kind(self, key: str) -> NDArray[np.uint8]:
        """What each map has under ``key``."""
        found: NDArray[np.uint8] = self.kinds[self._row[key]]
        return found

    def at(self, key: str) -> NDArray[np.uint64]:
        """Where each value of ``key`` starts."""
        found: NDArray[np.uint64] = self.ats[self._row[key]]
        return found

    def value(self, key: str) -> NDArray[np.uint64]:
        """The number, length or count of each value of ``key``."""
        found: NDArray[np.uint64] = self.values[self._row[key]]
        return found

    def end(self, key: str) -> NDArray[np.uint64]:
        """Where each value of ``key`` ends."""
        found: NDArray[np.uint64] = self.ends[self._row[key]]
        return found


def rows(
    data: bytes, start: int, stop: int, count: int, keys: Sequence[str], *, depth: int = DEPTH, path: str = "$"
) -> Rows:
    """Take ``count`` maps of ``data[start:stop]`` apart; ``path`` is that of the array they are in.

    The caller has made sure that as many maps can be there.
    """
    from holdall import kernels

    found = Rows(keys, count)
    names = b"".join(key.encode() + b"\0" for key in keys)
    done, status, end, at, column, inner = kernels.msgpack_table(
        data, start, stop, count, depth, names,
        found.kinds, found.ats, found.values, found.ends, found.starts, found.extras,
    )  # fmt: skip
    if status:
        member = member_path(keys[column]) if column >= 0 else ""
        row = f"[{done}]" if path != "$" else ""
        raise _error(data, status, at, f"{path}{row}{member}", inner)
    found.stop = end
    return found


def _error(data: bytes, status: int, at: int, before: str, steps: Sequence[Step]) -> DocumentError:
    """What is wrong at ``at``, reached by ``steps`` from the path ``before``."""
    message = _REASONS[status]
    if status == tokens.TWICE:
        end = _text_end(data, at)
        message = f"the map has the key {data[at:end].decode(errors='replace')!r} twice"
        if steps:
            steps = [*steps[:-1], (at, end - at)]  # the last step was to the key before it
    return DocumentError(at, message, before + _place(data, steps))


def _place(data: bytes, steps: Sequence[Step]) -> str:
    text = ""
    for step in steps:
        if len(text) > _LONG:
            return text + "..."
        if isinstance(step, int):
            text += f"[{step}]"
        elif step[1]:
            text += member_path(data[step[0] : step[0] + step[1]].decode(errors="replace"))
    return text


def _text_end(data: bytes, at: int) -> int:
    """Where the key whose content starts at ``at`` ends; its head lies directly before."""
    head = data[at - 1]
    return at + (head & 31) if 0xA0 <= head < 0xC0 else min(len(data), at + 40)
