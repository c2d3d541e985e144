"""The names and patterns by which the settings of a scheme choose layers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from holdall.base.linear_regex import LinearRegex, compile_regex
from holdall.base.text import shorten
from holdall.errors import ContentError, UnsupportedError

__all__ = ["Budget", "Targets"]

# What all patterns of a model may cost, in steps of patterns times letters that they are tried on.
_FOLLOWED = 50_000_000
_TRY = 20  # a pattern that a glance rules out, or that was tried before
_COMPILE = 100  # each letter of a pattern, and each of its steps
_PATTERNS = 4000  # models have below two hundred
_DIGITS = str.maketrans("123456789", "000000000")


@dataclass(slots=True)
class Budget:
    """What the patterns of one model may still cost, and how many there are."""

    left: int = _FOLLOWED
    patterns: int = 0

    def spend(self, cost: int) -> None:
        """Take ``cost`` from what is left. Raises ContentError if that is less."""
        self.left -= cost
        if self.left < 0:
            raise ContentError(f"{self.patterns:,} patterns for this many layers take too long")


class Targets:
    """Layers by name, and patterns that begin with ``re:``, which match from the beginning of a name.

    >>> targets = Targets(["lm_head", "re:model[.]layers[.]\\\\d+[.]mlp"])
    >>> targets.compile()
    ''
    >>> targets.have("lm_head"), targets.have("model.layers.7.mlp.up"), targets.have("model.norm")
    (True, True, False)
    """

    def __init__(self, texts: Iterable[str], budget: Budget | None = None) -> None:
        listed = list(texts)
        self.names = frozenset(text for text in listed if not text.startswith("re:"))
        self.are_classes = any(name[:1].isupper() for name in self.names)
        self._patterns = list(dict.fromkeys(text[3:] for text in listed if text.startswith("re:")))
        self._compiled: dict[str, LinearRegex] = {}
        self._tried: dict[tuple[str, str], bool] = {}
        self._budget = budget or Budget()
        self._budget.patterns += len(self._patterns)

    def compile(self) -> str:
        """Compile the patterns, those of all targets with this budget counted.

        Returns why one of them cannot be used, or nothing. Raises ContentError if all of that takes too long.
        """
        if self._budget.patterns > _PATTERNS:
            return f"{self._budget.patterns:,} patterns are too many: at most {_PATTERNS:,} are followed"
        for pattern in self._patterns:
            self._budget.spend(_COMPILE * len(pattern))
            try:
                self._compiled[pattern] = compile_regex(f"^(?:{pattern})")
            except (UnsupportedError, re.error) as error:
                return f"the pattern {shorten(pattern, 100)!r} cannot be followed: {error}"
            self._budget.spend(_COMPILE * self._compiled[pattern].steps)
        return ""

    def have(self, layer: str) -> bool:
        """Whether ``layer`` is named, or matched by a pattern. Raises ContentError if all of that takes too long."""
        self._budget.spend(_TRY)
        return layer in self.names or any(self._try(pattern, layer) for pattern in self._compiled.items())

    def _try(self, pattern: tuple[str, LinearRegex], layer: str) -> bool:
        text, compiled = pattern
        self._budget.spend(_TRY)
        if compiled.rules_out(layer):
            return False
        # Thousands of experts differ in their numbers alone, which most patterns do not tell apart.
        name = layer if any(letter in "[{123456789" for letter in text) else layer.translate(_DIGITS)
        found = self._tried.get((text, name))
        if found is None:
            self._budget.spend(len(name) * compiled.steps)
            found = self._tried[text, name] = bool(compiled.search(name))
        return found
