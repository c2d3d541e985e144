"""Quantization parameters of version 2: applied when asked for, never lost on the way."""

import subprocess
import sys

import numpy as np
import pytest

import holdall
import holdall.quant
from holdall import oinf
from holdall.base.buffer_sizes import buffer_size
from tests.format.oinf import corpus

RNG = np.random.default_rng(5)
ROWS = 1201 if buffer_size(1 << 20) == 1 << 20 else 3  # where buffers are a few bytes, a few rows are many blocks


def expected(values, quant):
    """The definition, with numpy's own broadcasting: scale * (stored - zero_point)."""
    at = [1] * values.ndim
    if quant.axis is not None:
        at[quant.axis] = -1
    scale = np.array(quant.scale, np.float64).reshape(at if quant.axis is not None else ())
    zero = np.array(quant.zero_point or [0] * len(quant.scale), np.float64).reshape(scale.shape)
    return ((values.astype(np.float64) - zero) * scale).astype(np.float32)


CASES = {
    "per_tensor": ("i8", (3, 5), oinf.QuantParams.per_tensor(0.1)),
    "zero_point": ("u8", (3, 5), oinf.QuantParams.per_tensor(0.1, 128)),
    "rows": ("i8", (3, 5), oinf.QuantParams.per_channel(0, [0.1, 2.0, -3.5])),
    "columns": ("i4", (3, 5), oinf.QuantParams.per_channel(1, [0.1, 2, 3, 4, 5], [1, -2, 3, -4, 5])),
    "middle": ("i2", (2, 3, 4), oinf.QuantParams.per_channel(1, [0.1, 2, 3], [1, 0, -1])),
    "scalar": ("i8", (), oinf.QuantParams.per_tensor(0.3)),
    "empty": ("i8", (0, 2), oinf.QuantParams.per_channel(1, [1.0, 2.0])),
    "f16": ("f16", (4,), oinf.QuantParams.per_channel(0, [1, 2, 3, 4])),
    # more than the blocks of a megabyte of elements in which it is computed, none of which ends at a row's end
    "large": ("i8", (ROWS, 4001), oinf.QuantParams.per_channel(1, RNG.random(4001), RNG.integers(-9, 9, 4001))),
}


@pytest.fixture(params=CASES)
def made(request, tmp_path):
    dtype, shape, quant = CASES[request.param]
    low, high = {"i8": (-128, 128), "u8": (0, 256), "i4": (-8, 8), "i2": (-2, 2), "f16": (-9, 9)}[dtype]
    values = RNG.integers(low, high, shape).astype(np.float16 if dtype == "f16" else np.int16)
    path = tmp_path / "m.oinf"
    holdall.save(path, oinf.model({"w": oinf.TensorSpec(values, dtype, quant=quant), "b": np.float32([1])}))
    return path, values, quant


def test_numpy_applies_them_when_asked(made):
    path, values, quant = made
    with holdall.open(path) as model:
        assert np.array_equal(model["w"].numpy(), values)  # as stored
        found = model["w"].numpy(dequantize=True)
        assert found.dtype == np.float32 and np.array_equal(found, expected(values, quant))
        assert np.array_equal(model["b"].numpy(dequantize=True), [1])


def test_convert_applies_them_when_asked(made, tmp_path):
    path, values, quant = made
    with pytest.raises(holdall.ContentError, match=r"\((no i[24]|is scaled by .*)\). Ways out .* --dequantize"):
        holdall.convert(path, tmp_path / "m.safetensors")
    holdall.convert(path, tmp_path / "m.safetensors", dequantize=True)
    with holdall.open(tmp_path / "m.safetensors") as model:
        assert str(model["w"].dtype) == "f32" and np.array_equal(model["w"].numpy(), expected(values, quant))
        assert model["b"].numpy().tolist() == [1]
    report = holdall.convert(path, tmp_path / "plain.oinf", dequantize=True)
    with holdall.open(tmp_path / "plain.oinf") as model:
        assert model["w"].native is None and np.array_equal(model["w"].numpy(), expected(values, quant))
    assert any("to f32" in change for change in report.changes)


def test_the_command_line(tmp_path):
    codes = np.int8([[1, 2], [3, 4]])
    quant = oinf.QuantParams.per_channel(0, [0.5, 2.0], [1, 0])
    holdall.save(tmp_path / "m.oinf", oinf.model({"w": oinf.TensorSpec(codes, quant=quant)}))
    command = [sys.executable, "-m", "holdall", "convert", "m.oinf", "m.npz", "--dequantize"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert np.load(tmp_path / "m.npz")["w"].tolist() == [[0.0, 0.5], [6.0, 8.0]]


def test_changes_that_would_leave_them_behind_are_refused(tmp_path):
    quant = oinf.QuantParams.per_tensor(0.5)
    path, out = tmp_path / "m.oinf", tmp_path / "out.oinf"
    holdall.save(path, oinf.model({"w": oinf.TensorSpec(np.ones((2, 3), np.float16), quant=quant)}))
    for change, doing in (({"cast": "f32"}, "casting"), ({"transpose": ["w"]}, "transposing")):
        with pytest.raises(holdall.ContentError) as error:
            holdall.convert(path, out, **change)
        assert str(error.value) == f"tensor 'w' is scaled by quantization parameters: dequantize it before {doing}"
    with holdall.open(path) as model, pytest.raises(holdall.ContentError, match="dequantize it before quantizing"):
        holdall.quant.quantize_tensor(model["w"], holdall.quant.find_method("q8"))
    holdall.convert(path, out, dequantize=True, cast="f16", transpose=["w"])
    with holdall.open(out) as model:
        assert model["w"].shape == (3, 2) and model["w"].numpy().ravel().tolist() == [0.5] * 6


def test_whole_models(tmp_path):
    quant = oinf.QuantParams.per_tensor(0.5)
    tensors = {"w": oinf.TensorSpec(np.int8([2, 4]), quant=quant), "d": oinf.Uninitialized("i8", (2,), quant=quant)}
    model = holdall.quant.dequantize_model(oinf.model(tensors), "f16")
    assert [str(tensor.dtype) for tensor in model.tensors] == ["f16", "f16"]
    assert model["w"].numpy().tolist() == [1, 2] and not model["d"].has_data and model["d"].native is None


def test_golden_files():
    for name in corpus.GOOD:
        with holdall.open(corpus.file(name)) as model:
            for tensor in model.tensors:
                if tensor.native and tensor.has_data:
                    with np.errstate(all="ignore"):
                        want = expected(tensor.numpy(), tensor.native)
                    assert np.array_equal(tensor.numpy(dequantize=True), want, equal_nan=True)
