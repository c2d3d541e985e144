"""The planner and what stays in memory, without any server."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from holdall.source.ranges import RangeSet, coalesce, split
from holdall.source.remote.span_cache import SpanCache

spans = st.tuples(st.integers(0, 500), st.integers(0, 60)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@given(st.lists(spans), st.integers(0, 50), st.integers(1, 200))
def test_a_plan_covers_what_is_wanted_and_little_else(ranges, gap, most):
    plan = coalesce(ranges, gap=gap, most=most)
    wanted = {at for start, stop in ranges for at in range(start, stop)}
    planned = [at for start, stop in plan for at in range(start, stop)]
    assert wanted <= set(planned)
    assert len(planned) == len(set(planned))  # nothing twice
    assert plan == sorted(plan) and all(start < stop for start, stop in plan)
    longest = max((stop - start for start, stop in ranges), default=0)
    assert all(stop - start <= max(most, longest) for start, stop in plan)
    assert len(planned) - len(wanted) <= gap * len(ranges)


@given(spans, st.integers(1, 30))
def test_pieces_make_up_the_range(span, most):
    pieces = split(*span, most)
    assert [at for piece in pieces for at in range(*piece)] == list(range(*span))
    assert all(0 < stop - start <= most for start, stop in pieces)


@given(st.lists(spans, max_size=20), spans, st.one_of(st.none(), st.integers(0, 300)))
def test_what_is_kept_is_found_again(added, asked, most):
    world = bytes(number % 251 for number in range(600))
    kept = SpanCache(most)
    for start, stop in added:
        kept.add(start, memoryview(world)[start:stop])
    start, stop = asked
    buffer = bytearray(b"\xff" * (stop - start))
    missing = kept.copy(start, memoryview(buffer))
    assert missing == kept.missing(start, stop)
    absent = {at for low, high in missing for at in range(low, high)}
    for at in range(start, stop):
        assert buffer[at - start] == (0xFF if at in absent else world[at])
    if most is None:
        assert absent == set(range(start, stop)) - {at for low, high in added for at in range(low, high)}
    found = kept.find(start, stop)
    assert found is None or bytes(found) == world[start:stop]


def test_what_is_pinned_stays():
    kept = SpanCache(10)
    kept.add(0, memoryview(b"abcdefgh"), pin=True)
    for at in range(100, 200, 10):
        kept.add(at, memoryview(b"0123456789"))
    assert kept.find(0, 8) is not None
    assert kept.missing(100, 110) == [(100, 110)]


def test_a_set_of_ranges_is_a_set_of_bytes():
    """Compared with a plain set of numbers, over sequences of adding and asking."""
    rng = random.Random(5)
    for _ in range(200):
        proven, numbers = RangeSet(), set()
        for _ in range(30):
            start = rng.randrange(60)
            stop = start + rng.randrange(1, 12)
            if rng.random() < 0.5:
                proven.add(start, stop)
                numbers.update(range(start, stop))
            assert ((start, stop) in proven) == numbers.issuperset(range(start, stop))
