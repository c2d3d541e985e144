"""Layouts that are right are decoded, and layouts that are subtly wrong are refused with tensor and rule."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import holdall
import holdall.numpy
from holdall.cli import main
from holdall.errors import ContentError
from tests.packed.golden import compare_values, read_golden
from tests.packed.layouts import Layout, read_content, write_content
from tests.packed.right_layouts import RIGHT
from tests.packed.wrong_codes import WRONG_CODES
from tests.packed.wrong_floats import WRONG_FLOATS

WRONG = [*WRONG_FLOATS, *WRONG_CODES]


def title_of(layout: Layout) -> str:
    return f"{layout.model}: {layout.title}"


@pytest.mark.parametrize("layout", WRONG, ids=title_of)
def test_a_wrong_layout_is_refused_with_tensor_and_rule(layout: Layout, tmp_path: Path) -> None:
    content = read_content(layout.model)
    layout.change(content)
    path = write_content(content, tmp_path / "m")
    pattern = re.escape(layout.rule) if " " in layout.rule else rf"\[packed\.{re.escape(layout.rule)}\]"
    pattern = rf"tensor {layout.tensor!r}[^;]*{pattern}" if layout.tensor else pattern
    with pytest.raises(ContentError, match=pattern):
        holdall.numpy.load_file(path, decode=True)
    for changes in ({"dequantize": True}, {"quantize": "q8"}):
        with pytest.raises(ContentError, match=pattern):
            holdall.convert(path, tmp_path / "out.mcf", **changes)
    for changes in ({"cast": {"*": "f32"}}, {"transpose": ["*"]}) if layout.model != "comfy-e4m3" else ():
        with pytest.raises(ContentError, match="made of several tensors"):
            holdall.convert(path, tmp_path / "out.mcf", **changes)
    assert not (tmp_path / "out.mcf").exists()
    if layout.rule != "gptq.group":  # found when the numbers are read
        text = CliRunner().invoke(main, ["info", str(path)]).output
        assert "cannot be right" in " ".join(text.split())


@pytest.mark.parametrize("layout", RIGHT, ids=title_of)
def test_a_right_layout_is_decoded(layout: Layout, tmp_path: Path) -> None:
    content = read_content(layout.model)
    layout.change(content)
    found = holdall.numpy.load_file(write_content(content, tmp_path / "m"), decode=True)
    golden = read_golden(layout.model)
    wrong = {
        name: compare_values(found[name].astype(np.float32), wanted, golden.types[name], golden.roundings)
        for name, wanted in golden.expected.items()
    }
    assert not any(wrong.values()), wrong


def test_there_are_more_than_thirty_layouts() -> None:
    assert len(WRONG) > 30
    assert len({title_of(layout) for layout in [*WRONG, *RIGHT]}) == len(WRONG) + len(RIGHT)
