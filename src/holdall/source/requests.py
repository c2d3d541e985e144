"""Single requests, as obstore does them.

Its threads do not come along when a process forks, and a request would wait for them forever. So a fork of a process
that has read from afar sends its requests through a small process of its own; see :mod:`holdall.source.broker`.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdall.source.stores import Place

__all__ = ["Answer", "Trouble", "get", "head", "listed"]

_T = TypeVar("_T")

_home: int | None = None  # the process in which the library's threads are


# The parts of what the library says that are safe to show; the first that is there counts.
_CAUSES = (
    (re.compile(r'message: "([A-Za-z ,-]{1,80})"'), r"\1"),  # the system's own words
    (re.compile(r"dns error"), "the name of the host is not known"),
    (re.compile(r"\bstatus: (\d{3})\b"), r"the server answers \1"),
    (re.compile(r"TimedOut|kind: Timeout"), "no answer in time"),
    (re.compile(r"certificate", re.IGNORECASE), "the certificate of the server is not accepted"),
    (re.compile(r"IncompleteBody|IncompleteMessage|UnexpectedEof"), "the connection was cut"),
    (re.compile(r"UnexpectedRange"), "the server sends other bytes than those asked for"),
)


class Trouble(Exception):
    """A request that failed. ``text`` is what the library says, which may hold signed URLs: only ``cause`` is shown."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(kind)
        self.kind = kind
        self.text = text

    @property
    def cause(self) -> str:
        """Why the request failed, in words that give nothing away."""
        found = ((pattern.search(self.text), words) for pattern, words in _CAUSES)
        return next((match.expand(words) for match, words in found if match), self.kind)

    def __reduce__(self) -> tuple[type[Trouble], tuple[str, str]]:
        return Trouble, (self.kind, self.text)


@dataclass(frozen=True, slots=True)
class Answer:
    """Bytes, the range they are said to be of, and what is said of the object."""

    data: memoryview
    start: int
    stop: int
    tag: str | None
    modified: str
    size: int


def get(place: Place, options: dict[str, Any]) -> Answer:
    """One range."""
    if _forked():
        from holdall.source.broker import ask

        data, *rest = ask("get", place.url, options)
        return Answer(memoryview(data), *rest)
    store, path = place.store, place.path
    import obstore

    def send() -> Answer:
        answer = obstore.get(store, path, options=options)  # type: ignore[arg-type]  # a TypedDict
        data = memoryview(answer.bytes())
        start, stop = answer.range
        tag, modified, size = _facts(answer.meta)
        return Answer(data, start, stop, tag, modified, size)

    return _told(send)


def head(place: Place) -> tuple[str | None, str, int]:
    """ETag, time and size of an object."""
    if _forked():
        from holdall.source.broker import ask

        tag, modified, size = ask("head", place.url, {})
        return tag, modified, size
    store, path = place.store, place.path
    import obstore

    return _told(lambda: _facts(obstore.head(store, path)))


def listed(place: Place) -> list[str]:
    """The paths of the objects below a place, relative to it, as deep as one folder down."""
    if _forked():
        from holdall.source.broker import ask

        return list(ask("list", place.url, {}))
    store, prefix = place.store, place.path.rstrip("/")
    import obstore

    def send() -> list[str]:
        batches = obstore.list(store, prefix or None)
        return [str(row["path"]).removeprefix(prefix).lstrip("/") for batch in batches for row in batch]

    return sorted(name for name in _told(send) if name.count("/") <= 1)


def _facts(meta: Any) -> tuple[str | None, str, int]:
    return meta.get("e_tag"), str(meta.get("last_modified")), int(meta["size"])


def _told(send: Callable[[], _T]) -> _T:
    try:
        return send()
    except Exception as error:  # whatever the library raises
        raise Trouble(type(error).__name__, str(error)) from None


def _forked() -> bool:
    """Whether the library's threads were left behind in a parent."""
    global _home
    if _home is None:
        _home = os.getpid()
    return _home != os.getpid()
