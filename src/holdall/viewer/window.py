"""What the pages look at: one model, or two that are compared."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

from holdall.viewer.comparison import Comparison
from holdall.viewer.subject import Subject

__all__ = ["Window"]


class Window:
    """One or two models. Pages name a model by its number and a tensor by its row, never by a path."""

    def __init__(self, subjects: list[Subject]) -> None:
        self.subjects = subjects
        self.prefix = "/"  # of all addresses
        self.comparison = Comparison(subjects[0].model, subjects[1].model) if len(subjects) == 2 else None

    def choose(self, query: Mapping[str, str]) -> tuple[int, Subject]:
        """The model that an address names by ``of``; the first if it names none."""
        number = 1 if query.get("of") == "1" and len(self.subjects) == 2 else 0
        return number, self.subjects[number]

    def href(self, path: str, **query: object) -> str:
        """The address of a page.

        >>> Window([Subject(None)]).href("/tensor", row=3)
        '/tensor?row=3'
        """
        given = {key: str(value) for key, value in query.items() if value is not None}
        return self.prefix + path.lstrip("/") + (f"?{urlencode(given)}" if given else "")

    def close(self) -> None:
        """End all work, and close the files."""
        if self.comparison is not None:
            self.comparison.task.end()
        for subject in self.subjects:
            subject.close()
