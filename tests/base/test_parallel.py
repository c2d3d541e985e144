"""Work on all cores: order, errors, work inside work, forks, and memory that is used again."""

import os
import threading
import time

import numpy as np
import pytest

from holdall.base.memory import _memory, lend_memory, make_floats
from holdall.base.parallel import map_in_order, map_spans, thread_count, use_threads
from holdall.base.platform import core_count
from holdall.errors import UnsupportedError


def test_results_come_in_the_order_of_the_items():
    def work(item):
        time.sleep(0.02 if item % 5 == 0 else 0)
        return item * item

    assert list(map_in_order(work, range(100), threads=4)) == [n * n for n in range(100)]


def test_several_threads_work_at_the_same_time():
    meeting = threading.Barrier(3, timeout=20)  # broken, unless three jobs run at once
    assert len(list(map_in_order(lambda _: meeting.wait(), range(3), threads=3))) == 3


def test_one_thread_is_the_callers():
    assert set(map_in_order(lambda _: threading.get_ident(), range(20), threads=1)) == {threading.get_ident()}


def test_items_are_read_only_as_far_ahead_as_needed():
    taken = []
    results = map_in_order(lambda item: item, (taken.append(n) or n for n in range(1000)), threads=2)
    assert next(results) == 0
    assert len(taken) <= 6
    results.close()


def test_an_error_comes_in_its_turn_and_ends_the_work():
    done = []

    def work(item):
        if item == 7:
            raise KeyError(item)
        done.append(item)
        return item

    seen = []
    with pytest.raises(KeyError, match="7"):
        for result in map_in_order(work, range(10_000), threads=3):
            seen.append(result)  # noqa: PERF402  # what came before the error is kept
    assert seen == list(range(7))
    assert len(done) < 100


def test_work_inside_work_ends():
    def outer(item):
        return sum(map_in_order(lambda n: n + item, range(30), threads=2))

    assert list(map_in_order(outer, range(30), threads=2)) == [435 + 30 * item for item in range(30)]


def test_work_inside_work_has_the_same_number_of_threads():
    with use_threads(3):
        assert set(map_in_order(lambda _: thread_count(), range(9))) == {3}


def test_the_number_of_threads_is_that_of_the_cores_unless_it_is_said(monkeypatch):
    monkeypatch.delenv("HOLDALL_THREADS", raising=False)
    assert thread_count() == core_count()
    monkeypatch.setenv("HOLDALL_THREADS", "5")
    assert thread_count() == 5
    with use_threads(2):
        assert (thread_count(), thread_count(7)) == (2, 7)
        with use_threads(None):
            assert thread_count() == 2
    assert thread_count() == 5
    assert (thread_count(0), thread_count(10**9)) == (1, 256)


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", "٣", "9" * 30])
def test_a_wrong_number_of_threads_is_refused(monkeypatch, text):
    monkeypatch.setenv("HOLDALL_THREADS", text)
    with pytest.raises(UnsupportedError, match="HOLDALL_THREADS is a number of threads from 1 on"):
        thread_count()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_gets_threads_of_its_own():
    assert list(map_in_order(abs, [-1, -2, -3], threads=2)) == [1, 2, 3]
    child = os.fork()
    if child == 0:
        os._exit(0 if list(map_in_order(abs, [-1, -2, -3], threads=2)) == [1, 2, 3] else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_memory_is_used_again():
    with lend_memory(1000) as first:
        address = np.frombuffer(first, np.uint8).ctypes.data
    with lend_memory(900) as second:
        assert len(second) == 900
        assert np.frombuffer(second, np.uint8).ctypes.data == address


def test_memory_that_is_still_referred_to_is_not_used_again():
    with lend_memory(1000) as first:
        kept = np.frombuffer(first, np.uint8)
        kept[:] = 7
    with lend_memory(1000) as second:
        second[:] = bytes(1000)
    assert set(kept.tolist()) == {7}


def test_a_thread_keeps_little():
    with lend_memory(100 << 20) as large:
        large[0] = 1
    sizes = []
    with lend_memory(6 << 20), lend_memory(6 << 20), lend_memory(1 << 20):
        pass
    while _memory.free:
        sizes.append(len(_memory.free.pop()))
    assert sum(sizes) <= 8 << 20


def test_blocks_inside_blocks_have_memory_of_their_own():
    with lend_memory(10) as outer, lend_memory(10) as inner:
        outer[:], inner[:] = b"a" * 10, b"b" * 10
        assert bytes(outer) == b"a" * 10


def test_memory_of_a_result_is_used_again_when_no_array_is_on_it():
    size = 1 << 18
    first = make_floats((512, 512))
    first[:] = 1
    part, at = first[3:5], first.ctypes.data
    del first
    second = make_floats((size,))
    second[:] = 2
    assert second.ctypes.data != at, "a view of the first is still there"
    assert (part == 1).all()
    del part
    third = make_floats((size,))
    assert third.ctypes.data == at
    third[:] = 3
    assert (second == 2).all()
    assert third.flags.writeable


def test_small_and_huge_results_have_memory_of_their_own():
    assert make_floats((3,)).base is None
    assert make_floats((9 << 20,)).base is None
    assert make_floats((0, 5)).shape == (0, 5)
    assert make_floats(()).shape == ()


@pytest.mark.parametrize("threads", [1, 2, 7, 16])
def test_spans_are_shorter_where_threads_would_have_none(threads):
    spans = list(map_spans(lambda start, stop: (start, stop), 1000, 400, threads, 8))
    assert [start for start, _ in spans] == [0, *(stop for _, stop in spans[:-1])]
    assert spans[-1][1] == 1000
    assert all(start % 8 == 0 for start, _ in spans)
    assert min(3, threads) <= len(spans) <= max(3, threads)
