"""Passes over payloads: every byte once, in order, whatever the payload and the number of threads."""

import threading

import numpy as np
import pytest

from holdall.base.parallel import map_in_order, use_threads
from holdall.model.passes import map_pieces, split_payload
from holdall.model.payload import Computed, InMemory, SourceRange
from holdall.source import BytesSource, FileSource

DATA = np.random.default_rng(5).integers(0, 256, 5_000_003, dtype=np.uint8).tobytes()


@pytest.fixture(params=["file", "bytes", "memory", "computed"])
def payload(request, tmp_path):
    if request.param == "file":
        path = tmp_path / "data"
        path.write_bytes(b"head" + DATA)
        return SourceRange(FileSource(path), 4, len(DATA))
    if request.param == "bytes":
        return SourceRange(BytesSource(b"head" + DATA), 4, len(DATA))
    if request.param == "memory":
        return InMemory(DATA)
    return Computed(len(DATA), lambda: (DATA[at : at + 7777] for at in range(0, len(DATA), 7777)))


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("piece", [4096, 1 << 20, 1 << 24])
def test_every_byte_once_and_in_order(payload, threads, piece):
    with use_threads(threads):
        assert b"".join(map_pieces(payload, bytes, piece)) == DATA


def test_a_large_payload_is_read_by_several_threads(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(DATA)
    meeting = threading.Barrier(2, timeout=20)
    with use_threads(2):
        found = list(map_pieces(SourceRange(FileSource(path), 0, len(DATA)), lambda data: meeting.wait(), 2_500_002))
    assert sorted(found) == [0, 1]


@pytest.mark.parametrize("threads", [1, 3])
def test_pieces_of_many_payloads_are_one_stream_of_jobs(payload, threads):
    pieces = (each for _ in range(3) for each in split_payload(payload, 1 << 20))
    with use_threads(threads):
        assert b"".join(map_in_order(lambda each: each.work(bytes), pieces)) == DATA * 3


def test_a_piece_knows_its_place(payload):
    for each in split_payload(payload, 1 << 20):
        assert each.peek(5) == DATA[each.start : each.start + 5]
        assert each.work(bytes) == DATA[each.start : each.start + each.size]
