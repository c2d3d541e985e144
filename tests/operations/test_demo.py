from __future__ import annotations

import numpy as np
import pytest

from holdall.format import registry
from holdall.operations.demo import demo_model, fit, run


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return {row.format: row for row in run(tmp_path_factory.mktemp("demo"))}


def test_the_model_is_always_the_same():
    one, two = demo_model(), demo_model()
    assert {t.name: bytes(t.raw()) for t in one.tensors} == {t.name: bytes(t.raw()) for t in two.tensors}
    assert one.metadata == two.metadata


@pytest.mark.parametrize("name", registry.names())
def test_every_format_brings_back_what_it_holds(rows, name):
    if not registry.find(name).writes:
        assert name not in rows
        return
    row = rows[name]
    assert row.fine, row.wrong
    if row.refused is None:
        assert row.path.exists()
        assert row.size > 0


def test_oinf_says_what_it_cannot_hold(rows):
    left_out = dict(rows["oinf"].left_out)
    assert left_out["tensor layers.0.mlp.gate"] == "no f8_e4m3"
    assert left_out["asset tokenizer.json"] == "no assets"
    assert "metadata description" in left_out


def test_fit_leaves_nothing_that_the_format_refuses():
    oinf = registry.find("oinf")
    fitted, left_out = fit(demo_model(), oinf)
    reopen, nothing = fit(fitted, oinf)
    assert (len(reopen), nothing) == (len(fitted), [])
    assert len(fitted) + sum(what.startswith("tensor") for what, _ in left_out) == len(demo_model())


def test_a_changed_bit_is_noticed(tmp_path, monkeypatch):
    from holdall.model import tensor

    honest = tensor.Tensor.raw
    monkeypatch.setattr(
        tensor.Tensor, "raw", lambda self: memoryview(b"x" * self.nbytes) if self.offset else honest(self)
    )
    oinf = next(row for row in run(tmp_path) if row.format == "oinf")
    assert not oinf.fine
    assert "its bytes changed" in oinf.wrong


def test_a_writer_that_breaks_hides_no_other(tmp_path, monkeypatch):
    def bug(self, model, options):
        raise ZeroDivisionError("surprise")

    monkeypatch.setattr(type(registry.find("oinf")), "plan", bug)
    rows = {row.format: row for row in run(tmp_path)}
    assert rows["oinf"].wrong == "ZeroDivisionError: surprise"
    assert not rows["oinf"].fine
    assert np.all([row.format in registry.names() for row in rows.values()])
