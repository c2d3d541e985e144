from __future__ import annotations

import numpy as np

import holdall
from holdall.model.model import Model
from holdall.model.notebook import model_html


def test_names_and_values_are_escaped():
    tensors = [holdall.Tensor.of("<script>alert(1)</script>", np.zeros(2))]
    model = Model(tensors, metadata={"<i>": "<b>&\"'"}, assets={"<a>": b"x"})
    html = model_html(model)
    for raw in ("<script>", "<i>", "<b>&", "<a>"):
        assert raw not in html
    assert "&lt;script&gt;" in html


def test_controls_are_shown_not_obeyed():
    html = model_html(Model([holdall.Tensor.of("a\u202eb", np.zeros(1))]))
    assert "\u202e" not in html
    assert "a\\u202eb" in html


def test_the_first_twenty_and_the_number_of_the_rest():
    model = Model([holdall.Tensor.of(f"t{n}", np.zeros(2, np.int8)) for n in range(50)])
    html = model_html(model)
    assert "50 tensors, 100 elements, 100 B (i8 × 50)" in html
    assert "t19<" in html
    assert "t20<" not in html
    assert "… and 30 more" in html


def test_long_names_are_cut():
    assert len(model_html(Model([holdall.Tensor.of("x" * 10**6, np.zeros(1))]))) < 2000


def test_an_empty_and_a_closed_model(tmp_path):
    assert "0 tensors" in model_html(Model())
    holdall.save(tmp_path / "x.oinf", {"w": np.zeros(1)}, metadata={"mode": "fast"})
    model = holdall.open(tmp_path / "x.oinf")
    html = model._repr_html_()
    assert "oinf 1" in html
    assert "fast" in html
    model.close()
    assert "closed" in model._repr_html_()
