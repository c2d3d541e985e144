"""Checkpoints that PyTorch reads with other values, or reads in two ways, are refused."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

import holdall
from tests.format.torch.files import checkpoint, legacy, named, tensor

torch = pytest.importorskip("torch")

F32 = np.arange(4, dtype="<f4").tobytes()
OTHER = np.full(4, 666, "<f4").tobytes()


def load(data: bytes, **options: object) -> dict[str, object]:
    loaded: dict[str, object] = torch.load(io.BytesIO(data), weights_only=True, **options)
    return loaded


def refused(data: bytes, rule: str) -> str:
    with pytest.raises(holdall.FormatError) as caught:
        holdall.open(data, format="torch")
    assert (caught.value.rule, caught.value.offset is None) == (rule, False)
    report = holdall.verify(data, format="torch", level="strict")
    assert [finding.rule for finding in report.findings] == [rule]
    return str(caught.value)


# -- the state of a parameter -----------------------------------------------------------------------------------------


def attributes(key: str, value: bytes) -> bytes:
    return b"}X" + len(key).to_bytes(4, "little") + key.encode() + value + b"s"


def parameter(state: bytes) -> bytes:
    call = b"ctorch._utils\n_rebuild_parameter_with_state\n("
    value = call + tensor() + b"\x89ccollections\nOrderedDict\n)R" + state + b"tR"
    return checkpoint(named(value), {"0": F32, "1": OTHER})


def subclass(state: bytes) -> bytes:
    call = b"ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_tensor_v2\nctorch\nTensor\n"
    arguments = tensor().removeprefix(b"ctorch._utils\n_rebuild_tensor_v2\n").removesuffix(b"R")
    return checkpoint(named(call + arguments + state + b"tR"), {"0": F32, "1": OTHER})


STATES = {
    "a dict": attributes("data", tensor(key="1")),
    "a pair": attributes("data", tensor(key="1")) + b"N\x86",
    "slots": b"N" + attributes("data", tensor(key="1")) + b"\x86",
}


@pytest.mark.parametrize("make", [parameter, subclass])
@pytest.mark.parametrize("state", STATES)
def test_a_state_with_other_data(make: object, state: str) -> None:
    data = make(STATES[state])  # type: ignore[operator]
    assert load(data)["w"].tolist() == [666, 666]  # type: ignore[attr-defined]
    assert "sets 'data'" in refused(data, "torch.pickle.state")


def test_a_state_of_other_attributes_is_read() -> None:
    data = parameter(attributes("is_norm", b"\x88"))
    assert load(data)["w"].is_norm  # type: ignore[attr-defined]
    with holdall.open(data) as model:
        assert model["w"].numpy().tolist() == [0, 1]


def test_a_parameter_with_attributes_as_pytorch_writes_it(tmp_path: Path) -> None:
    value = torch.nn.Parameter(torch.arange(3.0))
    value.partition, value.axis = "row", 1
    torch.save({"w": value}, tmp_path / "m.pt")
    with holdall.open(tmp_path / "m.pt") as model:
        assert model["w"].numpy().tolist() == [0, 1, 2]


# -- a storage with two types -----------------------------------------------------------------------------------------


def of_type(word: str, key: str = "0") -> bytes:
    return tensor(key=key).replace(b"FloatStorage", word.encode())


def entry(name: str, value: bytes) -> bytes:
    return b"X" + len(name).to_bytes(4, "little") + name.encode() + value


def state_dict(*entries: bytes) -> bytes:
    return checkpoint(b"\x80\x02}(" + b"".join(entries) + b"u.", {"0": F32, "1": OTHER})


TWICE = {
    "side by side": (entry("a", of_type("FloatStorage")), entry("b", of_type("IntStorage"))),
    "the other way round": (entry("a", of_type("IntStorage")), entry("b", of_type("FloatStorage"))),
    "in a container behind many": (
        *(entry(f"t{place}", of_type("FloatStorage")) for place in range(20)),
        entry("b", b"]" + of_type("IntStorage") + b"a"),
    ),
    "by an earlier value of the same key": (entry("a", of_type("IntStorage")), entry("a", of_type("FloatStorage"))),
    "beside an object": (
        entry("o", b"cargparse\nNamespace\n)R"), entry("a", of_type("FloatStorage")), entry("b", of_type("IntStorage")),
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", TWICE)
def test_a_storage_with_two_types(way: str) -> None:
    data = state_dict(*TWICE[way])
    if way != "beside an object":
        found = {torch.flatten(value[0] if isinstance(value, list) else value).dtype for value in load(data).values()}
        assert len(found) == 1, "PyTorch keeps the first type"
    assert "storage" in refused(data, "torch.storage.size")


def test_a_storage_that_is_named_often_with_one_type() -> None:
    data = state_dict(*(entry(f"t{place}", of_type("FloatStorage", str(place % 2))) for place in range(40)))
    with holdall.open(data) as model:
        assert [model[f"t{place}"].numpy()[1] for place in range(4)] == [1, 666, 1, 666]


def test_untyped_storages_have_the_types_of_their_tensors(tmp_path: Path) -> None:
    base = torch.tensor([0, 1, 2, 3], dtype=torch.uint16)
    torch.save({"a": base, "b": base[1:]}, tmp_path / "m.pt")
    with holdall.open(tmp_path / "m.pt") as model:
        assert (model["a"].numpy().tolist(), model["b"].numpy().tolist()) == ([0, 1, 2, 3], [1, 2, 3])


# -- the byte order of a legacy file ----------------------------------------------------------------------------------


def test_a_legacy_file_of_a_big_endian_machine_has_little_endian_storages() -> None:
    """PyTorch converts them while it writes and reads, and does not look at what the file says of the machine."""
    data = legacy(named(tensor(elements="K\x04N")), ["0"], struct.pack("<q", 4) + F32)
    little = b"little_endian" + data.split(b"little_endian")[1][:3]
    big = little.replace(b"\x88", b"\x89")
    assert big != little
    data = data.replace(little, big)
    assert load(data)["w"].tolist() == [0, 1]  # type: ignore[attr-defined]
    with holdall.open(data) as model:
        assert model["w"].numpy().tolist() == [0, 1]


# -- deflated storages ------------------------------------------------------------------------------------------------


def deflate(data: bytes, only: str) -> bytes:
    """The same archive, the entries whose name contains ``only`` deflated."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name), zipfile.ZIP_DEFLATED if only in name else zipfile.ZIP_STORED)
    return out.getvalue()


def test_deflated_storages_are_read_and_reported(tmp_path: Path) -> None:
    values, path = np.random.default_rng(1).integers(0, 256, 256, np.uint8).view("<f4"), tmp_path / "m.pt"
    value = tensor("K\x40\x85", elements="K\x40")
    path.write_bytes(deflate(checkpoint(named(value), {"0": values.tobytes()}), "/data/"))
    assert torch.load(path, weights_only=True)["w"].numpy().tobytes() == values.tobytes()
    assert torch.load(path, weights_only=True, mmap=True)["w"].numpy().tobytes() != values.tobytes()
    with holdall.open(path) as model:
        assert model["w"].numpy().tobytes() == values.tobytes()
    for level, rule, severity in (
        ("structure", "torch.storage.deflated", "warning"),
        ("full", "torch.storage.deflated", "warning"),
        ("strict", "torch.storage.mapped", "error"),
    ):
        report = holdall.verify(path, level=level)  # type: ignore[arg-type]
        assert [(found.rule, found.severity) for found in report.findings] == [(rule, severity)]
        assert report.ok == (severity == "warning")
        assert "'archive/data/0' is a deflated storage" in report.findings[0].message


def test_a_deflated_pickle_is_nothing_to_report() -> None:
    data = deflate(checkpoint(named(tensor()), {"0": F32}), "data.pkl")
    assert holdall.verify(data, level="strict").findings == []
