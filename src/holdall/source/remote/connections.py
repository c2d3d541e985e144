"""Connections to web servers: kept open and shared, with the proxies and certificate authorities that the user names.

urllib3 sends one request and follows nothing by itself. What it does not have is a limit for a whole response: its
timeouts begin again with each byte. So every read from a socket is bounded by the deadline of the request as well,
also while the headers arrive.
"""

from __future__ import annotations

import http.client
import io
import logging
import ssl
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit, urlunsplit

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

from holdall.errors import UnsupportedError
from holdall.source.remote.credentials import encode_basic_auth, read_authorities, read_timeout
from holdall.source.thread_pools import PARALLEL_REQUESTS

if TYPE_CHECKING:
    import socket

__all__ = ["bound_time", "send"]

_CONNECT_SECONDS = 10
_KEPT = 2 * PARALLEL_REQUESTS  # connections to one server: single requests, and members of sets that are opened

_current = threading.local()  # .deadline: of the request that this thread sends


@contextmanager
def bound_time(seconds: float) -> Iterator[float]:
    """Bound what this thread receives inside the block. Gives the moment of the end."""
    _current.deadline = time.monotonic() + seconds
    try:
        yield _current.deadline
    finally:
        del _current.deadline


class _Quiet(logging.Filter):
    """Drops what urllib3 logs of our requests: it holds their URLs, with tokens and signatures."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not hasattr(_current, "deadline")


for _name in ("urllib3.connection", "urllib3.connectionpool", "urllib3.poolmanager", "urllib3.response"):
    logging.getLogger(_name).addFilter(_Quiet())


class _BoundedReader(io.RawIOBase):
    """The bytes of a socket, until the deadline."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._held = sock.makefile("rb", buffering=0)  # so that the socket lives as long as its response
        self._sock = sock
        self._deadline = deadline
        self._patience = read_timeout()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        wait = min(self._patience, left)
        if self._sock.gettimeout() != wait:  # setting it is a call of the system
            self._sock.settimeout(wait)
        return self._sock.recv_into(buffer)

    def close(self) -> None:
        self._held.close()
        super().close()


class _BoundedSocket:
    """What :class:`http.client.HTTPResponse` needs of a socket: a file to read from."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_BoundedReader(self._sock, _current.deadline))


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(_BoundedSocket(sock), *args, **options)  # type: ignore[arg-type]


class _PlainConnection(HTTPConnection):
    response_class = _Response


class _SecureConnection(HTTPSConnection):
    response_class = _Response


class _PlainPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _PlainConnection


class _SecurePool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


def send(method: str, url: str, headers: dict[str, str]) -> urllib3.BaseHTTPResponse:
    """Send one request. The body of the response is not read yet, and a redirect is a response like any other."""
    pools = _open_pools(_find_proxy(url), read_authorities())
    timeout = urllib3.Timeout(connect=_CONNECT_SECONDS, read=read_timeout())
    return pools.request(
        method,
        url,
        headers=headers,
        timeout=timeout,
        retries=False,
        redirect=False,
        preload_content=False,
        decode_content=False,
    )


def _find_proxy(url: str) -> str | None:
    """The proxy that the environment (or the system, where it has such a setting) names for a URL."""
    parts = urlsplit(url)
    proxies = urllib.request.getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or urllib.request.proxy_bypass(parts.netloc):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    scheme = urlsplit(proxy).scheme.lower()
    if scheme not in ("http", "https"):
        raise UnsupportedError(f"the proxy for {parts.scheme} is a {scheme} one: holdall uses http and https proxies")
    return proxy


@lru_cache(maxsize=8)
def _open_pools(proxy: str | None, authorities: bytes | None) -> urllib3.PoolManager:
    options: dict[str, Any] = {"maxsize": _KEPT, "num_pools": 32, "ssl_context": _make_context(authorities)}
    if proxy is None:
        pools = urllib3.PoolManager(**options)
    else:
        parts = urlsplit(proxy)
        headers = {}
        if parts.username is not None:
            user, password = unquote(parts.username), unquote(parts.password or "")
            headers["proxy-authorization"] = encode_basic_auth(user, password)
        where = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], "", "", ""))
        options |= {"proxy_headers": headers, "proxy_ssl_context": _make_context(authorities)}
        pools = urllib3.ProxyManager(where, **options)
    pools.pool_classes_by_scheme = {"http": _PlainPool, "https": _SecurePool}
    return pools


def _make_context(authorities: bytes | None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    stores = ssl.get_default_verify_paths()
    if authorities is not None:
        try:
            context.load_verify_locations(cadata=authorities.decode("ascii", "replace"))
        except (ssl.SSLError, ValueError):
            raise UnsupportedError("the authorities that the environment names are not certificates in PEM") from None
    elif stores.cafile is None and stores.capath is None and not context.get_ca_certs():
        # Some builds of Python know no authority at all. certifi comes with huggingface_hub.
        with suppress(ImportError):
            import certifi

            context.load_verify_locations(certifi.where())
    return context
