"""Which tensors of a model each line of a recipe takes, and what it calls them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product

from holdall.recipes.rows import Line

__all__ = ["Group", "group_names"]

_MOST = 1 << 20  # tensors that the counts of a configuration may ask for
_MISSING = 1000  # tensors of a line that are listed as missing: a count may ask for any number


@dataclass(frozen=True, slots=True)
class Group:
    """The tensors that one line takes together, such as the experts of a layer, and what becomes of them."""

    line: Line
    inputs: tuple[str, ...]
    numbers: Mapping[str, int]

    def list_outputs(self, back: bool, count: int) -> list[str]:
        """List the names of the ``count`` tensors that are made."""
        if self.line.sources and self.line.sources[0].is_open:
            return list(self.inputs)
        outputs = self.line.sources if back else self.line.targets
        spread = [field for pattern in outputs for field in pattern.fields if field not in self.numbers]
        if spread:
            return [outputs[0].fill({**self.numbers, spread[0]: number}) for number in range(count)]
        return [pattern.fill(self.numbers) for pattern in outputs]


class _Taker:
    """Collects the names that one line takes."""

    def __init__(self, line: Line, back: bool) -> None:
        self.line = line
        self.inputs, outputs = (line.targets, line.sources) if back else (line.sources, line.targets)
        there = {field for pattern in outputs for field in pattern.fields}
        fields = self.inputs[0].fields if self.inputs else ()
        self.kept = [field for field in fields if field in there or not outputs]
        self.joined = next((field for field in fields if field not in self.kept), None)
        self.found: dict[tuple[int, ...], dict[tuple[int, int], str]] = {}
        self.any: list[str] = []  # taken by a pattern for any text, or one more that is dropped
        self.problems: list[str] = []
        self._drops = not outputs
        self._prefixes = [re.split("[{<]", pattern.text)[0] for pattern in self.inputs]

    def take(self, name: str) -> bool:
        """Take ``name`` if it is one of this line."""
        for at, (prefix, pattern) in enumerate(zip(self._prefixes, self.inputs, strict=True)):
            numbers = pattern.match(name) if name.startswith(prefix) else None
            if numbers is not None and pattern.is_open:
                self.any.append(name)
                return True
            if numbers is not None:
                key = tuple(numbers[field] for field in self.kept)
                self._add(self.found.setdefault(key, {}), (at, numbers.get(self.joined or "", 0)), name)
                return True
        return False

    def _add(self, members: dict[tuple[int, int], str], place: tuple[int, int], name: str) -> None:
        """Add a name to the ``members`` of a group. Of several texts to choose from, a model has one."""
        other = members.setdefault(place, name)
        if other != name and self._drops:
            self.any.append(name)
        elif other != name:
            self.problems.append(f"{other!r} and {name!r} are names of the same tensor")

    def make_groups(self, counts: Mapping[str, int], problems: list[str]) -> Iterator[Group]:
        """Yield the groups that are whole, and add what is missing to ``problems``."""
        problems += self.problems
        yield from (Group(self.line, (name,), {}) for name in self.any)
        for key in self._list_missing(counts):
            numbers = dict(zip(self.kept, key, strict=True)) | ({self.joined: 0} if self.joined else {})
            problems.append(f"the tensor {self.inputs[0].fill(numbers)!r} is missing")
        for key, members in self.found.items():
            numbers = dict(zip(self.kept, key, strict=True))
            beyond = next((field for field in numbers if numbers[field] >= counts.get(field, _MOST)), None)
            if beyond is not None and not self._drops:
                name = next(iter(members.values()))
                problems.append(f"the tensor {name!r} is beyond the {counts.get(beyond, _MOST)} that there should be")
                continue
            wanted = dict.fromkeys(self._list_members(members, counts))
            gone = [at for at in wanted if at not in members]
            for at, number in gone:
                name = self.inputs[at].fill({**numbers, **({self.joined: number} if self.joined else {})})
                problems.append(f"the tensor {name!r} is missing")
            more = [name for at, name in members.items() if at not in wanted]
            problems += [f"the tensor {name!r} is more than the {len(wanted)} that there should be" for name in more]
            if not gone and not more:
                yield Group(self.line, tuple(members[at] for at in wanted), numbers)

    def _list_members(
        self, members: Mapping[tuple[int, int], str], counts: Mapping[str, int]
    ) -> Iterator[tuple[int, int]]:
        if self.joined is None:
            return ((at, 0) for at in range(len(self.inputs)))
        last = counts.get(self.joined, max(number for _, number in members) + 1)
        return ((0, number) for number in range(min(last, len(members) + _MISSING)))

    def _list_missing(self, counts: Mapping[str, int]) -> list[tuple[int, ...]]:
        """List the numbers of the groups that should be there and are not."""
        if self.line.optional or not self.inputs or self.any:
            return []
        if not all(field in counts for field in self.kept):
            return [] if self.found else [(0,) * len(self.kept)]
        ranges = [range(min(counts[field], _MOST)) for field in self.kept]
        return list(islice((key for key in product(*ranges) if key not in self.found), _MISSING))


def group_names(
    lines: Sequence[Line], names: Sequence[str], counts: Mapping[str, int], problems: list[str], *, back: bool = False
) -> list[Group]:
    """Group ``names`` by the lines that take them, in the order of the names.

    What no line takes, what a line needs and is not there, and what is there too often goes into ``problems``.

    >>> from holdall.recipes.patterns import Pattern
    >>> line = Line((Pattern("h.{n}.w"),), (Pattern("blk.{n}.w"),))
    >>> problems = []
    >>> [group.inputs for group in group_names([line], ["h.0.w", "x"], {"n": 2}, problems)]
    [('h.0.w',)]
    >>> problems
    ["no line takes the tensor 'x'", "the tensor 'h.1.w' is missing"]
    """
    takers = [_Taker(line, back) for line in lines]
    first = [taker for taker in takers if not taker.line.is_duplicate]
    second = [taker for taker in takers if taker.line.is_duplicate]
    for name in names:
        taken = any(taker.take(name) for taker in first)
        copied = [taker.take(name) for taker in second]
        if not taken and not (back and any(copied)):
            problems.append(f"no line takes the tensor {name!r}")
    order = {name: row for row, name in enumerate(names)}
    groups = [group for taker in takers for group in taker.make_groups(counts, problems)]
    return sorted(groups, key=lambda group: order[group.inputs[0]])
