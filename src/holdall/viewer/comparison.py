"""The comparison of two models, made in the background as ``holdall diff`` makes it."""

from __future__ import annotations

from dataclasses import dataclass
from math import log10
from typing import TYPE_CHECKING

import numpy as np

from holdall.base.progress import Progress
from holdall.operations.diff import Difference, TensorDifference, diff
from holdall.operations.overview import name_kind
from holdall.viewer.shading import Errors
from holdall.viewer.task import Task

if TYPE_CHECKING:
    from collections.abc import Sequence

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

    def shade(self, side: int = 0) -> Errors:
        """The error of each tensor of one of the models, relative to its values; NaN where it has none.

        A branch has the error that :meth:`list_layers` states of its tensors.
        """
        model = (self._a, self._b)[side]
        items = [] if self.found is None else [item for item in self.found.tensors if item.name in model]
        rows = [model.tensors.row(item.name) for item in items]
        start = np.nan if self.found is None else -np.inf
        shading = Errors(np.full(len(model.tensors), start), np.full(len(model.tensors), start))
        found = _measure_norms(items)
        shading.noises[rows], shading.signals[rows] = found.noises, found.signals
        return shading

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
    found = _measure_norms(apart)
    known = not np.isnan(found.noises).any()
    error = float("nan") if not known else found.average(range(len(apart))) if apart else 0.0
    return LayerError(layer, kind, len(items), len(apart), error)


def _measure_norms(items: Sequence[TensorDifference]) -> Errors:
    """The norms of each difference and of its first values: in logarithms, since squares of large ones are infinite."""
    noises, signals = np.full(len(items), np.nan), np.full(len(items), -np.inf)
    for at, item in enumerate(items):
        if item.verdict in ("equal", "renamed"):
            noises[at] = -np.inf
        elif item.distance is not None and not item.distance.wild and item.distance.rmse < np.inf:
            distance = item.distance
            noises[at] = log10(distance.rmse) + log10(distance.count) / 2 if distance.rmse else -np.inf
            signals[at] = noises[at] + distance.snr_db / 20 if distance.rmse else -np.inf
    return Errors(noises, signals)


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
