"""One remote object: requests for its byte ranges are repeated if they fail, and every response is checked."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING

from holdall.base.check import Rule
from holdall.base.locks import make_lock
from holdall.base.text import file_text
from holdall.base.urls import BUCKETS
from holdall.errors import FormatError, HoldallError, UnsupportedError
from holdall.source.remote.requests import Answer, Requests, StoreRequests, Trouble
from holdall.source.remote.stores import AbsentError, Place, RemoteError, remove_signature

if TYPE_CHECKING:
    from holdall.source.remote.disk_cache import RangeCache

__all__ = ["ANSWER", "CHANGED", "RemoteObject"]

CHANGED = Rule("core.remote.changed", "the object is the one that was opened")
ANSWER = Rule("core.remote.answer", "the server answers with the range that was asked for")

_ATTEMPTS = 5
_FIRST_WAIT = 0.1  # seconds before the second attempt; each wait is four times the last, up to _LONGEST_WAIT
_LONGEST_WAIT = 3.0

_REFUSED = {"denied": "access is denied", "credentials": "credentials are missing or refused"}


class RemoteObject:
    """A remote object. The constructor requests the first ``head`` bytes; redirects may lead to ``origins``.

    Later responses must match its ETag, time and size.
    """

    def __init__(self, url: str, head: int, cache: RangeCache | None = None, origins: Collection[str] = ()) -> None:
        self.name = file_text(url)
        self.url = url
        self.requests = 0  # requests sent so far
        self.received = 0  # bytes received so far
        self._cache = cache
        self._lock = make_lock()
        self._send = _choose_requests(url, origins)
        self._tag: str | None = None
        answer = self._attempt(partial(self._get_head, head))
        self._tag, self._modified, self.size = answer.tag, answer.modified, answer.size
        self.head = answer.data
        self._check_range(answer, 0, min(head, answer.size))

    @property
    def identity(self) -> tuple[object, ...]:
        """Equal as long as the object has not been replaced on its server."""
        return ("url", remove_signature(self.url), self._tag, self._modified, self.size)

    def fetch(self, start: int, stop: int) -> memoryview:
        """Fetch the bytes ``start..stop``, from the cache on disk or by a request."""
        if self._cache is None:
            return self._request(start, stop)
        return self._cache.get(self.identity, start, stop, partial(self._request, start, stop))

    def _request(self, start: int, stop: int) -> memoryview:
        strong = self._tag if self._tag and not self._tag.startswith("W/") else None
        answer = self._attempt(partial(self._get, start, stop, strong))
        if (answer.tag, answer.modified, answer.size) != (self._tag, self._modified, self.size):
            raise FormatError(CHANGED.id, start, f"{self.name}: was replaced while it was open")
        self._check_range(answer, start, stop)
        return answer.data

    def _check_range(self, answer: Answer, start: int, stop: int) -> None:
        """Raise unless the response is exactly the range that was requested."""
        if (answer.start, answer.stop) != (start, stop) or len(answer.data) != stop - start:
            message = f"bytes {start}..{stop} were asked for, {len(answer.data)} came for {answer.start}..{answer.stop}"
            raise FormatError(ANSWER.id, start, f"{self.name}: {message}")

    def _get_head(self, head: int) -> Answer:
        try:
            return self._get(0, head, None)
        except Trouble as trouble:
            if trouble.kind not in ("no ranges", "range"):
                raise
            with self._lock:
                self.requests += 1
            tag, modified, size = self._send.head()
            if size:  # only an empty object has no first bytes
                raise
            return Answer(memoryview(b""), 0, 0, tag, modified, 0)

    def _get(self, start: int, stop: int, tag: str | None) -> Answer:
        with self._lock:
            self.requests += 1
        answer = self._send.get(start, stop, tag)
        with self._lock:
            self.received += len(answer.data)
        return answer

    def _attempt(self, action: Callable[[], Answer]) -> Answer:
        """Repeat ``action`` after temporary failures, each time after a longer wait."""
        wait = _FIRST_WAIT
        for left in reversed(range(_ATTEMPTS)):
            try:
                return action()
            except Trouble as trouble:
                failed = self._make_error(trouble, left)
            if failed is not None:  # outside the except block, so that the trouble is not its context
                raise failed
            time.sleep(wait)
            wait = min(4 * wait, _LONGEST_WAIT)
        raise AssertionError("unreachable")

    def _make_error(self, trouble: Trouble, left: int) -> HoldallError | None:
        """Make the error to raise; None when another attempt may help."""
        if trouble.kind == "changed":
            return FormatError(CHANGED.id, None, f"{self.name}: was replaced while it was open")
        if trouble.kind == "absent":
            return AbsentError(f"{self.name}: is not there")
        if trouble.kind in _REFUSED:
            return RemoteError(f"{self.name}: {_REFUSED[trouble.kind]}")
        if trouble.kind in ("no ranges", "encoded"):
            return FormatError(ANSWER.id, None, f"{self.name}: {trouble.cause}")
        if trouble.kind == "final":
            return RemoteError(f"{self.name}: could not be read: {trouble.cause}")
        if left:
            return None
        return RemoteError(f"{self.name}: could not be read: {trouble.cause} ({_ATTEMPTS} attempts)")


def _choose_requests(url: str, origins: Collection[str]) -> Requests:
    """A bucket is asked by its own protocol; everything else is a web server."""
    if url.partition("://")[0].lower() in BUCKETS:
        return StoreRequests(Place(url))
    try:
        from holdall.source.remote.web_requests import WebRequests
    except ImportError:
        raise UnsupportedError("reading from URLs needs the extra 'remote': pip install 'holdall[remote]'") from None
    return WebRequests(url, origins)
