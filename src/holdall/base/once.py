"""Attributes that are computed when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

__all__ = ["computed_once"]

_T = TypeVar("_T")


class computed_once(Generic[_T]):  # noqa: N801  # used like ``property``
    """An attribute that the method computes when it is first asked for, and that the instance then keeps.

    It takes no lock. ``functools.cached_property`` of Python 3.11 does, one for all instances, and a process that forks
    while another thread computes never gets it again. Two threads that ask at once may both compute; they get the
    same object, so the method has no effect but its result.

    >>> class Square:
    ...     side = 3
    ...     @computed_once
    ...     def area(self) -> int:
    ...         print("computed")
    ...         return self.side**2
    >>> square = Square()
    >>> square.area, square.area
    computed
    (9, 9)
    """

    def __init__(self, compute: Callable[[Any], _T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> _T: ...

    def __get__(self, instance: object | None, owner: type) -> Self | _T:
        if instance is None:
            return self
        value: _T = instance.__dict__.setdefault(self._name, self._compute(instance))
        return value
