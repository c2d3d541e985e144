"""A cast without a pattern is for tensors of floats: what it leaves, and when the report says so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import holdall
from holdall import oinf
from holdall.cli import main
from holdall.errors import ContentError

W = np.arange(12, dtype=np.float32).reshape(3, 4)
IDS = np.arange(4, dtype=np.int32)


@pytest.mark.parametrize(
    ("cast", "note"),
    [
        ("f16", None),  # the ordinary case: integers stay
        (["ids=i64", "i16"], None),  # a rule of its own
        ("i16", "cast i16 reaches tensors of floats, not 1 other, 'ids' i32 first; "
         "--cast 'GLOB=i16' casts those it names"),
        ("i32", None),  # it is i32 already
        (["w=f16", "f16"], "cast f16 reaches tensors of floats, not 1 other, 'ids' i32 first; "
         "--cast 'GLOB=f16' casts those it names"),  # nothing is left for it
    ],
)  # fmt: skip
def test_the_report_says_what_a_bare_cast_did_not_reach(
    cast: str | list[str], note: str | None, tmp_path: Path
) -> None:
    holdall.save(tmp_path / "m.safetensors", {"w": W, "ids": IDS})
    report = holdall.convert(tmp_path / "m.safetensors", tmp_path / "n.safetensors", cast=cast)
    assert [text for text in report.changes if text.startswith("cast ")] == ([] if note is None else [note])


def test_a_bare_cast_does_not_reach_integers_with_parameters_and_a_named_one_is_refused(tmp_path: Path) -> None:
    params = oinf.QuantParams([0.5])
    codes = np.arange(-6, 6, dtype=np.int8).reshape(3, 4)
    holdall.save(tmp_path / "q.oinf", oinf.model({"q": oinf.TensorSpec(codes, "i8", quant=params)}))
    asked = [str(tmp_path / "q.oinf"), str(tmp_path / "x.oinf"), "--cast"]
    shown = CliRunner().invoke(main, ["convert", *asked, "i16"])
    assert shown.exit_code == 0 and "cast i16 reaches tensors of floats, not 1 other, 'q' i8 first" in shown.output
    assert codes.tobytes() in (tmp_path / "x.oinf").read_bytes()
    with holdall.open(tmp_path / "x.oinf") as model:
        assert str(model["q"].dtype) == "i8" and model["q"].native == params
    with pytest.raises(ContentError, match=r"'q'.*dequantize"):
        holdall.convert(tmp_path / "q.oinf", tmp_path / "x.oinf", cast="q=i16")
    report = holdall.convert(tmp_path / "q.oinf", tmp_path / "x.oinf", cast="f16", dequantize=True)
    assert report.changes == ["1 tensor from i8 to f16"]  # dequantized first, and then a tensor of floats
    with holdall.open(tmp_path / "x.oinf") as model:
        assert np.array_equal(model["q"].numpy(), codes.astype(np.float16) / 2)


def test_the_help_says_what_a_bare_cast_is_for() -> None:
    text = " ".join(CliRunner().invoke(main, ["convert", "--help"]).output.split())
    assert "Another dtype for the tensors of GLOB, or without it for tensors of floats only" in text
    page = (Path(__file__).parents[2] / "docs" / "converting.md").read_text(encoding="utf-8")
    assert "or without one for tensors of floats only" in page
