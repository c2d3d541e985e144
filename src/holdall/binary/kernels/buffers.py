"""Checks the arguments of the Python twins as C does: contiguous buffers, and sizes that fit a machine word."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from typing_extensions import Buffer

    # Arrays are buffers, but numpy's types say so only from Python 3.12 on.
    Bytes = Buffer | NDArray[Any]

__all__ = ["array_of", "bytes_of", "check_size", "view_of"]


def view_of(buffer: Any, *, writable: bool = False) -> memoryview:
    """The bytes of ``buffer``; TypeError when it is not contiguous, or not writable when it has to be."""
    view = memoryview(buffer)
    if not view.c_contiguous or (writable and view.readonly):
        raise TypeError(f"a {'writable ' * writable}contiguous buffer is needed")
    return view.cast("B") if view.nbytes else memoryview(bytearray())  # an empty shape cannot be cast


def array_of(buffer: Bytes, dtype: str, *, writable: bool = False) -> NDArray[Any]:
    """The bytes of ``buffer`` as a flat array."""
    return np.frombuffer(view_of(buffer, writable=writable), dtype)


def bytes_of(buffer: Bytes) -> bytes:
    """The content of ``buffer``, which is copied if it is not bytes already: reading from bytes is fastest."""
    return buffer if isinstance(buffer, bytes) else bytes(view_of(buffer))


def check_size(*sizes: int) -> None:
    """Raise ValueError for a size that C could not take."""
    for size in sizes:
        if not 0 <= size <= sys.maxsize:
            raise ValueError(f"a size must be from 0 to {sys.maxsize}, not {size}")
