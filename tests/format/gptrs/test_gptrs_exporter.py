"""What the published exporter can say of tensors, and what older readers of the format refuse."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import holdall
from tests.format.gptrs.build import CONFIG, Entry, checkpoint

W = np.arange(4, dtype="<f4")


@pytest.mark.shows("G16", "G17")
def test_tensors_are_marked_when_they_are_made(tmp_path):
    tensors = [holdall.Tensor.of("a", W, requires_grad=True), holdall.Tensor.of("b", W)]
    want = checkpoint([Entry("a", 0, [4], W.tobytes(), grad=1), Entry("b", 0, [4], W.tobytes())], align=64)
    for content, options in ((tensors, {}), ({"a": W, "b": W}, {"requires_grad": ["a"]})):
        holdall.save(tmp_path / "x.gptrs", content, config=CONFIG, **options)
        assert (tmp_path / "x.gptrs").read_bytes() == want
    with holdall.open(want) as model:
        assert [model[name].requires_grad for name in model] == [True, False]


@pytest.mark.shows("G19")
@pytest.mark.parametrize(("kind", "noted"), [("<f4", 0), ("<i4", 0), ("<f2", 1), (ml_dtypes.bfloat16, 1)])
def test_types_that_older_readers_refuse_are_noted_and_can_be_cast(kind, noted, tmp_path):
    holdall.save(tmp_path / "x.gptrs", {"w": W.astype(kind)}, config=CONFIG)
    report = holdall.verify(tmp_path / "x.gptrs")
    assert report.ok
    assert [finding.severity for finding in report.findings] == ["note"] * noted
    holdall.convert(tmp_path / "x.gptrs", tmp_path / "y.gptrs", cast="f32")
    if kind != "<i4":
        assert (tmp_path / "y.gptrs").read_bytes() == checkpoint([Entry("w", 0, [4], W.tobytes())], align=64)
