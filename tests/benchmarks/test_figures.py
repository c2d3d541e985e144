import doctest

import pytest
from bench import figures, page, svg
from bench.case import Bar, at_least, at_most
from bench.figures import speed_ratio, throughput, time_ratio, verdicts
from bench.record import Line

from tests.benchmarks.examples import OTHER, OURS, RECORD


@pytest.mark.parametrize("module", [figures, page, svg])
def test_examples_in_docstrings(module):
    assert doctest.testmod(module).failed == 0


def test_ratios_are_taken_within_a_round():
    # The second round met a slow spell, which is in both sides of its ratio.
    assert time_ratio(OURS, OTHER) == 0.5
    assert speed_ratio(OURS, OTHER) == 2


def test_speed_counts_what_each_moves():
    half = Line("half", [1.0], 0, 0, 0, size=5)
    assert speed_ratio(half, Line("whole", [2.0], 0, 0, 0, size=10)) == 1
    assert throughput(half) == 5
    assert throughput(Line("sizeless", [1.0], 0, 0, 0)) is None


def test_a_contender_with_fewer_turns_is_compared_where_it_had_them():
    assert time_ratio(Line("", [4.0], 0, 0, 0), OTHER) == 2


def test_every_bar_is_judged():
    assert [(one.bar.kind, one.figure, one.holds) for one in verdicts(RECORD)] == [
        ("time", 0.5, True),
        ("speed", 2.0, False),
        ("memory", 50.0, True),
        ("seconds", 1.0, True),
    ]


def test_a_bar_beside_something_that_was_not_measured_is_not_judged():
    from dataclasses import replace

    bars: list[Bar] = [at_most(1, "missing"), at_least(1, "missing")]
    result = replace(RECORD.results[0], lines=[replace(OURS, bars=bars)])
    assert not list(verdicts(replace(RECORD, results=[result])))
