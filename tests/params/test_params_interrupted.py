"""Ctrl-C while a parameter is loaded: the store goes on as if it had not been asked."""

import threading

import numpy as np
import pytest

from holdall.model.model import model_of
from holdall.params import ParamStore
from tests.faults.places import places


def store_of():
    store = ParamStore(budget=4096)
    store.add(model_of({name: np.full(256, number, np.float32) for number, name in enumerate("abcdefg")}))
    return store


def use(store):
    (parameters,) = store.models.values()
    for name in "abcde":  # the last of them evicts the first
        parameters.load(name)
    parameters.load("d", pin=True)
    parameters.derive("f", "twice", lambda values: values * 2)
    store.clear()
    parameters.load("a")


def test_after_ctrl_c_at_any_line_every_thread_loads_what_it_wants():
    store = store_of()
    run = places(lambda: use(store), "params")
    lines = run(0)
    assert lines > 100
    for stop in range(1, lines + 1):
        store = store_of()
        with pytest.raises(KeyboardInterrupt):
            run(stop)
        cache = store._cache
        assert cache.held == sum(kept.size for kept in cache._kept.values()) <= 4096, stop
        assert cache.pinned == sum(kept.size for kept in cache._kept.values() if kept.pinned), stop
        found = {}

        def load_all(into):
            (parameters,) = store.models.values()  # noqa: B023
            into.update({name: parameters.load(name)[0] for name in "abcdefg"})
            into["twice"] = parameters.derive("f", "twice", lambda values: values * 2)[0]

        other = threading.Thread(target=load_all, args=(found,), daemon=True)
        other.start()
        other.join(10)
        assert not other.is_alive(), stop
        here = {}
        load_all(here)
        assert here == found == {**{name: number for number, name in enumerate("abcdefg")}, "twice": 10}, stop


def test_a_thread_that_waits_does_not_raise_the_interrupt_of_another():
    store = store_of()
    (parameters,) = store.models.values()
    begun, gate, found = threading.Event(), threading.Event(), []

    def interrupted(values):
        begun.set()
        gate.wait(10)
        raise KeyboardInterrupt

    def first():
        with pytest.raises(KeyboardInterrupt):
            parameters.derive("a", "form", interrupted)

    threads = [threading.Thread(target=first)]
    threads[0].start()
    begun.wait(10)
    threads += [
        threading.Thread(target=lambda: found.append(parameters.derive("a", "form", lambda values: values + 1)[0]))
        for _ in range(4)
    ]
    for thread in threads[1:]:
        thread.start()
    gate.set()
    for thread in threads:
        thread.join(10)
    assert found == [1, 1, 1, 1]
