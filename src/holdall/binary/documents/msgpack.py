"""Strict MessagePack documents: one value, text keys that differ, and errors that name byte and path.

The walker of :mod:`holdall.binary.kernels` decides what is MessagePack; values are made only from what it accepted.
A list of maps with known keys, such as an index of tensors, becomes columns without making a value.

>>> decode(b"\\x81\\xa1a\\x93\\x01\\x02\\x03")
{'a': [1, 2, 3]}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdall.binary.documents.base import DocumentError, TooManyValues, member_path
from holdall.binary.kernels import msgpack_tokens as tokens

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from holdall.binary.kernels.msgpack_tokens import Step
    from holdall.binary.layout import Buffer

__all__ = ["DEPTH", "KINDS", "REASONS", "DocumentError", "Rows", "TooManyValues", "decode", "encode"]
__all__ += ["encode_array_head", "encode_items", "rows"]

DEPTH = 128
_LONG = 200  # characters of a path in a message

KINDS = ("nil", "a bool", "a bool", "an unsigned integer", "a negative integer", "a float", "text", "bytes",
         "an extension", "an array", "a map")  # fmt: skip

REASONS = {
    tokens.CUT: "the document ends before this value does",
    tokens.RESERVED: "the byte c1 means nothing",
    tokens.DEEP: "nested too deep",
    tokens.KEY: "a map key is not text",
    tokens.TWICE: "the map has a key twice",
    tokens.TEXT: "text is not UTF-8",
    tokens.NOT_MAP: "a map is expected",
}


def decode(data: Buffer, *, depth: int = DEPTH, padded: bool = False, most: int | None = None) -> Any:
    """Decode the one value in ``data``; anything else raises :class:`DocumentError`.

    ``padded`` allows zero bytes after it. More than ``most`` values, keys included, raise :class:`TooManyValues`
    before one is made.
    """
    import msgspec

    from holdall.binary import kernels

    data = bytes(data)
    _check_depth(data, 0, depth, "$")
    status, end, at, path = kernels.msgpack_walk(data, 0, len(data), depth, len(data) if most is None else most)
    if status == tokens.MANY:
        raise TooManyValues(at, f"more than {most} values")
    if status:
        raise _make_error(data, status, at, "$", path)
    if any(data[end:]) if padded else end < len(data):
        raise DocumentError(end, f"{len(data) - end} more bytes follow the document")
    try:
        return msgspec.msgpack.decode(data[:end])
    except (msgspec.MsgspecError, ValueError) as error:  # a timestamp out of range
        raise DocumentError(0, str(error)) from None


def encode(value: Any) -> bytes:
    """Encode ``value`` in the shortest form. Maps keep their order.

    >>> encode({"a": 300}).hex()
    '81a161cd012c'
    """
    import msgspec

    return msgspec.msgpack.encode(value)


def encode_items(items: Sequence[Any]) -> bytes:
    """Encode ``items`` one after the other, without the head of an array around them."""
    return encode(items)[len(encode_array_head(len(items))) :]


def encode_array_head(count: int) -> bytes:
    """Encode the head of an array of ``count`` items, in the shortest form.

    >>> (encode_array_head(2) + encode_items([1, "a"])).hex(), encode([1, "a"]).hex()
    ('9201a161', '9201a161')
    """
    if count < 16:
        return bytes([0x90 | count])
    return b"\xdc" + count.to_bytes(2, "big") if count < 1 << 16 else b"\xdd" + count.to_bytes(4, "big")


class Rows:
    """A list of maps as columns: for each known key the kinds, places, numbers and ends of its values.

    ``kind(key)`` is the kind of each value (``tokens.ABSENT`` where a map does not have the key), ``at(key)`` where it
    starts (text and bytes: where their content starts), ``value(key)`` its number, or its count of bytes, items or
    pairs, ``end(key)`` where it ends. ``starts`` is where each map starts, ``extras`` whether it has other keys, and
    ``stop`` where the last map ends.
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
        """The kind of each value of ``key``."""
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
    data: bytes,
    start: int,
    stop: int,
    count: int,
    keys: Sequence[str],
    *,
    depth: int = DEPTH,
    path: str = "$",
    first: int = 0,
) -> Rows:
    """Read ``count`` maps in ``data[start:stop]`` into columns; ``path`` is the path of the array around them.

    ``first`` is the place of the first of them in that array. The caller has checked that this many maps can fit.
    """
    from holdall.binary import kernels

    _check_depth(data, start, depth, path)
    found = Rows(keys, count)
    names = b"".join(key.encode() + b"\0" for key in keys)
    done, status, end, at, column, inner = kernels.msgpack_table(
        data, start, stop, count, depth, names,
        found.kinds, found.ats, found.values, found.ends, found.starts, found.extras,
    )  # fmt: skip
    if status:
        member = member_path(keys[column]) if column >= 0 else ""
        row = f"[{first + done}]" if path != "$" else ""
        raise _make_error(data, status, at, f"{path}{row}{member}", inner)
    found.stop = end
    return found


def _check_depth(data: bytes, at: int, depth: int, path: str) -> None:
    """Refuse a document where not even its outermost map may be: the kernels count from one."""
    if depth < 1:
        raise _make_error(data, tokens.DEEP, at, path, ())


def _make_error(data: bytes, status: int, at: int, before: str, steps: Sequence[Step]) -> DocumentError:
    """Make the error at byte ``at``, ``steps`` inside the path ``before``."""
    message = REASONS[status]
    if status == tokens.TWICE:
        end = _find_text_end(data, at)
        message = f"the map has the key {data[at:end].decode(errors='replace')!r} twice"
        if steps:
            steps = [*steps[:-1], (at, end - at)]  # the walker still has the key before it
    return DocumentError(at, message, before + _show_steps(data, steps))


def _show_steps(data: bytes, steps: Sequence[Step]) -> str:
    text = ""
    for step in steps:
        if len(text) > _LONG:
            return text + "..."
        if isinstance(step, int):
            text += f"[{step}]"
        elif step[1]:
            text += member_path(data[step[0] : step[0] + step[1]].decode(errors="replace"))
    return text


def _find_text_end(data: bytes, at: int) -> int:
    """Find the end of the key whose content starts at ``at``. Its length is in the byte before, if it is short."""
    head = data[at - 1]
    return at + (head & 31) if 0xA0 <= head < 0xC0 else min(len(data), at + 40)
