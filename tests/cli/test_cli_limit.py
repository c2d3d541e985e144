"""``--limit NAME=VALUE``: every command that reads a weight file has it, and reads by it."""

from __future__ import annotations

import numpy as np
import pytest

import holdall
from tests.cli.test_cli_untrusted import READING, arguments, options_of


@pytest.fixture
def crowded(tmp_path):
    """A file of three tensors of rank 2."""
    path = tmp_path / "three.oinf"
    weights = {name: np.ones((2, 32), np.float32) for name in ("w", "x", "y")}
    holdall.save(path, weights, metadata={"mode": "fast"})
    return path


@pytest.mark.parametrize("name", READING)
def test_every_reading_command_keeps_to_a_lower_limit(cli, tmp_path, crowded, name):
    assert "--limit" in options_of(name)
    assert "--limit NAME=VALUE" in cli(name, "--help").output
    shown = cli(name, *arguments(name, crowded, tmp_path), "--limit", "tensors=2")
    assert shown.exit_code in (1, 3)
    if name != "info":  # info counts problems, and shows the first
        assert "3 is above the limit of 2" in shown.output
        assert "--limit tensors=" in shown.output


@pytest.mark.parametrize("name", READING)
def test_every_reading_command_opens_by_a_higher_limit(cli, tmp_path, name):
    path = tmp_path / "deep.oinf"
    dtype = holdall.Tensor.of("x", np.zeros(1, np.float32)).dtype
    holdall.save(path, [holdall.Tensor("w", dtype, (1,) * 100, None)])
    shown = cli(name, *arguments(name, path, tmp_path), "--untrusted", "--limit", "rank=100")
    assert "above the limit" not in shown.output


def test_several_limits_and_units(cli, crowded):
    assert cli("info", crowded, "--limit", "tensors=3", "--limit", "index_bytes=1K").exit_code == 0
    shown = cli("ls", crowded, "--limit", "tensors=3", "--limit", "index_bytes=0.1KiB")
    assert shown.exit_code == 3
    assert "is above the limit of 102" in shown.output


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("tensor=3", "there is no limit 'tensor'. Did you mean 'tensors'"),
        ("zzz=3", "there is no limit 'zzz'; the limits are: index_bytes, "),
        ("nesting=1000000", "Limits.nesting is at most 256, since Python recurses over values, not 1000000"),
        ("nesting=257", "Limits.nesting is at most 256"),
        ("tensors=many", "a size looks like 5GB, 512MiB or 1000, not 'many'"),
        ("tensors", "a size looks like 5GB, 512MiB or 1000, not ''"),
    ],
)
def test_what_is_no_limit_is_a_usage_error(cli, crowded, given, said):
    shown = cli("info", crowded, "--limit", given)
    assert shown.exit_code == 2
    assert said in " ".join(shown.output.split())
