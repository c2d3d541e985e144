"""What is computed once is so in threads and forks too."""

from __future__ import annotations

import threading

import pytest

from holdall.base.once import computed_once
from holdall.testing import run_isolated


class Slow:
    """Its value is a new object each time it is computed; a thread may stop in the middle."""

    def __init__(self):
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.times = 0

    @computed_once
    def value(self):
        """The value."""
        self.times += 1
        if threading.current_thread() is not threading.main_thread():
            self.begun.set()
            self.go_on.wait(30)
        return [7]


def test_the_first_value_stays():
    slow = Slow()
    assert slow.value is slow.value
    assert slow.times == 1
    assert Slow.value.__doc__ == "The value."
    assert Slow().value is not slow.value


def test_a_failure_is_not_kept():
    class Failing:
        works = False

        @computed_once
        def value(self):
            if not self.works:
                raise ValueError("not yet")
            return 1

    failing = Failing()
    with pytest.raises(ValueError, match="not yet"):
        failing.value  # noqa: B018
    failing.works = True
    assert failing.value == 1


@pytest.mark.timeout(120)
def test_a_child_computes_what_a_thread_of_its_parent_was_computing():
    slow, other = Slow(), Slow()
    found = []
    thread = threading.Thread(target=lambda: found.append(slow.value))
    thread.start()
    slow.begun.wait()
    try:
        assert run_isolated(lambda: (slow.value, other.value), seconds=10) == ([7], [7])
        mine = slow.value  # nor does the parent wait
    finally:
        slow.go_on.set()
        thread.join()
    assert found[0] is mine is slow.value  # both threads have the object that was there first
    assert slow.times == 2
