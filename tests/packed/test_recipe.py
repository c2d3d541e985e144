"""A recipe maps the names of packed weights as it maps those of plain ones, once they are decoded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import holdall
from holdall.errors import ContentError
from holdall.packed import decode_weights
from tests.packed.golden import FOLDER

LLAMA = FOLDER / "bnb-llama"


def test_a_packed_llama_becomes_what_its_plain_weights_become(tmp_path: Path) -> None:
    with holdall.open(LLAMA) as model:
        holdall.save(tmp_path / "plain", decode_weights(model), format="hf")
    options = {"recipe": "llama-gguf"}
    holdall.convert(tmp_path / "plain", tmp_path / "wanted.gguf", **options)
    holdall.convert(LLAMA, tmp_path / "found.gguf", dequantize=True, **options)
    with holdall.open(tmp_path / "wanted.gguf") as wanted, holdall.open(tmp_path / "found.gguf") as found:
        assert sorted(found) == sorted(wanted)
        assert all(np.array_equal(found[name].numpy(), wanted[name].numpy()) for name in wanted)


def test_a_recipe_over_parts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ContentError, match="--dequantize makes plain weights of the 7 of bitsandbytes"):
        holdall.convert(LLAMA, tmp_path / "out.gguf", recipe="llama-gguf")
    assert not (tmp_path / "out.gguf").exists()
