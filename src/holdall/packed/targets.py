"""The names and patterns by which the settings of a scheme choose layers."""

from __future__ import annotations

import re
from collections.abc import Iterable

from holdall.base.linear_regex import LinearRegex, compile_regex
from holdall.base.text import shorten
from holdall.errors import ContentError, UnsupportedError

__all__ = ["Targets"]

_FOLLOWED = 60_000_000  # steps of patterns times letters that they are tried on: more would take too long
_DIGITS = str.maketrans("123456789", "000000000")


class Targets:
    """Layers by name, and patterns that begin with ``re:``, which match from the beginning of a name.

    >>> targets = Targets(["lm_head", "re:model[.]layers[.]\\\\d+[.]mlp"])
    >>> targets.compile()
    ''
    >>> targets.have("lm_head"), targets.have("model.layers.7.mlp.up"), targets.have("model.norm")
    (True, True, False)
    """

    def __init__(self, texts: Iterable[str]) -> None:
        listed = list(texts)
        self.names = frozenset(text for text in listed if not text.startswith("re:"))
        self._patterns = list(dict.fromkeys(text[3:] for text in listed if text.startswith("re:")))
        self._compiled: dict[str, LinearRegex] = {}
        self._tried: dict[tuple[str, str], bool] = {}
        self._left = _FOLLOWED

    def compile(self) -> str:
        """Compile the patterns. Returns why one of them cannot be used, or nothing."""
        for pattern in self._patterns:
            try:
                self._compiled[pattern] = compile_regex(f"^(?:{pattern})")
            except (UnsupportedError, re.error) as error:
                return f"the pattern {shorten(pattern, 100)!r} cannot be followed: {error}"
        return ""

    def have(self, layer: str) -> bool:
        """Whether ``layer`` is named, or matched by a pattern. Raises ContentError if all of that takes too long."""
        return layer in self.names or any(self._try(pattern, layer) for pattern in self._compiled.items())

    def _try(self, pattern: tuple[str, LinearRegex], layer: str) -> bool:
        text, compiled = pattern
        if compiled.rules_out(layer):
            return False
        # Thousands of experts differ in their numbers alone, which most patterns do not tell apart.
        name = layer if any(letter in "[{123456789" for letter in text) else layer.translate(_DIGITS)
        found = self._tried.get((text, name))
        if found is None:
            self._left -= len(name) * compiled.steps
            if self._left < 0:
                raise ContentError(f"{len(self._compiled):,} patterns for this many layers take too long")
            found = self._tried[text, name] = bool(compiled.search(name))
        return found
