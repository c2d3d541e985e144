"""Names with placeholders for numbers and with parts that differ between files: ``<|bert.>encoder.layer.{n}.bias``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import product
from math import prod

from holdall.base.once import computed_once
from holdall.errors import ContentError

__all__ = ["Numbers", "Pattern"]

Numbers = Mapping[str, int]  # the number of each placeholder

_FIELD = re.compile(r"\{([a-z]*)(?:\+([1-9][0-9]?))?\}")
_CHOICE = re.compile(r"<([^<>{}]*\|[^<>{}]*)>")
_ANY = "{*}"
_LONGEST = 1000  # letters of a pattern
_SPELLINGS = 64  # ways to choose among the texts of a pattern
_AMBIGUOUS = re.compile(r"\}[0-9{]")  # a number before what may be a part of it


class Pattern:
    """A name in which ``{n}`` stands for a number without leading zeros, and ``{n+1}`` for the one behind it.

    ``{*}`` stands for any text; a pattern with it has no numbers, and no name can be made from it.

    >>> pattern = Pattern("model.layers.{n}.mlp.{e}.weight")
    >>> pattern.match("model.layers.3.mlp.0.weight"), pattern.match("model.layers.03.mlp.0.weight")
    ({'n': 3, 'e': 0}, None)
    >>> pattern.fill({"n": 3, "e": 1})
    'model.layers.3.mlp.1.weight'
    >>> Pattern("features.{n+2}.weight").match("features.2.weight"), Pattern("blocks.{n+1}").fill({"n": 0})
    ({'n': 0}, 'blocks.1')
    >>> Pattern("vision_tower.{*}").match("vision_tower.ln_pre.weight")
    {}

    ``<a|b>`` is one of several texts, of which the first is written.

    >>> Pattern("<transformer.|>h.{n}.w").match("h.1.w"), Pattern("<transformer.|>h.{n}.w").fill({"n": 1})
    ({'n': 1}, 'transformer.h.1.w')

    The time to match a name is in proportion to its length: where a number ends is plain, ``{*}`` stands once, and
    there are few ways to choose.
    """

    def __init__(self, text: str) -> None:
        if len(text) > _LONGEST:
            raise ContentError(f"a name of {len(text)} letters; at most {_LONGEST}")
        self.text = text
        self.is_open = _ANY in text
        found = _FIELD.findall(text)
        self.fields = tuple(name for name, _ in found)
        self._shifts = {name: int(shift or 0) for name, shift in found}
        if "" in self.fields or len(set(self.fields)) < len(self.fields):
            raise ContentError(f"{text!r}: placeholders are different names in braces, such as {{n}}")
        rest = _FIELD.sub("", text.replace(_ANY, ""))
        if "{" in rest or "}" in rest:
            raise ContentError(f"{text!r}: a brace without a placeholder")
        if self.is_open and self.fields:
            raise ContentError(f"{text!r}: {_ANY} stands for any text, and is the only placeholder")
        if re.search("[<>]", _CHOICE.sub("", text)):
            raise ContentError(f"{text!r}: texts to choose from are written <a|b>")
        self._check_time()

    def _check_time(self) -> None:
        """Refuse a pattern that would match names in more and more ways, and take forever to find that none does."""
        if self.text.count(_ANY) > 1:
            raise ContentError(f"{self.text!r}: {_ANY} stands for any text, and at most once")
        choices = [part.split("|") if at % 2 else [part] for at, part in self._parts()]
        if prod(map(len, choices)) > _SPELLINGS:
            raise ContentError(f"{self.text!r}: the texts to choose from make more than {_SPELLINGS} names")
        if self.fields and any(_AMBIGUOUS.search("".join(spelling)) for spelling in product(*choices)):
            raise ContentError(f"{self.text!r}: a number is followed by a digit or another one, and has no end")

    def __repr__(self) -> str:
        return f"Pattern({self.text!r})"

    @computed_once
    def _regex(self) -> re.Pattern[str]:
        return re.compile("".join(self._spell(part) if at % 2 == 0 else _one_of(part) for at, part in self._parts()))

    def _parts(self) -> Iterator[tuple[int, str]]:
        """The texts of the pattern with an even number, and the choices with an odd one."""
        return enumerate(_CHOICE.split(self.text))

    def _spell(self, text: str) -> str:
        parts = _FIELD.split(text)  # text, name and shift in turn
        spelled = [
            f"(?P<{part}>0|[1-9][0-9]{{0,8}})" if at % 3 == 1 else re.escape(part).replace(re.escape(_ANY), ".+")
            for at, part in enumerate(parts)
            if at % 3 < 2
        ]
        return "".join(spelled)

    def match(self, name: str) -> dict[str, int] | None:
        """Return the numbers in ``name``; None if it is another name."""
        found = self._regex.fullmatch(name)
        if found is None:
            return None
        numbers = {field: int(number) - self._shifts[field] for field, number in found.groupdict().items()}
        return None if any(number < 0 for number in numbers.values()) else numbers

    def fill(self, numbers: Numbers) -> str:
        """Return the name that has these numbers."""
        text = _CHOICE.sub(lambda choice: choice[1].partition("|")[0], self.text)
        return _FIELD.sub(lambda field: str(numbers[field[1]] + self._shifts[field[1]]), text)


def _one_of(choice: str) -> str:
    return f"(?:{'|'.join(map(re.escape, choice.split('|')))})"
