"""The tensors at the front of a pickle, found by the kernel. The machine continues after them and can refer to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from holdall.base.repeats import find_repeat
from holdall.binary import kernels
from holdall.binary.kernels.pickle_tokens import Column, Kind
from holdall.format.torch.layout import STORAGES
from holdall.format.torch.pickle_objects import KNOWN, Ordered
from holdall.format.torch.refs import PALETTE, Refs
from holdall.format.torch.storage_keys import Keys, numbers_of
from holdall.limits import Limits

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["FastStateDict", "Forgotten", "Memo", "find_state_dict"]

_GLOBALS = (
    ("collections", "OrderedDict"),
    ("torch._utils", "_rebuild_tensor_v2"),
    *(("torch", name) for name in STORAGES),
)
_WORDS = tuple(f"{module}\n{name}\n".encode() for module, name in _GLOBALS)
_KIND_OF = np.array([0, 0, *(PALETTE.index(kind) for kind in STORAGES.values())], np.uint64)
# Room for each tensor, on average. Pickles that need more are left to the machine.
_REMEMBERED = 16
_VALUES = 16  # dims and strides


@dataclass(frozen=True, slots=True)
class FastStateDict:
    """What the kernel found: the tensors of the outermost dict up to ``at``, and the memo of the pickle there."""

    data: bytes
    refs: Refs
    memo: np.ndarray[Any, np.dtype[np.uint64]]
    root: dict[Any, Any]  # the outermost dict, without the tensors
    made: int  # opcodes
    at: int


class Forgotten(Exception):
    """The pickle refers to a value of the front that the kernel did not keep."""


class Memo(dict[int, Any]):
    """The memo of a pickle. Values of the front are made on demand, from what the kernel kept of them."""

    def __init__(self, front: FastStateDict) -> None:
        super().__init__()
        self._front = front
        self._made: dict[int, Any] = {}  # values of the front that were made already, by their place in the memo
        self._before = len(front.memo)

    def __len__(self) -> int:
        return self._before + super().__len__()

    def __setitem__(self, index: int, value: Any) -> None:
        if index < self._before:
            raise Forgotten
        super().__setitem__(index, value)

    def __missing__(self, index: int) -> Any:
        if index not in self._made:
            self._made[index] = self._make(index)
        return self._made[index]

    def _make(self, index: int) -> Any:
        if index >= self._before:
            raise KeyError(index)
        kind, what = int(self._front.memo[index]) & 7, int(self._front.memo[index]) >> 3
        if kind == Kind.WORD:
            return KNOWN[_GLOBALS[what]]
        if kind == Kind.TENSOR:
            return self._front.refs.ref(what)
        if kind == Kind.TEXT:
            size = int.from_bytes(self._front.data[what + 1 : what + 5], "little")
            try:
                return self._front.data[what + 5 : what + 5 + size].decode()
            except UnicodeDecodeError:
                raise Forgotten from None  # the machine says what is wrong
        raise Forgotten


def _have_one_kind(numbers: NDArray[np.int64], kinds: NDArray[np.uint64]) -> bool:
    """Whether each of ``numbers`` comes with one kind only."""
    if int(numbers.max()) >= 8 * len(numbers):
        numbers = np.unique(numbers, return_inverse=True)[1]
    kind_of = np.zeros(int(numbers.max()) + 1, kinds.dtype)
    kind_of[numbers] = kinds
    return bool((kind_of[numbers] == kinds).all())


def find_state_dict(data: bytes, limits: Limits) -> FastStateDict | None:
    """Find the tensors at the front of the pickle in ``data``; None when there are none, or the pickle is damaged."""
    if not kernels.NATIVE:  # then the machine reads the whole pickle
        return None
    room = data.count(b"Q")  # every tensor has this opcode
    memo = np.empty(min(_REMEMBERED * (room + 1), limits.metadata_entries), np.uint64)
    rows, values = np.empty((room, len(Column)), np.uint64), np.empty(_VALUES * room, np.uint64)
    most = 8 * limits.metadata_entries
    ordered, count, kept, made, at = kernels.pickle_tensors(data, _WORDS, most, memo, rows, values)
    if not count:
        return None
    columns = np.ascontiguousarray(rows[:count].T)
    names, bad_name = kernels.texts(data, columns[Column.NAME_AT], columns[Column.NAME_SIZE])
    numbers = numbers_of(data, columns[Column.KEY_AT], columns[Column.KEY_SIZE])
    if bad_name >= 0 or find_repeat(names) is not None or (numbers < 0).any():
        return None
    if not _have_one_kind(numbers, columns[Column.STORAGE]):
        return None  # the machine says which
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
        mirrored=np.zeros(count, np.uint8),
    )
    return FastStateDict(data, refs, memo[:kept].copy(), Ordered() if ordered else {}, made, at)
