"""Writing pickles of protocol 2 with the few opcodes that ``torch.load(weights_only=True)`` accepts."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from itertools import chain, islice
from typing import Any

from holdall.base.utf8 import utf8_breach
from holdall.format.torch.layout import STORAGE_OF, TYPE_OF
from holdall.format.torch.pickle_objects import Device, Global, Ordered, Size
from holdall.model.payload import Payload

__all__ = ["Pickler", "breach"]

_PIECE = 1 << 21  # bytes after which a new piece of the pickle is begun
_BATCH = 1000  # items that a reader has on its stack at a time
_LONG = 64  # the most bytes of an integer
_KEY = 1 << 60  # bound of the integers that are keys of dicts
_NESTING = 64


class Pickler:
    """Appends opcodes. Globals, and words that every tensor repeats, are written once and put into the memo.

    ``keep`` gets every piece that is finished, and returns what is kept of it.
    """

    def __init__(self, keep: Callable[[bytes], bytes | Payload] = bytes) -> None:
        self._keep = keep
        self._pieces: list[bytes | Payload] = []  # finished ones, before _out
        self._out = bytearray(b"\x80\x02")
        self._memo: dict[str, int] = {}
        # By type, shape, strides and size of a tensor: its opcodes before and after the storage key.
        self._tensors: dict[tuple[Any, ...], tuple[bytes, bytes]] = {}

    def finish(self) -> list[bytes | Payload]:
        """The whole pickle, in pieces."""
        self._out += b"."
        return [*self._pieces, self._keep(bytes(self._out))]

    def put_attributes(self, state: Mapping[str, Any]) -> None:
        """Set attributes on the object that was put last."""
        self.put_value(dict(state))
        self._out += b"b"

    def put_tensor(self, key: str, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...], elements: int) -> None:
        """Put a tensor that is all of the storage ``key``; for an untyped storage, ``elements`` counts bytes."""
        form = dtype, shape, strides, elements
        known = self._tensors.get(form)
        if known is not None:
            self._out += known[0] + _encode_text(key) + known[1]
            return
        start, words, typed = len(self._out), len(self._memo), dtype in STORAGE_OF
        self._put_global("torch._utils", "_rebuild_tensor_v2" if typed else "_rebuild_tensor_v3")
        self._out += b"(("
        self._put_word("storage")
        if typed:
            self._put_global("torch", STORAGE_OF[dtype])
        else:
            self._put_global("torch.storage", "UntypedStorage")
        before = bytes(self._out[start:])
        self.put_value(key)
        after = len(self._out)
        self._put_word("cpu")
        self.put_value(elements)
        self._out += b"tQ"
        self.put_value(0)
        self.put_value(shape)
        self.put_value(strides)
        self._out += b"\x89"  # no gradient
        self._put_ordered()
        if not typed:
            self._put_global("torch", TYPE_OF[dtype])
        self._out += b"tR"
        if len(self._memo) == words:  # opcodes that add to the memo cannot be repeated
            self._tensors[form] = before, bytes(self._out[after:])

    def put_value(self, value: Any) -> None:
        """Put a plain value that :func:`breach` allows, or one that was read from a pickle."""
        out = self._out
        match value:
            case None:
                out += b"N"
            case bool():
                out += b"\x88" if value else b"\x89"
            case int():
                out += _encode_int(value)
            case float():
                out += b"G" + struct.pack(">d", value)
            case Global():
                self._put_global(value.module, value.name)
            case Device() | Size():
                self._put_global("torch", "device" if isinstance(value, Device) else "Size")
                self.put_value(str(value) if isinstance(value, Device) else tuple(value))
                out += b"\x85R"
            case str():
                out += _encode_text(value)
            case bytes():
                self._put_global("_codecs", "encode")
                out += _encode_text(value.decode("latin-1")) + _encode_text("latin1") + b"\x86R"
            case Ordered():
                self.put_container(Ordered, value.items(), self.put_value)
                if value.attributes:
                    self.put_attributes(value.attributes)
            case list() | tuple():
                self.put_container(list if isinstance(value, list) else tuple, enumerate(value), self.put_value)
            case _:
                self.put_container(dict, value.items(), self.put_value)

    def put_container(self, kind: type, pairs: Iterable[tuple[Any, Any]], put: Callable[[Any], None]) -> None:
        """Put a list, tuple, dict or, for any other ``kind``, an OrderedDict; ``put`` writes each of the items."""
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
            self._put_ordered()
        while batch:
            self._out += b"("
            for key, item in batch:
                if kind is not list:
                    self.put_value(key)
                put(item)
            self._out += b"e" if kind is list else b"u"
            batch = list(islice(rest, _BATCH))
            if len(self._out) > _PIECE:
                self._pieces.append(self._keep(bytes(self._out)))
                self._out.clear()

    def _put_ordered(self) -> None:
        self._put_global("collections", "OrderedDict")
        self._out += b")R"

    def _put_global(self, module: str, name: str) -> None:
        self._put_remembered(f"{module} {name}", f"c{module}\n{name}\n".encode())

    def _put_word(self, word: str) -> None:
        self._put_remembered(word, _encode_text(word))

    def _put_remembered(self, key: str, written: bytes) -> None:
        known = self._memo.get(key)
        if known is not None:
            self._out += b"h" + bytes([known])
            return
        self._memo[key] = len(self._memo)
        self._out += written + b"q" + bytes([self._memo[key]])


def _encode_text(value: str) -> bytes:
    data = value.encode()
    return b"X" + len(data).to_bytes(4, "little") + data


def _encode_int(value: int) -> bytes:
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
            return utf8_breach(value) or (None if len(value.encode()) < 1 << 32 else "is a text above 4 GiB")
        case list() | tuple():
            return next(filter(None, (breach(item, depth + 1) for item in value)), None)
        case dict():
            for key in value:
                if not isinstance(key, str) and (type(key) is not int or not -_KEY < key < _KEY):
                    return f"a key is a {type(key).__name__}, not text or int"
            return next(filter(None, (breach(part, depth + 1) for pair in value.items() for part in pair)), None)
        case _:
            return f"is a {type(value).__name__}, not a plain value"
