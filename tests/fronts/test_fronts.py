"""The four verbs of each front, for every format."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import holdall
from holdall.errors import ContentError, UnsupportedError
from holdall.format import registry
from holdall.numpy import load, load_file, save, save_file

WRITABLE = [name for name in registry.names() if registry.find(name).writes]
ARRAYS = {"a.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "b.bias": np.ones(4, np.float32)}


@pytest.mark.parametrize("format", WRITABLE)
def test_numpy_in_every_format(format: str, tmp_path: Path) -> None:
    suffix = (registry.find(format).suffixes or ("",))[0]
    save_file(ARRAYS, tmp_path / f"m{suffix}", format=format)
    loaded = load_file(tmp_path / f"m{suffix}")
    for name, array in ARRAYS.items():
        assert np.array_equal(loaded[name], array)
        loaded[name] += 1  # must not change the file
    if registry.find(format).folder:
        with pytest.raises(UnsupportedError, match="save_file"):
            save(ARRAYS, format=format)
    else:
        data = save(ARRAYS, format=format)
        assert data == (tmp_path / f"m{suffix}").read_bytes()
        assert np.array_equal(load(data)["a.weight"], ARRAYS["a.weight"])


def test_numpy_details(tmp_path: Path) -> None:
    save_file({"w": ARRAYS["a.weight"].T}, tmp_path / "m.safetensors", metadata={"a": "b"}, align=8)
    assert np.array_equal(load_file(tmp_path / "m.safetensors")["w"], ARRAYS["a.weight"].T)
    assert holdall.open(tmp_path / "m.safetensors").metadata["a"] == "b"
    assert holdall.open(save(ARRAYS)).format == "safetensors"
    with pytest.raises(UnsupportedError, match="no_such"):
        save(ARRAYS, no_such=1)


def test_a_model_is_saved_with_all_that_it_holds(tmp_path: Path) -> None:
    from holdall import oinf

    model = oinf.model({"w": ARRAYS["a.weight"]}, sizevars={"D": 3}, metadata={"mode": "fast", "eps": [1, 2]})
    holdall.save(tmp_path / "m.oinf", model)
    expected = (tmp_path / "m.oinf").read_bytes()
    assert save(model) == save(model, format="oinf") == expected  # a model keeps its format unless another is named
    save_file(model, tmp_path / "again.oinf")
    assert (tmp_path / "again.oinf").read_bytes() == expected
    with holdall.open(save(model, metadata={"mode": "slow"})) as found:
        assert (dict(found.sizevars), dict(found.metadata)) == ({"D": 3}, {"mode": "slow"})
    plain = oinf.model({"w": ARRAYS["a.weight"]}, metadata={"mode": "fast"})
    with holdall.open(save(plain, format="safetensors")) as found:
        assert found.metadata["mode"] == "fast"


def test_what_a_format_has_no_place_for_is_refused(tmp_path: Path) -> None:
    from holdall import oinf

    model = oinf.model({"w": ARRAYS["a.weight"]}, sizevars={"D": 3})
    for write in (
        lambda: save(model, format="safetensors"),
        lambda: save_file(model, tmp_path / "m.npz"),
        lambda: holdall.save(tmp_path / "m.npz", model),
    ):
        with pytest.raises(ContentError, match="has no place for size variables D=3: holdall"):
            write()
    assert not list(tmp_path.iterdir())


def test_a_dataclass_as_bytes_is_what_the_reference_writes() -> None:
    from dataclasses import dataclass, field

    from holdall import oinf

    encoder = pytest.importorskip("dataclass_to_oinf")

    @dataclass
    class Mlp:
        B: int = 4
        mode: str = "clamp_up"
        scale: float = 0.5
        w: np.ndarray = field(default_factory=lambda: np.arange(6, dtype=np.float32).reshape(2, 3))

    assert save(oinf.from_dataclass(Mlp())) == encoder.dataclass_to_oinf(Mlp())


def test_fronts_import_their_frameworks_only_when_used() -> None:
    code = "import sys, holdall.torch, holdall.jax, holdall.numpy; print({'torch', 'jax', 'numpy'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.stdout.strip() == "set()", ran.stderr


# -- torch ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.mark.parametrize("format", WRITABLE)
def test_torch_in_every_format(format: str, tmp_path: Path, torch) -> None:
    from holdall import torch as front

    suffix = (registry.find(format).suffixes or ("",))[0]
    tensors = {name: torch.from_numpy(array) for name, array in ARRAYS.items()}
    front.save_file(tensors, tmp_path / f"m{suffix}", format=format)
    loaded = front.load_file(tmp_path / f"m{suffix}")
    for name, tensor in tensors.items():
        assert torch.equal(loaded[name], tensor)
        loaded[name].add_(1).t_()  # in place: neither the file nor anything else is touched
        assert torch.equal(front.load_file(tmp_path / f"m{suffix}")[name], tensor)
    if not registry.find(format).folder:
        data = front.save(tensors, format=format)
        assert torch.equal(front.load(data)["a.weight"], tensors["a.weight"])


def test_torch_every_dtype_exactly(torch) -> None:
    from holdall import torch as front
    from holdall.format.torch.layout import TYPES

    for word in TYPES:
        kind = getattr(torch, word)
        width = torch.empty(0, dtype=kind).element_size()
        values = torch.randint(0, 256 if word != "bool" else 2, (4, 3 * width), dtype=torch.uint8).view(kind)
        for format in ("torch", "safetensors"):
            if word == "complex128" and format == "safetensors":
                continue
            back = front.load(front.save({"w": values, "t": values.t(), "s": values[1, 1]}, format=format))
            assert back["w"].dtype == kind and back["s"].shape == ()
            assert torch.equal(back["w"].view(torch.uint8), values.view(torch.uint8)), word
            assert torch.equal(back["t"].view(torch.uint8), values.t().contiguous().view(torch.uint8)), word


def test_torch_meta_reads_no_payload(tmp_path: Path, torch) -> None:
    from holdall import torch as front
    from holdall.source import source_of
    from holdall.testing.recording import RecordingSource

    tensors = {"w": torch.zeros(1000, 1000), "h": torch.zeros(4, 5, dtype=torch.bfloat16)}
    front.save_file(tensors, tmp_path / "m.safetensors")
    source = RecordingSource(source_of(tmp_path / "m.safetensors", map=False))
    found = front._load(source, "meta", False, {}, False)
    assert {name: (t.device.type, t.dtype, t.shape) for name, t in found.items()} == {
        name: ("meta", t.dtype, t.shape) for name, t in tensors.items()
    }
    assert source.bytes_read < 80_000  # the end is looked at for a second format
    with holdall.open(tmp_path / "m.safetensors") as model:
        assert model["w"].torch(device="meta").device.type == "meta"
        model["w"].torch().zero_()


def test_torch_shared_and_strided_and_odd_ones(torch) -> None:
    from holdall import torch as front

    base = torch.arange(6.0).reshape(2, 3)
    tensors = {
        "a": base, "b": base, "t": base.t(), "column": base[:, 1], "expanded": base[0].expand(4, 3),
        "grad": torch.nn.Parameter(base), "conj": torch.tensor([1 + 2j]).conj(),
        "neg": torch.tensor([1 + 2j]).conj().imag, "none": torch.zeros(0, 3), "scalar": torch.tensor(2.0),
    }  # fmt: skip
    for format in ("torch", "safetensors", "aero"):
        chosen = {k: v for k, v in tensors.items() if format != "aero" or (v.dtype == torch.float32 and v.numel())}
        back = front.load(front.save(chosen, format=format))
        for name, tensor in chosen.items():
            assert torch.equal(back[name], tensor.detach().resolve_conj().resolve_neg()), (format, name)
        back["a"].zero_()
        assert torch.equal(back["b"], base)  # loaded tensors are never each other's memory
    shared = holdall.open(front.save(tensors, format="torch"))
    assert shared["a"].offset == shared["b"].offset


@pytest.mark.parametrize(
    ("make", "remedy"),
    [
        (lambda torch: torch.eye(2).to_sparse(), "to_dense"),
        (lambda torch: torch.empty(2, device="meta"), "materialize"),
        (lambda torch: torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8), "cast it"),
        (lambda torch: [1, 2], "metadata"),
    ],
)
def test_torch_refusals_say_the_remedy(make, remedy: str, torch) -> None:
    from holdall import torch as front

    with pytest.raises(ContentError, match=remedy):
        front.save({"w": make(torch)})


# -- jax --------------------------------------------------------------------------------------------------------------


def test_jax(tmp_path: Path) -> None:
    jax = pytest.importorskip("jax")
    from holdall import jax as front

    arrays = {"w": jax.numpy.arange(6, dtype="float32").reshape(2, 3), "h": jax.numpy.ones(3, "bfloat16")}
    front.save_file(arrays, tmp_path / "m.safetensors", metadata={"a": "b"})
    loaded = front.load_file(tmp_path / "m.safetensors", device=jax.devices()[0])
    assert all(isinstance(array, jax.Array) for array in loaded.values())
    assert loaded["h"].dtype == jax.numpy.bfloat16 and np.array_equal(loaded["w"], arrays["w"])
    assert np.array_equal(front.load(front.save(arrays, format="torch"))["w"], arrays["w"])
    with pytest.raises(UnsupportedError, match="jax_enable_x64"):
        front.load(save({"w": np.array([2**40])}))


def test_load_into_a_module(tmp_path):
    torch = pytest.importorskip("torch")
    from holdall.torch import load_into

    first, second = torch.nn.Linear(5, 3), torch.nn.Linear(5, 3)
    torch.save(first.state_dict(), tmp_path / "m.pt")
    holdall.convert(tmp_path / "m.pt", tmp_path / "m.aero", tensor_hash=True)
    assert load_into(second, tmp_path / "m.aero", check=True) == []
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    data = bytearray((tmp_path / "m.aero").read_bytes())
    with holdall.open(tmp_path / "m.aero") as model:
        data[model["weight"].offset] ^= 1
    (tmp_path / "bad.aero").write_bytes(data)
    with pytest.raises(holdall.FormatError, match="'weight'"):
        load_into(second, tmp_path / "bad.aero", check=True)
    with pytest.raises(holdall.ContentError, match=r"'weight' is f32\[3, 5\], the module's is"):
        load_into(torch.nn.Linear(4, 3), tmp_path / "m.aero")
    with pytest.raises(holdall.MissingError, match="bias"):
        load_into(torch.nn.Linear(5, 3, bias=False), tmp_path / "m.aero")
    assert load_into(torch.nn.Linear(5, 3, bias=False), tmp_path / "m.aero", strict=False) == ["bias"]
