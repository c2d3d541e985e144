"""Random chains of conversions for half a minute; ``python -m tests.convert.chains`` runs as many as one likes."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from tests.convert.chains import run_chain, run_in
from tests.convert.oracle import Stop, Truth, cast, compare
from tests.convert.outcome import Summary

SECONDS = 10
LEAST = 30  # chains


def test_chains_give_what_the_oracle_says_or_stop(tmp_path: Path) -> None:
    summary, began, seed = Summary(), time.monotonic(), 1
    while time.monotonic() - began < SECONDS and not summary.failures:
        summary.add(run_in(tmp_path, seed))
        seed += 1
    assert not summary.failures, "\n".join(map(str, summary.failures))
    assert summary.chains >= LEAST, f"only {summary.chains} chains in {SECONDS} seconds"
    assert summary.succeeded >= 0.6 * summary.steps, str(summary)


def test_a_seed_gives_the_same_chain_each_time(tmp_path: Path) -> None:
    chains = []
    for run in ("first", "second"):
        (tmp_path / run).mkdir()
        outcome = run_chain(7, tmp_path / run)
        chains.append(str(outcome).replace(run, ""))
        chains.append(str(sorted((file.name, file.stat().st_size) for file in (tmp_path / run).iterdir())))
    assert chains[:2] == chains[2:]


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f8_e4m3", "f8_e5m2"])
def test_the_oracle_rounds_as_ml_dtypes_does(dtype: str) -> None:
    raw = np.random.Generator(np.random.PCG64(1)).integers(0, 1 << 32, 100_000, np.uint32).view(np.float32)
    made = cast(Truth("f32", raw), dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        theirs = raw.astype(made.values.dtype)
    assert compare(Truth(dtype, theirs), made.found, loose=True)[1] is None


def test_the_oracle_rounds_once() -> None:
    value = np.array([1 + 2.0**-8 + 2.0**-40])  # a tie in bf16 once it is float32
    assert cast(Truth("f64", value), "bf16").values.astype(np.float64)[0] == 1 + 2.0**-7


def test_the_oracle_tells_a_wrong_bit_and_an_integer_that_would_change() -> None:
    truth = Truth("f32", np.array([1.0, 0.0], np.float32))
    wrong = Truth("f32", np.array([1.0, -0.0], np.float32))
    assert "element 1" in (compare(truth, wrong.found, loose=True)[1] or "")
    with pytest.raises(Stop):
        cast(Truth("i32", np.array([(1 << 24) + 1], np.int32)), "f32")
