"""What the format's own tools offer, beside what holdall makes of the same files."""

from __future__ import annotations

import contextlib
import io
import re
import struct

import numpy as np
import pytest
from click.testing import CliRunner

import holdall
import holdall.numpy
from holdall import oinf
from holdall.cli import main
from tests.format.oinf.build import Entry, File, patch, string
from tests.format.oinf.document import EVERYTHING, everything


@pytest.mark.shows("O08", "O55")
@pytest.mark.parametrize("name", ["B", "layer.D", "array", "bits", "eps", "on", "codes", "state", "w"])
def test_padding_after_a_name_is_zero_too(name):
    data = EVERYTHING.data()
    start = data.index(string(name))
    for at in range(start + 4 + len(name), start + len(string(name))):
        damaged = patch(data, at, b"\1")
        assert holdall.verify(damaged).ok
        assert not holdall.verify(damaged, level="strict").ok, f"byte {at}"


@pytest.mark.shows("O34")
def test_a_bitset_tensor_is_written_when_it_is_asked_for(tmp_path):
    model = oinf.model({"w": oinf.TensorSpec([[1, 2], [254, 255]], dtype="bitset")})
    with pytest.raises(holdall.ContentError, match="bitset"):
        holdall.save(tmp_path / "a.oinf", model)
    holdall.save(tmp_path / "a.oinf", model, bitsets="write")
    assert (tmp_path / "a.oinf").read_bytes() == File(tensors=[Entry("w", 13, [2, 2], bytes([1, 2, 254, 255]))]).data()


@pytest.mark.shows("O51")
def test_a_model_becomes_bytes_without_a_file():
    assert holdall.numpy.save(everything()) == EVERYTHING.data()
    plain = holdall.numpy.save({"w": np.arange(4, dtype=np.float32)}, format="oinf")
    assert plain == File(tensors=[Entry("w", 10, [4], struct.pack("<4f", 0, 1, 2, 3))]).data()


@pytest.mark.shows("O52", "O53")
def test_the_summary_has_what_the_published_verifier_prints(tmp_path):
    from oinf_verify import parse_file

    path = tmp_path / "a.oinf"
    path.write_bytes(EVERYTHING.data())
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        parse_file(str(path))
    shown = CliRunner().invoke(main, ["verify", "--stats", str(path)])
    assert shown.exit_code == 0
    ours = [line.strip() for line in shown.output.splitlines()]
    theirs = [line.replace(": str = ", ": string = ").strip(" ,") for line in printed.getvalue().splitlines()]
    sizevars_and_metadata = [line for line in theirs if " := " in line or re.match(r"(array|bits|eps|mode|on): ", line)]
    assert len(sizevars_and_metadata) == 7
    assert set(sizevars_and_metadata) <= set(ours)
    for preview in ("{ 1, -8, 7 }", "{ 0, 0.333333, 0.666667, 1, 1.33333, 1.66667, 2 }"):
        assert any(line.endswith(preview) for line in theirs)
        assert preview in ours
    for stats in re.findall(r"min: (.*), max: (.*), mean: (.*), median: (.*), std: (.*)\]", printed.getvalue()):
        assert "min {}, max {}, mean {}, median {}, std {}".format(*stats) in ours
    assert "state: f32[4, 16] -- uninitialized" in theirs
    assert "state: f32[4, 16]: no data" in ours
