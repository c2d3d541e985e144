"""Locks survive forks and interrupts."""

from __future__ import annotations

import _thread
import os
import sys
import threading

import pytest

from holdall.base.locks import make_lock
from holdall.testing import run_isolated


def is_free(lock):
    """Whether another thread can take the lock."""
    taken = []

    def take():
        taken.append(lock.acquire(timeout=2))
        if taken[0]:
            lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return taken[0]


def enter_and_leave(lock):
    while True:
        with lock:
            pass


@pytest.mark.timeout(120)
def test_an_interrupt_leaves_the_lock_free():
    for number in range(60):
        lock = make_lock()
        timer = threading.Timer(1e-4 + number * 1e-5, _thread.interrupt_main)
        with pytest.raises(KeyboardInterrupt):
            timer.start()
            enter_and_leave(lock)
        timer.join()
        assert lock.acquire(timeout=2)  # the interrupted thread itself goes on in any case
        lock.release()
        if sys.version_info < (3, 14):  # there the interpreter itself can enter a block and not leave it (gh-148874)
            assert is_free(lock)


@pytest.mark.timeout(120)
def test_what_another_thread_holds_is_free_in_a_child():
    lock, held, done = make_lock(), threading.Event(), threading.Event()

    def hold():
        with lock:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        assert run_isolated(lambda: lock.acquire(timeout=2))
        assert not lock.acquire(blocking=False)  # nothing changed for the parent
    finally:
        done.set()
        thread.join()


@pytest.mark.timeout(120)
def test_a_thread_that_forks_inside_a_lock_leaves_it_in_both_processes():
    lock = make_lock()
    with lock:
        child = os.fork()
    if not child:
        os._exit(0 if is_free(lock) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert is_free(lock)
