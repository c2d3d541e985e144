"""Models from afar are closed, pickled, shared by threads and forked; and files nearby load nothing of it."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

import holdall
from holdall.errors import ClosedError, FormatError
from tests.remote import shelf


@pytest.fixture
def url(server, folder):
    return f"{server.url}/{folder[1]['oinf']}"


def test_arrays_outlive_the_model(url, folder):
    with holdall.open(url) as model:
        array, tensor = model[shelf.BIG].numpy(), model[shelf.BIG]
    with holdall.open(folder[0] / folder[1]["oinf"]) as here:
        np.testing.assert_array_equal(array, here[shelf.BIG].numpy())
    with pytest.raises(ClosedError):
        tensor.numpy()
    with pytest.raises(ClosedError):
        model["none"]


def test_a_pickle_travels_as_the_url(server, url):
    with holdall.open(url) as model:
        packed = pickle.dumps(model)
    assert len(packed) < 2000
    with pickle.loads(packed) as again:
        assert again[shelf.BIG].numpy().shape == (1024, 1024)
    server.tags[url.removeprefix(server.url)] = '"another"'
    with pytest.raises(FormatError, match="replaced since it was pickled"):
        pickle.loads(packed)


def _sum(model: holdall.Model) -> float:
    return float(model[shelf.BIG].numpy().sum())


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_other_processes_read_too(url, method):
    with holdall.open(url) as model:
        want = _sum(model)
        with get_context(method).Pool(2) as pool:
            assert pool.map(_sum, [model] * 3) == [want] * 3


def test_a_fork_goes_on_reading_what_its_parent_opened(url, folder):
    with holdall.open(url) as model, holdall.open(folder[0] / folder[1]["oinf"]) as here:
        _sum(model)
        child = os.fork()
        if not child:
            same = False
            try:
                same = all(bytes(tensor.raw()) == bytes(here[tensor.name].raw()) for tensor in model.fetch())
                holdall.open(url).close()
            finally:
                os._exit(0 if same else 1)
        assert os.waitpid(child, 0)[1] == 0
        _sum(model)  # and so does the parent


def test_threads_share_a_model(url, folder):
    with holdall.open(url) as model, holdall.open(folder[0] / folder[1]["oinf"]) as here:
        names = [name for name in here if name != "none"][:400]
        with ThreadPoolExecutor(8) as pool:
            for name, data in zip(names, pool.map(lambda name: bytes(model[name].raw()), names), strict=True):
                assert data == bytes(here[name].raw())


def test_files_nearby_load_nothing_for_afar(folder):
    code = (
        "import sys, holdall\n"
        "holdall.open(sys.argv[1]).close(); holdall.verify(sys.argv[1])\n"
        "bad = {'obstore', 'huggingface_hub', 'socket', 'ssl', 'holdall.source.remote'} & set(sys.modules)\n"
        "assert not bad, bad"
    )
    source = Path(holdall.__file__).resolve().parent.parent
    environment = {**os.environ, "PYTHONPATH": str(source)}
    path = folder[0] / folder[1]["oinf"]
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, env=environment)


def test_without_the_extra_a_url_says_what_to_install(monkeypatch, url):
    monkeypatch.setenv("HOLDALL_HTTP_TIMEOUT", "7")  # another client than any that was made before
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(holdall.UnsupportedError, match="holdall\\[remote\\]"):
        holdall.open(url)
