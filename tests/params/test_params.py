"""Parameters on demand: budgets, pins, forms, namespaces, threads, and what a gpt-rs configuration asks for."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest

import holdall
from holdall.errors import ContentError, MissingError
from holdall.model.identity import base_id, param_key
from holdall.model.model import model_of
from holdall.params import Cache, Figures, ParamStore, Streaming

KB = np.zeros(256, np.float32)  # 1024 bytes


def numbered(count: int) -> holdall.Model:
    return model_of({f"w{n}": KB + n for n in range(count)})


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "model.safetensors"
    holdall.save(path, {f"w{n}": KB + n for n in range(8)}, fsync=False)
    with holdall.open(path) as model:
        yield model


@pytest.mark.shows("G30")
def test_a_parameter_is_loaded_when_first_needed_and_then_kept(saved):
    store = ParamStore.from_model(saved)
    assert store.figures() == Figures(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    first = store["w3"]
    assert store["w3"] is first
    assert first.tolist() == (KB + 3).tolist()
    assert not first.flags.writeable
    figures = store.figures()
    assert (figures.loads, figures.hits, figures.held, figures.loaded) == (1, 1, 1024, 1024)


@pytest.mark.shows("G34")
def test_the_least_recently_used_goes_first(saved):
    store = ParamStore.from_model(saved, budget=3 * 1024)
    for name in ("w0", "w1", "w2", "w0", "w3", "w0"):  # w1 goes
        store[name]
    figures = store.figures()
    assert (figures.loads, figures.hits, figures.evictions, figures.held) == (4, 2, 1, 3072)
    store["w2"]
    assert store.figures().loads == 4
    store["w1"]
    assert store.figures().loads == 5
    assert store.figures().peak == 3072


def test_under_a_budget_arrays_own_their_memory_and_outlive_eviction(saved):
    store = ParamStore.from_model(saved, budget=1024)
    first = store["w1"]
    assert isinstance(saved.sources[0].is_mapped, bool)
    store["w2"]
    assert store.figures().evictions == 1
    assert first.tolist() == (KB + 1).tolist()


def test_what_is_larger_than_the_budget_is_handed_out_but_not_kept():
    store = ParamStore.from_model(numbered(2), budget=1000)
    assert store["w1"][0] == 1
    assert store["w1"][0] == 1
    figures = store.figures()
    assert (figures.loads, figures.held, figures.refused, figures.evictions) == (2, 0, 2, 0)


@pytest.mark.shows("G34")
def test_small_ones_are_pinned_and_leave_less_room():
    store = ParamStore.from_model(model_of({"b": np.zeros(4), "w": KB, "v": KB}), budget=1024 + 32, small=32)
    for name in ("b", "w", "v", "w", "b"):
        store[name]
    figures = store.figures()
    assert (figures.pinned, figures.evictions, figures.loads, figures.hits) == (32, 2, 4, 1)
    full = ParamStore.from_model(model_of({"b": np.zeros(4), "w": KB}), budget=1030, small=32)
    full["b"], full["w"]
    assert (full.figures().refused, full.figures().held) == (1, 32)


def test_prefetch_by_pattern_pins():
    model = model_of({f"layer.{n}.{kind}": KB + n for n in range(3) for kind in "ab"})
    store = ParamStore.from_model(model, budget=4 * 1024)
    (parameters,) = store.models.values()
    assert parameters.prefetch("layer.0.*", "*.1.b") == ["layer.0.a", "layer.0.b", "layer.1.b"]
    for name in ("layer.1.a", "layer.2.a", "layer.2.b", "layer.0.a", "layer.1.b"):
        parameters[name]
    figures = store.figures()
    assert (figures.pinned, figures.loads, figures.hits, figures.evictions) == (3072, 6, 2, 2)
    assert parameters.prefetch("nothing.*") == []
    assert parameters.prefetch("layer.2.b", form="f64") == ["layer.2.b"]


def test_a_kept_value_can_be_pinned_later():
    store = ParamStore.from_model(numbered(3), budget=2048)
    (parameters,) = store.models.values()
    parameters["w0"]
    parameters.load("w0", pin=True)
    parameters["w1"], parameters["w2"]
    assert store.figures().pinned == 1024
    parameters["w0"]
    assert store.figures().hits == 2


@pytest.mark.shows("G29", "G41")
def test_namespaces_keep_models_apart():
    store = ParamStore()
    first, second = store.add(numbered(1)), store.add(model_of({"w0": KB + 9}))
    third = store.add(numbered(1), namespace=1 << 100)
    assert (first.namespace, second.namespace) == (1, 2)
    assert (first["w0"][0], second["w0"][0], store[2, "w0"][0], store[1 << 100, "w0"][0]) == (0, 9, 9, 0)
    assert first.key("w0") == param_key(1, base_id("w0")) != third.key("w0")
    with pytest.raises(MissingError, match="3 models"):
        store["w0"]
    with pytest.raises(MissingError, match="no namespace 7"):
        store[7, "w0"]
    with pytest.raises(ContentError, match="taken"):
        store.add(numbered(1), namespace=2)


def test_parameters_are_a_mapping_and_know_ids():
    (parameters,) = ParamStore.from_model(numbered(2)).models.values()
    assert list(parameters) == ["w0", "w1"]
    assert len(parameters) == 2
    assert "w1" in parameters
    assert "x" not in parameters
    assert parameters.by_id(base_id("w1"))[0] == 1
    with pytest.raises(MissingError):
        parameters["x"]
    with pytest.raises(MissingError):
        parameters.by_id(7)


# -- forms ------------------------------------------------------------------------------------------------------------


@pytest.mark.shows("G32")
def test_forms_are_made_once_and_share_the_budget():
    matrix = np.arange(6, dtype=np.float16).reshape(2, 3)
    store = ParamStore.from_model(model_of({"w": matrix, "v": np.ones(3, np.float32)}), budget=100)
    (parameters,) = store.models.values()
    turned = parameters.derive("w", "f32.T")
    assert turned.tolist() == matrix.T.tolist()
    assert (turned.dtype, turned.flags.c_contiguous, turned.flags.writeable) == (np.float32, True, False)
    assert parameters.derive("w", "f32.T") is turned
    assert parameters.derive("v", "f32") is parameters["v"]  # it has this form already
    figures = store.figures()
    assert (figures.derived, figures.held) == (1, 24 + 12)  # the parameter itself was not kept for its form
    twice = parameters.derive("w", "twice", lambda values: values * 2)
    assert twice.tolist() == (matrix * 2).tolist()
    with pytest.raises(ContentError, match="needs a function"):
        parameters.derive("w", "upside-down")


def test_a_form_takes_what_is_held():
    store = ParamStore.from_model(numbered(1))
    (parameters,) = store.models.values()
    parameters["w0"]
    parameters.derive("w0", "f64")
    assert (store.figures().loads, store.figures().hits) == (1, 1)
    assert parameters.read("w0") is parameters["w0"]


def test_quantized_ones_come_as_numbers():
    values = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    model = holdall.quant.quantize_model(model_of({"w": values}), "q8")
    store = ParamStore.from_model(model, budget=4096)
    assert store["w"].dtype == np.float32
    assert np.abs(store["w"] - values).max() < 0.05


@pytest.mark.shows("G32")
def test_the_caller_may_replace_the_resolver():
    class Shelf(dict):
        set = dict.__setitem__

    shelf = Shelf()
    store = ParamStore.from_model(numbered(1), resolver=shelf)
    (parameters,) = store.models.values()
    made = parameters.derive("w0", "f64")
    assert list(shelf.values()) == [made]
    assert parameters.derive("w0", "f64") is made
    assert (store.figures().derived, store.figures().hits, store.figures().held) == (1, 1, 0)
    reopen = ParamStore.from_model(numbered(1), resolver=shelf)
    assert next(iter(reopen.models.values())).derive("w0", "f64") is made  # the key is stable
    assert reopen.figures().loads == 0


def test_rows_are_read_alone_under_a_budget(saved, tmp_path):
    table = np.arange(400, dtype=np.float32).reshape(100, 4)
    wanted = [7, 3, 99, 3, 8, 0]
    for model in (model_of({"t": table}), holdall.quant.quantize_model(model_of({"t": np.tile(table, 16)}), "q8")):
        for budget in (None, 800):
            store = ParamStore.from_model(model, budget=budget)
            (parameters,) = store.models.values()
            expected = model["t"].numpy()[wanted]
            assert parameters.rows("t", wanted).tolist() == expected.tolist()
            assert (store.figures().loads, store.figures().rows) == ((1, 0) if budget is None else (0, 5))
            assert parameters.rows("t", []).shape == (0, *expected.shape[1:])
            with pytest.raises(ContentError, match="which has 100"):
                parameters.rows("t", [100])
            with pytest.raises(ContentError, match="which has 100"):
                parameters.rows("t", [-1])


# -- threads ----------------------------------------------------------------------------------------------------------


@pytest.mark.shows("G36")
def test_threads_that_ask_for_one_parameter_load_it_once(monkeypatch):
    gate, calls = threading.Event(), []
    honest = holdall.Tensor.numpy

    def slow(tensor, **options):
        calls.append(tensor.name)
        gate.wait(10)
        return honest(tensor, **options)

    monkeypatch.setattr(holdall.Tensor, "numpy", slow)
    store = ParamStore.from_model(numbered(1))
    found = []
    threads = [threading.Thread(target=lambda: found.append(store["w0"])) for _ in range(8)]
    for thread in threads:
        thread.start()
    gate.set()
    for thread in threads:
        thread.join(10)
    assert calls == ["w0"]
    assert len({id(array) for array in found}) == 1
    assert (store.figures().loads, store.figures().hits) == (1, 7)


def test_an_error_reaches_everybody_and_is_not_remembered():
    store = ParamStore.from_model(numbered(1))
    (parameters,) = store.models.values()

    def fail(values):
        raise ZeroDivisionError

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            parameters.derive("w0", "broken", fail)
    assert parameters.derive("w0", "broken", lambda values: values).size == 256


def test_a_form_made_from_itself_is_refused_not_awaited():
    (parameters,) = ParamStore.from_model(numbered(1)).models.values()
    with pytest.raises(ContentError, match="made from itself"):
        parameters.derive("w0", "loop", lambda values: parameters.derive("w0", "loop", lambda inner: inner))


@pytest.mark.shows("G36")
def test_many_threads_under_a_small_budget_agree():
    model = numbered(16)
    store = ParamStore.from_model(model, budget=5 * 1024)
    wrong = []

    def ask(seed):
        random = np.random.default_rng(seed)
        wrong.extend(n for n in random.integers(0, 16, 300).tolist() if store[f"w{n}"][0] != n)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    figures = store.figures()
    assert not wrong
    assert figures.hits + figures.loads == 6 * 300
    assert figures.peak <= 5 * 1024
    assert figures.evictions > 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_while_the_lock_is_held_does_not_hang():
    store = ParamStore.from_model(numbered(1))
    with store._lock:
        child = os.fork()
        if not child:
            os._exit(0 if store["w0"].size == 256 else 1)
        assert os.waitpid(child, 0)[1] == 0


# -- weight_streaming -------------------------------------------------------------------------------------------------


def asked(**streaming):
    return {"kind": "gpt", "config": {}, "runtime": {"weight_streaming": streaming}}


@pytest.mark.shows("G34")
@pytest.mark.parametrize(
    ("streaming", "expected"),
    [
        ({}, Streaming()),
        ({"enabled": False}, Streaming()),
        ({"enabled": True}, Streaming(keep=False)),
        ({"enabled": True, "device_budget_bytes": 500}, Streaming(500)),
        ({"enabled": True, "device_weights_percent": 0.333}, Streaming(333)),
        ({"enabled": True, "device_weights_percent": 0.5, "device_budget_bytes": 400}, Streaming(400)),
        ({"enabled": True, "device_budget_bytes": 500, "cache_budget_cap_bytes": 90}, Streaming(90)),
        ({"enabled": True, "cache_budget_cap_bytes": 90}, Streaming(keep=False)),
        ({"enabled": True, "small_param_persist_threshold": 64}, Streaming(small=64, keep=False)),
        ({"enabled": True, "prefetch_layers": 2}, Streaming(keep=False, prefetch_layers=2)),
    ],
)
def test_what_a_configuration_asks_for(streaming, expected):
    assert Streaming.of(asked(**streaming), 1000) == expected


@pytest.mark.shows("G35")
@pytest.mark.parametrize(
    ("streaming", "message"),
    [
        ({"device_budget_bytes": 5}, "not enabled, but sets device_budget_bytes"),
        ({"enabled": True, "device_weights_percent": 1.5}, "not from 0 to 1"),
        ({"enabled": True, "device_weights_percent": float("nan")}, "not from 0 to 1"),
        ({"enabled": True, "device_budget_bytes": -1}, "not a size"),
        ({"enabled": True, "prefetch_layers": "2"}, "not a size"),
        ({"enabled": 1}, "not true or false"),
    ],
)
def test_knobs_that_make_no_sense_are_refused(streaming, message):
    with pytest.raises(ContentError, match=message):
        Streaming.of(asked(**streaming), 1000)


@pytest.mark.parametrize("config", [None, {}, {"runtime": None}, {"runtime": {"weight_streaming": None}}, [1]])
def test_configurations_without_it_change_nothing(config):
    assert Streaming.of(config, 1000) == Streaming()


@pytest.mark.shows("G34")
def test_a_checkpoint_is_streamed_as_it_says(tmp_path):
    tensors = {f"blocks.{n}.w": KB + n for n in range(4)} | {"wte": KB}
    streaming = {"enabled": True, "device_weights_percent": 0.4, "prefetch_layers": 1}
    path = tmp_path / "model.gptrs"
    holdall.save(path, tensors, config=asked(**streaming), fsync=False)
    with holdall.open(path) as model:
        store = ParamStore.from_model(model)
        assert (store.budget, store.figures().loads, store.figures().pinned) == (2048, 1, 1024)
        for n in (1, 2, 0, 3):
            assert store[f"blocks.{n}.w"][0] == n
        figures = store.figures()
        assert (figures.loads, figures.hits, figures.evictions) == (4, 1, 2)
        assert ParamStore.from_model(model, budget=9999).budget == 9999


def test_without_a_budget_streaming_keeps_only_what_is_small(tmp_path):
    path = tmp_path / "model.gptrs"
    config = asked(enabled=True, small_param_persist_threshold=16)
    holdall.save(path, {"b": np.zeros(4, np.float32), "w": KB}, config=config, fsync=False)
    with holdall.open(path) as model:
        store = ParamStore.from_model(model)
        for name in ("b", "w", "b", "w"):
            store[name]
        assert (store.figures().loads, store.figures().held) == (3, 16)


def test_letting_go():
    store = ParamStore.from_model(numbered(2))
    store["w0"]
    store.clear()
    assert store.figures().held == 0
    store["w0"]
    assert store.figures().loads == 2
    with pytest.raises(ContentError, match="0 bytes or more"):
        ParamStore(-1)


def test_a_cache_replaces_and_drops():
    cache = Cache(100)
    cache.put(1, np.zeros(5), 40)
    cache.put(1, np.zeros(2), 16, pinned=True)
    cache.drop(7)
    assert (cache.held, cache.pinned, len(cache), 1 in cache, list(cache)) == (16, 16, 1, True, [1])
