"""A pickle machine that makes plain values and descriptions of tensors, and nothing else.

It imports no name and calls no function that the pickle names: a global is looked up in the fixed list of
:mod:`holdall.format.torch.pickle_objects`, and any other is refused by name. Stack, memo, opcodes, the length of
integers and the work of calls are bounded, so that a small file cannot cost much.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NoReturn

from holdall.base.check import LIMIT
from holdall.format.torch import rules
from holdall.format.torch.fast_state_dict import FastStateDict, Memo
from holdall.format.torch.pickle_objects import (
    KNOWN,
    Ordered,
    Refused,
    Storage,
    call,
    describe,
    is_key,
    storage_of,
    weight_of,
)
from holdall.limits import Limits

__all__ = ["Machine"]

_STACK = 1 << 20  # values on the stack; writers add a thousand items to a container at a time
# Containers that a pickle may make; one more for every four bytes. An empty list takes one byte of a pickle and 72 of
# memory, but a writer puts something into most of them, or remembers them.
_CONTAINERS = 1 << 17
_TUPLES = 1 << 10  # keys that are tuples: a file can make their hashes equal, so that each is compared with all others
_CALLS = 1 << 18  # items that all calls together may read; as many more as the pickle has bytes
_TEXT = 256  # characters from which on equal texts are made one object
_LONG = 64  # bytes of an integer: printing a longer one is slow
_NEVER = {
    ord(sign): word
    for sign, word in {
        "i": "INST", "o": "OBJ", "\x81": "NEWOBJ", "\x92": "NEWOBJ_EX", "P": "PERSID", "\x82": "EXT1", "\x83": "EXT2",
        "\x84": "EXT4", "\x97": "NEXT_BUFFER", "\x98": "READONLY_BUFFER", "\x96": "BYTEARRAY8", "\x8f": "EMPTY_SET",
        "\x90": "ADDITEMS", "\x91": "FROZENSET", "2": "DUP",
    }.items()
}  # fmt: skip

_OBJECTS = frozenset(b"io\x81\x92\x8f\x90\x91\x96")  # those that make objects of Python


class Machine:
    """Runs the pickles in ``data`` one after the other. Messages give offsets in ``data``."""

    def __init__(self, data: bytes, limits: Limits) -> None:
        self.data = data
        self.made = 0  # opcodes so far
        self.storages: dict[str, Storage] = {}  # by key, as each is first described
        self._calls = len(data) + _CALLS  # items that calls may still read
        self._containers = len(data) // 4 + _CONTAINERS  # those that may still be made
        self._tuples = _TUPLES  # keys that may still be tuples
        self._memo_cap = limits.metadata_entries
        self._opcodes = 8 * limits.metadata_entries
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}
        self._texts: dict[str, str] = {}  # long ones: dicts need not compare equal keys that are one object

    def run(self, at: int, front: FastStateDict | None = None) -> tuple[Any, int]:
        """Run the pickle that begins at ``at``: its value and its end. What ``front`` holds is not run again."""
        self._stack, self._marks, self._memo, made = [], [], {}, 0
        if front is not None:
            self._stack, self._memo, made, at = [front.root], Memo(front), front.made, front.at
        data, stack, most, steps = self.data, self._stack, self._opcodes, self._steps()
        try:
            while (opcode := data[at]) != 0x2E:
                made += 1
                if made > most or len(stack) > _STACK:
                    raise Refused(rules.SIZE, at, f"more than {most} opcodes, or {_STACK} values that wait")
                at = steps[opcode](at + 1)
            value = stack.pop()
        except IndexError:
            short = at + 1 >= len(data)  # the argument of the last opcode may be missing
            what = "ends early" if short else "takes more from its stack than there is"
            raise Refused(rules.BROKEN, min(at, len(data)), f"the pickle {what}", short) from None
        self.made += made
        if self._stack or self._marks:
            raise Refused(rules.BROKEN, at, f"{len(self._stack)} values are left over at the end")
        return value, at + 1

    # -- reading ----------------------------------------------------------------------------------------------------

    def _bytes(self, at: int, size: int) -> bytes:
        if size > len(self.data) - at:
            raise Refused(rules.BROKEN, at, f"{size} bytes are announced, {len(self.data) - at} follow", True)
        return self.data[at : at + size]

    def _number(self, at: int, size: int) -> int:
        return int.from_bytes(self._bytes(at, size), "little")

    def _read_counted(self, at: int, width: int) -> tuple[bytes, int]:
        """The bytes after their number, which has ``width`` bytes, and the place after them."""
        start = at + width
        size = int.from_bytes(self.data[at:start], "little")
        found = self.data[start : start + size]
        if len(found) < size or start > len(self.data):
            found = self._bytes(start, self._number(at, width))  # says what is missing
        return found, start + size

    def _text(self, data: bytes, at: int) -> str:
        try:
            text = data.decode()
        except UnicodeDecodeError:
            self._refuse_text(data, at)
        return text if len(text) < _TEXT else self._texts.setdefault(text, text)

    @staticmethod
    def _refuse_text(data: bytes, at: int) -> NoReturn:
        try:
            data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            raise Refused(rules.BROKEN, at, "text is not UTF-8") from None
        # Python writes such texts, but no UTF-8 holds them, and an escape in their place could be another text.
        raise Refused(rules.TEXT, at, "a text has half of a surrogate pair, which UTF-8 cannot hold") from None

    def _line(self, at: int) -> tuple[str, int]:
        end = self.data.find(b"\n", at, at + 1024)
        if end < 0:
            raise Refused(rules.BROKEN, at, "a name does not end", len(self.data) < at + 1024)
        return self._text(self.data[at:end], at), end + 1

    def _since_mark(self) -> list[Any]:
        start = self._marks.pop()
        items = self._stack[start:]
        del self._stack[start:]
        return items

    def _remember(self, index: int, at: int, after: int) -> int:
        if len(self._memo) >= self._memo_cap:
            raise Refused(rules.SIZE, at, f"more than {self._memo_cap} values are remembered")
        self._memo[index] = self._stack[-1]
        return after

    # -- steps: each takes the place after its opcode and returns the place of the next opcode -----------------------

    def _steps(self) -> list[Callable[[int], int]]:
        data, stack = self.data, self._stack

        def push(value: Any, at: int) -> int:
            stack.append(value)
            return at

        table: dict[int, Callable[[int], int]] = {
            0x80: lambda at: at + 1,  # PROTO
            0x95: lambda at: at + 8,  # FRAME: a hint only
            ord("("): self._mark,
            ord("0"): lambda at: (stack.pop(), at)[1],
            ord("1"): lambda at: (self._since_mark(), at)[1],
            ord("N"): lambda at: push(None, at),
            0x88: lambda at: push(True, at),
            0x89: lambda at: push(False, at),
            ord("K"): lambda at: push(data[at], at + 1),
            ord("M"): lambda at: push(self._number(at, 2), at + 2),
            ord("J"): lambda at: push(int.from_bytes(self._bytes(at, 4), "little", signed=True), at + 4),
            0x8A: lambda at: self._long(at, 1),
            0x8B: lambda at: self._long(at, 4),
            ord("G"): lambda at: push(struct.unpack(">d", self._bytes(at, 8))[0], at + 8),
            0x8C: lambda at: self._unicode(at, 1),
            ord("X"): lambda at: self._unicode(at, 4),
            0x8D: lambda at: self._unicode(at, 8),
            ord("C"): lambda at: push(*self._read_counted(at, 1)),
            ord("B"): lambda at: push(*self._read_counted(at, 4)),
            0x8E: lambda at: push(*self._read_counted(at, 8)),
            ord("U"): lambda at: self._old_text(at, 1),
            ord("T"): lambda at: self._old_text(at, 4),
            ord("}"): lambda at: push({}, self._count_container(at)),
            ord("]"): lambda at: push([], self._count_container(at)),
            ord(")"): lambda at: push((), at),
            ord("t"): self._tuple_since_mark,
            0x85: lambda at: self._tuple(1, at),
            0x86: lambda at: self._tuple(2, at),
            0x87: lambda at: self._tuple(3, at),
            ord("l"): lambda at: push(self._since_mark(), self._count_container(at)),
            ord("d"): self._dict,
            ord("a"): lambda at: self._append([self._stack.pop()], at),
            ord("e"): lambda at: self._append(self._since_mark(), at),
            ord("s"): lambda at: self._set_items([stack.pop(-2), stack.pop()], at),
            ord("u"): lambda at: self._set_items(self._since_mark(), at),
            ord("q"): lambda at: self._remember(data[at], at, at + 1),
            ord("r"): lambda at: self._remember(self._number(at, 4), at, at + 4),
            0x94: lambda at: self._remember(len(self._memo), at, at),
            ord("h"): lambda at: self._get(data[at], at, at + 1),
            ord("j"): lambda at: self._get(self._number(at, 4), at, at + 4),
            ord("c"): self._global,
            0x93: self._stack_global,
            ord("R"): self._reduce,
            ord("b"): self._build,
            ord("Q"): lambda at: push(self._find_storage(stack.pop(), at - 1), at),
        }
        return [table.get(opcode, self._refuse) for opcode in range(256)]

    def _refuse(self, at: int) -> NoReturn:
        opcode = self.data[at - 1]
        name = _NEVER.get(opcode, f"{opcode:#04x}")
        rule = rules.OBJECT if opcode in _OBJECTS else rules.OPCODE
        raise Refused(rule, at - 1, f"the opcode {name} is nothing that weights need")

    def _mark(self, at: int) -> int:
        if len(self._marks) > _STACK:
            raise Refused(rules.SIZE, at, f"more than {_STACK} marks wait")
        self._marks.append(len(self._stack))
        return at

    def _count_container(self, at: int) -> int:
        self._containers -= 1
        if self._containers < 0:
            most = len(self.data) // 4 + _CONTAINERS
            raise Refused(rules.SIZE, at - 1, f"more than {most} lists, tuples and dicts are too many for the pickle")
        return at

    def _tuple_since_mark(self, at: int) -> int:
        stack, start = self._stack, self._marks.pop()
        stack[start:] = [tuple(stack[start:])]
        return self._count_container(at)

    def _tuple(self, count: int, at: int) -> int:
        items = tuple(self._stack[-count:])
        if len(items) < count:
            raise IndexError
        self._stack[-count:] = [items]
        return self._count_container(at)

    def _long(self, at: int, width: int) -> int:
        size = self._number(at, width)
        if size > _LONG and size <= len(self.data) - at - width:  # else it is cut off
            raise Refused(LIMIT, at, f"an integer of {size} bytes is above {_LONG}")
        self._stack.append(int.from_bytes(self._bytes(at + width, size), "little", signed=True))
        return at + width + size

    def _unicode(self, at: int, width: int) -> int:
        data, after = self._read_counted(at, width)
        self._stack.append(self._text(data, at))
        return after

    def _old_text(self, at: int, width: int) -> int:
        """A str of Python 2: text if it is ASCII, else bytes."""
        data, after = self._read_counted(at, width)
        self._stack.append(self._text(data, at) if data.isascii() else data)
        return after

    def _dict(self, at: int) -> int:
        items = self._since_mark()
        self._stack.append({})
        return self._set_items(items, self._count_container(at))

    def _append(self, items: list[Any], at: int) -> int:
        target = self._stack[-1]
        if type(target) is not list:
            raise Refused(rules.CALL, at - 1, f"items are appended to a {describe(target)}, not to a list")
        target.extend(items)
        return at

    def _set_items(self, items: list[Any], at: int) -> int:
        target = self._stack[-1]
        if type(target) is not dict and type(target) is not Ordered:
            raise Refused(rules.CALL, at - 1, f"items are set on a {describe(target)}, not on a dict")
        if len(items) % 2:
            raise Refused(rules.BROKEN, at - 1, "a key has no value")
        for key in items[::2]:
            if type(key) is not str and not self._may_be_key(key):
                what = f"a {type(key).__name__}, not text, a number or another small value"
                rule = rules.VALUE if isinstance(key, (list, dict)) else rules.OBJECT  # no dict has the former
                raise Refused(rule, at - 1, f"a dict has a key that is {what}")
        target.update(zip(items[::2], items[1::2], strict=True))
        return at

    def _may_be_key(self, key: Any) -> bool:
        self._tuples -= isinstance(key, tuple)
        return is_key(key) and (self._tuples >= 0 or not isinstance(key, tuple))

    def _get(self, index: int, at: int, after: int) -> int:
        try:
            self._stack.append(self._memo[index])
        except KeyError:
            raise Refused(rules.BROKEN, at, f"value {index} is asked for before it is remembered") from None
        return after

    def _global(self, at: int) -> int:
        module, after = self._line(at)
        name, after = self._line(after)
        self._name(module, name, at - 1)
        return after

    def _stack_global(self, at: int) -> int:
        name, module = self._stack.pop(), self._stack.pop()
        if not isinstance(module, str) or not isinstance(name, str):
            raise Refused(rules.BROKEN, at - 1, "a global is not named by text")
        self._name(module, name, at - 1)
        return at

    def _name(self, module: str, name: str, at: int) -> None:
        known = KNOWN.get((module, name))
        if known is None:
            message = (
                f"the pickle asks for {module[:200]}.{name[:200]}, which no weights need: refused, nothing was run"
            )
            refused = Refused(rules.GLOBAL, at, message)
            refused.root = "" if self._stack or self._marks else f"{module[:200]}.{name[:200]}"
            raise refused
        self._stack.append(known)

    def _pay(self, weight: int, at: int) -> None:
        """Count the items that a call reads: a pickle can read a remembered value again at the cost of a few bytes."""
        self._calls -= weight
        if self._calls < 0:
            raise Refused(rules.SIZE, at, "calls go through what the pickle remembers again and again")

    def _reduce(self, at: int) -> int:
        arguments, function = self._stack.pop(), self._stack.pop()
        self._pay(weight_of(arguments), at - 1)
        self._stack.append(call(function, arguments, at - 1))
        return at

    def _find_storage(self, pid: Any, at: int) -> Storage:
        """The storage of a persistent id. PyTorch keeps the first one of each key, whatever the others say."""
        storage = storage_of(pid, at)
        known = self.storages.setdefault(storage.key, storage)
        if known is not storage and not known.agrees_with(storage):
            raise Refused(rules.STORAGE_SIZE, at, f"storage {known.key!r} is described in two ways")
        return storage

    def _build(self, at: int) -> int:
        """Attributes of an OrderedDict, such as the _metadata of a state dict. They are stored, not set."""
        state, target = self._stack.pop(), self._stack[-1]
        self._pay(2 * len(state) if type(state) is dict else 0, at - 1)
        if type(target) is not Ordered or type(state) is not dict or not all(type(key) is str for key in state):
            raise Refused(rules.CALL, at - 1, f"the state of a {describe(target)} is set")
        target.attributes.update(state)
        return at
