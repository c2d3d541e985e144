"""The encoder runs from packed files: the vectors are those of the plain weights."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np

import holdall
import holdall.numpy
from holdall.model.model import Model, model_of
from holdall.runtime.embedder import Embedder
from tests.runtime.tiny import CONFIG, TEXTS, VOCAB, tensors


def test_vectors_from_packed_weights_are_those_of_plain_ones(tmp_path: Path) -> None:
    packed, plain = {}, {}
    for name, values in tensors().items():
        if values.ndim != 2 or "LayerNorm" in name:
            packed[name] = plain[name] = values
            continue
        scales = (np.abs(values).max(1, keepdims=True) / 448).astype(np.float32)
        codes = (values / scales).astype(ml_dtypes.float8_e4m3fn)
        packed |= {name: codes, f"{name}_scale": scales}
        plain[name] = codes.astype(np.float32) * scales
    settings = {"quant_method": "fbgemm_fp8"}
    for folder, content, more in (("packed", packed, {"quantization_config": settings}), ("plain", plain, {})):
        config = json.dumps({**CONFIG, "dtype": "float32", **more}).encode()
        assets = {"config.json": config, "vocab.txt": VOCAB.to_text()}
        holdall.save(tmp_path / folder, Model(model_of(content).tensors, assets=assets), format="hf")
    with holdall.open(tmp_path / "packed") as one, holdall.open(tmp_path / "plain") as other:
        found, wanted = (Embedder(model, vocab=VOCAB, config=CONFIG).embed(TEXTS) for model in (one, other))
    assert np.array_equal(found, wanted)
