"""The shapes that a recipe states of the target's tensors, by which the configuration and the tensors must agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdall.errors import ContentError
from holdall.model.dtypes import DType
from holdall.model.tensor import Tensor
from holdall.recipes.expressions import Misuse
from holdall.recipes.rows import Line, Recipe
from holdall.recipes.values import Environment

__all__ = ["StatedShapes"]


class StatedShapes:
    """Compares tensors of the target with the shapes that the recipe states of them, which are weights."""

    def __init__(self, recipe: Recipe, env: Environment) -> None:
        self._texts = recipe.shapes
        self._env = env
        self._known: dict[str, Any] = {}  # by the pattern of the name: the shape is the same for all numbers in it

    def check_types(self, line: Line, tensors: Sequence[Tensor]) -> None:
        """Raise ContentError if one of the ``tensors``, those that ``line`` reads, is no weight and should be one."""
        if not any(pattern.text in self._texts for pattern in line.targets):
            return
        for tensor in tensors:
            if isinstance(tensor.dtype, DType) and tensor.dtype.kind != "float":
                raise ContentError(
                    f"tensor {tensor.name!r} is of {tensor.dtype}, and weights are floating-point numbers"
                )

    def check(self, line: Line, tensors: Sequence[Tensor]) -> None:
        """Raise ContentError if one of the ``tensors``, those that ``line`` has in the target, has another shape."""
        spread = len(line.targets) == 1  # one name, with a number for each tensor
        for tensor, pattern in zip(tensors, line.targets * len(tensors) if spread else line.targets, strict=False):
            wanted = self._find(pattern.text)
            found = list(tensor.shape)
            if wanted is None or (len(wanted) == len(found) and all(map(_fits, wanted, found))):
                continue
            raise ContentError(
                f"tensor {tensor.name!r} has the shape {found} in {pattern.text}, and by the configuration "
                f"{self._texts[pattern.text]} is {wanted}"
            )

    def _find(self, name: str) -> list[Any] | None:
        """The shape of the tensors called ``name``; None if nothing is stated."""
        if name not in self._texts:
            return None
        if name not in self._known:
            self._known[name] = None  # what has no value is reported once
            text = self._texts[name]
            with self._env.name_place(text):
                self._known[name] = _check_shape(name, self._env.evaluate(text))
        found: list[Any] | None = self._known[name]
        return found


def _check_shape(name: str, shape: Any) -> Any:
    """Return the ``shape`` that is stated of a tensor; raises Misuse if it is none."""
    if not isinstance(shape, list) or not all(size is None or type(size) in (int, float) for size in shape):
        raise Misuse(f"the shape of {name} is {shape!r}, not a list of numbers")
    return shape


def _fits(wanted: Any, found: int) -> bool:
    return wanted is None or wanted == found  # a number that is missing is refused where it is needed
