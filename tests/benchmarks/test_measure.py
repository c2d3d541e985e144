"""Turns with works of this file: what is measured, kept, compared and removed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from bench import __main__ as program
from bench import measure as measuring
from bench.case import Case, Contender, Run
from bench.measure import PATIENCE, drop, measure, remove, warm
from bench.work import Command, Sample, run, work

MEGABYTE = 1 << 20


def sleeps(seconds):
    return lambda: time.sleep(seconds)


def touches(megabytes):
    return lambda: {"same": len(bytes(b"\1" * MEGABYTE * megabytes))}


def writes(path, size):
    return lambda: Path(path).write_bytes(bytes(size))


def states():
    return lambda: {"seconds": 7.5, "peak_mb": 123456.0, "steps": 3}


def fails():
    raise ValueError("no such thing")


def quiet(step):
    assert step


def test_a_turn_has_seconds_memory_and_faults():
    sample = run(work(sleeps, 0.05))
    assert sample.seconds >= 0.05
    small, large = run(work(touches, 1)), run(work(touches, 64))
    assert large.peak_mb > small.peak_mb + 50 and large.minor > small.minor
    assert large.kept == {"same": 64 * MEGABYTE}


def test_an_action_says_what_it_measured_itself():
    sample = run(work(states))
    assert (sample.seconds, sample.peak_mb, sample.kept) == (7.5, 123456.0, {"steps": 3})


def test_a_command_is_timed_from_start_to_end():
    assert run(Command(("sleep", "0.05"))).seconds >= 0.05
    with pytest.raises(RuntimeError, match="cmp"):
        run(Command(("cmp", "/dev/null", "/no-such-file")))


def test_a_work_that_fails_says_why():
    with pytest.raises(RuntimeError, match="no such thing"):
        run(work(fails))


@pytest.mark.parametrize("alone", [True, False])
def test_all_take_their_turns(alone):
    lines = [Contender("slow", work(sleeps, 0.03)), Contender("fast", work(sleeps, 0.0))]
    found = measure(Case("turns", lines, 2, alone=alone), quiet)
    assert {name: len(samples) for name, samples in found.items()} == {"slow": 2, "fast": 2}
    assert all(sample.seconds >= 0.03 for sample in found["slow"])


def test_other_work_is_found_out():
    lines = [Contender("one", work(touches, 1)), Contender("two", work(touches, 2))]
    with pytest.raises(RuntimeError, match="not the same work"):
        measure(Case("unequal", lines, 1), quiet)


def test_the_slow_get_fewer_turns(monkeypatch):
    monkeypatch.setattr(measuring, "run", lambda job: Sample(job.args[0]))
    lines = [Contender("slow", work(sleeps, 0.6 * PATIENCE)), Contender("fast", work(sleeps, 0.1 * PATIENCE))]
    found = measure(Case("patience", lines, 3), quiet)
    assert len(found["slow"]) == 1 and len(found["fast"]) == 3


def test_what_is_left_is_checked_and_removed(tmp_path):
    path = tmp_path / "file"
    lines = [Contender("writer", work(writes, str(path), 1000), leaves=path)]
    measure(Case("writing", lines, 2, size=1000), quiet)
    assert not path.exists()
    with pytest.raises(RuntimeError, match="wrote 1000 bytes"):
        measure(Case("writing", lines, 1, size=5000), quiet)


def test_files_become_cold_and_warm_whole(tmp_path):
    path = tmp_path / "folder" / "file"
    path.parent.mkdir()
    path.write_bytes(b"hold" * 5000)
    drop(path.parent)
    warm([path.parent])
    assert path.read_bytes() == b"hold" * 5000
    remove(path.parent)
    assert not path.parent.exists()


def test_room_is_asked_for_first(tmp_path):
    with Run(tmp_path).folder(1000) as folder:
        assert folder.is_dir()
    assert not folder.exists()
    with pytest.raises(RuntimeError, match="HOLDALL_BENCH_DIR"), Run(tmp_path).folder(1 << 60):
        pass


def test_a_topic_that_fails_does_not_take_the_others_along(tmp_path, monkeypatch, capsys):
    def cases_of(topic, run):
        yield Case(f"{topic} one", [Contender("one", work(sleeps, 0.0))], 1)
        yield Case(f"{topic} two", [Contender("two", work(fails) if topic == "bad" else work(sleeps, 0.0))], 1)

    monkeypatch.setattr(program, "cases_of", cases_of)
    *_, found = program.measure_all(Run(tmp_path), ["bad", "good"])
    assert [result.title for result in found.results] == ["bad one", "good one", "good two"]
    assert found.skipped == [program.FAILED + "bad"]
    assert "no such thing" in capsys.readouterr().err
