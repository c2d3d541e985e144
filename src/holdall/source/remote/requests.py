"""Single requests to buckets, as obstore sends them, and what those to web servers share with them.

The threads of obstore do not survive a fork; see :mod:`holdall.source.thread_pools`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from holdall.source.thread_pools import refuse_after_fork

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdall.source.remote.stores import Place

__all__ = ["Answer", "Requests", "StoreRequests", "Trouble", "list_names"]

_T = TypeVar("_T")

# The parts of obstore's messages that are safe to show; the first match counts.
_CAUSES = (
    (re.compile(r'message: "([A-Za-z ,-]{1,80})"'), r"\1"),  # a message of the operating system
    (re.compile(r"dns error"), "the name of the host is not known"),
    (re.compile(r"\bstatus: (\d{3})\b"), r"the server answers \1"),
    (re.compile(r"TimedOut|kind: Timeout"), "no answer in time"),
    (re.compile(r"certificate", re.IGNORECASE), "the certificate of the server is not accepted"),
    (re.compile(r"IncompleteBody|IncompleteMessage|UnexpectedEof"), "the connection was cut"),
    (re.compile(r"UnexpectedRange"), "the server sends other bytes than those asked for"),
)

_KINDS = {
    "FileNotFoundError": "absent",
    "NotFoundError": "absent",
    "PermissionError": "denied",
    "PermissionDeniedError": "denied",
    "UnauthenticatedError": "credentials",
    "PreconditionError": "changed",
}

# Words of those messages: the server sent the whole object for a range, or an empty object has no first bytes.
_WORDS = {
    "no ranges": ("NotPartial", "not supported"),
    "range": ("CONTENT_RANGE", "ContentRange", "416", "InvalidRange"),
}


class Trouble(Exception):
    """A request that failed. ``cause`` says why, without any part of the URL.

    ``kind`` says what follows: ``absent``, ``denied``, ``credentials`` and ``final`` will not change, ``changed`` is
    another object, ``no ranges``, ``range`` and ``encoded`` are answers to another question, and after a ``passing``
    failure the request is sent again.
    """

    def __init__(self, kind: str, cause: str) -> None:
        super().__init__(cause)
        self.kind = kind
        self.cause = cause


@dataclass(frozen=True, slots=True)
class Answer:
    """A response: bytes, the range that it states, and the ETag, time and size of the object."""

    data: memoryview
    start: int
    stop: int
    tag: str | None
    modified: str
    size: int


class Requests(Protocol):
    """How requests for one object are sent. Failures raise :class:`Trouble`."""

    def get(self, start: int, stop: int, tag: str | None) -> Answer:
        """Request the bytes ``start..stop``, of the object with this ETag if one is given."""

    def head(self) -> tuple[str | None, str, int]:
        """Request the ETag, the time and the size of the object."""


class StoreRequests:
    """Requests to the bucket of an object, as obstore sends them."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def get(self, start: int, stop: int, tag: str | None) -> Answer:
        """Request one range."""
        refuse_after_fork()
        store, path = self._place.store, self._place.path
        import obstore

        options: dict[str, Any] = {"range": (start, stop)} | ({"if_match": tag} if tag else {})

        def send() -> Answer:
            answer = obstore.get(store, path, options=options)  # type: ignore[arg-type]  # a TypedDict
            data = memoryview(answer.bytes())
            start, stop = answer.range
            return Answer(data, start, stop, *_read_meta(answer.meta))

        return _send(send)

    def head(self) -> tuple[str | None, str, int]:
        """Request the ETag, the time and the size of the object."""
        refuse_after_fork()
        store, path = self._place.store, self._place.path
        import obstore

        return _send(lambda: _read_meta(obstore.head(store, path)))


def list_names(place: Place) -> list[str]:
    """Request the paths of the objects below a place, relative to it, as deep as one folder down."""
    refuse_after_fork()
    store, prefix = place.store, place.path.rstrip("/")
    import obstore

    def send() -> list[str]:
        batches = obstore.list(store, prefix or None)
        return [str(row["path"]).removeprefix(prefix).lstrip("/") for batch in batches for row in batch]

    return sorted(name for name in _send(send) if name.count("/") <= 1)


def _read_meta(meta: Any) -> tuple[str | None, str, int]:
    return meta.get("e_tag"), str(meta.get("last_modified")), int(meta["size"])


def _send(send: Callable[[], _T]) -> _T:
    try:
        return send()
    except Exception as error:  # obstore has many kinds of errors, whose messages hold signed URLs
        failed = _explain(type(error).__name__, str(error))
    raise failed


def _explain(name: str, text: str) -> Trouble:
    found = ((pattern.search(text), words) for pattern, words in _CAUSES)
    cause = next((match.expand(words) for match, words in found if match), name)
    for kind, words in _WORDS.items():
        if any(word in text for word in words):
            return Trouble(_KINDS.get(name, kind), cause)
    return Trouble(_KINDS.get(name, "passing"), cause)
