"""Sources that are proven whole before their bytes are returned, and page by page afterwards."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from holdall.errors import FormatError, HashError
from holdall.source import CHUNK, BytesSource
from holdall.source.pinned_source import PinnedSource

DATA = np.random.default_rng(1).integers(0, 255, 2 * CHUNK + 12_345, np.uint8).tobytes()


class Server(BytesSource):
    """Bytes that can be replaced, and counts of how often they were passed over."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.passed = 0

    def replace(self, data: bytes) -> None:
        self._data = memoryview(data)

    def read_into(self, offset: int, buffer: memoryview) -> None:
        self.passed += len(buffer)
        super().read_into(offset, buffer)


def pin(server: Server, data: bytes = DATA) -> PinnedSource:
    def make_error(found: str | None) -> HashError:
        return HashError("test", None, f"found {found}")

    return PinnedSource(server, hashlib.sha256(data).hexdigest(), make_error)


def flip(at: int) -> bytes:
    return DATA[:at] + bytes([DATA[at] ^ 1]) + DATA[at + 1 :]


def test_every_read_gives_the_bytes():
    source = pin(Server(DATA))
    source.pin()
    for start, stop in ((0, 0), (5, 5), (0, 1), (CHUNK - 1, CHUNK + 1), (5, 2 * CHUNK + 7), (len(DATA) - 3, len(DATA))):
        assert source.read(start, stop - start) == DATA[start:stop] == bytes(source.view(start, stop - start))
        for chunk in (1_000_003, CHUNK):
            assert b"".join(map(bytes, source.chunks(start, stop - start, chunk))) == DATA[start:stop]
    with pytest.raises(FormatError):
        source.read(len(DATA), 1)


def test_it_is_proven_once_whole_and_then_by_pages():
    server = Server(DATA)
    source = pin(server)
    source.pin()
    assert server.passed == 0
    source.read(10, 1)
    assert server.passed == len(DATA) + CHUNK
    source.read(CHUNK, 1)
    assert server.passed == len(DATA) + 2 * CHUNK
    assert [source.read(at, 2) for at in range(CHUNK, CHUNK + 20)] == [
        DATA[at : at + 2] for at in range(CHUNK, CHUNK + 20)
    ]
    assert server.passed == len(DATA) + 2 * CHUNK, "small reads of one page fetch it once"
    assert source.read(0, len(DATA)) == DATA


@pytest.mark.parametrize("at", [0, CHUNK, len(DATA) - 1])
def test_another_file_gives_no_byte(at):
    source = pin(Server(flip(at)))
    source.pin()
    for offset in (0, at):
        with pytest.raises(HashError, match=hashlib.sha256(flip(at)).hexdigest()):
            source.read(offset, 1)


def test_bytes_that_change_after_the_proof_are_noticed():
    server = Server(DATA)
    source = pin(server)
    source.pin()
    source.read(0, 1)
    server.replace(flip(CHUNK + 5))
    assert source.read(7, 9) == DATA[7:16]
    with pytest.raises(HashError, match="found None"):
        source.read(CHUNK, 1)


@pytest.mark.parametrize("at", [100, CHUNK - 1, CHUNK])
def test_bytes_that_were_read_before_the_proof_are_part_of_it(at):
    server = Server(flip(at))
    source = pin(server)
    assert source.read(CHUNK - 2, 4) == flip(at)[CHUNK - 2 : CHUNK + 2]
    assert source.read(50, 100) == flip(at)[50:150]
    server.replace(DATA)
    source.pin()
    with pytest.raises(HashError, match="found None"):
        source.read(0, 1)


def test_reads_before_the_proof_pass_over_nothing_else():
    server = Server(DATA)
    source = pin(server)
    assert b"".join(map(bytes, source.chunks(3, 1000, 7))) == DATA[3:1003]
    assert server.passed == 1000
    source.pin()
    assert source.read(0, len(DATA)) == DATA


def test_threads_share_the_proof():
    server = Server(DATA)
    source = pin(server)
    source.pin()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda at: source.read(at, 2), range(0, 80, 2)))
    assert b"".join(found) == DATA[:80]
    assert len(DATA) + CHUNK <= server.passed <= len(DATA) + 8 * CHUNK
