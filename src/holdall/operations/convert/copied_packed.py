"""Packed weights that stay packed in a copy: what reads it has to find the same weights.

Their parts alone do not say how they are decoded. The rest is in the configuration, which names layers, and which the
target may have no place for; of several sources only one configuration stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdall.base.text import plural
from holdall.format.packed_weights import find_codes_by_config
from holdall.packed import find_weights
from holdall.packed.settings import find_config, find_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from holdall.model.model import Model
    from holdall.packed.packed_weights import PackedWeights
    from holdall.packed.weight import Weight

__all__ = ["PackedContent", "describe_packed", "explain_other_weights"]

NewName = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class PackedContent:
    """The packed weights of a model: how each is decoded, by the names of its parts.

    ``codes`` are the names of tensors that only the ``settings`` of the configuration say to be no numbers.
    """

    title: str
    weights: Mapping[tuple[str, ...], tuple[Any, ...]]
    codes: Sequence[str]
    settings: Mapping[str, Any] | None


def describe_packed(
    model: Model,
    found: PackedWeights | None,
    weights: Iterable[Weight],
    new_name: NewName,
    chooses: Callable[[str], bool] = lambda name: True,
) -> PackedContent:
    """Describe what ``model`` has, under new names: the ``weights`` of those ``found``, or codes of unknown meaning.

    ``chooses`` says which tensors are wanted.
    """
    settings = find_settings(find_config(model))
    if found is None or found.problems:
        return PackedContent("", {}, list(filter(chooses, find_codes_by_config(model))), settings)
    return PackedContent(found.scheme.title, _describe_weights(weights, new_name), (), settings)


def explain_other_weights(sources: Sequence[PackedContent], stored: Model) -> str:
    """Say why a reader of ``stored`` would not find the weights of ``sources``; empty if it finds just these."""
    if not any(source.weights or source.codes for source in sources):
        return ""
    stated = find_settings(find_config(stored))
    for source in sources:
        if source.codes and source.settings != stated:
            return (
                f"{source.codes[0]!r} and {plural(len(source.codes) - 1, 'other tensor')} hold codes, which only the "
                "configuration of their model says, and it would not be there"
            )
    before = {parts: how for source in sources for parts, how in source.weights.items()}
    found = find_weights(stored)
    after = {} if found is None or found.problems else _describe_weights(found.weights, str)
    titles = " and ".join(dict.fromkeys(source.title for source in sources if source.weights))
    missing = len(before.keys() - after.keys())
    if missing:
        return (
            f"{plural(missing, 'weight')} of {titles} would stay packed, and there would be no configuration that "
            "describes them, or their parts would have other names, so that nothing could decode them"
        )
    other = [parts for parts, how in after.items() if before.get(parts) != how]
    if before and other:
        return (
            f"{plural(len(other), 'weight')} of {titles}, {other[0][0]!r} first, would stay packed and be decoded "
            "otherwise, since the configuration would state something else of them"
        )
    return ""


def _describe_weights(weights: Iterable[Weight], new_name: NewName) -> dict[tuple[str, ...], tuple[Any, ...]]:
    described = {}
    for weight in weights:
        how = weight.encoding
        parts = tuple(map(new_name, (*(tensor.name for tensor in weight.tensors), *weight.extra)))
        described[parts] = (how.name, how.shape, how.parts, how.decoder, how.plain)
    return described
