"""Arrays, numbers and types of numpy in a pickle, read without numpy's own functions for it."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from holdall.format.torch import rules
from holdall.format.torch.pickle_objects import Refused, Storage, TensorRef
from holdall.format.torch.records import Name, Record
from holdall.model.strided import contiguous_strides

__all__ = ["Array", "ArrayStore", "ArrayType", "is_array_call", "make_type", "order_axes", "place_axes"]

_KINDS = {
    "f2": "f16", "f4": "f32", "f8": "f64", "i1": "i8", "i2": "i16", "i4": "i32", "i8": "i64", "u1": "u8", "u2": "u16",
    "u4": "u32", "u8": "u64", "b1": "bool", "c8": "c64", "c16": "c128",
}  # fmt: skip
_TYPE = Name("numpy", "dtype")
_STATE = (None, None, None, -1, -1, 0)  # of a type of numbers: no fields, no alignment of its own
_RANK = 64  # the most dimensions of an array of numpy


class ArrayType(Record):
    """A numpy.dtype: its ``code``, such as f4, and its byte order, which is empty until its state is set."""

    __slots__ = ("code", "order")

    def __init__(self, code: str, at: int) -> None:
        super().__init__(_TYPE, (code,), at)
        self.code, self.order = code, ""

    @property
    def dtype(self) -> str | None:
        """The dtype of holdall; None for a type of numpy that is none, such as text or objects."""
        return _KINDS.get(self.code) if self.order else None

    @property
    def width(self) -> int:
        """Bytes of an element."""
        return int(self.code[1:])

    @property
    def is_big_endian(self) -> bool:
        """Whether bytes have to be swapped."""
        return self.order == ">" and self.width > 1

    def set_state(self, state: Any, at: int) -> None:
        """Take the byte order from the state that the pickle sets. An array that has the type would change with it."""
        if self.states:
            raise Refused(rules.UNUSUAL, at, "the state of a numpy type is set twice")
        self.states = [state]
        order = state[1] if type(state) is tuple and len(state) > 1 and isinstance(state[1], str) else ""
        orders = ("|",) if self.code in ("i1", "u1", "b1") else ("<", ">")
        if order in orders and state == (3, order, *_STATE):
            self.order = order


class Array(Record):
    """A numpy.ndarray: a record until its state says what it holds, and then ``value`` is a tensor."""

    __slots__ = ()


class ArrayStore:
    """The bytes of arrays, which lie in the pickle itself. Each array gets a storage under a key of its own.

    ``first`` is the number of the first key.
    """

    def __init__(self, first: int = 0) -> None:
        self.first = first
        self.data: dict[str, tuple[bytes, str]] = {}  # by key, with the numpy type of its numbers
        self.numbers = 0

    def add(self, more: ArrayStore) -> None:
        """Add the arrays of a store whose keys begin where those of this one end."""
        self.data |= more.data
        self.numbers += more.numbers

    @property
    def count(self) -> int:
        """How many arrays there are."""
        return len(self.data)

    def fill(self, array: Array, state: Any, at: int) -> None:
        """Take the state of an array: (version, shape, type, whether by columns, bytes or a list of objects).

        Any other state is one of a class of its own, and stays data.
        """
        if array.states or array.items is not None or array.value is not None:
            raise Refused(rules.UNUSUAL, at, "the state of a numpy array is set twice")
        if type(state) is not tuple or len(state) != 5 or state[0] != 1 or type(state[3]) not in (bool, int):
            array.states = [state]
            return
        _, shape, kind, by_columns, data = state
        axes = order_axes("F" if by_columns else "C", shape)
        self.store(array, data, kind, shape, axes, at)

    def store(self, array: Array, data: Any, kind: Any, shape: Any, axes: Sequence[int] | None, at: int) -> None:
        """Make ``array`` the tensor of ``data``; an array of text or of objects stays a record.

        ``axes`` are those of ``shape`` from the slowest one in ``data`` to the fastest; None if there is no shape.
        """
        if not isinstance(kind, ArrayType) or kind.dtype is None or not isinstance(data, bytes):
            array.items = data if isinstance(data, list) else None
            array.arguments = ()
            array.states = None if isinstance(data, list) else [data]
            return
        count = -1 if axes is None else prod(shape)
        if axes is None or count * kind.width != len(data):
            raise Refused(rules.TENSOR, at, f"a numpy array of {len(data)} bytes does not have the shape it states")
        key = f"\0{self.first + len(self.data)}"
        unit = kind.width // (2 if kind.code[0] == "c" else 1)
        self.data[key] = data, f"{'>' if kind.is_big_endian else '<'}u{unit}"
        strides = [0] * len(shape)
        for axis, step in zip(axes, contiguous_strides([shape[axis] for axis in axes]), strict=True):
            strides[axis] = step
        array.value = TensorRef(Storage(key, kind.dtype, count), kind.dtype, 0, tuple(shape), tuple(strides), at)

    def read(self, key: str, big_endian: bool) -> bytes:
        """The bytes of an array, in the byte order of the storages of its file."""
        data, unit = self.data[key]
        wanted = f"{'>' if big_endian else '<'}{unit[1:]}"
        return data if unit == wanted or unit[1:] == "u1" else np.frombuffer(data, unit).astype(wanted).tobytes()

    def scalar(self, arguments: tuple[Any, ...], at: int) -> Any:
        """The number of ``scalar(type, bytes)``; None if it is not a number."""
        kind, data = arguments if len(arguments) == 2 else (None, None)
        if not isinstance(kind, ArrayType) or kind.dtype is None or not isinstance(data, bytes):
            return None
        if len(data) != kind.width:
            raise Refused(rules.CALL, at, f"a numpy number of type {kind.code} has {len(data)} bytes")
        if kind.code[0] == "c":
            return None
        self.numbers += 1
        order = ">" if kind.is_big_endian else "<"
        return np.frombuffer(data, np.dtype(f"{order}{kind.code}"))[0].item()


def order_axes(order: str, shape: Any) -> Sequence[int] | None:
    """The axes from the slowest to the fastest one, by rows (C) or by columns (F); None if no array has this shape."""
    sound = type(shape) is tuple and len(shape) <= _RANK
    if not sound or not all(type(size) is int and 0 <= size < 1 << 48 for size in shape):
        return None
    return range(len(shape))[:: -1 if order == "F" else 1]


def place_axes(shape: Any, axes: Any) -> tuple[int, ...] | None:
    """The shape of ``reshape(shape).transpose(axes)``; None if ``axes`` are not those of the shape, each once."""
    own = order_axes("C", shape)
    if own is None or type(axes) is not tuple or not all(type(axis) is int for axis in axes):
        return None
    return tuple(shape[axis] for axis in axes) if sorted(axes) == list(own) else None


def make_type(arguments: tuple[Any, ...], at: int) -> ArrayType | None:
    """The type of ``numpy.dtype(code, False, True)``; None for one that numpy would not write so."""
    code = arguments[0] if arguments else None
    if not isinstance(code, str) or not 2 <= len(code) <= 4 or arguments[1:] != (False, True):
        return None  # a type that is no copy is shared, and ignores its state
    return ArrayType(code, at)


def is_array_call(arguments: tuple[Any, ...]) -> bool:
    """Whether arguments are those of ``_reconstruct`` that numpy writes: a class, and an empty shape of bytes."""
    return (
        len(arguments) == 3 and arguments[1] == (0,) and arguments[2] in (b"b", "b") and isinstance(arguments[0], Name)
    )
