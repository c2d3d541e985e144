"""A parameter as an object before it is loaded, and forms that are no arrays."""

from __future__ import annotations

import numpy as np
import pytest
from blake3 import blake3

import holdall
from holdall.params import ParamStore
from holdall.source import BytesSource
from holdall.testing import RecordingSource
from tests.format.gptrs.build import Entry, base_id, checkpoint

W = np.arange(6, dtype="<f4").reshape(2, 3)


@pytest.mark.shows("G30", "G31")
def test_a_lazy_parameter_knows_its_ids_and_reads_nothing():
    source = RecordingSource(BytesSource(checkpoint([Entry("w", 0, [2, 3], W.tobytes())])))
    parameters = ParamStore().add(holdall.open(source), namespace=7)
    source.reads.clear()
    lazy = parameters.lazy("w")
    hashed = blake3(b"gpt-rs:param-key:v1" + (7).to_bytes(16, "little") + base_id("w")).digest()
    assert lazy.base_id == int.from_bytes(base_id("w"), "little")
    assert lazy.stable_id == int.from_bytes(hashed[:16], "little")
    assert (lazy.shape, str(lazy.dtype)) == ((2, 3), "f32")
    assert source.reads == []
    assert np.asarray(lazy).tolist() == W.tolist()
    assert source.bytes_read == W.nbytes
    assert np.asarray(parameters.lazy("w")).tolist() == W.tolist()
    assert source.bytes_read == W.nbytes


@pytest.mark.shows("G32", "G33")
def test_a_form_may_be_a_handle_of_a_backend():
    class Handle:
        made = 0

        def __init__(self, values):
            Handle.made += 1
            self.shape = values.shape

    store = ParamStore.from_model(holdall.open(checkpoint([Entry("w", 0, [2, 3], W.tobytes())])), budget=1000)
    (parameters,) = store.models.values()
    first = parameters.derive("w", "device", Handle, size=100)
    assert (first.shape, parameters.derive("w", "device", Handle, size=100) is first, Handle.made) == ((2, 3), True, 1)
    assert store.figures().held == 100

    class Shelf(dict):
        set = dict.__setitem__

    shelf = Shelf()
    for _ in range(2):
        (own,) = ParamStore.from_model(
            holdall.open(checkpoint([Entry("w", 0, [2, 3], W.tobytes())])), resolver=shelf
        ).models.values()
        own.derive("w", "device", Handle)
    assert (Handle.made, [type(value) for value in shelf.values()]) == (2, [Handle])
