"""Payloads that are made before their turn: the same bytes in the same order, in bounded memory, and errors in turn."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

import holdall
from holdall.base.parallel import use_threads
from holdall.model.payload import Computed, InMemory
from holdall.quant import quantize
from holdall.sink import readahead
from holdall.sink.memory import write_bytes
from holdall.sink.plan import Plan
from holdall.sink.writer import PlanWriter

INPUT = InMemory(b"input")


def make_plan(payloads):
    plan = Plan()
    for number, payload in enumerate(payloads):
        plan.put(f"<{number}>".encode())
        plan.stream(payload)
    return plan


def computed(number, size, make=None, held=True):
    data = bytes([number % 256]) * size
    return Computed(size, make or (lambda: [data]), (INPUT,), is_held=held)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_bytes_are_in_order(threads):
    sizes = [number * 37_501 % 700_000 for number in range(60)]
    payloads = [computed(number, size, held=number % 3 > 0) for number, size in enumerate(sizes)]
    with use_threads(threads):
        written = write_bytes(make_plan(payloads))
    assert written == b"".join(f"<{n}>".encode() + bytes([n]) * size for n, size in enumerate(sizes))


def test_several_are_made_at_the_same_time():
    meeting = threading.Barrier(2, timeout=20)  # broken, unless two are made at once

    def make(data):
        meeting.wait()
        return [data]

    payloads = [computed(n, 10, lambda n=n: make(bytes([n]) * 10)) for n in range(2)]
    with use_threads(2):
        assert write_bytes(make_plan(payloads)) == b"<0>" + bytes(10) + b"<1>" + b"\1" * 10


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(readahead, "_HELD", 3_000_000)
    monkeypatch.setattr(readahead, "_HELD_BY_THREAD", 0)
    begun, written, most = 0, 0, 0

    def make(number):
        nonlocal begun, most
        begun += 1
        most = max(most, begun - written)
        return [bytes(1_000_000)]

    def on_progress(done, _):
        nonlocal written
        written = done // 1_000_000

    class Nothing:
        def write(self, data, at):
            time.sleep(0.001)

    plan = make_plan([computed(n, 1_000_000, lambda n=n: make(n)) for n in range(30)])
    with use_threads(4):
        PlanWriter(Nothing(), plan, {}, on_progress).run()
    assert begun == 30
    assert 2 <= most <= 4
    assert readahead._budget._used == 0


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_an_error_comes_in_its_turn_and_the_budget_is_given_back(threads):
    def fail():
        raise holdall.ContentError("payload 7 cannot be made")

    seen = []
    payloads = [computed(n, 300_000, fail if n == 7 else None) for n in range(40)]

    class Kept:
        def write(self, data, at):
            seen.append((at, len(data)))

    with use_threads(threads), pytest.raises(holdall.ContentError, match="payload 7"):
        PlanWriter(Kept(), make_plan(payloads), {}, None).run()
    assert max(at + size for at, size in seen) <= 7 * 300_003 + 3 and len(seen) >= 7
    assert readahead._budget._used == 0


def test_what_is_computed_from_no_payload_waits_for_its_turn():
    """An index may be made from results of what was written before it."""
    made = []

    def make(number):
        made.append(number)
        return [bytes(1000)]

    plan = Plan()
    for number in range(20):
        inputs = (INPUT,) if number % 2 == 0 else ()
        plan.stream(Computed(1000, lambda number=number: make(number), inputs))
    with use_threads(3):
        write_bytes(plan)
    assert [n for n in made if n % 2] == list(range(1, 20, 2))
    for number in range(1, 20, 2):
        assert set(range(0, number, 2)) <= set(made[: made.index(number)])


def test_a_model_of_many_tensors_is_that_of_arrays(tmp_path):
    chance = np.random.default_rng(2)
    shapes = [(64 + n, 300) if n % 7 else (1500, 1100) for n in range(30)]
    arrays = {f"w{n}": chance.normal(size=shape).astype(np.float16) for n, shape in enumerate(shapes)}
    arrays["norm"] = np.ones(300, np.float32)
    holdall.save(tmp_path / "in.safetensors", arrays)
    for threads in (1, 2, 5):
        out = tmp_path / f"{threads}.mcf"
        request = holdall.quant.Quantization("k4", mode="ieee", threads=threads)
        holdall.convert(tmp_path / "in.safetensors", out, quantize=request)
        with holdall.open(out) as model:
            for name, values in arrays.items():
                if name != "norm":
                    assert bytes(model[name].raw()) == bytes(quantize(values, "k4", mode="ieee").payload)
    assert (tmp_path / "1.mcf").read_bytes() == (tmp_path / "2.mcf").read_bytes() == (tmp_path / "5.mcf").read_bytes()
