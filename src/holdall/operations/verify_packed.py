"""What a verification says of packed weights: a file may be intact, and the checkpoint in it not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdall.base.check import Rule
from holdall.packed import find_weights

if TYPE_CHECKING:
    from holdall.operations.examine import Examination
    from holdall.packed.finder import Problem

__all__ = ["note_packed"]


def note_packed(seen: Examination) -> None:
    """Note for what the packed weights cannot be decoded, if the configuration names their scheme.

    A missing part is a warning. The rest are notes, since the layout may be one that only holdall does not know.
    """
    if seen.model is None or not seen.report.ok or not seen.check.wants("full"):
        return
    with seen.check.scope():
        found = find_weights(seen.model)
        if found is not None and found.is_stated:
            for problem in found.problems:
                hint = f"{found.scheme.title}: the weights cannot be decoded"
                seen.check.note(_rule_of(problem), None, f"tensor {problem.tensor!r} {problem.text}", hint=hint)


def _rule_of(problem: Problem) -> Rule:
    is_missing = problem.rule.endswith(".part")
    return Rule(problem.rule, problem.text, "full", "warning" if is_missing else "note")
