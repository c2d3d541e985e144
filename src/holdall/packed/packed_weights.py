"""The weights of a packed model, and the model with one tensor for each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

from holdall.base.text import list_text, plural
from holdall.errors import ContentError
from holdall.model.casts import dequantize
from holdall.model.model import Model
from holdall.model.table import ListTable
from holdall.packed.finder import Finder, Problem
from holdall.packed.leftovers import find_leftovers
from holdall.packed.settings import DOCUMENTS, SETTINGS, find_config, find_contradiction
from holdall.packed.weight import PackedEncoding, Weight

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdall.packed import Scheme

__all__ = ["PackedWeights", "collect_weights"]

_SHOWN = 20  # problems of one refusal


@dataclass(slots=True)
class PackedWeights:
    """The weights that were found in ``model``, and the ``problems`` for which they cannot be used.

    ``spare`` are tensors of the scheme that belong to no weight; ``is_stated``: the configuration names the scheme.
    """

    model: Model
    scheme: Scheme
    weights: list[Weight]
    problems: list[Problem]
    spare: set[str] = field(default_factory=set)
    is_stated: bool = False

    def refuse_problems(self) -> None:
        """Raise ContentError with all problems, if there are any."""
        if self.problems:
            shown = list_text([str(problem) for problem in self.problems], "; ", _SHOWN)
            raise ContentError(
                f"{self.scheme.title}: {plural(len(self.problems), 'thing')} in it cannot be right: {shown}"
            )

    @property
    def bits_per_weight(self) -> float:
        """Stored bits of all parts of the weights, for each of their numbers."""
        parts = sum(self.model[name].nbytes for weight in self.weights for name in weight.names)
        return 8 * parts / max(1, sum(prod(weight.encoding.shape) for weight in self.weights))

    def describe(self) -> str:
        """Say in a line what was found.

        Where something is wrong the line has the first problem, since the weights cannot be used.
        """
        if self.problems:
            count = plural(len(self.problems), "thing")
            return f"like {self.scheme.title}, but {count} cannot be right: {self.problems[0]}"
        return f"{self.scheme.title}: {plural(len(self.weights), 'weight')}, {self.bits_per_weight:.2f} bits per weight"

    def join(self) -> Model:
        """Return the model with one tensor for each weight, in the place of the first of its parts."""
        self.refuse_problems()
        firsts = {weight.names[0]: weight for weight in self.weights}
        gone = {name for weight in self.weights for name in weight.names} | self.spare
        tensors = []
        for tensor in self.model.tensors:
            if tensor.name in firsts:
                tensors.append(firsts[tensor.name].tensor())
            elif tensor.name not in gone:
                tensors.append(tensor)
        return self.model.replace(tensors=ListTable(tensors))

    def decode(self) -> Model:
        """Return the model with its weights decoded when they are read, in the type from which they were made."""
        joined = self.join()
        plain = [dequantize(each) if isinstance(each.dtype, PackedEncoding) else each for each in joined.tensors]
        return self.describe_plain(joined.replace(tensors=plain))

    def describe_plain(self, model: Model) -> Model:
        """Return ``model``, whose weights were decoded, with a configuration that says so."""
        names = [name for name in model.assets if name.rpartition("/")[2] not in DOCUMENTS]
        assets: dict[str, Any] = {name: model.assets.payload(name) for name in names}
        if "config.json" in assets:
            config = json.loads(model.assets["config.json"])
            assets["config.json"] = json.dumps(_without_settings(config), indent=2).encode() + b"\n"
        return model.replace(assets=assets)


def collect_weights(model: Model, scheme: Scheme, settings: Mapping[str, Any] | None) -> PackedWeights | None:
    """Collect the weights that ``scheme`` finds by the ``settings`` of the configuration; None if there are none."""
    finder = Finder(model, scheme.name, settings or {}, find_config(model))
    scheme.find(finder)
    keys = find_contradiction(finder.config)
    if keys:
        finder.report("config.json", "settings", f"has {keys}, which describe the scheme differently")
    finder.problems += _find_doubles(finder)
    if not finder.problems:
        finder.problems += find_leftovers(finder)
    if not finder.weights and not finder.problems:
        return None
    spare = finder.taken - _names_of(finder.weights)
    return PackedWeights(model, scheme, finder.weights, finder.problems, spare, settings is not None)


def _find_doubles(finder: Finder) -> list[Problem]:
    """Find weights whose names stored tensors have that are no part of them."""
    return [
        Problem(weight.name, f"packed.{finder.scheme}.name", "is stored, and would also be the name of a packed weight")
        for weight in finder.weights
        if weight.name in finder.model and weight.name not in weight.names
    ]


def _names_of(weights: Sequence[Weight]) -> set[str]:
    return {name for weight in weights for name in weight.names}


def _without_settings(config: Any) -> Any:
    """Return a configuration without the settings of a scheme, also inside that of a text model."""
    if not isinstance(config, dict):
        return config
    kept = {key: value for key, value in config.items() if key not in SETTINGS}
    if "text_config" in kept:
        kept["text_config"] = _without_settings(kept["text_config"])
    return kept
