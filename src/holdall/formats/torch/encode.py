"""Pickles of protocol 2 with few opcodes, as ``torch.load(weights_only=True)`` takes them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from itertools import chain, islice
from typing import Any

from holdall.formats.torch.content import Device, Global, Ordered, Size
from holdall.formats.torch.layout import STORAGE_OF, TYPE_OF

__all__ = ["Pickler", "breach"]

_PIECE = 1 << 21  # bytes at which a piece of the pickle is set aside
_BATCH = 1000  # items that wait on a reader's stack at a time
_LONG = 64  # bytes of an integer
_KEY = 1 << 60
_NESTING = 64


class Pickler:
    """Appends opcodes; globals and the words that every tensor repeats are written once and remembered."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []  # before _out: a vocabulary of many megabytes is not copied at the end
        self._out = bytearray(b"\x80\x02")
        self._memo: dict[str, int] = {}
        self._tensors: dict[tuple[Any, ...], tuple[bytes, bytes]] = {}  # what stands before and after the key

    def finish(self) -> list[bytes]:
        """The whole pickle, in pieces."""
        self._out += b"."
        return [*self._pieces, bytes(self._out)]

    def build(self, state: Mapping[str, Any]) -> None:
        """Attributes of the object that was written last."""
        self.value(dict(state))
        self._out += b"b"

    def tensor(self, key: str, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...], elements: int) -> None:
        """A tensor that is the whole of the storage ``key``; an untyped storage counts bytes in ``elements``."""
        form = dtype, shape, strides, elements
        known = self._tensors.get(form)
        if known is not None:
            self._out += known[0] + _text(key) + known[1]
            return
        start, words, typed = len(self._out), len(self._memo), dtype in STORAGE_OF
        self._global("torch._utils", "_rebuild_tensor_v2" if typed else "_rebuild_tensor_v3")
        self._out += b"(("
        self._word("storage")
        if typed:
            self._global("torch", STORAGE_OF[dtype])
        else:
            self._global("torch.storage", "UntypedStorage")
        before = bytes(self._out[start:])
        self.value(key)
        after = len(self._out)
        self._word("cpu")
        self.value(elements)
        self._out += b"tQ"
        self.value(0)
        self.value(shape)
        self.value(strides)
        self._out += b"\x89"  # no gradient
        self._begin_ordered()
        if not typed:
            self._global("torch", TYPE_OF[dtype])
        self._out += b"tR"
        if len(self._memo) == words:  # and nothing was written for the first time
            self._tensors[form] = before, bytes(self._out[after:])

    def value(self, value: Any) -> None:
        """A plain value that :func:`breach` has nothing against, or one that was read from a pickle."""
        out = self._out
        match value:
            case None:
                out += b"N"
            case bool():
                out += b"\x88" if value else b"\x89"
            case int():
                out += _int(value)
            case float():
                out += b"G" + struct.pack(">d", value)
            case Global():
                self._global(value.module, value.name)
            case Device() | Size():
                self._global("torch", "device" if isinstance(value, Device) else "Size")
                self.value(str(value) if isinstance(value, Device) else tuple(value))
                out += b"\x85R"
            case str():
                out += _text(value)
            case bytes():
                self._global("_codecs", "encode")
                out += _text(value.decode("latin-1")) + _text("latin1") + b"\x86R"
            case Ordered():
                self.container(Ordered, value.items(), self.value)
                if value.attributes:
                    self.build(value.attributes)
            case list() | tuple():
                self.container(list if isinstance(value, list) else tuple, enumerate(value), self.value)
            case _:
                self.container(dict, value.items(), self.value)

    def container(self, kind: type, pairs: Iterable[tuple[Any, Any]], put: Callable[[Any], None]) -> None:
        """A list, tuple, dict or else an OrderedDict with keys and items; ``put`` writes each of the items."""
        rest = iter(pairs)
        batch = list(islice(rest, _BATCH))
        if kind is tuple:
            self._out += b"(" if batch else b")"
            for _, item in chain(batch, rest):
                put(item)
            self._out += b"t" if batch else b""
            return
        if kind is list or kind is dict:
            self._out += b"]" if kind is list else b"}"
        else:
            self._begin_ordered()
        while batch:
            self._out += b"("
            for key, item in batch:
                if kind is not list:
                    self.value(key)
                put(item)
            self._out += b"e" if kind is list else b"u"
            batch = list(islice(rest, _BATCH))
            if len(self._out) > _PIECE:
                self._pieces.append(bytes(self._out))
                self._out.clear()

    def _begin_ordered(self) -> None:
        self._global("collections", "OrderedDict")
        self._out += b")R"

    def _global(self, module: str, name: str) -> None:
        self._remembered(f"{module} {name}", f"c{module}\n{name}\n".encode())

    def _word(self, word: str) -> None:
        self._remembered(word, _text(word))

    def _remembered(self, key: str, written: bytes) -> None:
        known = self._memo.get(key)
        if known is not None:
            self._out += b"h" + bytes([known])
            return
        self._memo[key] = len(self._memo)
        self._out += written + b"q" + bytes([self._memo[key]])


def _text(value: str) -> bytes:
    data = value.encode()
    return b"X" + len(data).to_bytes(4, "little") + data


def _int(value: int) -> bytes:
    if 0 <= value < 256:
        return b"K" + bytes([value])
    if 0 <= value < 1 << 16:
        return b"M" + value.to_bytes(2, "little")
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + value.to_bytes(4, "little", signed=True)
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


def breach(value: Any, depth: int = 0) -> str | None:
    """Why ``value`` cannot be written; None when it can.

    >>> breach({"a": [1, None, (2.5, b"x")]}), breach({1.5: 2})
    (None, 'a key is a float, not text or int')
    """
    if depth > _NESTING:
        return "is nested too deeply"
    match value:
        case None | bool() | float() | bytes():
            return None if type(value) in (type(None), bool, float, bytes) else f"is a {type(value).__name__}"
        case int():
            return None if value.bit_length() < 8 * _LONG else f"an integer of {value.bit_length()} bits is too long"
        case str():
            try:
                return None if len(value.encode()) < 1 << 32 else "is a text above 4 GiB"
            except UnicodeEncodeError:
                return f"{value[:50]!r} holds half of a surrogate pair, which is no text"
        case list() | tuple():
            return next(filter(None, (breach(item, depth + 1) for item in value)), None)
        case dict():
            for key in value:
                if not isinstance(key, str) and (type(key) is not int or not -_KEY < key < _KEY):
                    return f"a key is a {type(key).__name__}, not text or int"
            return next(filter(None, (breach(part, depth + 1) for pair in value.items() for part in pair)), None)
        case _:
            return f"is a {type(value).__name__}, not a plain value"
