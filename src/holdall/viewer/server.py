"""The server of a window: one process, on 127.0.0.1, several pages."""

from __future__ import annotations

import logging
import secrets
import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from holdall.errors import UnsupportedError
from holdall.viewer.guard import Guard

if TYPE_CHECKING:
    from holdall.viewer.window import Window

__all__ = ["ViewServer"]

_HOST = "127.0.0.1"


class ViewServer:
    """Serves the pages of ``window``. Port 0 takes any that is free. ``in_path`` is for frames: see Guard."""

    def __init__(self, window: Window, port: int = 0, *, in_path: bool = False) -> None:
        app_module = _import_app()
        logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line for every request is for developers
        self.window = window
        self.token = secrets.token_urlsafe(24)
        prefix = f"/{self.token}/" if in_path else "/"
        self._app = app_module.make_app(window, prefix)
        wsgi: Any = self._app.server
        if in_path:
            wsgi = _strip_prefix(wsgi, self.token)
        try:
            self._server = _define_server()(_HOST, port, wsgi)
        except SystemExit:  # how werkzeug reports a port that is taken
            raise OSError(f"port {port} of {_HOST} is taken: choose another, or none") from None
        self.port: int = self._server.server_port
        Guard(self.token, self.port, in_path=in_path).watch(self._app.server, self._app.csp_hashes())
        self.url = f"http://{_HOST}:{self.port}{prefix}" + ("" if in_path else f"?token={self.token}")

    def run(self) -> None:
        """Answer until ctrl-C."""
        self._server.serve_forever(poll_interval=0.2)

    def start(self) -> None:
        """Answer on a thread of its own."""
        threading.Thread(target=self.run, name="holdall-view-server", daemon=True).start()

    def close(self) -> None:
        """End the server, its work and its files."""
        self._server.shutdown()
        self._server.server_close()
        self.window.close()


def _import_app() -> Any:
    try:
        from holdall.viewer import app
    except ImportError as error:
        message = "the viewer needs Dash, dash-ag-grid and Plotly: pip install 'holdall[view]'"
        raise UnsupportedError(message) from error
    return app


def _define_server() -> type[Any]:
    """A server that ends its connections with itself.

    Browsers open connections before they need them. One that is left open would answer requests to the next server at
    the same port.
    """
    from werkzeug.serving import ThreadedWSGIServer

    class Server(ThreadedWSGIServer):
        def __init__(self, host: str, port: int, app: Any) -> None:
            self.connections: set[Any] = set()
            super().__init__(host, port, app)

        def get_request(self) -> tuple[Any, Any]:
            connection, address = super().get_request()
            self.connections.add(connection)
            return connection, address

        def shutdown_request(self, request: Any) -> None:
            self.connections.discard(request)
            super().shutdown_request(request)

        def server_close(self) -> None:
            super().server_close()
            for connection in list(self.connections):
                with suppress(OSError):  # it has ended by itself
                    connection.shutdown(socket.SHUT_RDWR)

    return Server


def _strip_prefix(inner: Any, token: str) -> Callable[[dict[str, Any], Any], Iterable[bytes]]:
    """Take the token off the front of each path, and note that it was there."""

    def call(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        path, front = environ.get("PATH_INFO", ""), f"/{token}/"
        environ.pop("holdall.token", None)
        if secrets.compare_digest(path[: len(front)].encode("latin-1", "replace"), front.encode()):
            environ |= {"holdall.token": token, "PATH_INFO": path[len(front) - 1 :]}
        answer: Iterable[bytes] = inner(environ, start_response)
        return answer

    return call
