"""Negative and conjugate views, which torch resolves when it has to: holdall reads the resolved values."""

from __future__ import annotations

import numpy as np
import pytest

import holdall
from tests.format.torch.files import checkpoint, named, tensor, text
from tests.format.torch.test_torch_oracle import LEGACY, bits

torch = pytest.importorskip("torch")

SPECIAL = [0.0, -0.0, 1.5, float("inf"), float("nan"), -7.25]
FORMS = pytest.mark.parametrize("options", [{}, LEGACY, {"pickle_protocol": 4}], ids=str)


@FORMS
def test_views_as_torch_saves_them(tmp_path, options):
    numbers = torch.tensor([complex(a, b) for a in SPECIAL for b in SPECIAL], dtype=torch.complex64)
    wide = numbers.to(torch.complex128).reshape(6, 6)
    content = {
        "conj": numbers.conj(), "imag": numbers.clone().conj().imag, "neg": torch._neg_view(numbers),
        "both": torch._neg_view(numbers.conj()), "strided": wide.conj().t()[1::2], "none": numbers.conj()[:0],
        "inner": [wide.clone().conj().imag, {"deep": wide[2].conj()}], "real": numbers.clone().conj().real,
        "stored": numbers,
    }  # fmt: skip
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        content[f"neg.{dtype}"] = torch._neg_view(torch.tensor([*SPECIAL[:4], -7.25]).to(dtype))
    for dtype in (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8):
        content[f"neg.{dtype}"] = torch._neg_view(torch.arange(130).to(dtype))
    path = tmp_path / "m.pt"
    torch.save(content, path, **options)
    loaded = torch.load(path, weights_only=False)
    assert loaded["conj"].is_conj() and loaded["imag"].is_neg()
    flat = {name: value for name, value in loaded.items() if name != "inner"}
    flat |= {"inner.0": loaded["inner"][0], "inner.1.deep": loaded["inner"][1]["deep"]}
    with holdall.open(path) as model:
        assert set(model) == set(flat)
        for name, value in flat.items():
            assert model[name].shape == tuple(value.shape), name
            if name in ("neg", "both"):  # torch subtracts complex numbers from zero, which loses the sign of zeros
                np.testing.assert_array_equal(model[name].numpy(), value.resolve_conj().resolve_neg().numpy())
            else:
                assert bytes(model[name].raw()) == bits(value), name
        np.testing.assert_array_equal(model["strided"][1:2], loaded["strided"].resolve_conj()[1:2].numpy())
    report = holdall.verify(path, level="strict")
    assert report.ok and not report.findings
    holdall.convert(path, tmp_path / "out.pt")
    with holdall.open(tmp_path / "out.pt") as model:
        assert bytes(model["conj"].raw()) == bits(numbers.conj())


def test_a_view_larger_than_every_buffer(tmp_path):
    numbers = torch.randn(700_001, dtype=torch.complex64)
    torch.save({"w": numbers.conj(), "n": torch._neg_view(numbers.clone().real)}, tmp_path / "m.pt")
    with holdall.open(tmp_path / "m.pt") as model:
        assert bytes(model["w"].raw()) == bits(numbers.conj())
        assert bytes(model["n"].raw()) == bits(-numbers.real)
        assert b"".join(model["w"].payload.chunks(1000)) == bits(numbers.conj())


@pytest.mark.parametrize("value", [b"\x88", b"\x89", b"N", b"K\x00"], ids=["true", "false", "none", "zero"])
def test_the_key_counts_and_not_its_value(tmp_path, value):
    """torch sets the bit whenever the key is there, whatever stands beside it."""
    extra = (b"}" + text("neg") + value + b"s").decode("latin-1")
    path = tmp_path / "m.pt"
    path.write_bytes(checkpoint(named(tensor("K\x04\x85", extra=extra)), {"0": np.arange(4, dtype="<f4").tobytes()}))
    expected = torch.load(path, weights_only=True)["w"]
    assert expected.is_neg()
    with holdall.open(path) as model:
        assert bytes(model["w"].raw()) == bits(expected)
    with holdall.open(path, allow_opaque=False) as model:
        assert bytes(model["w"].raw()) == bits(expected)


@pytest.mark.parametrize(
    ("word", "torch_says", "message"),
    [
        ("conj", "complex", "torch: a tensor is the conjugate of f32 numbers, which PyTorch cannot compute"),
        ("neg", "not implemented", "torch: a tensor is the negative of bool numbers, which PyTorch cannot compute"),
    ],
)
def test_numbers_that_have_none(tmp_path, word, torch_says, message):
    extra = (b"}" + text(word) + b"\x88s").decode("latin-1")
    kind = "Float" if word == "conj" else "Bool"
    opcodes = tensor("K\x04\x85", extra=extra).replace(b"FloatStorage", kind.encode() + b"Storage")
    path = tmp_path / "m.pt"
    path.write_bytes(checkpoint(named(opcodes), {"0": bytes(16 if kind == "Float" else 4)}))
    with pytest.raises(RuntimeError, match=f"(?i){torch_says}"):
        torch.load(path, weights_only=True)["w"].resolve_neg()
    with pytest.raises(holdall.FormatError) as caught:
        holdall.open(path)
    assert (caught.value.rule, caught.value.message) == ("torch.tensor.mirrored", message)
    assert holdall.verify(path).verdict == "not read"
