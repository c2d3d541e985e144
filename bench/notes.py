"""Why a bar is missed: what the limit is, and how that was found.

Written by hand after a run; ``python -m bench --page`` puts a new note on the page beside the bar, where it is missed.
"""

from __future__ import annotations

from bench.figures import Verdict

__all__ = ["NOTES", "note_on"]

# Topic, words of the case, words of the contender: the reason.
NOTES: dict[tuple[str, str, str], str] = {}


def note_on(missed: Verdict) -> str:
    """The reason that is known."""
    for (topic, case, contender), reason in NOTES.items():
        if missed.topic == topic and case in missed.title and contender in missed.contender:
            return reason
    return "Why has not been found out yet."
