"""The readable twin of the kernel that finds the tensors of a state dict in its pickle."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import TYPE_CHECKING, Any

from holdall.kernels.buffers import array_of, check_size, view_of

if TYPE_CHECKING:
    from holdall.kernels.buffers import Bytes

__all__ = ["Column", "Kind", "pickle_tensors"]

_PROTO, _LONG1, _TRUE, _FALSE, _TUPLE1 = 0x80, 0x8A, 0x88, 0x89, 0x85
_MARK, _TUPLE, _EMPTY_TUPLE, _EMPTY_DICT, _UINT8, _UINT16, _INT32, _UNICODE = map(ord, "(t)}KMJX")
_GLOBAL, _GET, _LONG_GET, _PUT, _LONG_PUT, _PERSISTENT, _REDUCE, _SET_ITEM, _SET_ITEMS = map(ord, "chjqrQRsu")

_ORDERED_DICT, _REBUILD, _FIRST_STORAGE = 0, 1, 2  # the words that every caller begins with
_MAX_WORDS = 64
_MAX_BATCH = 1 << 18
_MAX_RANK = 4096
_FORMS = 4  # of items that are kept, to be met again


class Kind(IntEnum):
    """What is remembered: the kind in the low three bits, above them the place of a text, a word or a row."""

    OTHER = 0
    TEXT = 1
    WORD = 2
    TENSOR = 3
    ROOT = 4


class Column(IntEnum):
    """The columns of a tensor. DIMS is where its shape and then its strides are among the values."""

    NAME_AT = 0
    NAME_SIZE = 1
    KEY_AT = 2
    KEY_SIZE = 3
    STORAGE = 4
    ELEMENTS = 5
    FIRST = 6
    DIMS = 7
    RANK = 8
    PLACE = 9


def pickle_tensors(
    data: Bytes, words: tuple[bytes, ...], most: int, memo: Bytes, rows: Bytes, values: Bytes, /
) -> tuple[int, int, int, int, int]:
    """Find the tensors of the state dict that the pickle in `data` makes, as far as it is what torch.save writes.

    `words` are globals as the pickle has them, ``module\\nname\\n``: OrderedDict, _rebuild_tensor_v2, then the classes
    of storages. `memo` and `values` are uint64, `rows` is uint64[][10]: what is remembered, the dims and strides, and
    a row of :class:`Column` for each tensor. No more than `most` opcodes are gone through.

    Returns whether the dict is an OrderedDict (-1: there is none), the rows, what is remembered, the opcodes and the
    place in `data`, as they are after the last whole batch of items: a machine that knows more can go on from there.
    """
    check_size(most)
    if not _FIRST_STORAGE <= len(words) <= _MAX_WORDS:
        raise ValueError(f"words are a tuple of {_FIRST_STORAGE} to {_MAX_WORDS}")
    if not all(isinstance(word, bytes) for word in words):
        raise TypeError("words are bytes")
    out = [array_of(buffer, "u1", writable=True) for buffer in (memo, rows, values)]
    if out[0].size % 8 or out[1].size % (8 * len(Column)) or out[2].size % 8:
        raise ValueError(f"memo and values are uint64, rows are uint64[][{len(Column)}]")
    rooms = [column.size // 8 for column in out]
    walk = _Walk(bytes(view_of(data)), words, most, *rooms)
    ordered, sound = walk.state_dict()
    count, remembered, made, at = sound
    for column, found in zip(out, (walk.memo, walk.rows, walk.values), strict=True):
        column.view("<u8")[: len(found)] = found
    return ordered, count, remembered, made, at


class _Unknown(Exception):
    """Something that torch.save does not write for a state dict."""


class _Template:
    """Some bytes of the pickle in which numbers of four bytes count on: those under which values are remembered."""

    def __init__(self, data: bytes, start: int, stop: int, counters: list[int]) -> None:
        self._pieces: list[Any] = []
        code = "<"
        for at in counters:
            self._pieces += [data[start:at], 0]
            code += f"{at - start}sI"
            start = at + 4
        self._pieces.append(data[start:stop])
        self._pack = Struct(f"{code}{stop - start}s").pack
        self.counters = len(counters)

    def bytes_from(self, count: int) -> bytes:
        """The bytes, with the numbers from ``count`` on."""
        if self.counters:
            self._pieces[1::2] = range(count, count + self.counters)
        return self._pack(*self._pieces)


@dataclass(frozen=True)
class _Form:
    """An item that was met before: what stands between its name and its key, and after its key."""

    before: _Template
    after: _Template
    memo: list[int]
    texts: bool  # whether the two texts and the tensor are remembered: the first, the second and the last of the memo
    opcodes: int
    row: list[int]  # from STORAGE on; DIMS and PLACE are put in
    values: list[int]
    reduce: int  # bytes from the opcode of the call to the end


class _Walk:
    """Goes through the pickle opcode by opcode, but for items that are like one of the last few."""

    def __init__(
        self, data: bytes, words: tuple[bytes, ...], most: int, memo_room: int, rows_room: int, values_room: int
    ) -> None:
        self.data, self.words, self.most = data, words, most
        self.rooms = memo_room, rows_room, values_room
        self.at = self.made = 0
        self.memo: list[int] = []
        self.rows: list[int] = []
        self.values: list[int] = []
        self.forms: deque[_Form] = deque(maxlen=_FORMS)
        self.puts: list[int] = []  # where the numbers of four bytes are, of what an item remembers

    def state_dict(self) -> tuple[int, tuple[int, int, int, int]]:
        """Whether the dict is an OrderedDict, and where the walk ended."""
        ordered, sound = -1, self._place()
        try:
            self._take(_PROTO)
            self._number(1)
            if self._peek() == _EMPTY_DICT:
                self._take(_EMPTY_DICT)
                self._put(Kind.ROOT)
                ordered = 0
            else:
                self._empty_ordered(Kind.ROOT)
                ordered = 1
            while True:
                sound = self._place()
                self._batch()
        except _Unknown:
            if ordered < 0:
                sound = self._place()
        return ordered, sound

    def _place(self) -> tuple[int, int, int, int]:
        return len(self.rows) // len(Column), len(self.memo), self.made, self.at

    def _batch(self) -> None:
        if self._peek() != _MARK:
            self._item()
            self._take(_SET_ITEM)
            return
        self._take(_MARK)
        for _ in range(_MAX_BATCH):
            if self._peek() == _SET_ITEMS:
                self._take(_SET_ITEMS)
                return
            self._item()
        raise _Unknown

    def _item(self) -> None:
        if self.rooms[1] - len(self.rows) < len(Column):
            raise _Unknown
        if self._repeated():
            return
        start, made, memo, values = self.at, self.made, len(self.memo), len(self.values)
        self.puts = []
        name = self._text()
        row = [*name, *self._tensor()]
        self.rows += row
        key, stop = row[Column.KEY_AT], row[Column.KEY_AT] + row[Column.KEY_SIZE]
        if name[0] != start + 5 or key - 5 < sum(name):  # one of the texts is not here
            return
        texts = [start << 3 | Kind.TEXT, (key - 5) << 3 | Kind.TEXT]
        met, kinds = self.memo[memo:], [value & 7 for value in self.memo[memo:]]
        regular = not met or (met[:2] == texts and kinds[-1] == Kind.TENSOR and not any(kinds[2:-1]))
        if not regular or len(self.puts) != len(kinds):
            return
        self.forms.appendleft(
            _Form(
                _Template(self.data, sum(name), key - 4, [at for at in self.puts if at < key]),
                _Template(self.data, stop, self.at, [at for at in self.puts if at > key]),
                kinds, bool(kinds), self.made - made, row[Column.STORAGE :], self.values[values:],
                self.at - row[Column.PLACE],
            )
        )  # fmt: skip

    def _repeated(self) -> bool:
        """Take an item that is like one of the last few, but for its texts; whether it is."""
        data, at, count = self.data, self.at, len(self.memo)
        if data[at : at + 1] != b"X":
            return False
        name_size = int.from_bytes(data[at + 1 : at + 5], "little")
        middle = at + 5 + name_size
        for form in self.forms:
            before = form.before.bytes_from(count)
            key = middle + len(before) + 4
            if not data.startswith(before, middle):
                continue
            key_size = int.from_bytes(data[key - 4 : key], "little")
            after = form.after.bytes_from(count + form.before.counters)
            if not data.startswith(after, key + key_size):
                continue
            if (
                self.made + form.opcodes > self.most
                or count + len(form.memo) > self.rooms[0]
                or len(self.values) + len(form.values) > self.rooms[2]
            ):
                return False
            self.at = key + key_size + len(after)
            self.made += form.opcodes
            self.memo += form.memo
            if form.texts:
                self.memo[count] |= at << 3
                self.memo[count + 1] |= (key - 5) << 3
                self.memo[-1] |= len(self.rows) // len(Column) << 3
            storage, elements, first, _, rank, _ = form.row
            self.rows += (
                at + 5, name_size, key, key_size, storage, elements, first, len(self.values), rank,
                self.at - form.reduce,
            )  # fmt: skip
            self.values += form.values
            return True
        return False

    def _tensor(self) -> list[int]:
        """A call of _rebuild_tensor_v2 with a typed storage, flags and no hooks, or a tensor that was met before."""
        take, width = self._take, len(Column)
        known = self._get(Kind.TENSOR)
        if known is not None:
            if known >= len(self.rows) // width:
                raise _Unknown
            return self.rows[known * width + Column.KEY_AT : (known + 1) * width]
        if self._global() != _REBUILD:
            raise _Unknown
        take(_MARK)
        take(_MARK)
        if self._letters() != b"storage":
            raise _Unknown
        storage = self._global()
        if storage < _FIRST_STORAGE:
            raise _Unknown
        key_at, key_size = self._text()
        if not self._letters().isascii():  # the device, which nothing depends on
            raise _Unknown
        elements = self._size()
        take(_TUPLE)
        self._put(Kind.OTHER)
        take(_PERSISTENT)
        first, dims = self._size(), len(self.values)
        rank = self._sizes()
        if self._sizes() != rank:
            raise _Unknown
        take(_FALSE if self._peek() == _FALSE else _TRUE)
        self._empty_ordered(Kind.OTHER)
        take(_TUPLE)
        self._put(Kind.OTHER)
        place = self.at
        take(_REDUCE)
        self._put(Kind.TENSOR, len(self.rows) // width)
        return [key_at, key_size, storage, elements, first, dims, rank, place]

    def _empty_ordered(self, kind: Kind) -> None:
        if self._global() != _ORDERED_DICT:
            raise _Unknown
        self._take(_EMPTY_TUPLE)
        self._take(_REDUCE)
        self._put(kind)

    def _sizes(self) -> int:
        """A tuple of sizes, appended to the values; how many there are."""
        opcode, count = self._peek(), 0
        if opcode == _EMPTY_TUPLE:
            self._take(_EMPTY_TUPLE)
        else:
            if opcode == _MARK:
                self._take(_MARK)
            while count < _MAX_RANK and self._peek() in (_UINT8, _UINT16, _INT32, _LONG1):
                value = self._size()
                if len(self.values) >= self.rooms[2]:
                    raise _Unknown
                self.values.append(value)
                count += 1
            if opcode != _MARK and not 1 <= count <= 3:
                raise _Unknown
            self._take(_TUPLE if opcode == _MARK else _TUPLE1 + count - 1)
        self._put(Kind.OTHER)
        return count

    def _size(self) -> int:
        """A whole number from 0 to 2**63 - 1."""
        opcode = self._peek()
        if opcode not in (_UINT8, _UINT16, _INT32, _LONG1):
            raise _Unknown
        self._take(opcode)
        if opcode == _UINT8:
            return self._number(1)
        if opcode == _UINT16:
            return self._number(2)
        size = 4 if opcode == _INT32 else self._number(1)
        if size > 8 or size > len(self.data) - self.at:
            raise _Unknown
        value = int.from_bytes(self.data[self.at : self.at + size], "little", signed=True)
        if value < 0:
            raise _Unknown
        self.at += size
        return value

    def _global(self) -> int:
        """A global: its place among the words."""
        known = self._get(Kind.WORD)
        if known is not None:
            return known
        self._take(_GLOBAL)
        for number, word in enumerate(self.words):
            if self.data.startswith(word, self.at):
                self.at += len(word)
                self._put(Kind.WORD, number)
                return number
        raise _Unknown

    def _letters(self) -> bytes:
        at, size = self._text()
        return self.data[at : at + size]

    def _text(self) -> tuple[int, int]:
        """A text, here or remembered: where its bytes are, and how many."""
        known = self._get(Kind.TEXT)
        if known is not None:
            return known + 5, int.from_bytes(self.data[known + 1 : known + 5], "little")
        place = self.at
        self._take(_UNICODE)
        size, at = self._number(4), self.at
        if size > len(self.data) - at:
            raise _Unknown
        self.at += size
        self._put(Kind.TEXT, place)
        return at, size

    def _get(self, kind: Kind) -> int | None:
        """What is remembered of this kind under the number that follows; at anything else nothing is taken."""
        opcode = self._peek()
        if opcode != _GET and opcode != _LONG_GET:
            return None
        at, width = self.at + 1, 1 if opcode == _GET else 4
        index = int.from_bytes(self.data[at : at + width], "little")
        if width > len(self.data) - at or index >= len(self.memo) or self.memo[index] & 7 != kind:
            return None
        self.at = at + width
        self.made += 1
        return self.memo[index] >> 3

    def _put(self, kind: Kind, what: int = 0) -> None:
        """The value made last is remembered, if the pickle says so: under the next free number."""
        opcode = self._peek()
        if opcode in (_PUT, _LONG_PUT):
            self._take(opcode)
            if opcode == _LONG_PUT:
                self.puts.append(self.at)
            if self._number(1 if opcode == _PUT else 4) != len(self.memo) or len(self.memo) >= self.rooms[0]:
                raise _Unknown
            self.memo.append(what << 3 | kind)

    def _peek(self) -> int:
        """The next opcode, not yet taken; -1 at the end."""
        return self.data[self.at] if self.at < len(self.data) and self.made < self.most else -1

    def _take(self, opcode: int) -> None:
        if self._peek() != opcode:
            raise _Unknown
        self.at += 1
        self.made += 1

    def _number(self, width: int) -> int:
        if width > len(self.data) - self.at:
            raise _Unknown
        self.at += width
        return int.from_bytes(self.data[self.at - width : self.at], "little")
