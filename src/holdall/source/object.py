"""One object far away: requests for byte ranges of it, tried again, checked, and never of two versions."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from holdall.check import Rule
from holdall.errors import FormatError, UnsupportedError
from holdall.source.stores import Place, RemoteError, place_of, shown, stable

if TYPE_CHECKING:
    from holdall.source.cache import RangeCache

__all__ = ["ANSWER", "CHANGED", "MISSING", "RemoteObject"]

CHANGED = Rule("core.remote.changed", "the object is the one that was opened")
ANSWER = Rule("core.remote.answer", "the server answers with the range that was asked for")

MISSING = "is not there"
_ATTEMPTS = 5
_FIRST_WAIT = 0.1  # seconds before the second attempt; each wait is four times the last, up to
_LONGEST_WAIT = 3.0

_FINAL = {  # failures that another attempt does not change, and how people call them
    "FileNotFoundError": MISSING,
    "NotFoundError": MISSING,
    "PermissionError": "access is denied",
    "PermissionDeniedError": "access is denied",
    "UnauthenticatedError": "the credentials are refused",
}

_home: int | None = None  # the process in which the library's threads are


@dataclass(frozen=True, slots=True)
class _Answer:
    data: memoryview
    start: int
    stop: int
    tag: str | None
    modified: str
    size: int


class RemoteObject:
    """An object as it was when its ``head`` bytes were fetched; later answers must be of the same one."""

    def __init__(self, url: str, head: int, cache: RangeCache | None = None) -> None:
        self.name = shown(url)
        self.url = url
        self.requests = 0  # sent so far, and the bytes that came
        self.received = 0
        self._cache = cache
        self._lock = threading.Lock()
        self._place = place_of(url)
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

    def _proper(self, answer: _Answer, start: int, stop: int) -> None:
        """The answer is the range that was asked for, all of it."""
        if (answer.start, answer.stop) != (start, stop) or len(answer.data) != stop - start:
            message = f"bytes {start}..{stop} were asked for, {len(answer.data)} came for {answer.start}..{answer.stop}"
            raise FormatError(ANSWER.id, start, f"{self.name}: {message}")

    # -- one request ------------------------------------------------------------------------------------------------

    def _first(self, head: int) -> _Answer:
        import obstore

        try:
            return self._get({"range": (0, head)})
        except Exception as error:
            if type(error).__name__ in _FINAL or not _is_range_trouble(error):
                raise
            with self._lock:
                self.requests += 1
            meta = obstore.head(self._place.store, self._place.path)
            if meta["size"]:  # only an empty object has no first bytes
                raise
            return _Answer(memoryview(b""), 0, 0, meta.get("e_tag"), str(meta.get("last_modified")), 0)

    def _get(self, options: dict[str, Any]) -> _Answer:
        import obstore

        _same_process()
        with self._lock:
            self.requests += 1
        answer = obstore.get(self._place.store, self._place.path, options=options)  # type: ignore[arg-type]  # a TypedDict
        data = memoryview(answer.bytes())
        with self._lock:
            self.received += len(data)
        meta = answer.meta
        start, stop = answer.range
        return _Answer(data, start, stop, meta.get("e_tag"), str(meta.get("last_modified")), int(meta["size"]))

    def _attempt(self, action: Callable[[], _Answer]) -> _Answer:
        """Try again after a passing failure, waiting a little longer each time."""
        wait = _FIRST_WAIT
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return action()
            except (FormatError, UnsupportedError):
                raise
            except Exception as error:  # whatever the library raises; what it says may hold signed URLs
                kind = type(error).__name__
                if kind == "PreconditionError":
                    raise FormatError(CHANGED.id, None, f"{self.name}: was replaced while it was open") from None
                if kind in _FINAL:
                    raise RemoteError(f"{self.name}: {_FINAL[kind]}") from None
                if _ignores_ranges(error):
                    message = f"{self.name}: the server ignores byte ranges"
                    raise FormatError(ANSWER.id, None, message) from None
                if attempt == _ATTEMPTS:
                    message = f"could not be read ({kind}, {_ATTEMPTS} attempts)"
                    raise RemoteError(f"{self.name}: {message}") from None
            time.sleep(wait)
            wait = min(4 * wait, _LONGEST_WAIT)
        raise AssertionError("unreachable")


def _ignores_ranges(error: Exception) -> bool:
    return "NotPartial" in str(error) or "not supported" in str(error)


def _is_range_trouble(error: Exception) -> bool:
    """How servers answer a request for the first bytes of an empty object."""
    text = str(error)
    return any(word in text for word in ("CONTENT_RANGE", "ContentRange", "416", "InvalidRange", "NotPartial"))


def _same_process() -> None:
    """Refuse a fork of a process that has read from afar: the library's threads did not come along."""
    global _home
    if _home is None:
        _home = os.getpid()
    elif _home != os.getpid():
        raise UnsupportedError(
            "reading from afar does not survive a fork: start processes with the method 'spawn' or 'forkserver'"
        )


def listed(place: Place) -> list[str]:
    """The paths of the objects below a place, relative to it, as deep as one folder down."""
    import obstore

    _same_process()
    prefix = place.path.rstrip("/")
    names = []
    for batch in obstore.list(place.store, prefix or None):
        names += [str(row["path"]).removeprefix(prefix).lstrip("/") for row in batch]
    return sorted(name for name in names if name.count("/") <= 1)
