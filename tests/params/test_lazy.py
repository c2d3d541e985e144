"""Parameters as objects that load when first used, and forms that are any object."""

from __future__ import annotations

import struct

import blake3
import numpy as np
import pytest

import holdall
from holdall.errors import ContentError, MissingError
from holdall.model.model import model_of
from holdall.params import ParamStore

MATRIX = np.arange(6, dtype=np.float16).reshape(2, 3)


class Handle:
    """What a program holds of memory that is elsewhere."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values
        self.on_device = 4 * values.size


@pytest.fixture
def saved(tmp_path):
    holdall.save(tmp_path / "m.gptrs", {"blocks.0.w": MATRIX, "b": np.ones(4, np.float32)}, fsync=False)
    with holdall.open(tmp_path / "m.gptrs") as model:
        yield model


def test_ids_shape_and_dtype_are_known_before_anything_is_loaded(saved):
    store = ParamStore()
    lazy = store.add(saved, namespace=5).lazy("blocks.0.w")
    name_id = blake3.blake3(b"blocks.0.w").digest()[:16]
    key = blake3.blake3(b"gpt-rs:param-key:v1" + struct.pack("<QQ", 5, 0) + name_id).digest()[:16]
    assert lazy.base_id == int.from_bytes(name_id, "little")
    assert lazy.stable_id == int.from_bytes(key, "little")
    assert (lazy.name, lazy.shape, str(lazy.dtype), lazy.nbytes) == ("blocks.0.w", (2, 3), "f16", 12)
    assert (store.figures().loads, lazy.is_loaded, "not loaded" in repr(lazy)) == (0, False, True)
    assert lazy.numpy().tolist() == MATRIX.tolist()
    assert lazy.numpy() is lazy.numpy() and lazy.is_loaded and "in memory" in repr(lazy)
    assert store.figures().loads == 1


def test_it_is_an_array_where_one_is_wanted(saved):
    store = ParamStore()
    lazy = store.add(saved).lazy("blocks.0.w")
    assert np.asarray(lazy).dtype == np.float16 and np.asarray(lazy, np.float64).dtype == np.float64
    assert (MATRIX.T @ lazy).tolist() == (MATRIX.T @ MATRIX).tolist()
    assert lazy[1].tolist() == [3, 4, 5] and lazy.rows([1, 1]).tolist() == MATRIX[[1, 1]].tolist()
    copied = np.array(lazy, copy=True)
    copied[0] = 9
    assert lazy[0].tolist() == [0, 1, 2]
    assert lazy.derive("f32.T").tolist() == MATRIX.T.tolist()
    assert (store.figures().loads, store.figures().derived) == (1, 1)


def test_it_loads_again_after_it_was_evicted(saved):
    store = ParamStore(budget=16)
    weights = store.add(saved)
    lazy = weights.lazy("blocks.0.w")
    lazy.numpy()
    weights["b"]
    assert not lazy.is_loaded
    assert lazy.numpy().tolist() == MATRIX.tolist() and store.figures().loads == 3
    with pytest.raises(MissingError):
        weights.lazy("none")


def test_a_form_may_be_any_object_and_the_budget_counts_its_size():
    store = ParamStore(budget=48)
    weights = store.add(model_of({"a": MATRIX, "b": MATRIX, "c": MATRIX}))
    first = weights.derive("a", "device", Handle, size=lambda handle: handle.on_device)
    assert weights.derive("a", "device", Handle, size=lambda handle: handle.on_device) is first
    assert (store.figures().held, store.figures().derived) == (24, 1)
    weights.derive("b", "device", Handle, size=24)
    weights.derive("c", "device", Handle, size=24)
    assert (store.figures().held, store.figures().evictions, store.figures().peak) == (48, 1, 48)
    assert weights.derive("a", "device", Handle, size=24) is not first
    assert weights.lazy("a").derive("large", Handle, size=49).on_device == 24
    assert store.figures().refused == 1


def test_an_object_of_unknown_size_needs_one_under_a_budget():
    weights = ParamStore(budget=100).add(model_of({"a": MATRIX}))
    with pytest.raises(ContentError, match="the form 'device' of 'a' is a Handle of unknown size"):
        weights.derive("a", "device", Handle)
    with pytest.raises(ContentError, match="unknown size"):
        weights.derive("a", "device", Handle, size=-1)
    weights = ParamStore().add(model_of({"a": MATRIX}))
    assert weights.derive("a", "device", Handle) is weights.derive("a", "device", Handle)
    assert weights.store.figures().held == 0
    with pytest.raises(ContentError, match="'none' of 'a': the function returned None"):
        weights.derive("a", "none", lambda values: None)


def test_a_torch_tensor_is_measured_by_its_own_bytes():
    torch = pytest.importorskip("torch")
    weights = ParamStore(budget=100).add(model_of({"a": MATRIX}))
    made = weights.derive("a", "torch", lambda values: torch.from_numpy(values.astype(np.float32)))
    assert weights.derive("a", "torch", torch.from_numpy) is made
    assert weights.store.figures().held == 24
