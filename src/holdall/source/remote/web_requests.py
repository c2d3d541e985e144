"""Requests to web servers. They go to the origin of the URL and to origins that the caller named, and no further.

A server may redirect a request to any address. Inside one origin (scheme, host and port) this is followed; to another
origin only if that is named, so that https never becomes http unnoticed. The hub is asked for a model by its name, so
the store that it redirects to counts as named. What proves who asks, a password or a token, is sent to the origin that
it is for, and is dropped when a redirect leaves that origin. No request says where it was redirected from.
"""

from __future__ import annotations

import http.client
import re
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from urllib.parse import urljoin

import urllib3
from urllib3.exceptions import HTTPError, NameResolutionError, NewConnectionError, ProxyError, SSLError
from urllib3.exceptions import TimeoutError as ClientTimeoutError

from holdall.base.text import file_text
from holdall.base.urls import find_origin
from holdall.source.folder import check_followed
from holdall.source.remote.addresses import find_address
from holdall.source.remote.connections import bound_time, send
from holdall.source.remote.credentials import read_deadline
from holdall.source.remote.requests import Answer, Trouble
from holdall.source.thread_pools import refuse_after_fork

__all__ = ["WebRequests"]

_COMMON = {"user-agent": "holdall", "accept-encoding": "identity"}
_HOPS = 5  # redirects of one request
_REDIRECTS = (301, 302, 303, 307, 308)
_KINDS = {401: "credentials", 403: "denied", 404: "absent", 410: "absent", 412: "changed", 416: "range"}
_BUSY = (408, 425, 429)  # and from 500 on: another attempt may help
_RANGE = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19})")
_UNWANTED = 64 << 10  # bytes of an error or redirect that are read, so that its connection can be used again

_WRONG_BYTES = "the server sends other bytes than those asked for"


class WebRequests:
    """Requests for one object at a web server or the hub, also after redirects."""

    def __init__(self, url: str, origins: Collection[str]) -> None:
        self._name = file_text(url)
        self._origins = frozenset(origins)
        self._address = find_address(url)

    def get(self, start: int, stop: int, tag: str | None) -> Answer:
        """Request one range. The body is read to its end, and no further."""
        headers = {"range": f"bytes={start}-{stop - 1}"} | ({"if-match": tag} if tag else {})
        with self._send("GET", headers) as answer:
            if answer.status != 206:
                raise Trouble("no ranges", "the server ignores byte ranges")
            stated = _RANGE.fullmatch(answer.headers.get("Content-Range", ""))
            if stated is None:
                raise Trouble("range", "the server does not say which bytes it sends")
            first, end, size = int(stated[1]), int(stated[2]) + 1, int(stated[3])
            if first != start or end > stop:
                raise Trouble("passing", _WRONG_BYTES)
            data = _read(answer, end - first)
            return Answer(memoryview(data), first, end, *_read_meta(answer), size)

    def head(self) -> tuple[str | None, str, int]:
        """Request the ETag, the time and the size of the object."""
        with self._send("HEAD", {}) as answer:
            length = answer.headers.get("Content-Length", "")
            if not length.isdecimal():
                raise Trouble("passing", "the server does not state the size")
            return *_read_meta(answer), int(length)

    @contextmanager
    def _send(self, method: str, headers: dict[str, str]) -> Iterator[urllib3.BaseHTTPResponse]:
        """Send a request and follow its redirects. A body that is not read whole is cut when the block ends."""
        refuse_after_fork()
        failed = None
        with bound_time(read_deadline()) as deadline:
            try:
                answer = self._follow(method, headers)
                try:
                    encoding = answer.headers.get("Content-Encoding", "identity").strip().lower()
                    if encoding not in ("", "identity"):
                        raise Trouble("encoded", "the server sends its bytes in another encoding than was asked for")
                    yield answer
                finally:
                    if not answer.closed:
                        answer.close()
            except (HTTPError, http.client.HTTPException, OSError) as error:
                failed = _explain(error, deadline)
        if failed is not None:  # outside the except block: the error of the client holds the URL
            raise failed

    def _follow(self, method: str, headers: dict[str, str]) -> urllib3.BaseHTTPResponse:
        url, secrets = self._address.url, self._address.secrets
        for _ in range(_HOPS + 1):
            answer = send(method, url, _COMMON | headers | secrets)
            if 200 <= answer.status < 300:
                return answer
            _discard(answer)
            target = answer.headers.get("Location")
            if answer.status not in _REDIRECTS or target is None:
                raise _explain_status(answer.status)
            try:
                target = urljoin(url, target)
            except ValueError:  # such as a bracket that is not closed
                raise Trouble("final", "the server redirects to what is no address") from None
            self._check_redirect(url, target)
            if find_origin(target) != find_origin(url):
                secrets = {}
            url = target
        raise Trouble("final", f"the server redirects more than {_HOPS} times")

    def _check_redirect(self, url: str, target: str) -> None:
        """Raise FormatError unless ``target`` is at an origin that was given, named, or that the hub names."""
        home, here, there = find_origin(self._address.url), find_origin(url), find_origin(target)
        named = {*self._origins, *filter(None, (home, here))}
        lowered = here is not None and here.startswith("https:") and (there or "").startswith("http:")
        if self._address.is_hub and here == home and there is not None and not lowered:
            named.add(there)
        check_followed(target, named, f"{self._name}: the redirect to")


def _read(answer: urllib3.BaseHTTPResponse, size: int) -> bytes:
    """Read a body that must have ``size`` bytes."""
    length = answer.headers.get("Content-Length")
    if length is not None and length != str(size):
        raise Trouble("passing", _WRONG_BYTES)
    data = answer.read(size, decode_content=False)
    if len(data) < size:
        raise Trouble("passing", "the connection was cut")
    if length is None and answer.read(1, decode_content=False):
        raise Trouble("passing", _WRONG_BYTES)
    return data


def _discard(answer: urllib3.BaseHTTPResponse) -> None:
    try:
        answer.read(_UNWANTED, decode_content=False)
    finally:
        if not answer.closed:
            answer.close()


def _read_meta(answer: urllib3.BaseHTTPResponse) -> tuple[str | None, str]:
    tag = answer.headers.get("ETag")
    # A tag is sent back to the server, so it must be one that a header can hold.
    return tag if tag and tag.isascii() and tag.isprintable() else None, answer.headers.get("Last-Modified", "")


def _explain_status(status: int) -> Trouble:
    kind = _KINDS.get(status) or ("passing" if status in _BUSY or status >= 500 else "final")
    return Trouble(kind, f"the server answers {status}")


def _explain(error: Exception, deadline: float) -> Trouble:
    """Say why a request failed, without any part of the URL."""
    if time.monotonic() >= deadline:
        return Trouble("final", f"the answer took longer than {read_deadline():g} seconds (HOLDALL_HTTP_DEADLINE)")
    through = ""
    if isinstance(error, ProxyError):
        error, through = error.original_error, "the proxy: "
    if isinstance(error, NameResolutionError):
        return Trouble("passing", f"{through}the name of the host is not known")
    if isinstance(error, NewConnectionError) and isinstance(error.__cause__, OSError) and error.__cause__.strerror:
        return Trouble("passing", f"{through}{error.__cause__.strerror}")
    if isinstance(error, ClientTimeoutError | TimeoutError):
        return Trouble("passing", f"{through}no answer in time")
    if isinstance(error, SSLError) and "certificate" in str(error).lower():
        return Trouble("passing", f"{through}the certificate of the server is not accepted")
    if isinstance(error, SSLError):
        return Trouble("passing", f"{through}the server does not speak TLS as it should")
    return Trouble("passing", f"{through}the connection was cut")
