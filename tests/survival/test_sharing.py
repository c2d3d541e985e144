"""One model in many threads, in a fork, in a pickle, in the workers of a loader."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import holdall
from holdall.errors import FormatError
from holdall.source import BytesSource, FileSource, FolderSource, descriptors
from holdall.source.deferred import DeferredSource
from holdall.testing import run_isolated
from tests.survival import shelf

THREADS = 16


@pytest.mark.timeout(120)
@pytest.mark.parametrize("mapped", [True, False], ids=["map", "read"])
def test_many_threads_on_one_model(path, mapped):
    together = threading.Barrier(THREADS)

    def work(number):
        together.wait()
        if number % 4 == 1:
            return holdall.verify(path).ok
        if number % 4 == 2:
            return [(t.name, t.nbytes) for t in model.tensors] == listed
        if number % 4 == 3:
            descriptors._make_room(0)
        return len(list(shelf.right(model))) == 12

    with holdall.open(path, mmap=mapped) as model, ThreadPoolExecutor(THREADS) as pool:
        listed = [(tensor.name, tensor.nbytes) for tensor in model.tensors]
        assert all(pool.map(work, range(THREADS)))


@pytest.mark.timeout(120)
def test_parent_and_child_read_at_once(path):
    with holdall.open(path) as mapped, holdall.open(path, mmap=False) as read:
        child = os.fork()
        if not child:
            fine = False
            try:
                fine = all(len(list(shelf.right(model))) == 12 for model in (mapped, read) for _ in range(20))
            finally:
                os._exit(0 if fine else 1)
        for _ in range(20):
            assert len(list(shelf.right(mapped))) == len(list(shelf.right(read))) == 12
        assert os.waitpid(child, 0)[1] == 0


@pytest.mark.timeout(120)
def test_a_fork_in_the_middle_of_reads_can_read(path):
    """Other threads hold locks when the process forks; the child finds them open."""
    with holdall.open(path, mmap=False) as model:
        done = threading.Event()

        def busy():
            while not done.is_set():
                descriptors._make_room(0)
                list(shelf.right(model))

        threads = [threading.Thread(target=busy) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            assert [run_isolated(lambda: len(list(shelf.right(model)))) for _ in range(3)] == [12] * 3
        finally:
            done.set()
            for thread in threads:
                thread.join()


def test_a_model_travels_as_path_and_identity(path):
    with holdall.open(path) as model:
        assert len(list(shelf.right(model))) == 12
        travelled = pickle.dumps(model)
        assert len(travelled) < 4000  # not the bytes
        with pickle.loads(travelled) as reopen:
            assert len(list(shelf.right(reopen))) == 12
    for file in shelf.files(path):
        os.utime(file, (shelf.OLD + 1, shelf.OLD + 1))
        with pytest.raises(FormatError, match="replaced since it was pickled") as caught:
            pickle.loads(travelled)
        assert caught.value.rule == "core.identity"
        assert file.name in str(caught.value) or path.name in str(caught.value)
        os.utime(file, (shelf.OLD, shelf.OLD))
    pickle.loads(travelled).close()


def test_another_file_in_the_same_folder_is_no_change(shelves, tmp_path):
    path = shelf.copied(shelves["hf"], tmp_path)
    with holdall.open(path) as model:
        travelled = pickle.dumps(model)
    (path / "log.txt").write_text("training goes on")
    with pickle.loads(travelled) as reopen:
        assert len(list(shelf.right(reopen))) == 12


def test_a_model_travels_from_another_folder(shelves, tmp_path, monkeypatch):
    monkeypatch.chdir(shelves["oinf"].parent)
    with holdall.open(shelves["oinf"].name) as model:
        travelled = pickle.dumps(model)
    monkeypatch.chdir(tmp_path)
    with pickle.loads(travelled) as reopen:
        assert len(list(shelf.right(reopen))) == 12


def test_a_tensor_travels_or_says_what_to_do(path):
    with holdall.open(path) as model:
        for tensor in model.tensors:
            try:
                travelled = pickle.dumps(tensor)
            except TypeError as error:
                assert tensor.name in str(error)
                assert "pickle the model" in str(error)
                continue
            assert len(travelled) < tensor.nbytes
            reopen = pickle.loads(travelled)
            assert (reopen.name, reopen.dtype, reopen.shape) == (tensor.name, tensor.dtype, tensor.shape)
            assert reopen.numpy().tobytes() == tensor.numpy().tobytes()


def test_tensors_of_memory_travel_with_their_bytes():
    for values in (np.arange(6).reshape(2, 3), np.zeros((0, 2), np.int8), np.float16(2)):
        tensor = holdall.Tensor.of("w", values)
        assert pickle.loads(pickle.dumps(tensor)).numpy().tobytes() == np.asarray(values).tobytes()
    made = holdall.Tensor("m", tensor.dtype, (1,), holdall.model.payload.Computed(2, lambda: [b"ab"]))
    with pytest.raises(TypeError, match=r"'m' cannot be pickled: .* pickle the model"):
        pickle.dumps(made)


def test_sources_travel_or_say_what_to_do(shelves):
    file, folder = FileSource(shelves["oinf"], map=False), FolderSource(shelves["hf"])
    reopen = pickle.loads(pickle.dumps(file))
    assert (reopen.read(0, 4), reopen.is_mapped, reopen.identity) == (b"OINF", False, file.identity)
    assert pickle.loads(pickle.dumps(folder)).names() == folder.names()
    member = folder.sibling("model.safetensors.index.json")
    later = DeferredSource("later", member.size, lambda: member)
    for source in (member, later):
        assert pickle.loads(pickle.dumps(source)).read(0, 1) == b"{"
    assert pickle.loads(pickle.dumps(BytesSource(bytearray(b"abc"), "three"))).read(0, 3) == b"abc"


def _sums(model):
    return {name: float(np.float64(model[name].numpy()).sum()) for name in model}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["oinf", "aeroset", "torch"])
def test_processes_that_were_spawned(shelves, name):
    with holdall.open(shelves[name]) as model:
        expected = _sums(model)
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            assert pool.map(_sums, [model, model]) == [expected, expected]


class Rows:
    """What people give to a loader: a data set that holds an open model."""

    def __init__(self, model):
        self.model = model

    def __len__(self):
        return len(self.model)

    def __getitem__(self, row):
        return self.model.tensors[row].torch()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", ["fork", pytest.param("spawn", marks=pytest.mark.long)])
def test_workers_of_a_torch_loader(shelves, how):
    data = pytest.importorskip("torch.utils.data")
    with holdall.open(shelves["safetensors"]) as model:
        loader = data.DataLoader(Rows(model), batch_size=None, num_workers=2, multiprocessing_context=how)
        for tensor, name in zip(loader, model, strict=True):
            assert tensor.numpy().tobytes() == shelf.values()[name].tobytes()
