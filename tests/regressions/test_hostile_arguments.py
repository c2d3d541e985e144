"""Numbers, rules and addresses beyond what Python reads: refused with a sentence, by every way they come in."""

import os
import warnings

import numpy as np
import pytest
from click.testing import CliRunner

import holdall
from holdall.cli import main

HUGE = "1" + "0" * 5000


@pytest.fixture
def path(tmp_path):
    holdall.save(tmp_path / "m.safetensors", {"w": np.zeros(3, np.float32)})
    return tmp_path / "m.safetensors"


@pytest.mark.parametrize(
    "words",
    [
        ["info", "{path}", "--limit", f"rank={HUGE}"],
        ["convert", "{path}", "{out}.safetensors", "--split", HUGE],
        ["convert", "{path}", "{out}.aero", "-o", f"align={HUGE}"],
        ["convert", "{path}", "{out}.safetensors", "-o", f"align={HUGE}"],
        ["convert", "{path}", "{out}.oinf", "-o", f"version={HUGE}"],
        ["convert", "{path}", "{out}.oinf", "--rename", "s/a{99999999999}/x/"],
        ["convert", "{path}", "{out}.oinf", "--rename", f"s/{'(' * 3000}a{')' * 3000}/x/"],
        ["edit", "{path}", "--rename", f"s/{'(?:' * 3000}a{')' * 3000}/x/"],
    ],
    ids=lambda words: " ".join(word[:20] for word in words if not word.startswith("{")),
)
def test_numbers_and_rules_beyond_python(path, tmp_path, words):
    given = [word.replace("{path}", str(path)).replace("{out}", str(tmp_path / "out")) for word in words]
    done = CliRunner().invoke(main, given)
    assert done.exit_code in (1, 2), done.output
    assert "should not happen" not in done.output
    assert list(tmp_path.iterdir()) == [path]


def test_a_set_in_a_rule_brings_no_warning_of_python(path, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        holdall.convert(path, tmp_path / "o.oinf", rename=["s/[[:alpha:]]/x/"])


def test_a_file_for_each_of_many_empty_tensors_is_too_much(tmp_path):
    """A file of 70 kB made 100,000 files: 400 MB of a disk."""
    path = tmp_path / "m.aero"
    holdall.save(path, {f"t{number}": np.zeros(0, np.float32) for number in range(80_000)}, fsync=False)
    done = CliRunner().invoke(main, ["extract", str(path), "--all", str(tmp_path / "out")])
    assert done.exit_code == 3
    assert "a file for each tensor" in done.output and "--limit decompression_ratio=" in done.output
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_a_pipe_in_the_cache_keeps_nothing_waiting(tmp_path):
    from holdall.source.remote.disk_cache import RangeCache

    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    os.mkfifo(folder / "key", 0o600)
    cache = RangeCache(folder, 1 << 20)
    assert bytes(cache.get(("url", 4, "tag"), 0, 4, lambda: memoryview(b"data"))) == b"data"
