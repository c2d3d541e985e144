"""Values of parameters and their forms: how they are made, shared and measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdall.errors import ContentError
from holdall.model.dtypes import DTYPES
from holdall.model.payload import InMemory
from holdall.model.tensor import Tensor

__all__ = ["Array", "Make", "Size", "copy_values", "find_form", "freeze", "measure"]

Array = NDArray[Any]
Make = Callable[[Array], Any]
Size = int | Callable[[Any], int]

_CASTS = ("f64", "f32", "f16", "bf16")


def measure(value: Any, size: Size | None, what: str, *, needed: bool) -> int:
    """Return the bytes that ``value`` takes: as ``size`` says, else its ``nbytes``.

    An object of unknown size is refused if the size is ``needed`` for a budget, and counts nothing otherwise.
    """
    if size is None:
        size = getattr(value, "nbytes", None if needed else 0)
    found = size(value) if callable(size) else size
    if isinstance(found, int) and found >= 0:
        return found
    raise ContentError(f"{what} is a {type(value).__name__} of unknown size, and there is a budget: state its size=")


def find_form(form: str) -> Make:
    """Find the function that makes a form which is named by a dtype."""
    cast, dot, turned = form.partition(".")
    if cast not in _CASTS or (dot and turned != "T"):
        raise ContentError(f"the form {form!r} needs a function; known are {', '.join(_CASTS)}, also with .T")
    dtype = DTYPES[cast].numpy
    if turned:
        return lambda values: np.ascontiguousarray(values.T.astype(dtype, copy=False))
    return lambda values: values.astype(dtype, copy=False)


def copy_values(tensor: Tensor) -> Array:
    """Return a copy of the values, by positioned reads."""
    if tensor.payload is None:
        return tensor.numpy()  # raises, with the reason
    data = np.empty(tensor.nbytes, np.uint8)
    at = 0
    for piece in tensor.payload.chunks():
        data[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
        at += len(piece)
    return tensor.replace(payload=InMemory(data)).numpy()


def freeze(value: Any) -> Any:
    """Return an array as a read-only view, since several callers share it; other objects unchanged."""
    if not isinstance(value, np.ndarray):
        return value
    shared = value.view()
    shared.flags.writeable = False
    return shared
