"""More models than the process may have files open."""

from __future__ import annotations

import gc
import os
import resource
import shutil

import pytest

import holdall
from holdall.source import FileSource, descriptors
from holdall.testing import run_isolated
from tests.process import descriptors_of
from tests.survival import shelf

FEW, MANY = 64, 500


def with_few(work, *arguments):
    """Call it in a process that may have few files open. Half of them are the caller's: more than tests left open."""

    def limited():
        limit = 2 * max(map(int, os.listdir("/proc/self/fd"))) + FEW
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        return work(*arguments)

    return run_isolated(limited, memory=4 << 30)


def read_all(paths, mapped):
    """Every model stays open, and every array that was taken stays too; each is read once more at the end."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    models = [holdall.open(paths[number % len(paths)], mmap=mapped) for number in range(MANY + limit)]
    kept = [model["layers.7.weight"].numpy() for model in models]
    for model, array in zip(models, kept, strict=True):
        assert list(shelf.right(model, ["layers.0.weight", "layers.7.weight", "layers.11.weight"]))
        assert array.tobytes() == shelf.values()["layers.7.weight"].tobytes()
    assert len(os.listdir("/proc/self/fd")) <= limit
    for model in models:
        model.close()
    return len(kept) - limit


@pytest.mark.parametrize("mapped", [True, False], ids=["map", "read"])
def test_more_models_than_descriptors(shelves, mapped):
    assert with_few(read_all, list(shelves.values()), mapped) == MANY


def test_verify_convert_and_diff_with_many_models_open(shelves, tmp_path):
    def work():
        models = [holdall.open(path) for path in shelves.values() for _ in range(20)]
        for model in models:
            model["layers.3.weight"].numpy()
        for path in shelves.values():
            assert holdall.verify(path).ok
        holdall.convert(shelves["hf"], tmp_path / "copy.oinf", fsync=False)
        return bool(holdall.diff(shelves["hf"], tmp_path / "copy.oinf").tensors)

    assert with_few(work) is False


def test_when_the_caller_has_taken_them_all_the_error_names_file_and_limit(shelves):
    def work():
        taken = []
        with pytest.raises(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        with pytest.raises(OSError, match=rf"may have {limit} \(ulimit -n\)") as caught:
            holdall.open(shelves["oinf"])
        assert caught.value.filename == str(shelves["oinf"])
        os.close(taken.pop())
        with holdall.open(shelves["oinf"], mmap=False) as model:
            return len(list(shelf.right(model)))

    assert with_few(work) == 12


def test_a_file_in_use_is_not_closed_for_others(shelves):
    sources = [FileSource(shelves["oinf"]) for _ in range(3)]
    with sources[0].lend() as fd:
        descriptors._make_room(0)
        assert os.pread(fd, 4, 0) == b"OINF"
        sources[0].close()
        assert os.pread(fd, 4, 0) == b"OINF"
    with pytest.raises(OSError):
        os.fstat(fd)
    assert sources[1].read(0, 4) == b"OINF"


def test_all_are_given_back(shelves, tmp_path):
    paths = []
    for name, path in shelves.items():
        folder = path if path.is_dir() else path.parent
        paths.append(shutil.copytree(folder, tmp_path / name) / path.relative_to(folder))
    models = [holdall.open(path) for path in paths]
    for model in models:
        model["layers.1.weight"].numpy()
    assert len(descriptors_of(tmp_path)) >= len(models)
    for model in models[::2]:
        model.close()
    del model, models
    gc.collect()
    assert descriptors_of(tmp_path) == set()
