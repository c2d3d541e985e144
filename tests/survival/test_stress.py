"""One model that many threads read, slice, fetch and verify until one of them closes it.

With the interpreter's lock the threads take turns at every switch interval, which is made as short as it can be; on a
free-threaded Python they run at the same time.
"""

from __future__ import annotations

import sys
import sysconfig
import threading
import time

import numpy as np
import pytest

import holdall
from holdall.errors import ClosedError
from tests.survival import shelf

THREADS = 12
SECONDS = 0.5
FREE = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


@pytest.fixture(autouse=True)
def _switch_often():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def _read(model, expected, turn):
    name = f"layers.{turn % 12}.weight"
    assert model[name].numpy().tobytes() == expected[name].tobytes()


def _slice(model, expected, turn):
    name, first = f"layers.{turn % 12}.weight", turn % 60
    assert np.array_equal(model[name][first : first + 4, 5:9], expected[name][first : first + 4, 5:9])


def _fetch(model, expected, turn):
    for tensor in model.fetch():
        assert tensor.numpy().tobytes() == expected[tensor.name].tobytes()


def _list(model, expected, turn):
    assert {tensor.name: tensor.shape for tensor in model.tensors} == {n: a.shape for n, a in expected.items()}
    assert str(len(expected)) in repr(model)


WORKS = (_read, _slice, _fetch, _list)


def _share(model, path):
    """Let the threads work until the time is over, then close the model under them. Returns turns and failures."""
    expected, together = shelf.values(), threading.Barrier(THREADS + 1)
    turns, failures = [0] * THREADS, []

    def work(number):
        together.wait()
        try:
            while True:
                WORKS[number % len(WORKS)](model, expected, turns[number] * 7 + number)
                turns[number] += 1
        except ClosedError:
            return
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    together.wait()
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        assert holdall.verify(path).ok
    model.close()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    return turns, failures


@pytest.mark.timeout(120)
@pytest.mark.parametrize("mapped", [True, False], ids=["map", "read"])
def test_threads_see_right_numbers_until_the_model_is_closed(path, mapped):
    turns, failures = _share(holdall.open(path, mmap=mapped), path)
    assert failures == []
    assert sum(turns) >= THREADS


@pytest.mark.timeout(120)
def test_threads_that_first_ask_at_once_get_the_same(path):
    """What is computed on demand is computed for all of them: nothing half done is seen."""
    for _ in range(10):
        with holdall.open(path) as model:
            together, found = threading.Barrier(THREADS), []

            def ask(model=model, together=together, found=found):
                together.wait()
                names = [tensor.name for tensor in model.tensors]
                found.append((names, dict(model.metadata), model.config, repr(model)))

            threads = [threading.Thread(target=ask) for _ in range(THREADS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            assert len(found) == THREADS
            assert all(one == found[0] for one in found)


def test_the_kernels_do_not_bring_the_lock_back():
    pytest.importorskip("holdall.binary.kernels._native", reason="the C kernels are not compiled")
    assert getattr(sys, "_is_gil_enabled", lambda: True)() is not FREE
