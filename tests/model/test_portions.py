"""Portions of tensors: every value once, in order, whatever holds them and however many threads read them."""

import time

import numpy as np
import pytest

from holdall.base.parallel import map_in_order, use_threads
from holdall.errors import ContentError
from holdall.model.dtypes import DTYPES
from holdall.model.ggml import find_blocks
from holdall.model.payload import Computed, InMemory, SourceRange
from holdall.model.portions import fill_in_order, split
from holdall.model.tensor import Tensor
from holdall.quant import quantize
from holdall.source import BytesSource, FileSource

CHANCE = np.random.default_rng(9)
ENCODED = CHANCE.normal(size=(301, 96)).astype(np.float32)

TENSORS = {
    "f32": Tensor.of("w", CHANCE.normal(size=(77, 1301)).astype(np.float32)),
    "f16": Tensor.of("w", CHANCE.normal(size=100_003).astype(np.float16)),
    "u1": Tensor.of("w", CHANCE.integers(0, 2, 100_003), "u1"),
    "i4": Tensor.of("w", CHANCE.integers(-8, 8, (3, 33_335)), "i4"),
    "bool": Tensor.of("w", CHANCE.integers(0, 2, 999) > 0),
    "scalar": Tensor.of("w", np.float32(3)),
    "empty": Tensor.of("w", np.empty((0, 5), np.float32)),
    "mcf.k4": quantize(ENCODED, "k4").tensor("w"),
    "mcf.q8": quantize(ENCODED, "q8").tensor("w"),
    "mcf.int4": quantize(ENCODED[:, :95].reshape(301, 5, 19), "int4").tensor("w"),  # rows that begin inside a byte
    "mcf.int8 scalar": quantize(np.float32(3), "int8").tensor("w"),
    "ggml.q8_0": Tensor(
        "w", find_blocks("ggml.q8_0"), (40, 64), InMemory(CHANCE.integers(0, 64, 2720, dtype=np.uint8))
    ),
}


@pytest.fixture(params=["file", "bytes", "memory", "computed"])
def place(request, tmp_path):
    """A function that puts the payload of a tensor elsewhere."""

    def put(tensor):
        data = bytes(tensor.raw())
        if request.param == "file":
            (tmp_path / "data").write_bytes(b"odd" + data)
            return tensor.replace(payload=SourceRange(FileSource(tmp_path / "data"), 3, len(data)))
        if request.param == "bytes":
            return tensor.replace(payload=SourceRange(BytesSource(b"odd" + data), 3, len(data)))
        if request.param == "memory":
            return tensor.replace(payload=InMemory(data))
        return tensor.replace(payload=Computed(len(data), lambda: [data[:1], data[1:]]))

    return put


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("count", [1, 1000, 1 << 20])
@pytest.mark.parametrize("name", TENSORS)
def test_every_value_once_and_in_order(place, name, count, threads):
    tensor = place(TENSORS[name])
    whole = np.array(tensor.numpy()).reshape(-1)
    portions = list(split(tensor, count))
    assert [portion.first for portion in portions] == list(
        np.cumsum([0, *(p.count for p in portions)])[: len(portions)]
    )
    assert all(portion.first % 8 == 0 for portion in portions)
    with use_threads(threads):
        parts = list(map_in_order(lambda portion: portion.use(np.copy), split(tensor, count)))
    found = np.concatenate(parts) if parts else np.empty(0, whole.dtype)
    assert found.tobytes() == whole.tobytes()
    assert found.dtype == whole.dtype or not parts


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_memory_that_is_kept_is_not_used_again(place, threads):
    tensor = place(TENSORS["f32"])

    def fill(portion, memory):
        portion.use(lambda values: memory.__setitem__(slice(None), values.view(np.uint8).data))
        return portion.first

    with use_threads(threads):
        made = list(fill_in_order(split(tensor, 4000), lambda count: 4 * count, fill))
    assert b"".join(memory for memory, _ in made) == bytes(tensor.raw())
    assert [first for _, first in made] == list(range(0, tensor.count, 4000))


def test_memory_that_is_passed_on_is_used_again():
    tensor = TENSORS["f32"]
    addresses = set()
    with use_threads(2):
        for memory, _ in fill_in_order(split(tensor, 800), lambda count: 4 * count, lambda *job: time.sleep(0.001)):
            addresses.add(np.frombuffer(memory, np.uint8).ctypes.data)
            del memory
    assert len(addresses) < 20 < tensor.count // 800


def test_a_tensor_without_data_is_refused():
    with pytest.raises(ContentError, match=r"'w' f32.* is declared without data"):
        list(split(Tensor("w", DTYPES["f32"], (4, 4), None), 8))
