"""``--threads`` and HOLDALL_THREADS: on every command that passes over all bytes, with the same outcome."""

import json
import threading

import numpy as np
import pytest
from click.testing import CliRunner

import holdall
from holdall.base import parallel
from holdall.cli import COMMANDS, main

PASSES = {
    "info": ["info", "m.safetensors", "--duplicates", "--json"],
    "ls": ["ls", "m.safetensors", "--stats", "--json"],
    "verify": ["verify", "m.safetensors", "--stats", "--json"],
    "extract": ["extract", "m.safetensors", "--all", "out"],
    "convert": ["convert", "m.safetensors", "out.npz", "--dry-run"],
    "restore": ["restore", "m.safetensors", "out.npz"],
    "quantize": ["quantize", "m.safetensors", "out.mcf", "--dry-run"],
    "diff": ["diff", "m.safetensors", "m.safetensors", "--json"],
    "edit": ["edit", "m.safetensors", "--set", "k=v", "--dry-run"],
    "repair": ["repair", "m.safetensors", "--from", "m.safetensors"],
    "calibrate": ["calibrate", "m.safetensors", "a text"],
    "embed": ["embed", "m.safetensors", "a text"],
    "view": ["view", "m.safetensors", "--export", "page.html"],
}
SMALL = {
    "explain",
    "assets",
    "formats",
    "from-dataclass",
    "demo",
    "completion",
    "recipes",
}  # pass over no payloads of a file


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDALL_THREADS", raising=False)
    chance = np.random.default_rng(1)
    arrays = {f"w{number}": chance.normal(size=(512, 700)).astype(np.float32) for number in range(6)}
    holdall.save("m.safetensors", arrays | {"again": arrays["w1"]})


def run(*arguments):
    return CliRunner().invoke(main, [str(each) for each in arguments])


def test_every_command_is_listed_here():
    assert set(PASSES) | SMALL == set(COMMANDS) and not SMALL & set(PASSES)


@pytest.mark.parametrize("command", PASSES)
def test_each_has_the_option(command):
    assert "--threads" in run(command, "--help").output
    assert run(*PASSES[command], "--threads", 0).exit_code == 2


@pytest.mark.parametrize("command", PASSES)
@pytest.mark.parametrize("value", ["x", "0", "-1", "1.5"])
def test_a_wrong_variable_is_a_usage_error(command, value, monkeypatch):
    monkeypatch.setenv("HOLDALL_THREADS", value)
    done = run(*PASSES[command])
    assert done.exit_code == 2, done.output
    assert f"HOLDALL_THREADS is a number of threads from 1 on, not {value!r}" in done.output
    assert run(command, "--help").exit_code == 0


def test_the_option_goes_before_the_variable(monkeypatch):
    monkeypatch.setenv("HOLDALL_THREADS", "x")
    assert run(*PASSES["ls"], "--threads", 2).exit_code == 0


@pytest.mark.parametrize("command", ["info", "ls"])
def test_the_outcome_is_the_same_and_one_thread_is_one(command, monkeypatch):
    outputs = {threads: run(*PASSES[command], "--threads", threads).output for threads in (1, 2, 5)}
    assert len(set(outputs.values())) == 1 and json.loads(outputs[1].splitlines()[0])
    begun = []

    class Job(parallel.Job):
        def __init__(self, *given):
            begun.append(threading.get_ident())
            super().__init__(*given)

    monkeypatch.setattr(parallel, "Job", Job)
    run(*PASSES[command], "--threads", 1)
    assert not begun
    run(*PASSES[command], "--threads", 2)
    assert begun
