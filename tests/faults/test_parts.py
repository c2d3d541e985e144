"""Parts of dead writers go, those of living ones stay; and many may write one destination at the same time."""

import errno
import fcntl
import os
import resource
import shutil
import signal
import threading
import time

import numpy as np
import pytest
from tools.writes import is_part, snapshot

import holdall
from holdall.model.payload import Computed
from holdall.sink import write_file, write_folder
from holdall.sink.plan import FolderPlan, Plan
from holdall.source import CHUNK
from holdall.testing import run_isolated
from tests.faults.places import places


def plan_of(data):
    plan = Plan()
    plan.put(data)
    return plan


def part(path, number=0):
    return path.with_name(f".{path.name}.{number}.holdall.part")


def locked(path):
    fd = os.open(path, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


def child(function, *arguments):
    """A process that calls ``function``; its exit status says whether it raised."""
    pid = os.fork()
    if pid == 0:
        try:
            function(*arguments)
        except BaseException:
            os._exit(1)
        os._exit(0)
    return pid


@pytest.mark.parametrize("number", [0, 1, 3])
def test_what_a_dead_writer_left_is_removed(tmp_path, number):
    part(tmp_path / "m", number).write_bytes(b"half")
    write_file(tmp_path / "m", plan_of(b"new"))
    assert snapshot(tmp_path) == {"m": b"new"}
    left = part(tmp_path / "set", number)
    (left / "deep").mkdir(parents=True)
    (left / "deep/file").write_bytes(b"half")
    write_folder(tmp_path / "set", FolderPlan({"a": plan_of(b"new")}))
    assert snapshot(tmp_path) == {"m": b"new", "set": None, "set/a": b"new"}


def test_what_a_living_writer_has_stays(tmp_path):
    part(tmp_path / "m").write_bytes(b"half")
    part(tmp_path / "m", 1).mkdir()
    held = [locked(part(tmp_path / "m", number)) for number in (0, 1)]
    write_file(tmp_path / "m", plan_of(b"new"))
    assert snapshot(tmp_path) == {
        ".m.0.holdall.part": b"half",
        ".m.1.holdall.part": None,
        "m": b"new",
    }
    for fd in held:
        os.close(fd)
    write_file(tmp_path / "m", plan_of(b"newer"))
    assert snapshot(tmp_path) == {"m": b"newer"}


def test_parts_of_other_destinations_and_other_files_stay(tmp_path):
    others = [".mm.0.holdall.part", ".m.0.part", ".m.x.holdall.part", "m.0.holdall.part", ".m.holdall.part", ".m.0.tmp"]
    for name in others:
        (tmp_path / name).write_bytes(b"other")
    write_file(tmp_path / "m", plan_of(b"new"))
    assert snapshot(tmp_path) == {**dict.fromkeys(sorted(others), b"other"), "m": b"new"}


def test_links_and_pipes_in_the_way_are_left_alone(tmp_path):
    (tmp_path / "precious").write_bytes(b"precious")
    part(tmp_path / "m").symlink_to("precious")
    os.mkfifo(part(tmp_path / "m", 1))
    write_file(tmp_path / "m", plan_of(b"new"))
    assert (tmp_path / "precious").read_bytes() == b"precious"
    assert (tmp_path / "m").read_bytes() == b"new"
    assert part(tmp_path / "m").is_symlink()
    assert part(tmp_path / "m", 1).is_fifo()


def test_without_locks_nothing_is_taken_for_left(tmp_path, monkeypatch):
    def refuse(*arguments):
        raise OSError(errno.ENOLCK, "no locks available")

    part(tmp_path / "m").write_bytes(b"half")
    monkeypatch.setattr(fcntl, "flock", refuse)
    write_file(tmp_path / "m", plan_of(b"new"))
    assert snapshot(tmp_path) == {".m.0.holdall.part": b"half", "m": b"new"}


def test_a_killed_writer_leaves_a_part_and_the_next_removes_it(tmp_path):
    def slow():
        write_file(tmp_path / "m", slow_plan(tmp_path / "begun"))

    pid = child(slow)
    wait_for(tmp_path / "begun")
    assert part(tmp_path / "m").exists()
    write_file(tmp_path / "m", plan_of(b"new"))  # while the other is at it
    assert part(tmp_path / "m").exists()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert part(tmp_path / "m").exists()
    write_file(tmp_path / "m", plan_of(b"newer"))
    assert snapshot(tmp_path) == {"begun": b"", "m": b"newer"}


def slow_plan(begun):
    def make():
        yield bytes(CHUNK)
        yield bytes(CHUNK)
        yield bytes(CHUNK)
        begun.touch()
        time.sleep(30)
        yield bytes(CHUNK)

    plan = Plan()
    plan.stream(Computed(4 * CHUNK, make))
    return plan


def wait_for(path):
    for _ in range(2000):
        if path.exists():
            return
        time.sleep(0.005)
    raise AssertionError(f"{path} does not come")


CONTENTS = [{f"t{n}": np.full(200_000, n, np.float32), "which": np.array([n])} for n in range(8)]


def test_many_processes_write_one_file(tmp_path):
    """Eight processes write again and again, some of them are killed, and every reader finds a whole file."""
    path = tmp_path / "m.safetensors"
    for number, content in enumerate(CONTENTS):
        holdall.save(tmp_path / f"want{number}.safetensors", content, fsync=False)
    whole = {(tmp_path / f"want{n}.safetensors").read_bytes() for n in range(8)}
    holdall.save(path, CONTENTS[0], fsync=False)

    def write(number):
        for _ in range(40 if number < 5 else 10_000):
            holdall.save(path, CONTENTS[number], fsync=False)

    writers = [child(write, number) for number in range(8)]
    seen = set()
    for round in range(30):
        seen.add(path.read_bytes())
        time.sleep(0.01)
        if round in (10, 15, 20):
            os.kill(writers.pop(), signal.SIGKILL)
    assert len(writers) == 5
    assert [os.WEXITSTATUS(os.waitpid(pid, 0)[1]) for pid in writers] == [0] * 5
    seen.add(path.read_bytes())
    assert seen <= whole
    assert len(seen) > 1
    holdall.save(path, CONTENTS[0])
    left = [name for name in snapshot(tmp_path) if is_part(name)]
    assert len(left) <= 3  # of the killed ones, those with numbers that are not looked at


def test_many_threads_write_one_file(tmp_path):
    errors = []

    def write(number):
        try:
            for _ in range(20):
                write_file(tmp_path / "m", plan_of(bytes([number]) * 100_000), fsync=False)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    data = snapshot(tmp_path)
    assert list(data) == ["m"]
    assert data["m"] in {bytes([number]) * 100_000 for number in range(6)}


def test_many_processes_write_one_folder(tmp_path):
    """One has the name, whole; the others say so and leave nothing."""

    def write(number):
        try:
            holdall.save(tmp_path / "set", CONTENTS[number], format="hf", max_shard_size=400_000)
        except FileExistsError as error:
            assert error.filename == str(tmp_path / "set")
            os._exit(7)

    ends = [os.WEXITSTATUS(os.waitpid(pid, 0)[1]) for pid in [child(write, number) for number in range(8)]]
    assert sorted(ends) == [0] + [7] * 7
    assert os.listdir(tmp_path) == ["set"]
    winner = ends.index(0)
    with holdall.open(tmp_path / "set") as model:
        assert model["which"].numpy().tolist() == [winner]
    assert holdall.verify(tmp_path / "set").ok


@pytest.mark.parametrize("format", ["oinf", "aero", "npz", "hf", "aeroset"])
def test_a_file_that_may_not_grow(tmp_path, format):
    """The system's own refusal to write on: EFBIG, at whatever byte it comes."""
    path = tmp_path / "m"
    folder = format in ("hf", "aeroset")
    if not folder:
        holdall.save(path, CONTENTS[1], format=format)
    before = snapshot(tmp_path)

    def save(most):
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        try:
            holdall.save(path, CONTENTS[0], format=format)
        except OSError as error:
            return error.errno, os.fspath(error.filename).startswith(str(path))
        return None

    for most in (0, 1, 1000, 65_536, 300_000, 799_999):
        assert run_isolated(save, most) == (errno.EFBIG, True)
        assert snapshot(tmp_path) == before
    assert run_isolated(save, 10_000_000) is None
    assert holdall.verify(path, format=format).ok


@pytest.mark.parametrize("folder", [False, True])
def test_no_more_files_may_be_opened(tmp_path, folder):
    """Whether there is room for none, one, or a few more: an error that says so, or a whole file; never a hang."""

    def save(room):
        held = [os.open("/dev/null", os.O_RDONLY) for _ in range(3)]
        resource.setrlimit(resource.RLIMIT_NOFILE, (held[-1] + 1 + room,) * 2)
        try:
            if folder:
                write_folder(tmp_path / f"m{room}", FolderPlan({"a": plan_of(b"new")}))
            else:
                write_file(tmp_path / f"m{room}", plan_of(b"new"))
        except OSError as error:
            return error.errno, error.filename
        return None

    ends = [run_isolated(save, room, seconds=20) for room in range(8)]
    assert ends[0] == (errno.EMFILE, str(tmp_path / "m0"))
    assert ends[-1] is None
    assert {end if end is None else end[0] for end in ends} == {None, errno.EMFILE}
    if folder:  # which cannot be removed without being opened: the next write does it
        for room in [room for room, end in enumerate(ends) if end is not None]:
            write_folder(tmp_path / f"m{room}", FolderPlan({"a": plan_of(b"new")}))
    assert [name for name in snapshot(tmp_path) if is_part(name)] == []


def test_one_file_of_a_folder_fails_and_the_others_stop(tmp_path):
    passed = []

    def fail():
        yield bytes(CHUNK)
        raise ValueError("no")

    def endless():
        for _ in range(1000):
            time.sleep(0.002)
            passed.append(1)
            yield bytes(CHUNK)

    plans = {}
    for name, make, size in (("a", fail, 2 * CHUNK), ("b", endless, 1000 * CHUNK), ("c", endless, 1000 * CHUNK)):
        plans[name] = Plan()
        plans[name].stream(Computed(size, make))
    with pytest.raises(ValueError, match="no"):
        write_folder(tmp_path / "set", FolderPlan(plans), fsync=False)
    assert len(passed) < 200
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("folder", [False, True])
def test_ctrl_c_at_any_line_leaves_nothing(tmp_path, folder):
    path = tmp_path / "m"
    plan = plan_of(b"new")
    plan.late("late", 4, (), lambda results: b"late")

    def write():
        if folder:
            write_folder(path, FolderPlan({"a": plan, "deep/b": plan}))
        else:
            write_file(path, plan)

    def restart():
        if folder:
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.write_bytes(b"old")

    restart()
    old = snapshot(tmp_path)
    run = places(write, "sink")
    lines = run(0)
    new = snapshot(tmp_path)
    assert lines > 30
    for stop in range(1, lines + 1):
        restart()
        with pytest.raises(KeyboardInterrupt):
            run(stop)
        assert snapshot(tmp_path) in (old, new), stop
