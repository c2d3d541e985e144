"""ONNX compared with the onnx package, and hostile files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import holdall
from holdall.errors import ContentError, FormatError
from holdall.format.onnx.layout import DTYPES
from holdall.format.onnx.wire import field, varint
from holdall.model.model import Model
from holdall.model.tensor import Tensor
from holdall.testing import ZOO
from holdall.testing.compare import restrict_to
from holdall.testing.zoo import sample_values


def proto(name: bytes = b"w", dims: bytes = b"\x08\x02", code: int = 1, rest: bytes | None = None) -> bytes:
    """A TensorProto."""
    raw = field(9, np.arange(2, dtype=np.float32).tobytes()) if rest is None else rest
    return dims + field(2, code) + field(8, name) + raw


def model_of(*tensors: bytes, around: bytes = b"") -> bytes:
    """A ModelProto with these initializers."""
    graph = field(2, b"g") + b"".join(field(5, tensor) for tensor in tensors)
    return field(1, 8) + field(2, b"test") + field(7, graph) + around


def external(**entries: str) -> bytes:
    pairs = (field(13, field(1, key.encode()) + field(2, value.encode())) for key, value in entries.items())
    return b"".join(pairs) + field(14, 1)


# -- the oracle -------------------------------------------------------------------------------------------------------


def test_the_package_reads_what_holdall_writes(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    path = tmp_path / "m.onnx"
    tensors = [Tensor.of(name, sample_values(name, (3, 5)), name) for name in DTYPES.values()]
    holdall.save(path, Model(tensors, metadata={"key": "value", "größe": ""}))
    loaded = onnx.load(path)
    onnx.checker.check_model(loaded)
    assert {prop.key: prop.value for prop in loaded.metadata_props} == {"key": "value", "größe": ""}
    for tensor, found in zip(tensors, loaded.graph.initializer, strict=True):
        values = onnx.numpy_helper.to_array(found)
        assert found.name == tensor.name and values.shape == (3, 5)
        assert values.astype(tensor.numpy().dtype).tobytes() == tensor.numpy().tobytes(), tensor.name
    with holdall.open(path) as back:
        assert all(tensor.offset is not None and tensor.offset % 8 == 0 for tensor in back.tensors)


def test_the_package_loads_the_whole_zoo(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    for title, make in ZOO.items():
        model = restrict_to(make(), holdall.formats()["onnx"])
        if model is None:
            continue
        path = tmp_path / f"{title}.onnx"
        holdall.save(path, model, fsync=False)
        loaded = onnx.load(path)
        onnx.checker.check_model(loaded)
        assert [tensor.name for tensor in loaded.graph.initializer] == list(model)
        for tensor in loaded.graph.initializer:
            assert tensor.raw_data == bytes(model[tensor.name].raw())


@pytest.mark.parametrize("raw", [False, True], ids=["numbers", "raw"])
def test_holdall_reads_what_the_package_writes(raw: bool, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    tensors = []
    for code, name in DTYPES.items():
        values = sample_values(name, (3, 5))
        if raw:
            stored = bytes(Tensor.of(name, values, name).raw())
            tensors.append(onnx.helper.make_tensor(name, code, (3, 5), stored, raw=True))
        else:
            flat = values.reshape(-1)
            listed = flat if name in ("c64", "c128") else flat.tolist()
            tensors.append(onnx.helper.make_tensor(name, code, (3, 5), listed))
    output = onnx.helper.make_tensor_value_info("y", 1, (3, 5))
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["f32"], ["y"])], "g", [], [output], tensors)
    path = tmp_path / "m.onnx"
    onnx.save(onnx.helper.make_model(graph), path)
    with holdall.open(path) as model:
        for tensor in tensors:
            expected, found = onnx.numpy_helper.to_array(tensor), model[tensor.name].numpy()
            assert str(model[tensor.name].dtype) == tensor.name
            assert expected.astype(found.dtype).tobytes() == found.tobytes(), tensor.name
    assert holdall.verify(path, level="strict").findings == []
    holdall.convert(path, tmp_path / "again.onnx", metadata={"a": "b"})
    reopen = onnx.load(tmp_path / "again.onnx")
    onnx.checker.check_model(reopen)
    assert [node.op_type for node in reopen.graph.node] == ["Identity"] and reopen.graph.output[0].name == "y"
    for hub in ("safetensors", "torch", "oinf"):
        holdall.convert(path, tmp_path / "there", format=hub, carry=True)
        holdall.restore(tmp_path / "there", tmp_path / "back.onnx")
        assert (tmp_path / "back.onnx").read_bytes() == path.read_bytes()


def test_external_data_of_the_package(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    tensors = [Tensor.of(name, sample_values(name, (30, 5)), name) for name in ("f32", "i64", "bf16", "i4")]
    holdall.save(tmp_path / "a.onnx", Model(tensors))
    for single in (True, False):
        path = tmp_path / f"external{single}.onnx"
        options = {"location": "weights.data"} if single else {}
        onnx.save(
            onnx.load(tmp_path / "a.onnx"), path, save_as_external_data=True, all_tensors_to_one_file=single,
            size_threshold=0, **options,
        )  # fmt: skip
        with holdall.open(path) as model:
            assert path.stat().st_size < 1000
            for tensor in tensors:
                assert bytes(model[tensor.name].raw()) == bytes(tensor.raw())
        assert holdall.verify(path, level="strict").findings == []


# -- by hand ----------------------------------------------------------------------------------------------------------


def test_repeated_fields_in_every_form() -> None:
    forms = {
        "packed": field(7, varint(1) + varint((1 << 64) - 2)),
        "apart": field(7, 1) + field(7, (1 << 64) - 2),
        "mixed": field(7, varint(1, 4)) + varint(7 << 3) + varint((1 << 64) - 2, 10),
    }
    for name, numbers in forms.items():
        data = model_of(proto(code=7, rest=numbers))
        assert holdall.open(data)["w"].numpy().tolist() == [1, -2], name
    floats = np.arange(2, dtype=np.float32).tobytes()
    apart = b"".join(varint(4 << 3 | 5) + floats[at : at + 4] for at in (0, 4))
    assert holdall.open(model_of(proto(rest=apart)))["w"].numpy().tolist() == [0, 1]
    assert holdall.open(model_of(proto(dims=field(1, b"\x01\x02"))))["w"].shape == (1, 2)


def test_text_tensors_are_carried() -> None:
    model = holdall.open(model_of(proto(code=8, rest=field(6, b"ab") + field(6, b"c"))))
    assert str(model["w"].dtype) == "onnx.string"
    assert b"ab" in bytes(model["w"].raw())


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (model_of(proto())[:-1], "onnx.wire.field"),
        (field(1, 8) + b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "onnx.wire.field"),
        (field(1, 8) + b"\x3a" + b"\xff" * 11, "onnx.wire.varint"),
        (field(1, 8) + b"\x3a" + b"\xff" * 9 + b"\x7f", "onnx.wire.varint"),
        (field(1, 8) + b"\x3b", "onnx.wire.field"),
        (field(1, 8) + field(2, b"x"), "onnx.model.graph"),
        (model_of(proto(), around=field(7, b"")), "onnx.model.graph"),
        (model_of(proto(), proto()), "onnx.tensor.name"),
        (model_of(proto(name=b"")), "onnx.tensor.name"),
        (model_of(proto(name=b"\xff")), "onnx.wire.text"),
        (model_of(proto(code=1 << 31)), "onnx.tensor.dtype"),
        (model_of(proto(code=0)), "onnx.tensor.dtype"),
        (model_of(proto(dims=field(1, (1 << 64) - 1))), "onnx.tensor.dims"),
        (model_of(proto(dims=field(1, 3))), "onnx.tensor.size"),
        (model_of(proto(dims=field(1, (1 << 63) - 1) * 40)), "onnx.tensor.size"),
        (model_of(proto(rest=b"")), "onnx.tensor.data"),
        (model_of(proto(code=7, rest=field(5, b"\1\2"))), "onnx.tensor.data"),
        (model_of(proto(code=7, rest=field(7, b"\1"))), "onnx.tensor.size"),
        (model_of(proto(rest=field(9, bytes(8)) + field(4, bytes(8)))), "onnx.tensor.data"),
        (model_of(proto(rest=field(9, bytes(8)) + field(9, bytes(8)))), "onnx.tensor.once"),
        (model_of(proto(), around=field(14, field(1, b"k")) * 2), "onnx.model.metadata"),
        (model_of(proto(), around=field(14, b"")), "onnx.model.metadata"),
    ],
)
def test_hostile_messages(data: bytes, rule: str) -> None:
    with pytest.raises(FormatError) as caught:
        holdall.open(data, format="onnx")
    assert caught.value.rule == rule, caught.value
    assert rule in [finding.rule for finding in holdall.verify(data, format="onnx").findings]


@pytest.mark.parametrize("code", [29, 99, (1 << 31) - 1])
def test_types_of_a_newer_onnx_are_unread(code: int) -> None:
    data = model_of(proto(code=code), proto(name=b"v"))
    report = holdall.verify(data, format="onnx")
    assert report.verdict == "not read"
    assert [(finding.rule, finding.severity) for finding in report.findings] == [("onnx.tensor.newer", "unread")]
    assert f"tensor 'w': data_type {code} is unknown" in report.findings[0].message
    with pytest.raises(FormatError) as caught:
        holdall.open(data, format="onnx")
    assert caught.value.rule == "onnx.tensor.newer"
    assert caught.value.unread


def test_a_tensor_without_a_type_is_an_error() -> None:
    report = holdall.verify(model_of(field(1, 2) + field(8, b"w") + field(9, bytes(8))), format="onnx")
    assert report.verdict == "not ok"
    assert [finding.message for finding in report.findings] == ["onnx: tensor 'w' has no data_type"]


def test_numbers_that_are_not_as_many_as_they_should_be() -> None:
    data = model_of(proto(code=7, rest=field(7, varint(1) + varint(2) + varint(3))))
    with holdall.open(data) as model, pytest.raises(FormatError, match="came where"):
        model["w"].numpy()


@pytest.mark.parametrize(
    ("entries", "rule"),
    [
        ({"location": "../secret"}, "onnx.external.location"),
        ({"location": "/etc/passwd"}, "onnx.external.location"),
        ({"location": "link"}, "onnx.external.location"),
        ({"location": "missing"}, "onnx.external.location"),
        ({"location": ""}, "onnx.external.location"),
        ({"offset": "0"}, "onnx.external.location"),
        ({"location": "data", "offset": "1"}, "onnx.external.range"),
        ({"location": "data", "offset": "-1"}, "onnx.external.location"),
        ({"location": "data", "offset": "9" * 30}, "onnx.external.location"),
        ({"location": "data", "length": "4"}, "onnx.tensor.size"),
        ({"location": "data", "offset": "9223372036854775807"}, "onnx.external.range"),
    ],
)
def test_external_data_stays_in_its_folder(entries: dict[str, str], rule: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(bytes(8))
    (folder / "data").write_bytes(bytes(8))
    (folder / "link").symlink_to(tmp_path / "secret")
    path = folder / "m.onnx"
    path.write_bytes(model_of(proto(rest=external(**entries))))
    with pytest.raises(FormatError) as caught:
        holdall.open(path)
    assert caught.value.rule == rule, caught.value
    path.write_bytes(model_of(proto(rest=external(location="data"))))
    assert holdall.open(path)["w"].numpy().tolist() == [0, 0]
    with pytest.raises(FormatError, match="cannot be opened"):
        holdall.open(path.read_bytes())


def test_what_cannot_be_written(tmp_path: Path) -> None:
    for content, metadata in (
        ({"": np.zeros(1, np.float32)}, None),
        ({"w": np.zeros(1, np.float32)}, {"n": 1}),
        ({"\ud800": np.zeros(1, np.float32)}, None),
    ):
        with pytest.raises(ContentError):
            holdall.save(tmp_path / "m.onnx", content, metadata=metadata)


def test_names_shared_by_plain_and_other_tensors(tmp_path: Path) -> None:
    """Most initializers are read as columns, others one by one; a name is unique among all of them."""
    plain = field(2, 2) + field(8, b"a") + field(9, b"")  # u8 without dims: one byte is missing
    scalar = field(1, 0) + field(2, 2) + field(8, b"a") + field(9, b"")
    numbers = field(1, 1) + field(2, 6) + field(8, b"a") + field(5, b"\x07")
    for first, second in ((scalar, scalar), (scalar, numbers), (numbers, scalar), (numbers, numbers)):
        data = model_of(first, second)
        report = holdall.verify(data, format="onnx")
        assert [finding.rule for finding in report.findings] == ["onnx.tensor.name"]
        assert report.findings[0].offset == data.index(second, data.index(first) + len(first))
    report = holdall.verify(model_of(plain, scalar, numbers), format="onnx")
    assert [finding.rule for finding in report.findings] == ["onnx.tensor.size", "onnx.tensor.name"]


def test_tensors_after_large_payloads(tmp_path: Path) -> None:
    """Windows on the file end inside payloads, names come after them, and odd ones lie between."""
    protos = []
    for number in range(200):
        head = field(1, 1 + 64 * number) + field(2, 2)
        name, raw = field(8, f"w{number}".encode()), field(9, bytes([number]) * (1 + 64 * number))
        protos.append(head + (raw + name if number % 3 == 0 else name + raw))
    model = holdall.open(model_of(*protos), format="onnx")
    assert list(model) == [f"w{number}" for number in range(200)]
    for number, tensor in enumerate(model.tensors):
        assert bytes(tensor.raw()) == bytes([number]) * (1 + 64 * number)
