"""Remote models are closed, pickled and shared by threads, forks refuse them, and local files load nothing for them."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

import holdall
from holdall.errors import ClosedError, FormatError
from holdall.source import source_of
from holdall.testing import run_isolated
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
    with pickle.loads(packed) as reopen:
        assert reopen[shelf.BIG].numpy().shape == (1024, 1024)
    server.tags[url.removeprefix(server.url)] = '"another"'
    with pytest.raises(FormatError, match="replaced since it was pickled"):
        pickle.loads(packed)


def _sum(model: holdall.Model) -> float:
    return float(model[shelf.BIG].numpy().sum())


def test_other_processes_read_too(url):
    with holdall.open(url) as model:
        want = _sum(model)
        with get_context("spawn").Pool(2) as pool:
            assert pool.map(_sum, [model] * 3) == [want] * 3


def _refusal(action: Callable[[], object]) -> str:
    try:
        action()
    except holdall.UnsupportedError as error:
        return str(error)
    return "no error"


def test_a_fork_refuses_what_would_never_end(url, folder):
    """The threads that wait for answers stay in the parent. Each way to them raises, and local files still open."""
    here = folder[0] / folder[1]["oinf"]
    with holdall.open(url) as model:
        want = _sum(model)
        packed, source = pickle.dumps(model), source_of(url)
        source.expect(["model.safetensors"])
        pending = source.fetch([(0, source.size)])
        actions: list[Callable[[], object]] = [
            lambda: _sum(model),
            lambda: list(model.fetch()),
            lambda: pickle.loads(packed),
            lambda: holdall.open(url),
            lambda: holdall.open(url.rpartition("/")[0] + "/"),
            lambda: source.read(0, 4),
            lambda: source.prefetch([(0, 1), (1 << 20, (1 << 20) + 1)]),
            lambda: source.sibling("model.safetensors"),
            lambda: source.names(),
            lambda: pending.read(0, 4),
        ]

        def refusals() -> tuple[list[str], float]:
            with holdall.open(here) as local:
                return [_refusal(action) for action in actions], _sum(local)

        message = "a process cannot read from URLs when it was forked from one that did: "
        message += "use the spawn start method of multiprocessing"
        assert run_isolated(refusals, seconds=20) == ([message] * len(actions), want)
        assert _sum(model) == want  # the parent goes on
        source.close()


def test_a_fork_of_a_process_that_sent_no_request_reads(url):
    code = (
        "import os, sys, holdall\n"
        "child = os.fork()\n"
        "if not child: holdall.open(sys.argv[1]).close(); os._exit(0)\n"
        "sys.exit(os.waitpid(child, 0)[1])"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(holdall.__file__).resolve().parent.parent)}
    subprocess.run([sys.executable, "-c", code, url], check=True, env=environment, timeout=60)


def test_threads_share_a_model(url, folder):
    with holdall.open(url) as model, holdall.open(folder[0] / folder[1]["oinf"]) as here:
        names = [name for name in here if name != "none"][:400]
        with ThreadPoolExecutor(8) as pool:
            for name, data in zip(names, pool.map(lambda name: bytes(model[name].raw()), names), strict=True):
                assert data == bytes(here[name].raw())


def test_local_files_load_nothing_for_remote_ones(folder):
    code = (
        "import sys, holdall\n"
        "holdall.open(sys.argv[1]).close(); holdall.verify(sys.argv[1])\n"
        "bad = {'obstore', 'urllib3', 'huggingface_hub', 'socket', 'ssl', 'holdall.source.remote'} & set(sys.modules)\n"
        "assert not bad, bad"
    )
    source = Path(holdall.__file__).resolve().parent.parent
    environment = {**os.environ, "PYTHONPATH": str(source)}
    path = folder[0] / folder[1]["oinf"]
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, env=environment)


def test_without_the_extra_a_url_says_what_to_install(monkeypatch, url):
    monkeypatch.setenv("HOLDALL_HTTP_TIMEOUT", "7")  # another client than any that was made before
    for name in ("urllib3", "obstore", "obstore.store"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("addresses", "connections", "web_requests"):  # what has the client already
        monkeypatch.delitem(sys.modules, f"holdall.source.remote.{name}", raising=False)
    for where in (url, "s3://bucket/model.oinf"):
        with pytest.raises(holdall.UnsupportedError, match="holdall\\[remote\\]"):
            holdall.open(where)
