"""The names that others rely on, with their signatures. Names of later work are marked as not yet there."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

import numpy as np
import pytest

import holdall

# name -> parameters that must be there, with the default where it is part of the promise
REQUIRED = inspect.Parameter.empty
VERBS = {
    "open": {"format": None, "mmap": True, "require": ()},
    "save": {"path": REQUIRED, "metadata": None, "format": None},
    "convert": {"format": None, "cast": None, "quantize": None, "carry": False, "recipe": "auto"},
    "restore": {},
    "verify": {"level": "full"},
    "diff": {},
    "formats": {},
    "view": {"model": REQUIRED},
    "quant.quantize": {"mode": "best", "clip": None},
    "torch.load_file": {"path": REQUIRED, "device": None, "check": False},
    "torch.load_into": {"module": REQUIRED, "path": REQUIRED},
    "transformers.load": {"path": REQUIRED, "device": None, "dtype": None},
}
NOT_YET = {
    "torch.stream": "loading onto a GPU",
}
NOT_YET_PARAMETERS = {
    "torch.load_file": {"dtype": "", "include": "", "shard": ""},
}
ERRORS = {
    "HoldallError": Exception,
    "FormatError": "HoldallError",
    "LimitError": "FormatError",
    "UnsupportedError": "HoldallError",
    "ContentError": "HoldallError",
    "ClosedError": "HoldallError",
}
FORMATS = [
    "oinf",
    "embd",
    "gptrs-checkpoint",
    "gptrs-archive",
    "mcf",
    "aero",
    "aeroset",
    "safetensors",
    "gguf",
    "torch",
    "npz",
    "onnx",
    "hf",
]
DTYPES = [
    "f64",
    "f32",
    "f16",
    "bf16",
    "f8_e4m3",
    "f8_e5m2",
    "i64",
    "i32",
    "i16",
    "i8",
    "i4",
    "i2",
    "i1",
    "u64",
    "u32",
    "u16",
    "u8",
    "u4",
    "u2",
    "u1",
    "t2",
    "t1",
    "bool",
    "bitset",
    "c64",
    "c128",
]
COMMANDS = [
    "info",
    "ls",
    "verify",
    "explain",
    "extract",
    "convert",
    "restore",
    "quantize",
    "diff",
    "edit",
    "repair",
    "embed",
    "from-dataclass",
    "formats",
    "recipes",
    "demo",
    "assets",
    "view",
]
COMMANDS_NOT_YET = ["merge", "importance", "stats", "hash", "cleanup", "doctor"]


def find(dotted):
    found = holdall
    for part in dotted.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("name", VERBS)
def test_verbs_and_their_parameters(name):
    if name.startswith("torch."):
        pytest.importorskip("torch")
    known = inspect.signature(find(name)).parameters
    for parameter, default in VERBS[name].items():
        assert parameter in known
        assert default is REQUIRED or known[parameter].default == default


@pytest.mark.parametrize("name", NOT_YET)
@pytest.mark.xfail(raises=(AttributeError, ImportError), strict=True, reason="not yet there")
def test_verbs_that_are_not_yet_there(name):
    if name.startswith("torch."):
        pytest.importorskip("torch")
    find(name)


@pytest.mark.parametrize(("name", "parameter"), [(n, p) for n, ps in NOT_YET_PARAMETERS.items() for p in ps])
@pytest.mark.xfail(raises=AssertionError, strict=True, reason="not yet there")
def test_parameters_that_are_not_yet_there(name, parameter):
    if name.startswith("torch."):
        pytest.importorskip("torch")
    assert parameter in inspect.signature(find(name)).parameters


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    base = ERRORS[name]
    assert issubclass(find(name), find(base) if isinstance(base, str) else base)


def test_an_error_has_rule_offset_and_message():
    error = holdall.FormatError("oinf.header.magic", 0, "oinf: bad magic")
    assert (error.rule, error.offset, error.message) == ("oinf.header.magic", 0, "oinf: bad magic")


def test_format_ids():
    assert list(FORMATS) == [name for name in FORMATS if name in holdall.formats()]


@pytest.mark.parametrize("name", DTYPES)
def test_dtype_names(name):
    from holdall.model import dtypes

    assert name in {str(dtype) for dtype in dtypes.DTYPES.values()}


@pytest.mark.parametrize(
    ("suffix", "version"), [("oinf", (1,)), ("weights", (1, 0)), ("gptrs", (2,)), ("mcf", (1, 1)), ("aero", (0, 1))]
)
def test_slots_and_facets_of_a_model(tmp_path, suffix, version):
    path = tmp_path / f"model.{suffix}"
    holdall.save(path, {"w": np.arange(6, dtype=np.float32).reshape(2, 3)})
    with holdall.open(path) as model:
        assert model.version == version
        assert isinstance(model, Mapping) and list(model) == ["w"]
        assert isinstance(model.format, str)
        for slot in ("metadata", "assets", "native", "sizevars", "vocab", "config"):
            getattr(model, slot)
        tensor = model["w"]
        assert (tensor.name, str(tensor.dtype), tensor.shape, tensor.nbytes) == ("w", "f32", (2, 3), 24)
        assert tensor.has_data and isinstance(tensor.offset, int)
        assert isinstance(tensor.raw(), memoryview)
        assert tensor.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
        assert tensor[1:2].tolist() == [[3, 4, 5]]
        assert "device" in inspect.signature(tensor.torch).parameters
    with pytest.raises(holdall.ClosedError):
        tensor.numpy()
    report = holdall.verify(path)
    assert report.ok and isinstance(report.findings, list)


def test_limits_are_arguments(tmp_path):
    path = tmp_path / "model.oinf"
    holdall.save(path, {"a": np.zeros(1), "b": np.zeros(1)})
    with pytest.raises(holdall.LimitError):
        holdall.open(path, limits=holdall.Limits(tensors=1))


def test_a_finding_has_rule_severity_offset_and_message():
    (finding, *_) = holdall.verify(b"OINF\0" + bytes(67)).findings
    assert finding.rule and finding.severity and finding.offset is not None and finding.message


def test_quantized_arrays():
    quantized = holdall.quant.quantize(np.ones((2, 32), np.float32), "k4", mode="best", clip=None)
    assert len(memoryview(quantized.payload)) and quantized.method == "k4" and quantized.shape == (2, 32)
    assert quantized.numpy().shape == (2, 32)


def commands():
    from holdall.cli import main

    return main.list_commands(None)


@pytest.mark.parametrize("name", COMMANDS)
def test_commands(name):
    assert name in commands()


@pytest.mark.parametrize("name", COMMANDS_NOT_YET)
@pytest.mark.xfail(raises=AssertionError, strict=True, reason="not yet there")
def test_commands_that_are_not_yet_there(name):
    assert name in commands()
