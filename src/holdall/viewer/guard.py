"""Who may ask the server: a browser on this machine that has the token, for its own pages, under the server's name."""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from flask import Flask, Response

__all__ = ["Guard"]

_FRAMES = "http://localhost:* http://127.0.0.1:*"  # where a notebook may show the page


class Guard:
    """Checks every request of a Flask server, and adds the headers that keep pages from reaching elsewhere.

    The token comes in the address once, and then in a cookie. With ``in_path``, for frames, whose cookies browsers
    refuse, every address begins with it.
    """

    def __init__(self, token: str, port: int, *, in_path: bool = False) -> None:
        self._token = token
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self._cookie = f"holdall-{port}"  # cookies do not know of ports
        self._in_path = in_path
        self._policy = ""

    def watch(self, server: Flask, hashes: Iterable[str]) -> None:
        """Check all requests of ``server``, whose pages have inline scripts of these ``hashes``."""
        frames = _FRAMES if self._in_path else "'none'"
        self._policy = "; ".join(
            [
                "default-src 'none'",
                f"script-src 'self' {' '.join(hashes)}",
                "style-src 'self' 'unsafe-inline'",
                "img-src 'self' data: blob:",
                "font-src 'self' data:",
                "connect-src 'self'",
                "base-uri 'none'",
                "form-action 'none'",
                f"frame-ancestors {frames}",
            ]
        )
        server.before_request(self._check)
        server.after_request(self._seal)

    def _check(self) -> Response | tuple[str, int] | None:
        from flask import redirect, request

        host = request.headers.get("Host", "")
        if host not in self._hosts:
            return _refuse("this server answers to 127.0.0.1 only")
        origin = request.headers.get("Origin")
        if origin is not None and origin != f"http://{host}":
            return _refuse("a page of another origin asks")
        if self._in_path:
            return None if request.environ.get("holdall.token") == self._token else _refuse("the token is missing")
        given = request.args.get("token")
        if given is not None and self._matches(given) and request.method == "GET":
            answer: Response = redirect(quote(request.path), 303)  # type: ignore[assignment]  # flask's own Response
            answer.set_cookie(self._cookie, self._token, httponly=True, samesite="Strict", path="/")
            return answer
        if given is None and self._matches(request.cookies.get(self._cookie, "")):
            return None
        return _refuse("the token is missing or wrong: open the address that holdall view printed")

    def _matches(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), self._token.encode())

    def _seal(self, answer: Response) -> Response:
        answer.headers["Content-Security-Policy"] = self._policy
        answer.headers["X-Content-Type-Options"] = "nosniff"
        answer.headers["Referrer-Policy"] = "same-origin"
        answer.headers["Cross-Origin-Opener-Policy"] = "same-origin"
        answer.headers["Cross-Origin-Resource-Policy"] = "same-origin"
        if not self._in_path:
            answer.headers["X-Frame-Options"] = "DENY"
        return answer


def _refuse(why: str) -> tuple[str, int]:
    return f"holdall view: {why}\n", 403
