"""Bodies end where they should: what a server sends beyond the range, too slowly or encoded is cut and reported."""

from __future__ import annotations

import gzip
import logging
import re
import time

import numpy as np
import pytest

import holdall
from holdall.errors import FormatError
from holdall.numpy import save
from holdall.source.remote import connections
from holdall.source.remote.remote_source import RemoteError
from tests.remote.servers import RawServer, raw_server

VALUES = {"w": np.arange(3_000_000, dtype=np.float32)}  # 12 MB: several requests, and more than any buffer
FILE = save(VALUES, format="safetensors")
SECRET = "tok-77c1e"
ENOUGH = 16 << 20  # bytes that the buffers between two sockets may hold; an endless body has more


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    monkeypatch.setattr("holdall.source.remote.remote_object._FIRST_WAIT", 0.001)
    monkeypatch.setattr("holdall.source.remote.remote_object._LONGEST_WAIT", 0.001)


def find_range(head: bytes) -> tuple[int, int]:
    found = re.search(rb"range: bytes=(\d+)-(\d+)", head, re.IGNORECASE)
    if found is None:  # HEAD
        return 0, len(FILE)
    return int(found[1]), min(int(found[2]) + 1, len(FILE))


def make_head(start: int, stop: int, *more: str, status: str = "206 Partial Content") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Range: bytes {start}-{stop - 1}/{len(FILE)}", 'ETag: "1"', *more]
    return "\r\n".join([*lines, "", ""]).encode()


def answer(head, connection, *more):
    """What a server should say."""
    start, stop = find_range(head)
    connection.sendall(make_head(start, stop, f"Content-Length: {stop - start}", *more) + FILE[start:stop])


def send_chunk(connection, data: bytes) -> None:
    connection.sendall(b"%x\r\n" % len(data) + data + b"\r\n")


class Endless:
    """Sends without end, and counts. ``head`` is what comes first, and ``piece`` again and again."""

    def __init__(self, head, piece):
        self.head, self.piece, self.sent = head, piece, 0

    def __call__(self, head, connection):
        connection.sendall(self.head(*find_range(head)))
        try:
            while True:
                connection.sendall(self.piece)
                self.sent += len(self.piece)
        except OSError:
            return True


BODY = bytes(1 << 16)
CHUNK = b"10000\r\n" + BODY + b"\r\n"
ENDLESS = {
    "a body without a length": (lambda a, b: make_head(a, b), BODY),
    "a body of many chunks": (lambda a, b: make_head(a, b, "Transfer-Encoding: chunked"), CHUNK),
    "a length that is too large": (lambda a, b: make_head(a, b, "Content-Length: 99999999999"), BODY),
    "the whole object": (lambda a, b: make_head(a, b, "Content-Length: 99999999999", status="200 OK"), BODY),
    "an error page": (lambda a, b: make_head(a, b, status="500 Oh"), BODY),
    "an error page in chunks": (lambda a, b: make_head(a, b, "Transfer-Encoding: chunked", status="404 No"), CHUNK),
    "a redirect with a body": (lambda a, b: make_head(a, b, "Location: /elsewhere", status="302 Over There"), BODY),
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_an_endless_body_is_cut(kind):
    endless = Endless(*ENDLESS[kind])
    with raw_server(endless) as server:
        began = time.monotonic()
        with pytest.raises((RemoteError, FormatError)) as caught:
            holdall.open(f"{server.url}/m.safetensors?token={SECRET}")
        assert time.monotonic() - began < 10
        time.sleep(0.1)  # its last piece
    assert endless.sent <= 6 * ENOUGH, "at most six answers, each cut"
    wanted = {
        "the whole object": "ignores byte ranges",
        "an error page": "answers 500",
        "a redirect with a body": "5 times",
    }
    wanted["an error page in chunks"] = "is not there"
    assert wanted.get(kind, "other bytes than those asked for") in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("kind", ["an error page", "an error page in chunks", "a redirect with a body"])
def test_of_the_body_of_an_error_64_kib_are_read(kind, monkeypatch):
    """Counted where the client takes bytes from its socket, so that what buffers hold does not matter."""
    taken, honest = [], connections._BoundedReader.readinto

    def read_and_count(self, buffer):
        taken.append(honest(self, buffer))
        return taken[-1]

    monkeypatch.setattr(connections._BoundedReader, "readinto", read_and_count)
    with raw_server(Endless(*ENDLESS[kind])) as server:
        with pytest.raises((RemoteError, FormatError)):
            holdall.open(f"{server.url}/m.safetensors")
        answers = len(server.heads)
    assert answers <= 6
    assert sum(taken) > answers * 60_000, "the server had more to send"
    assert sum(taken) <= answers * (64 + 8 << 10), "64 KiB of each body, and what one read of the head brings along"


@pytest.mark.parametrize("kind", ["continue", "headers", "trailers"])
def test_endless_heads_are_cut(kind, monkeypatch):
    monkeypatch.setenv("HOLDALL_HTTP_DEADLINE", "1")

    def make_chunk(start, stop):
        body = b"%x\r\n" % (stop - start) + FILE[start:stop] + b"\r\n0\r\n"
        return make_head(start, stop, "Transfer-Encoding: chunked") + body

    starts = {
        "continue": (lambda a, b: b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
        "headers": (lambda a, b: b"HTTP/1.1 206 x\r\n", b"A: b\r\n" * 1000),
        "trailers": (make_chunk, b"A: b\r\n" * 1000),
    }
    with raw_server(Endless(*starts[kind])) as server:
        began = time.monotonic()
        with pytest.raises(RemoteError):
            holdall.open(f"{server.url}/m.safetensors")
        assert time.monotonic() - began < 8


@pytest.mark.parametrize("kind", ["head", "body", "chunks", "error"])
def test_a_server_that_drips_is_cut_by_the_deadline(kind, monkeypatch):
    """Each byte comes in time, and there is no end of them: no timeout between two bytes notices."""
    monkeypatch.setenv("HOLDALL_HTTP_DEADLINE", "0.7")
    monkeypatch.setenv("HOLDALL_HTTP_TIMEOUT", "5")

    def drip(head, connection):
        start, stop = find_range(head)
        if kind == "body":
            connection.sendall(make_head(start, stop, f"Content-Length: {stop - start}"))
        if kind == "chunks":
            connection.sendall(make_head(start, stop, "Transfer-Encoding: chunked"))
        if kind == "error":
            connection.sendall(b"HTTP/1.1 500 Oh\r\nContent-Length: 60000\r\n\r\n")
        if kind == "head":
            connection.sendall(b"HTTP/1.1 206 ")
        while True:
            connection.sendall(b"1\r\nx\r\n" if kind == "chunks" else b"x")
            time.sleep(0.05)

    with raw_server(drip) as server:
        began = time.monotonic()
        with pytest.raises(RemoteError) as caught:
            holdall.open(f"{server.url}/m.safetensors?token={SECRET}")
        assert time.monotonic() - began < 3
        assert len(server.heads) == 1, "a server that drips is not asked again"
    wanted = "could not be read: the answer took longer than 0.7 seconds (HOLDALL_HTTP_DEADLINE)"
    assert str(caught.value) == f"{server.url}/m.safetensors: {wanted}"


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "GZIP", "identity, gzip", "unknown"])
def test_encoded_bytes_are_refused(encoding):
    """They are of the range of something else, so that decoding them would give other bytes."""

    def speak(head, connection):
        start, stop = find_range(head)
        data = gzip.compress(FILE[start:stop])
        connection.sendall(
            make_head(start, stop, f"Content-Length: {len(data)}", f"Content-Encoding: {encoding}") + data
        )

    with raw_server(speak) as server:
        with pytest.raises(FormatError, match="in another encoding than was asked for") as caught:
            holdall.open(f"{server.url}/m.safetensors")
        assert caught.value.rule == "core.remote.answer"
        assert b"accept-encoding: identity\r\n" in server.heads[0].lower() and len(server.heads) == 1


def test_bytes_that_say_they_are_not_encoded_are_read():
    with raw_server(lambda head, connection: answer(head, connection, "Content-Encoding: identity")) as server:
        check_values(server)


def check_values(server: RawServer) -> None:
    with holdall.open(f"{server.url}/m.safetensors") as model:
        np.testing.assert_array_equal(model["w"].numpy(), VALUES["w"])


def test_a_body_in_chunks_is_read():
    def speak(head, connection):
        start, stop = find_range(head)
        connection.sendall(make_head(start, stop, "Transfer-Encoding: chunked"))
        for at in range(start, stop, 70_001):
            send_chunk(connection, FILE[at : min(stop, at + 70_001)])
        connection.sendall(b"0\r\n\r\n")

    with raw_server(speak) as server:
        check_values(server)
        assert server.connections <= 8, "connections are used again"


def test_a_body_that_ends_with_its_connection_is_read():
    def speak(head, connection):
        start, stop = find_range(head)
        connection.sendall(make_head(start, stop, "Connection: close") + FILE[start:stop])
        return True

    with raw_server(speak) as server:
        check_values(server)


def test_connections_are_used_again():
    with raw_server(answer) as server:
        for _ in range(5):
            check_values(server)
        assert len(server.heads) >= 20 and server.connections <= 8


def test_a_connection_that_was_closed_in_between_is_made_again():
    def speak(head, connection):
        answer(head, connection)
        return True  # without a word that it closes

    with raw_server(speak) as server:
        check_values(server)


@pytest.mark.parametrize(
    "stated", ["", "bytes 0-9/*", "bytes 5-1/9", "items 0-1/2", "bytes 0-1", "bytes */10", "bytes 0-65535/x"]
)
def test_a_range_that_says_nothing_is_refused(stated):
    def speak(head, connection):
        start, stop = find_range(head) if head.startswith(b"GET") else (0, 0)
        line = f"Content-Range: {stated}\r\n" if stated else ""
        connection.sendall(
            f"HTTP/1.1 206 x\r\n{line}Content-Length: {stop - start}\r\n\r\n".encode() + FILE[start:stop]
        )

    with raw_server(speak) as server, pytest.raises((RemoteError, FormatError)):
        holdall.open(f"{server.url}/m.safetensors")


def test_a_head_that_is_no_head_is_in_no_log(caplog):
    """The client warns of headers that it cannot parse, and names the whole URL."""
    caplog.set_level(logging.DEBUG)
    with raw_server(lambda head, connection: answer(head, connection, "no header at all", "X: y")) as server:
        with holdall.open(f"{server.url}/m.safetensors?token={SECRET}") as model:
            assert list(model) == ["w"]
        assert SECRET.encode() in server.heads[0]
    assert SECRET not in caplog.text


@pytest.mark.parametrize("status", ["400 No", "405 No", "451 No", "304 Same", "101 Other", "300 Many"])
def test_answers_that_will_not_change_are_not_asked_for_again(status):
    with raw_server(
        lambda head, connection: connection.sendall(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())
    ) as server:
        with pytest.raises(RemoteError, match=f"could not be read: the server answers {status[:3]}$"):
            holdall.open(f"{server.url}/m.safetensors")
        assert len(server.heads) == 1


@pytest.mark.parametrize("status", ["429 Slow", "500 Oh", "503 Busy", "408 Late"])
def test_answers_that_pass_are_survived(status):
    left = [3]

    def speak(head, connection):
        left[0] -= 1
        if left[0] >= 0:
            connection.sendall(f"HTTP/1.1 {status}\r\nContent-Length: 4\r\n\r\nbusy".encode())
        else:
            answer(head, connection)

    with raw_server(speak) as server:
        check_values(server)
