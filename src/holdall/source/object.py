"""One object far away: requests for byte ranges of it, tried again, checked, and never of two versions."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from holdall.check import Rule
from holdall.errors import FormatError, HoldallError
from holdall.locks import Lock
from holdall.source import requests
from holdall.source.requests import Answer, Trouble
from holdall.source.stores import AbsentError, Place, RemoteError, shown, stable

if TYPE_CHECKING:
    from holdall.source.cache import RangeCache

__all__ = ["ANSWER", "CHANGED", "RemoteObject"]

CHANGED = Rule("core.remote.changed", "the object is the one that was opened")
ANSWER = Rule("core.remote.answer", "the server answers with the range that was asked for")

_ATTEMPTS = 5
_FIRST_WAIT = 0.1  # seconds before the second attempt; each wait is four times the last, up to
_LONGEST_WAIT = 3.0

_ABSENT = ("FileNotFoundError", "NotFoundError")
_FINAL = {  # failures that another attempt does not change, and how people call them
    "PermissionError": "access is denied",
    "PermissionDeniedError": "access is denied",
    "UnauthenticatedError": "the credentials are refused",
}

# Words in what the library says: a whole object came for a part, and how an empty object has no first bytes.
_NO_RANGES = ("NotPartial", "not supported")
_RANGE_TROUBLE = ("CONTENT_RANGE", "ContentRange", "416", "InvalidRange", "NotPartial")


class RemoteObject:
    """An object as it was when its ``head`` bytes were fetched; later answers must be of the same one."""

    def __init__(self, url: str, head: int, cache: RangeCache | None = None) -> None:
        self.name = shown(url)
        self.url = url
        self.requests = 0  # sent so far, and the bytes that came
        self.received = 0
        self._cache = cache
        self._lock = Lock()
        self._place = Place(url)
        self._tag: str | None = None
        answer = self._attempt(partial(self._first, head))
        self._tag, self._modified, self.size = answer.tag, answer.modified, answer.size
        self.head = answer.data
        self._proper(answer, 0, min(head, answer.size))

    @property
    def identity(self) -> tuple[object, ...]:
        """Equal as long as the object has not been replaced."""
        return ("url", stable(self.url), self._tag, self._modified, self.size)

    def fetch(self, start: int, stop: int) -> memoryview:
        """The bytes ``start..stop``, from the cache or from afar."""
        if self._cache is None:
            return self._request(start, stop)
        return self._cache.get(self.identity, start, stop, partial(self._request, start, stop))

    def _request(self, start: int, stop: int) -> memoryview:
        options: dict[str, Any] = {"range": (start, stop)}
        if self._tag and not self._tag.startswith("W/"):
            options["if_match"] = self._tag
        answer = self._attempt(partial(self._get, options))
        if (answer.tag, answer.modified, answer.size) != (self._tag, self._modified, self.size):
            raise FormatError(CHANGED.id, start, f"{self.name}: was replaced while it was open")
        self._proper(answer, start, stop)
        return answer.data

    def _proper(self, answer: Answer, start: int, stop: int) -> None:
        """The answer is the range that was asked for, all of it."""
        if (answer.start, answer.stop) != (start, stop) or len(answer.data) != stop - start:
            message = f"bytes {start}..{stop} were asked for, {len(answer.data)} came for {answer.start}..{answer.stop}"
            raise FormatError(ANSWER.id, start, f"{self.name}: {message}")

    # -- one request ------------------------------------------------------------------------------------------------

    def _first(self, head: int) -> Answer:
        try:
            return self._get({"range": (0, head)})
        except Trouble as trouble:
            if trouble.kind in (*_ABSENT, *_FINAL) or not any(word in trouble.text for word in _RANGE_TROUBLE):
                raise
            with self._lock:
                self.requests += 1
            tag, modified, size = requests.head(self._place)
            if size:  # only an empty object has no first bytes
                raise
            return Answer(memoryview(b""), 0, 0, tag, modified, 0)

    def _get(self, options: dict[str, Any]) -> Answer:
        with self._lock:
            self.requests += 1
        answer = requests.get(self._place, options)
        with self._lock:
            self.received += len(answer.data)
        return answer

    def _attempt(self, action: Callable[[], Answer]) -> Answer:
        """Try again after a passing failure, waiting a little longer each time."""
        wait = _FIRST_WAIT
        for left in reversed(range(_ATTEMPTS)):
            try:
                return action()
            except Trouble as trouble:
                failed = self._said(trouble, left)
            if failed is not None:  # raised out here: what the library said does not travel along
                raise failed
            time.sleep(wait)
            wait = min(4 * wait, _LONGEST_WAIT)
        raise AssertionError("unreachable")

    def _said(self, trouble: Trouble, left: int) -> HoldallError | None:
        """The failure for people, without the library's words; None when another attempt may help."""
        if trouble.kind == "PreconditionError":
            return FormatError(CHANGED.id, None, f"{self.name}: was replaced while it was open")
        if trouble.kind in _ABSENT:
            return AbsentError(f"{self.name}: is not there")
        if trouble.kind in _FINAL:
            return RemoteError(f"{self.name}: {_FINAL[trouble.kind]}")
        if any(word in trouble.text for word in _NO_RANGES):
            return FormatError(ANSWER.id, None, f"{self.name}: the server ignores byte ranges")
        if left:
            return None
        return RemoteError(f"{self.name}: could not be read: {trouble.cause} ({_ATTEMPTS} attempts)")
