"""Regular expressions in time proportional to the text, whatever the expression.

The user writes the expression and the file brings the text, so neither may make the other take forever: Python's own
engine goes back and tries again, and takes years for ``(a+)+$`` and forty letters. This one follows all ways through
the expression at once, one letter after the other, and prefers them in the same order. What cannot be followed so, such
as a look ahead or a reference to an earlier group, is refused.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from re import _parser  # type: ignore[attr-defined]  # both engines then read an expression the same way
from typing import Any, Literal, NamedTuple

from holdall.errors import UnsupportedError

__all__ = ["LinearRegex", "compile_regex"]

_LARGEST = 10_000  # steps of a program: repetitions of a fixed number are written out
_LONGEST = 4096  # letters of a text. Replacing all matches may go over the rest of the text once for each

_TEMPLATE = re.compile(r"\\(?:g<([^>]*)>|([1-9][0-9]?)|(.))", re.DOTALL)
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\"}

_UNFOLLOWED = {
    **dict.fromkeys(("ASSERT", "ASSERT_NOT"), "a look ahead or behind"),
    **dict.fromkeys(("GROUPREF", "GROUPREF_EXISTS"), "a back reference"),
    "POSSESSIVE_REPEAT": "a possessive repeat",
    "ATOMIC_GROUP": "an atomic group",
}

Test = Callable[[str], bool]
Places = tuple[int, ...]  # where the whole match and each group begin and end; -1 where they do not


def _is_word(letter: str) -> bool:
    return letter.isalnum() or letter == "_"


_CATEGORIES: dict[str, Test] = {
    "CATEGORY_DIGIT": str.isdecimal,
    "CATEGORY_NOT_DIGIT": lambda letter: not letter.isdecimal(),
    "CATEGORY_SPACE": str.isspace,
    "CATEGORY_NOT_SPACE": lambda letter: not letter.isspace(),
    "CATEGORY_WORD": _is_word,
    "CATEGORY_NOT_WORD": lambda letter: not _is_word(letter),
}


def _at_boundary(text: str, at: int) -> bool:
    before, after = at > 0 and _is_word(text[at - 1]), at < len(text) and _is_word(text[at])
    return before != after


_POSITIONS: dict[str, Callable[[str, int], bool]] = {
    "AT_BEGINNING": lambda text, at: at == 0,
    "AT_BEGINNING_STRING": lambda text, at: at == 0,
    "AT_END": lambda text, at: at == len(text) or (at == len(text) - 1 and text[at] == "\n"),
    "AT_END_STRING": lambda text, at: at == len(text),
    "AT_BOUNDARY": _at_boundary,
    "AT_NON_BOUNDARY": lambda text, at: not _at_boundary(text, at),
}


class _Step(NamedTuple):
    """One step of a program: ``what`` says what ``value`` is, and ``next`` is the step after it."""

    what: Literal["letter", "fork", "place", "position", "match"]
    value: Any = None
    next: int = 0


@lru_cache(maxsize=256)
def compile_regex(pattern: str) -> LinearRegex:
    """Compile an expression. Raises re.error for a wrong one, UnsupportedError for one that cannot be followed.

    >>> compile_regex(r"^h[.](\\d+)").replace("h.3.w", r"layer.\\1", 1)
    'layer.3.w'
    """
    try:
        return LinearRegex(pattern)
    except RecursionError:
        raise re.error("groups lie too deep in each other", pattern) from None


def _parse(pattern: str) -> Any:
    """Parse a pattern as Python does; what Python cannot hold is an error of the pattern."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of sets that may mean something else one day
        try:
            return _parser.parse(pattern)
        except OverflowError:
            raise re.error("a number of repetitions is too large", pattern) from None


class LinearRegex:
    """A compiled expression, in Python's syntax."""

    def __init__(self, pattern: str) -> None:
        parsed = _parse(pattern)
        if parsed.state.flags & ~re.UNICODE:
            raise self._refuse("a flag")
        self._names: dict[str, int] = parsed.state.groupdict
        self._groups: int = parsed.state.groups
        self._steps: list[_Step] = [_Step("match")]
        end = self._add("place", 1, 0)
        self._entry = self._add("place", 0, self._compile(parsed, end))
        self._literal = max(_find_literals(parsed), key=len)
        self._straight = _compile_straight(pattern) if _is_straight(parsed) else None

    def _refuse(self, what: str) -> UnsupportedError:
        return UnsupportedError(f"{what} is not supported: the time for a name must be in proportion to its length")

    def _add(self, what: Literal["letter", "fork", "place", "position"], value: Any, next: int) -> int:
        if len(self._steps) >= _LARGEST:
            raise UnsupportedError(f"a regular expression of a rule has at most {_LARGEST} steps, repetitions counted")
        self._steps.append(_Step(what, value, next))
        return len(self._steps) - 1

    def _compile(self, nodes: Iterable[tuple[Any, Any]], next: int) -> int:
        """Compile what ``nodes`` match before the step ``next``; return the first step."""
        for op, value in reversed(list(nodes)):
            next = self._compile_node(str(op), value, next)
        return next

    def _compile_node(self, op: str, value: Any, next: int) -> int:
        match op:
            case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN":
                return self._add("letter", _make_test(op, value), next)
            case "AT":
                return self._add("position", _POSITIONS[str(value)], next)
            case "BRANCH":
                *others, last = (self._compile(branch, next) for branch in value[1])
                for other in reversed(others):
                    last = self._add("fork", other, last)
                return last
            case "SUBPATTERN":
                group, added, removed, inner = value
                if added or removed:
                    raise self._refuse("a flag")
                if group is None:
                    return self._compile(inner, next)
                return self._add("place", 2 * group, self._compile(inner, self._add("place", 2 * group + 1, next)))
            case "MAX_REPEAT" | "MIN_REPEAT":
                low, high, inner = value
                return self._compile_repeat(low, high, inner, next, greedy=op == "MAX_REPEAT")
        raise self._refuse(_UNFOLLOWED.get(op, op.lower().replace("_", " ")))

    def _compile_repeat(self, low: int, high: Any, inner: Any, next: int, *, greedy: bool) -> int:
        entry = next
        if high == _parser.MAXREPEAT:
            entry = self._add("fork", 0, 0)  # completed below, when the step that it leads to is known
            self._steps[entry] = self._make_fork(self._compile(inner, entry), next, greedy)
        else:
            for _ in range(high - low):
                fork = self._make_fork(self._compile(inner, entry), next, greedy)
                entry = self._add("fork", fork.value, fork.next)
        for _ in range(low):
            entry = self._compile(inner, entry)
        return entry

    @staticmethod
    def _make_fork(inner: int, next: int, greedy: bool) -> _Step:
        return _Step("fork", inner, next) if greedy else _Step("fork", next, inner)

    def search(self, text: str) -> bool:
        """Whether the expression matches anywhere in ``text``."""
        return self._find(text, 0, advance=False) is not None

    def replace(self, text: str, template: str, count: int = 0) -> str:
        """Replace the first ``count`` matches, or with 0 all, by ``template``, as :func:`re.sub` does."""
        parts: list[str] = []
        done = at = 0
        advance = False
        while (found := self._find(text, at, advance)) is not None:
            start, at = found[0], found[1]
            parts += text[done:start], *self._expand(template, text, found)
            done, advance, count = at, start == at, count - 1
            if not count:
                break
        return "".join(parts) + text[done:]

    def _expand(self, template: str, text: str, found: Places) -> Iterator[str]:
        done = 0
        for escape in _TEMPLATE.finditer(template):
            yield template[done : escape.start()]
            done = escape.end()
            name, number, letter = escape.groups()
            if letter is not None:
                yield _ESCAPES.get(letter, "\\" + letter)
                continue
            group = int(number or (name if name.isdecimal() else self._names[name]))
            yield text[found[2 * group] : found[2 * group + 1]] if found[2 * group] >= 0 else ""
        yield template[done:]

    @property
    def steps(self) -> int:
        """The steps of the program: for each letter of a text, at most as many are taken."""
        return len(self._steps)

    def rules_out(self, text: str) -> bool:
        """Whether a glance tells that nothing in ``text`` matches: letters that every match has are not in it."""
        return self._literal not in text

    def _find(self, text: str, start: int, advance: bool) -> Places | None:
        """Find the first match from ``start`` on. With ``advance`` it is not empty if it begins there."""
        if self.rules_out(text):
            return None
        if len(text) > _LONGEST:
            raise UnsupportedError(
                f"a regular expression of a rule is applied to at most {_LONGEST} letters, and {text[:40]!r}... has "
                f"{len(text)}; name it exactly, or leave it out"
            )
        if self._straight is not None:
            match = self._straight.search(text, start)
            return None if match is None else tuple(chain.from_iterable(match.regs))
        ways: list[tuple[int, Places]] = []
        seen: set[int] = set()
        found: Places | None = None
        nowhere = (-1,) * (2 * self._groups)
        for at in range(start, len(text) + 1):
            if found is None:
                self._follow(ways, seen, self._entry, nowhere, text, at)
            elif not ways:
                break
            current, ways, seen = ways, [], set()
            for step, places in current:
                what, test, next = self._steps[step]
                if what == "match":
                    if not (advance and places[0] == places[1] == start):
                        found = places
                        break  # the ways after it are less preferred
                elif at < len(text) and test(text[at]):
                    self._follow(ways, seen, next, places, text, at + 1)
        return found

    def _follow(
        self, ways: list[tuple[int, Places]], seen: set[int], step: int, places: Places, text: str, at: int
    ) -> None:
        """Add the steps that wait for a letter, or match, and are reached from ``step`` without one."""
        stack = [(step, places)]
        while stack:
            step, places = stack.pop()
            if step in seen:
                continue
            seen.add(step)
            what, value, next = self._steps[step]
            if what == "fork":
                stack += (next, places), (value, places)
            elif what == "place":
                stack.append((next, (*places[:value], at, *places[value + 1 :])))
            elif what == "position":
                stack += [(next, places)] if value(text, at) else []
            else:
                ways.append((step, places))


def _make_test(op: str, value: Any) -> Test:
    """Make the test of one letter."""
    if op == "LITERAL":
        return chr(value).__eq__
    if op == "NOT_LITERAL":
        return chr(value).__ne__
    if op == "ANY":
        return "\n".__ne__
    negated = bool(value) and str(value[0][0]) == "NEGATE"
    tests = [_make_item(str(kind), item) for kind, item in value[negated:]]
    return lambda letter: negated != any(test(letter) for test in tests)


def _make_item(kind: str, item: Any) -> Test:
    """Make the test of one part of a set."""
    if kind == "RANGE":
        low, high = map(chr, item)
        return lambda letter: low <= letter <= high
    return _CATEGORIES[str(item)] if kind == "CATEGORY" else _make_test(kind, item)


def _is_straight(nodes: Any) -> bool:
    """Whether one way leads through the expression, of a letter at least: Python's engine then never goes back."""
    return nodes.getwidth()[0] > 0 and all(
        str(op) in ("LITERAL", "NOT_LITERAL", "ANY", "IN", "AT")
        or (str(op) == "SUBPATTERN" and (not len(value[3]) or _is_straight(value[3])))
        for op, value in nodes
    )


def _compile_straight(pattern: str) -> re.Pattern[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return re.compile(pattern)


def _find_literals(nodes: Sequence[tuple[Any, Any]]) -> Iterator[str]:
    """The texts that every match has in it."""
    run = ""
    for op, value in nodes:
        if str(op) == "LITERAL":
            run += chr(value)
            continue
        yield run
        run = ""
    yield run
