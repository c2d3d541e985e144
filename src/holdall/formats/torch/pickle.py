"""A pickle machine that can make plain values and descriptions of tensors, and nothing else.

No name in the pickle is imported and no function of the file's choosing is called: a global is looked up in the fixed
list of :mod:`holdall.formats.torch.content`, and every other one is refused by name. Stack, memo, opcodes, the
length of numbers and what calls go through are bounded, so that a small file cannot ask for much.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from holdall.formats.torch import rules
from holdall.formats.torch.content import KNOWN, Ordered, Refused, call, is_key, storage_of, weight_of
from holdall.formats.torch.front import Front, Memo
from holdall.limits import Limits

__all__ = ["Machine"]

_STACK = 1 << 20  # values that wait; writers put a thousand items into a container at a time
_CALLS = 1 << 18  # what calls may always go through; beyond it, as much as the pickle has bytes
_TEXT = 256  # letters of a text that is long
_LONG = 64  # bytes of an integer: printing longer ones takes long
_NEVER = {
    ord(sign): word
    for sign, word in {
        "i": "INST", "o": "OBJ", "\x81": "NEWOBJ", "\x92": "NEWOBJ_EX", "P": "PERSID", "\x82": "EXT1", "\x83": "EXT2",
        "\x84": "EXT4", "\x97": "NEXT_BUFFER", "\x98": "READONLY_BUFFER", "\x96": "BYTEARRAY8", "\x8f": "EMPTY_SET",
        "\x90": "ADDITEMS", "\x91": "FROZENSET", "2": "DUP",
    }.items()
}  # fmt: skip


class Machine:
    """Runs one pickle in ``data`` after the other; messages give places in ``data``."""

    def __init__(self, data: bytes, limits: Limits) -> None:
        self.data = data
        self.made = 0  # opcodes so far
        self._calls = len(data) + _CALLS  # what calls may still go through
        self._memo_cap = limits.metadata_entries
        self._opcodes = 8 * limits.metadata_entries
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo = Memo()
        self._texts: dict[str, str] = {}  # long ones: equal keys that are one object need not be compared

    def run(self, at: int, front: Front | None = None) -> tuple[Any, int]:
        """The value of the pickle that begins at ``at``, and where it ends. What is in ``front`` is not run again."""
        data, steps = self.data, self._steps()
        self._stack, self._marks, self._memo, made = [], [], Memo(front), 0
        if front is not None:
            self._stack, made, at = [front.root], front.made, front.at
        try:
            while (opcode := data[at]) != 0x2E:
                step = steps[opcode]
                if step is None:
                    name = _NEVER.get(opcode, f"{opcode:#04x}")
                    raise Refused(rules.OPCODE, at, f"the opcode {name} is nothing that weights need")
                made += 1
                if made > self._opcodes or len(self._stack) > _STACK:
                    raise Refused(rules.SIZE, at, f"more than {self._opcodes} opcodes, or {_STACK} values that wait")
                at = step(at + 1)
            value = self._stack.pop()
        except IndexError:
            short = at + 1 >= len(data)  # also where the byte after an opcode is missing
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

    def _text(self, data: bytes, at: int) -> str:
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise Refused(rules.BROKEN, at, "text is not UTF-8") from None
        return text if len(text) < _TEXT else self._texts.setdefault(text, text)

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

    def _remember(self, index: int, at: int) -> None:
        if len(self._memo) >= self._memo_cap:
            raise Refused(rules.SIZE, at, f"more than {self._memo_cap} values are remembered")
        self._memo[index] = self._stack[-1]

    # -- steps: each gets the place after its opcode, and gives that of the next -------------------------------------

    def _steps(self) -> list[Callable[[int], int] | None]:
        push = self._push
        table: dict[int, Callable[[int], int]] = {
            0x80: lambda at: at + 1,  # PROTO
            0x95: lambda at: at + 8,  # FRAME: a hint only
            ord("("): self._mark,
            ord("0"): self._pop,
            ord("1"): lambda at: (self._since_mark(), at)[1],
            ord("N"): lambda at: push(None, at),
            0x88: lambda at: push(True, at),
            0x89: lambda at: push(False, at),
            ord("K"): lambda at: push(self.data[at], at + 1),
            ord("M"): lambda at: push(self._number(at, 2), at + 2),
            ord("J"): lambda at: push(int.from_bytes(self._bytes(at, 4), "little", signed=True), at + 4),
            0x8A: lambda at: self._long(at, 1),
            0x8B: lambda at: self._long(at, 4),
            ord("G"): lambda at: push(struct.unpack(">d", self._bytes(at, 8))[0], at + 8),
            0x8C: lambda at: self._unicode(at, 1),
            ord("X"): lambda at: self._unicode(at, 4),
            0x8D: lambda at: self._unicode(at, 8),
            ord("C"): lambda at: self._binary(at, 1),
            ord("B"): lambda at: self._binary(at, 4),
            0x8E: lambda at: self._binary(at, 8),
            ord("U"): lambda at: self._old_text(at, 1),
            ord("T"): lambda at: self._old_text(at, 4),
            ord("}"): lambda at: push({}, at),
            ord("]"): lambda at: push([], at),
            ord(")"): lambda at: push((), at),
            ord("t"): lambda at: push(tuple(self._since_mark()), at),
            0x85: lambda at: self._tuple(1, at),
            0x86: lambda at: self._tuple(2, at),
            0x87: lambda at: self._tuple(3, at),
            ord("l"): lambda at: push(self._since_mark(), at),
            ord("d"): self._dict,
            ord("a"): lambda at: self._append([self._stack.pop()], at),
            ord("e"): lambda at: self._append(self._since_mark(), at),
            ord("s"): self._set_item,
            ord("u"): lambda at: self._set_items(self._since_mark(), at),
            ord("q"): self._put,
            ord("r"): self._long_put,
            0x94: self._memoize,
            ord("h"): lambda at: self._get(self.data[at], at, at + 1),
            ord("j"): lambda at: self._get(self._number(at, 4), at, at + 4),
            ord("c"): self._global,
            0x93: self._stack_global,
            ord("R"): self._reduce,
            ord("b"): self._build,
            ord("Q"): self._persistent,
        }
        return [table.get(opcode) for opcode in range(256)]

    def _push(self, value: Any, at: int) -> int:
        self._stack.append(value)
        return at

    def _mark(self, at: int) -> int:
        if len(self._marks) > _STACK:
            raise Refused(rules.SIZE, at, f"more than {_STACK} marks wait")
        self._marks.append(len(self._stack))
        return at

    def _pop(self, at: int) -> int:
        self._stack.pop()
        return at

    def _tuple(self, count: int, at: int) -> int:
        items = tuple(self._stack[-count:])
        if len(items) < count:
            raise IndexError
        self._stack[-count:] = [items]
        return at

    def _long(self, at: int, width: int) -> int:
        size = self._number(at, width)
        if size > _LONG:
            raise Refused(rules.SIZE, at, f"an integer of {size} bytes is above {_LONG}")
        return self._push(int.from_bytes(self._bytes(at + width, size), "little", signed=True), at + width + size)

    def _unicode(self, at: int, width: int) -> int:
        size = self._number(at, width)
        return self._push(self._text(self._bytes(at + width, size), at), at + width + size)

    def _binary(self, at: int, width: int) -> int:
        size = self._number(at, width)
        return self._push(self._bytes(at + width, size), at + width + size)

    def _old_text(self, at: int, width: int) -> int:
        """A str of Python 2: text where it is ASCII, else bytes."""
        size = self._number(at, width)
        data = self._bytes(at + width, size)
        return self._push(self._text(data, at) if data.isascii() else data, at + width + size)

    def _dict(self, at: int) -> int:
        items = self._since_mark()
        self._stack.append({})
        return self._set_items(items, at)

    def _append(self, items: list[Any], at: int) -> int:
        target = self._stack[-1]
        if type(target) is not list:
            raise Refused(rules.CALL, at - 1, f"items are appended to a {type(target).__name__}, not to a list")
        target.extend(items)
        return at

    def _set_item(self, at: int) -> int:
        value, key = self._stack.pop(), self._stack.pop()
        return self._set_items([key, value], at)

    def _set_items(self, items: list[Any], at: int) -> int:
        target = self._stack[-1]
        if type(target) is not dict and type(target) is not Ordered:
            raise Refused(rules.CALL, at - 1, f"items are set on a {type(target).__name__}, not on a dict")
        if len(items) % 2:
            raise Refused(rules.BROKEN, at - 1, "a key has no value")
        for key in items[::2]:
            if not is_key(key):
                raise Refused(rules.VALUE, at - 1, f"a dict has a key that is a {type(key).__name__}, not text or int")
        target.update(zip(items[::2], items[1::2], strict=True))
        return at

    def _put(self, at: int) -> int:
        self._remember(self.data[at], at)
        return at + 1

    def _long_put(self, at: int) -> int:
        self._remember(self._number(at, 4), at)
        return at + 4

    def _memoize(self, at: int) -> int:
        self._remember(len(self._memo), at)
        return at

    def _get(self, index: int, at: int, after: int) -> int:
        if index not in self._memo:
            raise Refused(rules.BROKEN, at, f"value {index} is asked for before it is remembered")
        self._stack.append(self._memo[index])
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
            raise Refused(rules.GLOBAL, at, message)
        self._stack.append(known)

    def _pay(self, weight: int, at: int) -> None:
        """Count what a call goes through: what is remembered can be gone through again for a few bytes."""
        self._calls -= weight
        if self._calls < 0:
            raise Refused(rules.SIZE, at, "calls go through what the pickle remembers again and again")

    def _reduce(self, at: int) -> int:
        arguments, function = self._stack.pop(), self._stack.pop()
        self._pay(weight_of(arguments), at - 1)
        self._stack.append(call(function, arguments, at - 1))
        return at

    def _build(self, at: int) -> int:
        """Attributes of an OrderedDict, such as the _metadata of a state dict: kept beside it, set on nothing."""
        state, target = self._stack.pop(), self._stack[-1]
        self._pay(2 * len(state) if type(state) is dict else 0, at - 1)
        if type(target) is not Ordered or type(state) is not dict or not all(type(key) is str for key in state):
            raise Refused(rules.CALL, at - 1, f"the state of a {type(target).__name__} is set")
        target.attributes.update(state)
        return at

    def _persistent(self, at: int) -> int:
        self._stack.append(storage_of(self._stack.pop(), at - 1))
        return at
