"""The comparison of two models, made in the background as ``holdall diff`` makes it."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from holdall.base.progress import Progress
from holdall.operations.diff import Difference, TensorDifference, diff
from holdall.operations.overview import name_kind
from holdall.viewer.task import Task

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.model.model import Model

__all__ = ["Comparison", "LayerError", "find_layer", "join_layer", "relative_error"]

_NAME = 300  # letters of a name that are looked at


class Comparison:
    """What differs between two models: unknown until the work has ended."""

    def __init__(self, a: Model, b: Model, waits: bool = False) -> None:
        self._a, self._b = a, b
        self.found: Difference | None = None
        self.task = Task(self._compare, waits)

    def _compare(self, progress: Progress) -> None:
        self.found = diff(self._a, self._b, progress=progress)

    def list_pairs(self) -> list[TensorDifference]:
        """All tensors: those that differ, largest error first, then the equal ones in file order."""
        if self.found is None:
            return []
        listed = {item.name for item in self.found.tensors}
        equal = [TensorDifference(name, "equal") for name in self._a.tensors.names if name not in listed]
        return sorted(self.found.tensors, key=_rank) + equal

    def partner(self, name: str) -> str:
        """The name of the other model's tensor: the same, unless it was renamed."""
        for item in () if self.found is None else self.found.tensors:
            if item.name == name and item.verdict == "renamed":
                quoted = item.detail.removeprefix("is called ").removesuffix(" in b")
                return next((each for each in self._b if repr(each) == quoted), name)
        return name

    def errors(self) -> NDArray[np.float64]:
        """The error of each tensor of the first model, relative to its values; NaN where it has none."""
        column = np.zeros(len(self._a.tensors)) if self.found is not None else np.full(len(self._a.tensors), np.nan)
        for item in () if self.found is None else self.found.tensors:
            if item.name in self._a:
                column[self._a.tensors.row(item.name)] = relative_error(item)
        return column

    def list_layers(self) -> list[LayerError]:
        """The error of each kind of tensors in each layer, layers in file order."""
        found: dict[tuple[tuple[str, int], str], list[TensorDifference]] = {}
        listed = {} if self.found is None else {item.name: item for item in self.found.tensors}
        starts: dict[str, int] = {}
        for name in self._a.tensors.names:
            item = listed.get(name) or TensorDifference(name, "equal")
            front, number = find_layer(name)
            starts.setdefault(front, len(starts))
            found.setdefault(((front, number), name_kind(name)), []).append(item)
        order = sorted(found, key=lambda key: (starts[key[0][0]], key[0][1]))
        return [_sum_errors(join_layer(*key[0]), key[1], found[key]) for key in order]


@dataclass(frozen=True, slots=True)
class LayerError:
    """How far tensors of one kind in one layer are apart: the error of those that differ, taken as one tensor."""

    layer: str
    kind: str
    tensors: int
    different: int
    error: float  # NaN if it was not measured


def find_layer(name: str) -> tuple[str, int]:
    """The layer that a tensor lies in: what stands before the first number of its name, and the number.

    >>> find_layer("model.layers.3.mlp.up_proj.weight"), find_layer("wte.weight")
    (('model.layers', 3), ('wte', -1))
    """
    parts = name[:_NAME].split(".")
    for at, part in enumerate(parts[:-1]):
        if part.isascii() and part.isdecimal() and len(part) < 10:
            return ".".join(parts[:at]), int(part)
    return parts[0], -1


def join_layer(front: str, number: int) -> str:
    """How a layer is written."""
    return front if number < 0 else f"{front}.{number}".lstrip(".")


def _sum_errors(layer: str, kind: str, items: list[TensorDifference]) -> LayerError:
    apart = [item for item in items if item.verdict not in ("equal", "renamed")]
    noise = signal = 0.0
    for item in apart:
        if item.distance is None or item.distance.wild:
            return LayerError(layer, kind, len(items), len(apart), float("nan"))
        square = item.distance.rmse**2 * item.distance.count
        noise += square
        signal += square * 10 ** (item.distance.snr_db / 10) if square else 0.0
    error = sqrt(noise / signal) if signal else float("nan") if noise else 0.0
    return LayerError(layer, kind, len(items), len(apart), error)


def relative_error(item: TensorDifference) -> float:
    """How large the difference is beside the values: 0.1 means a tenth of them; NaN if it cannot be measured."""
    if item.verdict in ("equal", "renamed"):
        return 0.0
    if item.distance is None or item.distance.wild:  # what became NaN or infinite has no distance
        return float("nan")
    return float(10 ** (-item.distance.snr_db / 20))


def _rank(item: TensorDifference) -> tuple[bool, float]:
    error = relative_error(item)
    return error == error, -error if error == error else 0.0
