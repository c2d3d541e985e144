"""Scales of the cache of keys and values belong to no weight: they are left out of plain models, and listed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import holdall
import holdall.numpy
from tests.packed.layouts import add, read_content, write_content


@pytest.mark.parametrize("model", ["fp8-modelopt", "fp8-blocks"])
@pytest.mark.parametrize("shape", [(), (1,)])
def test_scales_of_the_cache_are_left_out(model: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    content = read_content(model)
    one = np.ones(shape, np.float32)
    add(l__self_attn__k_scale=one, l__self_attn__v_scale=one)(content)
    path = write_content(content, tmp_path / "m")
    found = holdall.numpy.load_file(path, decode=True)
    assert not [name for name in found if name.endswith(("k_scale", "v_scale"))]
    report = holdall.convert(path, tmp_path / "plain.gguf", dequantize=True, recipe="none")
    assert any("that no weight needs left out" in text for text in report.dropped)
