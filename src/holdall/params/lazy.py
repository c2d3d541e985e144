"""A parameter as an object that is loaded when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from holdall.model.identity import base_id

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from holdall.model.encodings import Stored
    from holdall.model.tensor import Tensor
    from holdall.params.forms import Array, Make, Size
    from holdall.params.store import Parameters

__all__ = ["LazyParameter"]


class LazyParameter:
    """One parameter of a store. Asking for ids, shape and dtype reads nothing; :meth:`numpy` loads it.

    It keeps no values itself: the store does, as its budget allows. ``base_id`` is the id of the name, and
    ``stable_id`` the key of the parameter in the store, by which forms are remembered. Made by ``Parameters.lazy``.
    """

    __slots__ = ("_parameters", "_tensor")

    def __init__(self, parameters: Parameters, tensor: Tensor) -> None:
        self._parameters = parameters
        self._tensor = tensor

    def __repr__(self) -> str:
        state = "in memory" if self.is_loaded else "not loaded"
        return f"<LazyParameter {self.name!r} {self.dtype}{list(self.shape)}, {state}>"

    @property
    def name(self) -> str:
        """The name of the parameter."""
        return self._tensor.name

    @property
    def base_id(self) -> int:
        """The id of the name, by which the parameter is found in its file."""
        return base_id(self.name)

    @property
    def stable_id(self) -> int:
        """The key of the parameter in the store, under which its values are remembered."""
        return self._parameters.key(self.name)

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions."""
        return self._tensor.shape

    @property
    def dtype(self) -> Stored:
        """The stored type; a quantized parameter is decoded when it is loaded."""
        return self._tensor.dtype

    @property
    def nbytes(self) -> int:
        """The stored bytes."""
        return self._tensor.nbytes

    @property
    def is_loaded(self) -> bool:
        """Whether the values are in memory."""
        return self._parameters.holds(self.name)

    def numpy(self, *, pin: bool = False) -> Array:
        """Return the values, loaded now unless they are in memory."""
        return self._parameters.load(self.name, pin=pin)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        found = self.numpy()
        return np.array(found, dtype) if copy or (dtype is not None and found.dtype != dtype) else found

    def __getitem__(self, key: Any) -> Any:
        return self.numpy()[key]

    def rows(self, indices: ArrayLike) -> Array:
        """Return some rows; under a budget only these are read."""
        return self._parameters.rows(self.name, indices)

    def derive(self, form: str, make: Make | None = None, *, pin: bool = False, size: Size | None = None) -> Any:
        """Return a form of the parameter, as ``Parameters.derive`` does."""
        return self._parameters.derive(self.name, form, make, pin=pin, size=size)
