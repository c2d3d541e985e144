"""Disks that fail, reads that come back short, signals in the middle."""

from __future__ import annotations

import errno
import os
import signal

import numpy as np
import pytest
from click.testing import CliRunner

import holdall
from holdall.cli import main
from tests.survival import shelf


@pytest.fixture
def disk(monkeypatch):
    """What is below every source; ``disk.next`` is asked before each read and may raise, or say how much to give."""

    class Disk:
        honest = staticmethod(os.preadv)
        reads = 0

        def next(self, size):
            return size

        def preadv(self, fd, buffers, offset):
            self.reads += 1
            (buffer,) = buffers
            return self.honest(fd, [buffer[: self.next(len(buffer))]], offset)

        def fails_at(self, number):
            self.reads = 0

            def fail(size):
                if self.reads == number:
                    raise OSError(errno.EIO, "Input/output error")
                return size

            self.next = fail

    made = Disk()
    monkeypatch.setattr(os, "preadv", made.preadv)
    return made


def read(path, tmp_path):
    with holdall.open(path, mmap=False) as model:
        return list(shelf.right(model))


def verify(path, tmp_path):
    return holdall.verify(path, level="strict").ok


def convert(path, tmp_path):
    target = tmp_path / "out" / "copy.safetensors"
    target.parent.mkdir(exist_ok=True)
    try:
        return holdall.convert(path, target, fsync=False, cast="f64").tensors
    finally:
        for file in target.parent.iterdir():
            assert file == target, "what is not whole is removed"


def diff(path, tmp_path):
    return bool(holdall.diff(path, path))


def _write(tmp_path, name, act):
    """Do something that writes; what was there before stands where it fails, and no part is left."""
    target = tmp_path / "out" / name
    target.parent.mkdir(exist_ok=True)
    before = {file: file.read_bytes() for file in target.parent.iterdir() if file.is_file()}
    try:
        act(target)
    except OSError:
        assert {file: file.read_bytes() for file in target.parent.iterdir() if file.is_file()} == before
        raise
    assert not list(target.parent.glob("*.holdall.part"))
    return [file.name for file in sorted(target.parent.iterdir())]


def extract(path, tmp_path):
    words = ("extract", str(path), "layers.3.weight", "--cast", "f64", "-o")
    return _write(tmp_path, "w.npy", lambda target: _command(*words, str(target)))


def quantize(path, tmp_path):
    return _write(tmp_path, "q.mcf", lambda target: holdall.convert(path, target, quantize="k4", fsync=False))


def save(path, tmp_path):
    def act(target):
        with holdall.open(path, mmap=False) as model:
            holdall.save(target, list(model.tensors), fsync=False)

    return _write(tmp_path, "copy.npz", act)


def carry_and_restore(path, tmp_path):
    name = "carrier.oinf" if path.suffix == ".safetensors" else "carrier.safetensors"
    _write(tmp_path, name, lambda target: holdall.convert(path, target, carry=True, fsync=False))
    if len(shelf.files(path)) > 1:
        return True  # a set is restored into a new folder, which replaces nothing
    original = tmp_path / "out" / "original"
    _write(tmp_path, "original", lambda target: holdall.restore(tmp_path / "out" / name, target, fsync=False))
    return original.read_bytes() == path.read_bytes()


def stats(path, tmp_path):
    return _command("verify", str(path), "--stats").count("\n")


def keep(path, tmp_path):
    with holdall.open(path, mmap=False) as model:
        store = holdall.ParamStore.from_model(model)
        return [float(np.asarray(store[name]).sum()) for name in model.tensors.names]


def _command(*words):
    """Run a command; an error of the system that it reports is raised, with the name that it says."""
    done = CliRunner().invoke(main, ["--debug", *words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


WORK = (read, verify, convert, diff, extract, quantize, save, carry_and_restore, stats, keep)


@pytest.mark.parametrize("work", WORK, ids=lambda work: work.__name__)
def test_short_reads_are_continued(path, tmp_path, disk, work):
    expected = work(path, tmp_path)
    sizes = np.random.default_rng(3)
    disk.next = lambda size: min(size, int(sizes.integers(1, 3000)))
    assert work(path, tmp_path) == expected


@pytest.mark.parametrize("work", WORK, ids=lambda work: work.__name__)
def test_a_failing_disk_is_an_error_that_names_the_file(path, tmp_path, disk, work):
    expected = work(path, tmp_path)
    whole, disk.reads = disk.reads, 0
    assert whole
    standing = (tmp_path / "out" / "copy.safetensors").read_bytes() if work is convert else None
    for number in sorted({1, 2, whole // 2, whole} - {0}):
        disk.fails_at(number)
        with pytest.raises(OSError) as caught:
            work(path, tmp_path)
        assert caught.value.errno == errno.EIO
        files = [*shelf.files(path), *(tmp_path / "out").glob("*")]  # a conversion reads back what it wrote
        named = {file.name for file in files} | {"copy.safetensors", "q.mcf", "carrier.oinf", "carrier.safetensors"}
        assert any(name in str(caught.value.filename) for name in named), caught.value
        if work is convert:
            assert (tmp_path / "out" / "copy.safetensors").read_bytes() == standing  # the old one
    disk.next = lambda size: size
    assert work(path, tmp_path) == expected


def test_signals_in_the_middle_change_nothing(path, tmp_path):
    told = []
    before = signal.signal(signal.SIGALRM, lambda *arguments: told.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        for _ in range(3):
            assert len(read(path, tmp_path)) == 12
            assert verify(path, tmp_path)
            assert convert(path, tmp_path) == 12
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert told
