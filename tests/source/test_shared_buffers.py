"""Memory that the streams of a process share: used again while it is held, never while it is referenced."""

import os
import threading

import numpy as np
import pytest

from holdall.base.parallel import use_threads
from holdall.model.payload import Computed
from holdall.source.buffers import SharedBuffers, regroup, shared_buffers


def address(view):
    return np.frombuffer(view, np.uint8).__array_interface__["data"][0]


def test_memory_is_used_again_while_it_is_held():
    buffers = SharedBuffers()
    with buffers.hold():
        first = buffers.take(1_000_000)
        place = address(first)
        second = buffers.take(1_000_000)
        assert address(second) != place
        del first
        assert address(buffers.take(900_000)) == place
        del second


def test_nothing_is_kept_after_the_last_holder():
    buffers = SharedBuffers()
    with buffers.hold():
        with buffers.hold():
            buffers.take(100)
        assert len(buffers._buffers) == 1
    assert not buffers._buffers


def test_a_small_piece_does_not_keep_large_memory():
    buffers = SharedBuffers()
    with buffers.hold():
        place = address(buffers.take(1_000_000))
        kept = buffers.take(1000)
        assert address(kept) != place
        assert address(buffers.take(1_000_000)) == place


def test_few_buffers_are_remembered():
    buffers = SharedBuffers()
    with use_threads(2), buffers.hold():
        kept = [buffers.take(10) for _ in range(100)]
        for number, piece in enumerate(kept):
            piece[:] = bytes([number]) * 10
        assert len(buffers._buffers) < 20
        assert [bytes(piece) for piece in kept] == [bytes([number]) * 10 for number in range(100)]


def test_threads_never_share_a_piece():
    buffers = SharedBuffers()

    def work(number):
        for _ in range(300):
            piece = buffers.take(4096)
            piece[:] = bytes([number]) * 4096
            wrong.extend([number] * (set(bytes(piece)) != {number}))
            del piece

    wrong = []
    with buffers.hold():
        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_pieces_of_a_computed_payload_that_are_kept_stay():
    data = np.random.default_rng(1).bytes(100_003)
    payload = Computed(len(data), lambda: (data[at : at + 777] for at in range(0, len(data), 777)))
    with shared_buffers.hold():
        first, second = list(payload.chunks(5000)), list(payload.chunks(7000))
    assert b"".join(first) == b"".join(second) == data
    assert [len(piece) for piece in regroup([b"abc", b"d"], 2)] == [2, 2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_has_a_lock_of_its_own():
    with shared_buffers._lock:  # as another thread may have it
        child = os.fork()
        if child == 0:
            os._exit(0 if len(shared_buffers.take(10)) == 10 else 1)
    assert os.waitpid(child, 0)[1] == 0
