"""A name that is not there: what may have been meant, in bounded time."""

import pickle
import time

import numpy as np
import pytest

import holdall
from holdall.base.suggest import did_you_mean
from holdall.model.model import model_of

NAMES = [
    f"model.layers.{n}.{part}.weight" for n in range(60) for part in ("mlp.up_proj", "mlp.down_proj", "input_norm")
]


@pytest.fixture
def model():
    return model_of({name: np.zeros(1, np.int8) for name in NAMES})


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("model.layers.59.mlp.down_proj.wieght", "model.layers.59.mlp.down_proj.weight"),
        ("modle.layers.31.input_norm.weight", "model.layers.31.input_norm.weight"),
        ("layers.7.mlp.up_proj.weight", "model.layers.7.mlp.up_proj.weight"),
    ],
)
def test_a_missing_tensor_names_a_near_one(model, asked, meant):
    with pytest.raises(KeyError) as caught:
        model[asked]
    message = f"there is no tensor {asked!r} among the 180. Did you mean {meant!r}"
    assert str(caught.value).startswith(message)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_nothing_near_asks_nothing(model):
    for asked in ("entirely different", "", 7, "x" * 100_000):
        with pytest.raises(holdall.MissingError) as caught:
            model[asked]
        assert str(caught.value) == f"there is no tensor {asked!r} among the 180"


def test_the_last_of_many_names_is_found_and_quickly():
    names = [f"model.layers.{n // 100}.experts.{n % 100}.weight" for n in range(20_000)]
    began = time.perf_counter()
    assert "'model.layers.199.experts.99.weight'" in did_you_mean("model.layers.199.expert.99.weight", names)
    assert time.perf_counter() - began < 3


def test_hostile_names_take_no_time():
    began = time.perf_counter()
    assert did_you_mean("a" * 200, ["ab" * 50_000 + str(n) for n in range(100)] + ["b" * 200] * 200_000) == ""
    assert time.perf_counter() - began < 3


def test_asking_whether_a_name_is_there_looks_for_no_other():
    many = model_of({f"model.layers.{n}.weight": np.zeros(1, np.int8) for n in range(5000)})
    began = time.perf_counter()
    assert all(many.get(f"model.layer.{n}.weight") is None for n in range(5000))
    assert time.perf_counter() - began < 3  # minutes, if each of them were compared
