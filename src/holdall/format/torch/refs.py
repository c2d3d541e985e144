"""The tensors that a pickle describes, as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from holdall.binary.columns import Shapes
from holdall.format.torch.pickle_objects import KINDS, Storage, TensorRef

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["PALETTE", "Refs"]

PALETTE = tuple(dict.fromkeys(KINDS.values()))  # the types of elements
_CODE = {kind: code for code, kind in enumerate(PALETTE)}


@dataclass(frozen=True, slots=True)
class Refs:
    """One row a tensor: the key of its storage, and where the tensor lies in it.

    :class:`TensorRef` is one row as an object.
    """

    names: list[str]
    keys: Sequence[str]
    numbers: NDArray[np.int64]  # the keys as integers; -1 for a key that is not a number
    kinds: NDArray[np.uint64]  # the element type, as its place in PALETTE
    typed: NDArray[np.bool_]  # whether the storage counts elements; else it counts bytes
    elements: NDArray[np.uint64]  # how many elements the storage has
    origins: NDArray[np.uint64]  # where the view of the storage begins that old files state
    firsts: NDArray[np.uint64]  # the first element, counted from the start of the storage
    ranks: NDArray[np.uint64]
    dims: NDArray[np.uint64]  # where the shape is in ``values``; the strides follow it
    values: NDArray[np.uint64]
    places: NDArray[np.uint64]  # the byte of the pickle at which the tensor is described
    mirrored: NDArray[np.uint8]  # whether the tensor is the negative or the conjugate of what is stored

    @classmethod
    def of(cls, tensors: Mapping[str, TensorRef]) -> Refs:
        """The columns of tensors given as objects."""
        refs = tensors.values()
        ranks = np.array([len(ref.shape) for ref in refs], np.uint64)
        return cls(
            list(tensors),
            [ref.storage.key for ref in refs],
            np.full(len(refs), -1, np.int64),
            np.array([_CODE[ref.kind] for ref in refs], np.uint64),
            np.array([bool(ref.storage.kind) for ref in refs], np.bool_),
            np.array([ref.storage.elements for ref in refs], np.uint64),
            np.array([ref.storage.first for ref in refs], np.uint64),
            np.array([ref.first for ref in refs], np.uint64),
            ranks,
            np.uint64(2) * (np.cumsum(ranks, dtype=np.uint64) - ranks),
            np.array([size for ref in refs for size in (*ref.shape, *ref.strides)], np.uint64),
            np.array([ref.at for ref in refs], np.uint64),
            np.array([ref.mirrored for ref in refs], np.uint8),
        )

    @classmethod
    def join(cls, parts: Sequence[Refs]) -> Refs:
        """Return the rows of several, one after the other."""
        if len(parts) == 1:
            return parts[0]
        before = np.cumsum([0, *(len(part.values) for part in parts)])
        columns = {
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in (
                "numbers",
                "kinds",
                "typed",
                "elements",
                "origins",
                "firsts",
                "ranks",
                "values",
                "places",
                "mirrored",
            )
        }
        return cls(
            names=[name for part in parts for name in part.names],
            keys=[key for part in parts for key in part.keys],
            dims=np.concatenate([part.dims + np.uint64(at) for part, at in zip(parts, before, strict=False)]),
            **columns,
        )

    def __len__(self) -> int:
        return len(self.names)

    def ref(self, row: int) -> TensorRef:
        """One row as an object."""
        kind = PALETTE[int(self.kinds[row])]
        storage = Storage(
            self.keys[row], kind if self.typed[row] else "", int(self.elements[row]), int(self.origins[row])
        )  # fmt: skip
        at, rank = int(self.dims[row]), int(self.ranks[row])
        shape, strides = self.values[at : at + rank].tolist(), self.values[at + rank : at + 2 * rank].tolist()
        first, place, mirrored = int(self.firsts[row]), int(self.places[row]), int(self.mirrored[row])
        return TensorRef(storage, kind, first, tuple(shape), tuple(strides), place, mirrored)

    @property
    def shapes(self) -> Shapes:
        """The shape of every tensor."""
        return Shapes(self.values.astype("<u8").tobytes(), np.uint64(8) * self.dims, self.ranks)

    def find_contiguous(self, shapes: Shapes) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
        """Count the elements of every tensor, and find which tensors are contiguous in row-major order.

        A tensor of 2**62 elements or more never counts as contiguous; its number of elements is not exact.
        """
        counts, exact = shapes.counts()
        in_order = exact.copy()
        for rank in sorted(set(self.ranks.tolist()) - {0}):
            rows = ((self.ranks == rank) & exact & (counts > 0)).nonzero()[0]
            numbers = self.values[self.dims[rows][:, None] + np.arange(2 * rank, dtype=np.uint64)]
            step, sound = np.ones(len(rows), np.uint64), np.ones(len(rows), np.bool_)
            for axis in reversed(range(int(rank))):
                size, stride = numbers[:, axis], numbers[:, rank + axis]
                sound &= (size == 1) | (stride == step)
                step *= size
            in_order[rows] = sound
        return counts, in_order
