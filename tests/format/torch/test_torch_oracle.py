"""torch reads what holdall writes, and holdall reads what torch writes."""

from __future__ import annotations

import collections
import io
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

import holdall
from holdall.format.torch.layout import TYPE_OF
from holdall.model.model import Model
from holdall.model.payload import InMemory, SourceRange
from holdall.model.tensor import Tensor
from holdall.testing import ZOO
from holdall.testing.compare import restrict_to
from holdall.testing.zoo import sample_values
from tests.format.torch.files import checkpoint, named, tensor

torch = pytest.importorskip("torch")

LEGACY = {"_use_new_zipfile_serialization": False}


def of_torch(name: str, shape: tuple[int, ...]):
    """The sample values of a dtype as a torch tensor."""
    if 0 in shape:
        return torch.empty(shape, dtype=getattr(torch, TYPE_OF[name]))
    stored = np.frombuffer(bytearray(Tensor.of("w", sample_values(name, shape), name).raw()), np.uint8)
    return torch.from_numpy(stored.copy()).view(getattr(torch, TYPE_OF[name])).reshape(shape)


def bits(value) -> bytes:
    plain = value.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b""


PROTOCOLS = [{"pickle_protocol": protocol} for protocol in (3, 4, 5)]


@pytest.mark.parametrize("options", [{}, LEGACY, *PROTOCOLS, *(LEGACY | each for each in PROTOCOLS)], ids=str)
@pytest.mark.parametrize("name", TYPE_OF)
def test_every_dtype_that_torch_writes(name, options, tmp_path):
    path = tmp_path / "m.pt"
    torch.save({"w": of_torch(name, (3, 5)), "v": of_torch(name, (7,))[2:5]}, path, **options)
    with holdall.open(path) as model:
        assert str(model["w"].dtype) == name and model["w"].shape == (3, 5)
        assert bytes(model["w"].raw()) == bits(of_torch(name, (3, 5)))
        assert bytes(model["v"].raw()) == bits(of_torch(name, (7,))[2:5])
    assert holdall.verify(path, level="strict").findings == []


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_legacy_files_of_every_protocol(protocol, tmp_path):
    """More tensors than the first read of the pickles covers, views of one storage, nesting, and text beyond ASCII."""
    base = torch.arange(1 << 20, dtype=torch.float32)
    content = {
        "model": collections.OrderedDict((f"layer.{n}.weight", base[n * 100 : n * 100 + 64]) for n in range(3000)),
        "größe": 2**70,
        "notes": [1.5, None, True, b"bytes", "x" * 300],
    }
    path = tmp_path / "m.pt"
    torch.save(content, path, pickle_protocol=protocol, **LEGACY)
    loaded = torch.load(path, weights_only=False)  # its other loader does not know the bytes of protocol 3
    with holdall.open(path) as model:
        assert model.format == "torch" and len(model) == 3000
        for name, tensor in loaded["model"].items():
            assert bytes(model[f"model.{name}"].raw()) == bits(tensor)
        assert model.metadata["größe"] == 2**70
        assert model.metadata["notes"] == loaded["notes"]
    assert holdall.verify(path, level="strict").findings == []


@pytest.mark.parametrize("name", TYPE_OF)
def test_every_dtype_that_holdall_writes(name, tmp_path):
    path = tmp_path / "m.pt"
    shapes = {"w": (3, 5), "scalar": (), "empty": (0, 4), "one": (1, 1, 3)}
    holdall.save(path, Model([Tensor.of(key, sample_values(name, shape), name) for key, shape in shapes.items()]))
    for options in ({}, {"mmap": True}):
        loaded = torch.load(path, weights_only=True, **options)
        assert list(loaded) == list(shapes)
        for key, shape in shapes.items():
            assert loaded[key].dtype == getattr(torch, TYPE_OF[name])
            assert tuple(loaded[key].shape) == shape and bits(loaded[key]) == bits(of_torch(name, shape))


def test_the_whole_zoo_loads(tmp_path):
    for title, make in ZOO.items():
        model = restrict_to(make(), holdall.formats()["torch"])
        if model is None:
            continue
        path = tmp_path / f"{title}.pt"
        holdall.save(path, model, fsync=False)
        loaded = torch.load(path, weights_only=True)
        assert list(loaded) == list(model)
        assert getattr(loaded, "metadata", {}) == dict(model.metadata)
        for name in model:
            assert bits(loaded[name]) == bytes(model[name].raw())


def test_a_module_takes_what_holdall_writes_with_metadata_in_it(tmp_path):
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    torch.save(module.state_dict(), tmp_path / "a.pt")
    with holdall.open(tmp_path / "a.pt") as model:
        assert model.metadata.kind("_metadata") == "attribute"
        assert model.metadata["_metadata"]["1"] == {"version": 2}
        holdall.save(tmp_path / "b.pt", model.tensors, metadata={"note": "text", "values": [1, None, (2.5, b"\xff")]})
    loaded = torch.load(tmp_path / "b.pt", weights_only=True)
    assert loaded.metadata == {"note": "text", "values": [1, None, (2.5, b"\xff")]}
    module.load_state_dict(loaded)  # strict: no key too many
    holdall.convert(tmp_path / "a.pt", tmp_path / "c.pt")
    assert torch.load(tmp_path / "c.pt", weights_only=True)._metadata["1"] == {"version": 2}


def test_nested_containers_flatten_and_plain_values_are_metadata(tmp_path):
    content = {
        "model": {"w": torch.ones(2), "sub": [torch.zeros(1), {"b": torch.ones(3)}]},
        "optimizer": {"state": {0: {"step": torch.tensor(3.0)}}, "param_groups": [{"lr": 0.1, "betas": (0.9, 0.99)}]},
        "epoch": 7,
        "name": "größe",
        "size": torch.Size([2, 3]),
        "device": torch.device("cuda", 1),
        "kind": torch.bfloat16,
        "p": torch.nn.Parameter(torch.ones(2)),
        "raw": b"\x00\xff",
        "big": 1 << 100,
        "nothing": None,
        "flags": [True, False],
        "empty": {},
    }
    torch.save(content, tmp_path / "m.ckpt")
    with holdall.open(tmp_path / "m.ckpt") as model:
        assert list(model) == ["model.w", "model.sub.0", "model.sub.1.b", "optimizer.state.0.step", "p"]
        assert dict(model.metadata) == {
            "optimizer.param_groups": [{"lr": 0.1, "betas": (0.9, 0.99)}],
            "epoch": 7,
            "name": "größe",
            "size": (2, 3),
            "device": "cuda:1",
            "kind": "torch.bfloat16",
            "raw": b"\x00\xff",
            "big": 1 << 100,
            "nothing": None,
            "flags": [True, False],
            "empty": {},
        }
        assert model.metadata.kind("epoch") == "pickle"


@pytest.mark.parametrize("options", [{}, LEGACY], ids=["zip", "legacy"])
def test_shared_storages_stay_shared_and_views_are_right(options, tmp_path):
    base = torch.arange(24.0).reshape(4, 6)
    content = {
        "base": base,
        "same": base,
        "row": base[2],
        "rows": base[1:3],
        "transposed": base.t(),
        "columns": base[:, 1:3],
        "steps": base[::2, ::3],
        "expanded": base[0].expand(3, 6),
        "permuted": base.reshape(2, 3, 4).permute(2, 0, 1),
        "none": base[:0],
    }
    path = tmp_path / "m.pt"
    torch.save(content, path, **options)
    with holdall.open(path) as model, holdall.open(path, mmap=False) as read:
        for name, value in content.items():
            assert model[name].numpy().tolist() == value.tolist(), name
            assert np.array_equal(model[name].numpy(), read[name].numpy())
            assert model[name].shape == tuple(value.shape)
        assert model["base"].offset == model["same"].offset
        assert model["row"].offset == model["base"].offset + 2 * 6 * 4
        assert isinstance(model["rows"].payload, SourceRange) and model["transposed"].offset is None
        assert model["transposed"][1:3, ::2].tolist() == base.t()[1:3, ::2].tolist()
    holdall.convert(path, tmp_path / "again.pt")
    reopen = torch.load(tmp_path / "again.pt", weights_only=True)
    assert reopen["base"].data_ptr() == reopen["same"].data_ptr()
    for name, value in content.items():
        assert torch.equal(reopen[name], value)


def test_shared_payloads_are_written_once(tmp_path):
    payload = InMemory(np.arange(4, dtype=np.float32))
    f32, i32 = (
        holdall.Tensor.of("x", np.zeros(1, np.float32)).dtype,
        holdall.Tensor.of("x", np.zeros(1, np.int32)).dtype,
    )
    kinds = {"a": f32, "b": f32, "c": i32}
    holdall.save(tmp_path / "m.pt", Model([Tensor(name, kind, (2, 2), payload) for name, kind in kinds.items()]))
    loaded = torch.load(tmp_path / "m.pt", weights_only=True)
    assert loaded["a"].data_ptr() == loaded["b"].data_ptr() != loaded["c"].data_ptr()
    assert loaded["c"].dtype == torch.int32


def test_whole_modules_and_sparse_tensors_are_refused_by_name_where_objects_are_not_allowed(tmp_path):
    torch.save(torch.nn.Linear(2, 2), tmp_path / "m.pt")
    with pytest.raises(holdall.FormatError, match=r"torch\.nn\.modules\.linear\.Linear"):
        holdall.open(tmp_path / "m.pt", allow_opaque=False)
    torch.save({"s": torch.eye(2).to_sparse()}, tmp_path / "s.pt")
    with pytest.raises(holdall.FormatError, match="_rebuild_sparse_tensor"):
        holdall.open(tmp_path / "s.pt", allow_opaque=False)


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_types_without_numbers_are_carried(tmp_path):
    torch.save({"h": torch.ones(3, dtype=torch.complex32)}, tmp_path / "m.pt")
    with holdall.open(tmp_path / "m.pt") as model:
        assert str(model["h"].dtype) == "torch.complex32" and model["h"].nbytes == 12


def test_big_endian_storages():
    data = np.arange(4, dtype=">f4").tobytes()
    model = holdall.open(checkpoint(named(tensor()), {"0": data}, byteorder=b"big"))
    assert model["w"].numpy().tolist() == [0, 1]
    with pytest.raises(holdall.FormatError, match="byteorder"):
        holdall.open(checkpoint(named(tensor()), {"0": data}, byteorder=b"middle"))


def test_deflated_and_repacked_archives(tmp_path):
    torch.save({"w": torch.arange(1000.0), "t": torch.arange(6.0).reshape(2, 3).t()}, tmp_path / "m.pt")
    out = io.BytesIO()
    with zipfile.ZipFile(tmp_path / "m.pt") as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        new.mkdir("m")
        for name in sorted(old.namelist()):
            new.writestr(name, old.read(name))
    model = holdall.open(out.getvalue())
    assert model.format == "torch"
    assert model["w"].numpy().tolist() == list(range(1000)) and model["t"].shape == (3, 2)
    assert holdall.verify(out.getvalue(), level="full").ok
    assert {found.rule for found in holdall.verify(out.getvalue(), level="strict").findings} == {"torch.storage.mapped"}


def test_a_lone_tensor_and_a_lone_value(tmp_path):
    torch.save(torch.ones(2), tmp_path / "t.pt")
    assert holdall.open(tmp_path / "t.pt")["tensor"].numpy().tolist() == [1, 1]
    torch.save(5, tmp_path / "v.pt")
    assert dict(holdall.open(tmp_path / "v.pt").metadata) == {"value": 5}


def test_files_of_torch_come_back_byte_for_byte(tmp_path: Path):
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    content = {"state": module.state_dict(), "epoch": 3, "t": torch.arange(6.0).reshape(2, 3).t()}
    for options in ({}, LEGACY):
        path = tmp_path / "m.pt"
        torch.save(content, path, **options)
        for hub in ("safetensors", "oinf", "npz"):
            holdall.convert(path, tmp_path / "there", format=hub, carry=True)
            holdall.restore(tmp_path / "there", tmp_path / "back.pt")
            assert (tmp_path / "back.pt").read_bytes() == path.read_bytes(), (hub, options)


def test_the_wide_sizes_of_zip64_are_read():
    good = checkpoint(named(tensor()), {"0": np.arange(4, dtype=np.float32).tobytes()})
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(good)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            with new.open(name, "w", force_zip64=True) as entry:
                entry.write(old.read(name))
    assert holdall.open(out.getvalue())["w"].numpy().tolist() == [0, 1]
    assert struct.pack("<HH", 1, 16) in out.getvalue()
