"""What the pages look at: one model, or two that are compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from holdall.viewer.comparison import Comparison
from holdall.viewer.subject import Subject

__all__ = ["ANY", "Window", "check_indices"]

ANY = 1 << 53  # a count that no page reaches, for what is checked further on


def check_indices(sent: Any, *counts: int) -> list[int]:
    """The indices that a page sent, one of each count. A request with others was made up: it is answered with 400.

    >>> check_indices([1, 0], 2, 1)
    [1, 0]
    """
    given: list[int] = sent if isinstance(sent, list) else [sent]
    if len(given) == len(counts) and all(
        type(index) is int and 0 <= index < count for index, count in zip(given, counts, strict=True)
    ):
        return given
    from werkzeug.exceptions import BadRequest

    raise BadRequest("there is nothing of this number")


class Window:
    """One or two models. Pages name a model by its number and a tensor by its row, never by a path."""

    def __init__(self, subjects: list[Subject]) -> None:
        self.subjects = subjects
        self.prefix = "/"  # of all addresses
        self.comparison: Comparison | None = None
        if len(subjects) == 2:
            remote = any(subject.is_remote for subject in subjects)
            self.comparison = Comparison(subjects[0].model, subjects[1].model, waits=remote)

    def choose(self, query: Mapping[str, str]) -> tuple[int, Subject]:
        """The model that an address names by ``of``; the first if it names none."""
        number = 1 if query.get("of") == "1" and len(self.subjects) == 2 else 0
        return number, self.subjects[number]

    def subject(self, number: object) -> Subject:
        """The model of the number that a page sent."""
        return self.subjects[check_indices(number, len(self.subjects))[0]]

    def tensor(self, at: object) -> tuple[Subject, int]:
        """The model and the row of a tensor, whose numbers a page sent."""
        number, row = check_indices(at, len(self.subjects), ANY)
        subject = self.subjects[number]
        return subject, check_indices(row, len(subject.model.tensors))[0]

    def file(self, of: object) -> tuple[Subject, int]:
        """The model and the number of one of its files, as a page sent them."""
        number, file = check_indices(of, len(self.subjects), ANY)
        subject = self.subjects[number]
        return subject, check_indices(file, len(subject.files))[0]

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
