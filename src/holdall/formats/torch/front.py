"""The tensors at the front of a pickle, found by the kernel; the machine goes on after them, and knows of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from holdall import kernels
from holdall.formats.torch.content import KNOWN, Ordered, TensorRef
from holdall.formats.torch.keys import Keys, numbers_of
from holdall.formats.torch.layout import STORAGES
from holdall.formats.torch.refs import PALETTE, Refs
from holdall.kernels.pickle_reference import Column, Kind
from holdall.limits import Limits

__all__ = ["Forgotten", "Front", "Memo", "find_front"]

_GLOBALS = (
    ("collections", "OrderedDict"),
    ("torch._utils", "_rebuild_tensor_v2"),
    *(("torch", name) for name in STORAGES),
)
_WORDS = tuple(f"{module}\n{name}\n".encode() for module, name in _GLOBALS)
_KIND_OF = np.array([0, 0, *(PALETTE.index(kind) for kind in STORAGES.values())], np.uint64)
# What there is room for, on average a tensor; pickles of more than that are the machine's.
_REMEMBERED = 16
_VALUES = 16  # dims and strides


@dataclass(frozen=True, slots=True)
class Front:
    """What the kernel found: the tensors of the outermost dict up to ``at``, and what the pickle remembers there."""

    data: bytes
    refs: Refs
    memo: np.ndarray[Any, np.dtype[np.uint64]]
    root: dict[Any, Any]  # the dict itself, still without them
    made: int  # opcodes
    at: int


class Forgotten(Exception):
    """Something of the front is asked for that the kernel did not keep."""


class Memo(dict[int, Any]):
    """What a pickle remembers. Values of the front are made when they are asked for, as far as they were kept."""

    def __init__(self, front: Front | None = None) -> None:
        super().__init__()
        self._front = front
        self._made: dict[int, Any] = {}  # of the front
        self._before = 0 if front is None else len(front.memo)

    def __len__(self) -> int:
        return self._before + super().__len__()

    def __contains__(self, index: object) -> bool:
        return super().__contains__(index) or (isinstance(index, int) and index < self._before)

    def __setitem__(self, index: int, value: Any) -> None:
        if index < self._before:
            raise Forgotten
        super().__setitem__(index, value)

    def __missing__(self, index: int) -> Any:
        if index not in self._made:
            self._made[index] = self._make(index)
        return self._made[index]

    def _make(self, index: int) -> Any:
        assert self._front is not None and index < self._before
        kind, what = int(self._front.memo[index]) & 7, int(self._front.memo[index]) >> 3
        if kind == Kind.WORD:
            return KNOWN[_GLOBALS[what]]
        if kind == Kind.TENSOR:
            return self._tensor(what)
        if kind == Kind.TEXT:
            size = int.from_bytes(self._front.data[what + 1 : what + 5], "little")
            return self._front.data[what + 5 : what + 5 + size].decode()
        raise Forgotten

    def _tensor(self, row: int) -> TensorRef:
        assert self._front is not None
        return self._front.refs.ref(row)


def find_front(data: bytes, limits: Limits) -> Front | None:
    """The front of the pickle in ``data``; None when there is nothing in it that the kernel knows, or it is damaged."""
    room = data.count(b"Q")  # no tensor goes without its opcode
    memo = np.empty(min(_REMEMBERED * (room + 1), limits.metadata_entries), np.uint64)
    rows, values = np.empty((room, len(Column)), np.uint64), np.empty(_VALUES * room, np.uint64)
    most = 8 * limits.metadata_entries
    ordered, count, kept, made, at = kernels.pickle_tensors(data, _WORDS, most, memo, rows, values)
    if not count:
        return None
    columns = np.ascontiguousarray(rows[:count].T)
    names, bad_name = kernels.texts(data, columns[Column.NAME_AT], columns[Column.NAME_SIZE])
    numbers = numbers_of(data, columns[Column.KEY_AT], columns[Column.KEY_SIZE])
    if bad_name >= 0 or len(set(names)) != count or (numbers < 0).any():
        return None
    used = int((columns[Column.DIMS] + np.uint64(2) * columns[Column.RANK]).max())
    refs = Refs(
        names=names,
        keys=Keys(data, columns[Column.KEY_AT], columns[Column.KEY_SIZE]),
        numbers=numbers,
        kinds=_KIND_OF[columns[Column.STORAGE]],
        typed=np.ones(count, np.bool_),
        elements=columns[Column.ELEMENTS],
        origins=np.zeros(count, np.uint64),
        firsts=columns[Column.FIRST],
        ranks=columns[Column.RANK],
        dims=columns[Column.DIMS],
        values=values[:used].copy(),
        places=columns[Column.PLACE],
    )
    return Front(data, refs, memo[:kept].copy(), Ordered() if ordered else {}, made, at)
