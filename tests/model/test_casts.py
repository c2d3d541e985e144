"""Casts and dequantized tensors: the values of numpy and the same bytes, for any number of threads."""

import ml_dtypes
import numpy as np
import pytest

from holdall.base.parallel import use_threads
from holdall.errors import ContentError
from holdall.model import casts
from holdall.model.casts import cast, dequantize
from holdall.model.dtypes import find_dtype
from holdall.model.ggml import find_blocks
from holdall.model.payload import Computed, InMemory, SourceRange
from holdall.model.tensor import Tensor
from holdall.quant import METHODS, quantize
from holdall.source import FileSource

FLOATS = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f8_e5m2": ml_dtypes.float8_e5m2,
}


@pytest.fixture(params=["file", "memory", "computed"])
def place(request, tmp_path):
    def put(tensor):
        data = bytes(tensor.raw())
        if request.param == "file":
            (tmp_path / "data").write_bytes(b"odd" + data)
            return tensor.replace(payload=SourceRange(FileSource(tmp_path / "data"), 3, len(data)))
        if request.param == "computed":
            return tensor.replace(payload=Computed(len(data), lambda: [data[:1], data[1:]]))
        return tensor.replace(payload=InMemory(data))

    return put


def wide_values():
    """Numbers that some types hold and some do not, and what is no number."""
    values = np.random.default_rng(4).normal(0, 1, (301, 257)) * 10.0 ** np.random.default_rng(5).integers(
        -3, 6, (301, 257)
    )
    values[7, 3:9] = np.inf, -np.inf, np.nan, 0.0, -0.0, 1e30
    return values


@pytest.mark.parametrize("target", FLOATS)
@pytest.mark.parametrize("source", FLOATS)
def test_floats_are_those_of_numpy(place, monkeypatch, source, target):
    if source == target:
        return
    monkeypatch.setattr(casts, "_BLOCK", 4096)
    with np.errstate(all="ignore"):
        values = wide_values().astype(FLOATS[source])
        wanted = values.astype(np.float32 if source != "f64" else np.float64).astype(FLOATS[target])
        lost = int((np.isfinite(values.astype(np.float64)) & ~np.isfinite(wanted.astype(np.float64))).sum())
    made, told = set(), set()
    for threads in (1, 2, 5):
        said = []
        with use_threads(threads):
            made.add(bytes(cast(place(Tensor.of("w", values)), find_dtype(target), said.append).raw()))
        told.add(tuple(said))
    (stored,), (said,) = made, told
    found = np.frombuffer(stored, FLOATS[target]).reshape(values.shape).astype(np.float64)
    if (source, target) != ("f64", "f8_e5m2"):  # which ml_dtypes rounds twice
        assert np.array_equal(found, wanted.astype(np.float64), equal_nan=True)
        assert [text.split()[2] for text in said] == ([str(lost)] if lost else [])
    assert all(text.startswith("tensor 'w': ") and f"beyond {target}" in text for text in said)


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("target", ["i8", "u4", "f32", "f16", "i64"])
def test_integers_are_those_of_numpy(place, monkeypatch, threads, target):
    monkeypatch.setattr(casts, "_BLOCK", 4096)
    values = np.random.default_rng(6).integers(0, 16, 70_003).astype(np.int32)
    with use_threads(threads):
        changed = cast(place(Tensor.of("w", values)), find_dtype(target))
        assert changed.numpy().astype(np.int32).tobytes() == values.tobytes()


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_the_first_integer_that_would_change_is_named(place, monkeypatch, threads):
    monkeypatch.setattr(casts, "_BLOCK", 4096)
    values = np.zeros(70_003, np.int32)
    values[[60_001, 65_000]] = 2049, 4097  # neither is a number of half precision
    with (
        use_threads(threads),
        pytest.raises(ContentError, match=r"^tensor 'w': element 60001 is 2049, which f16 does not"),
    ):
        cast(place(Tensor.of("w", values)), find_dtype("f16")).raw()


def encoded(name):
    chance = np.random.default_rng(8)
    if name.startswith("ggml."):
        blocks = find_blocks(name)
        stored = chance.integers(0, 60, blocks.nbytes((330, 512)), dtype=np.uint8)
        return Tensor("w", blocks, (330, 512), InMemory(stored))
    shape = (331, 5, 19) if name.startswith("int") else (331, 203)
    return quantize(chance.normal(size=shape).astype(np.float32), name, mode="ieee").tensor("w")


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("name", [*METHODS, "ggml.q4_0", "ggml.q8_1.f16", "ggml.q6_k"])
def test_dequantized_values_are_those_of_numpy(place, monkeypatch, name, threads):
    monkeypatch.setattr(casts, "_BLOCK", 40_000)
    tensor = place(encoded(name))
    with use_threads(threads):
        plain = dequantize(tensor)
        assert str(plain.dtype) == "f32"
        assert bytes(plain.raw()) == tensor.numpy().tobytes()
        half = cast(dequantize(tensor), find_dtype("bf16"))  # a cast of what is computed
        assert bytes(half.raw()) == tensor.numpy().astype(ml_dtypes.bfloat16).tobytes()
