"""Files with objects, made by torch itself: every tensor is found under its path, and equals what torch loads."""

from __future__ import annotations

import io
import os
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

import holdall
from holdall.errors import ContentError, FormatError
from tests.format.torch import files, framework
from tests.format.torch.framework import Cyclic, lightning_checkpoint, make_net, numpy_checkpoint

torch = pytest.importorskip("torch")
package = pytest.importorskip("torch.package")
PackageExporter, PackageImporter = package.PackageExporter, package.PackageImporter

pytestmark = pytest.mark.filterwarnings("ignore:.*deprecated")
FORMS = pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])


def saved(tmp_path: Path, content: object, legacy: bool = False, protocol: int = 2) -> Path:
    """The file that torch.save writes."""
    path = tmp_path / "m.pt"
    torch.save(content, path, _use_new_zipfile_serialization=not legacy, pickle_protocol=protocol)
    return path


def same(model: holdall.Model, name: str, expected: torch.Tensor | np.ndarray) -> None:
    """One tensor of the model has the values of ``expected``."""
    wanted = expected.detach().numpy() if isinstance(expected, torch.Tensor) else expected
    found = model[name].numpy()
    assert found.shape == wanted.shape and found.dtype == wanted.dtype.newbyteorder("="), name
    np.testing.assert_array_equal(found, wanted, err_msg=name)


@FORMS
@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.filterwarnings("ignore:Couldn't retrieve source")
def test_a_pickled_module_has_the_names_of_its_state_dict(tmp_path, legacy, protocol):
    path = saved(tmp_path, make_net(), legacy, protocol)
    net = torch.load(path, weights_only=False)
    with holdall.open(path) as model:
        for name, tensor in net.state_dict().items():
            same(model, name, tensor)
        assert model["tied.weight"].offset == model["first.weight"].offset
        same(model, "first.spare.0", net.first.spare[0])
        same(model, "first.spare.1.deep", net.first.spare[1]["deep"])
        same(model, "table", net.table)
        more = {"first.spare.0", "first.spare.1.deep", "table"}
        assert set(model) == set(net.state_dict()) | more
        opaque = model.native.opaque
        assert opaque.what == "a pickled module of class tests.format.torch.framework.Net"
        assert opaque.classes["tests.format.torch.framework.Block"] == 1
        assert opaque.classes["tests.format.torch.framework.Mode"] == 1
        assert not [name for name in opaque.classes if name.startswith(("numpy", "builtins", "collections"))]


@pytest.mark.parametrize("make", ["script", "trace"])
def test_torchscript(tmp_path, make):
    net = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.Sequential(torch.nn.PReLU()))
    net = net.eval()
    scripted = torch.jit.script(net) if make == "script" else torch.jit.trace(net, torch.ones(1, 1, 5, 5))
    path = tmp_path / "script.pt"
    torch.jit.save(scripted, path)
    expected = torch.jit.load(path).state_dict()
    with holdall.open(path) as model:
        assert list(model) == list(expected)
        for name, tensor in expected.items():
            same(model, name, tensor)
        assert model.native.opaque.what == "a TorchScript archive"
    report = holdall.verify(path, level="strict")
    assert report.ok and not report.findings  # its classes are its own


class Attributes(torch.nn.Module):
    """A module whose program has constants, lists and dicts of tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = [torch.ones(2), torch.zeros(3)]
        self.named = {"a": torch.full((2,), 3.0)}
        self.sizes = [1, 2, 3]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.rows[0] + self.named["a"]


@pytest.mark.filterwarnings("ignore")
def test_attributes_and_constants_of_torchscript(tmp_path):
    torch.jit.save(torch.jit.script(Attributes()), tmp_path / "a.pt")
    with holdall.open(tmp_path / "a.pt") as model:
        assert {name: model[name].numpy().tolist() for name in model} == {
            "rows.0": [1, 1], "rows.1": [0, 0, 0], "named.a": [3, 3],
        }  # fmt: skip
    constant = torch.arange(4.0) * 1.5
    torch.jit.save(torch.jit.trace(lambda x: x + constant, torch.ones(4)), str(tmp_path / "c.pt"))
    with holdall.open(tmp_path / "c.pt") as model:
        same(model, "CONSTANTS.c0", constant)


def test_a_large_torchscript_archive_is_recognized(tmp_path):
    """Its data.pkl is neither the first entry nor in the last 64 KiB of the directory."""
    net = torch.nn.Sequential(*(torch.nn.Linear(1, 1) for _ in range(600)))
    torch.jit.save(torch.jit.trace(net, torch.ones(1)), tmp_path / "m.pt")
    with holdall.open(tmp_path / "m.pt") as model:
        assert list(model) == list(net.state_dict())


def test_torch_package(tmp_path, monkeypatch):
    monkeypatch.setattr("torch.package.package_exporter._gate_torchscript_serialization", False)
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)).eval()
    script = torch.jit.script(torch.nn.Linear(3, 1))
    path = tmp_path / "p.pt"
    with PackageExporter(path) as exporter:
        exporter.extern("**")
        exporter.save_pickle("model", "net.pkl", net)
        exporter.save_pickle("model.inner", "both.pkl", {"script": script, "n": 3, "array": np.arange(3)})
        exporter.save_text("model", "note.txt", "text")
    importer = PackageImporter(path)
    own, both = importer.load_pickle("model", "net.pkl"), importer.load_pickle("model.inner", "both.pkl")
    with holdall.open(path) as model:
        expected = {f"model.net.{name}": tensor for name, tensor in own.state_dict().items()}
        expected |= {f"model.inner.both.script.{name}": tensor for name, tensor in both["script"].state_dict().items()}
        for name, tensor in expected.items():
            same(model, name, tensor)
        same(model, "model.inner.both.array", both["array"])
        assert set(model) == {*expected, "model.inner.both.array"}
        assert model.metadata["model.inner.both.n"] == 3
        assert model.native.opaque.what.startswith("a torch.package with 2 pickles (")
    with pytest.raises(FormatError, match=r"a torch\.package"):
        holdall.open(path, allow_opaque=False)


@FORMS
def test_a_lightning_checkpoint(tmp_path, legacy):
    net = make_net()
    path = saved(tmp_path, lightning_checkpoint(net), legacy)
    loaded = torch.load(path, weights_only=False)
    expected = {f"state_dict.{name}": tensor for name, tensor in loaded["state_dict"].items()}
    expected |= {
        "hparams.init": loaded["hparams"].init,
        "callbacks.Stopper.best": loaded["callbacks"]["Stopper"]["best"],
        "callbacks.Keeper.__args__.0": loaded["callbacks"]["Keeper"].first,
        "callbacks.Keeper.__state__.0": loaded["callbacks"]["Keeper"].rest[0],
        "by_mode.tests.format.torch.framework.Mode(1)": torch.ones(1),
        "by_mode.(1, a)": torch.ones(2),
        "by_mode.1.5": torch.ones(3),
        "slotted.tensor": loaded["slotted"].tensor,
        "pair.__args__.0": loaded["pair"].left,
    }
    with holdall.open(path) as model:
        for name, tensor in expected.items():
            same(model, name, tensor)
        assert set(model) == set(expected)
        assert model.metadata["epoch"] == 3 and model.metadata["callbacks.Stopper.wait"] == 2
        assert model.metadata["types"] == ["torch.float32", (2,), "cpu"]
        assert "hyper_parameters" not in model.metadata
        opaque = model.native.opaque
        assert opaque.what == "a checkpoint of PyTorch Lightning 2.1.0"
        assert opaque.objects["hyper_parameters"].attribute("lr") == 0.1
        assert opaque.classes["argparse.Namespace"] == opaque.classes["builtins.set"] == 1
        assert opaque.classes["torch.nn.modules.activation.ReLU"] == 0  # named, and nothing made of it
        assert {"tests.format.torch.framework.Mode", "collections.defaultdict", "dict"} <= set(opaque.classes)
        assert opaque.cut == ["hparams.__state__"]  # an object that is its own state


@FORMS
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_arrays_and_numbers_of_numpy(tmp_path, legacy, protocol):
    content = numpy_checkpoint()
    path = saved(tmp_path, content, legacy, protocol)
    with holdall.open(path) as model:
        arrays = {name: value for name, value in content.items() if isinstance(value, np.ndarray)}
        for name in set(arrays) - {"text", "objects"}:
            same(model, name, arrays[name])
        same(model, "objects.0", torch.ones(2))
        same(model, "random.1", content["random"][1])
        same(model, "weight", content["weight"])
        numbers = {name: model.metadata[name] for name in ("mean", "count", "flag")}
        assert numbers == {"mean": 0.25, "count": -7, "flag": True} and type(numbers["flag"]) is bool
        opaque = model.native.opaque
        assert (opaque.arrays, opaque.numbers) == (10, 3)
        assert opaque.what == "a checkpoint with arrays or numbers of numpy"
        assert set(opaque.objects) == {"array", "columns", "big", "complex", "half", "bool", "empty", "scalar", "text",
                                       "objects", "large", "random.1"}  # fmt: skip
        assert dict(opaque.classes) == {"numpy.ndarray": 2}  # of text, and of objects


def test_arrays_of_numpy_in_a_big_endian_file():
    pickled = io.BytesIO()
    torch.save({"a": np.arange(4, dtype="<f4"), "b": np.arange(4, dtype=">i8")}, pickled)
    with zipfile.ZipFile(pickled) as archive:
        data = archive.read("archive/data.pkl")
    model = holdall.open(files.checkpoint(data, byteorder=b"big"))
    assert model["a"].numpy().tolist() == model["b"].numpy().tolist() == [0, 1, 2, 3]


@pytest.mark.filterwarnings("ignore")
@FORMS
def test_quantized_and_sparse_tensors(tmp_path, legacy):
    weight = torch.randn(3, 4)
    content = {
        "tensor": torch.quantize_per_tensor(weight, 0.1, 3, torch.qint8),
        "unsigned": torch.quantize_per_tensor(weight, 0.1, 3, torch.quint8),
        "wide": torch.quantize_per_tensor(weight, 0.1, 3, torch.qint32),
        "channel": torch.quantize_per_channel(weight, torch.rand(3) + 0.1, torch.arange(3), 0, torch.qint8),
        "sparse": torch.eye(3).to_sparse(),
        "csr": torch.eye(3).to_sparse_csr(),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "meta": torch.empty(2, device="meta"),
    }
    path = saved(tmp_path, content, legacy)
    loaded = torch.load(path, weights_only=False)
    with holdall.open(path) as model:
        for name in ("tensor", "unsigned", "wide", "channel"):
            same(model, f"{name}.int_repr", loaded[name].int_repr())
        same(model, "channel.scales", loaded["channel"].q_per_channel_scales())
        same(model, "channel.zero_points", loaded["channel"].q_per_channel_zero_points())
        assert model.native.opaque.objects["tensor"].fields["scales"] == 0.1
        same(model, "sparse.indices", loaded["sparse"].coalesce().indices())
        same(model, "sparse.values", loaded["sparse"].coalesce().values())
        same(model, "csr.crow_indices", loaded["csr"].crow_indices())
        same(model, "csr.col_indices", loaded["csr"].col_indices())
        same(model, "csr.values", loaded["csr"].values())
        same(model, "parameter", loaded["parameter"])
        assert "meta" in model.native.opaque.objects and "meta" not in model


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", ["script", "module"])
def test_packed_weights_of_quantized_modules(tmp_path, make):
    net = torch.ao.quantization.quantize_dynamic(torch.nn.Sequential(torch.nn.Linear(4, 3)), dtype=torch.qint8)
    path, packed = tmp_path / "m.pt", "0._packed_params._packed_params.__state__"
    if make == "script":
        torch.jit.save(torch.jit.script(net), path)
    else:
        torch.save(net, path)
        packed += ".0"
    with holdall.open(path) as model:
        same(model, f"{packed}.0.int_repr", net[0].weight().int_repr())
        same(model, f"{packed}.1", net[0].bias())


def test_the_flat_weights_of_a_recurrent_module_are_its_parameters(tmp_path):
    net = torch.nn.LSTM(2, 3)
    with holdall.open(saved(tmp_path, net)) as model:
        assert list(model) == list(net.state_dict())


def test_storages_of_two_types_are_read_by_each_in_a_program():
    """TorchScript stores a storage once, whatever the types of the tensors in it; torch.load keeps the first type."""
    other = files.tensor().replace(b"FloatStorage", b"IntStorage")
    pickled = b"\x80\x02}(X\1\0\0\0a" + files.tensor() + b"X\1\0\0\0b" + other + b"u."
    pickled = pickled.replace(b"}(", b"}(X\1\0\0\0ccm\nC\n)\x81")
    numbers = np.array([1, 2, 3, 4], np.float32)
    plain = files.checkpoint(pickled, {"0": numbers.tobytes()})
    out = io.BytesIO(plain)
    with zipfile.ZipFile(out, "a") as archive:
        archive.writestr("archive/code/m.py", b"")
        archive.writestr("archive/constants.pkl", b"\x80\x02).")
    with holdall.open(out.getvalue()) as model:
        same(model, "a", numbers[:2])
        same(model, "b", numbers.view(np.int32)[:2])
    for data in plain, files.legacy(pickled, ["0"], struct.pack("<q", 4) + numbers.tobytes()):
        with pytest.raises(FormatError, match="described in two ways"):
            holdall.open(data)


class Tagged(torch.Tensor):
    """A tensor of a class of its own."""


def test_tensors_of_their_own_class_and_with_attributes(tmp_path):
    tagged = torch.arange(3.0).as_subclass(Tagged)
    marked = torch.nn.Parameter(torch.ones(2))
    marked.mask = torch.zeros(2)
    hooked = torch.ones(3, requires_grad=True)
    path = saved(tmp_path, {"tagged": tagged, "marked": marked, "hooked": hooked})
    with holdall.open(path) as model:
        same(model, "tagged", tagged.as_subclass(torch.Tensor))
        same(model, "marked", marked)
        same(model, "hooked", hooked)
        assert f"{__name__}.Tagged" in model.native.opaque.classes


def test_paths_that_lead_back_are_cut_and_said(tmp_path):
    net = Cyclic()
    path = saved(tmp_path, net)
    with holdall.open(path) as model:
        assert set(net.state_dict()) <= set(model)
        assert model.native.opaque.cut == ["child.owner.0"]
    report = holdall.verify(path)
    assert report.ok
    assert [(finding.rule, finding.severity) for finding in report.findings] == [
        ("torch.pickle.opaque", "warning"), ("torch.pickle.cut", "note"),
    ]  # fmt: skip
    assert "child.owner.0" in report.findings[1].message


def test_two_tensors_never_get_one_name(tmp_path):
    net = torch.nn.Linear(2, 2)
    net.__dict__["weight"] = torch.zeros(1)  # hides the parameter
    net.__dict__["_parameters.weight"] = torch.zeros(2)
    with holdall.open(saved(tmp_path, net)) as model:
        same(model, "weight", net._parameters["weight"])
        assert {name: model[name].shape for name in model} == {
            "weight": (2, 2), "bias": (2,), "weight#2": (1,), "_parameters.weight": (2,),
        }  # fmt: skip


@pytest.mark.parametrize("kind", ["__torch__\nM", "mine\nThing"])
def test_objects_as_deep_as_any_limit_allows(kind):
    """The deepest that Limits allow does not end in Python's own limit, and one level more is refused."""

    def nest(levels: int) -> bytes:
        start = f"c{kind}\nq\0".encode() + b"0X\1\0\0\0aq\x010"
        return b"\x80\x02" + start + b"h\0)\x81}h\1" * levels + files.tensor() + b"sb" * levels + b"."

    most = holdall.Limits(nesting=256)
    with holdall.open(files.checkpoint(nest(256), {"0": bytes(16)}), limits=most) as model:
        assert list(model) == [".".join("a" * 256)]
    with pytest.raises(FormatError, match="nested too deeply"):
        holdall.open(files.checkpoint(nest(257), {"0": bytes(16)}), limits=most)


def test_keys_that_look_alike_stay_apart(tmp_path):
    content = {True: torch.zeros(1), "True": torch.ones(1), 1.5: torch.zeros(2), "1.5": torch.ones(2), None: "x"}
    with holdall.open(saved(tmp_path, content)) as model:
        assert {name: model[name].numpy().tolist() for name in model} == {
            "True#2": [0], "True": [1], "1.5#2": [0, 0], "1.5": [1, 1],
        }  # fmt: skip
        assert dict(model.metadata) == {"None": "x"}
    holdall.edit(tmp_path / "m.pt", set={"None": "y"})
    assert torch.load(tmp_path / "m.pt", weights_only=True)[None] == "y"


def test_what_may_run_commands_is_named_first(tmp_path):
    net = torch.nn.Sequential(*(getattr(torch.nn, name)() for name in ("ReLU", "Tanh", "ELU", "GELU", "SiLU", "Mish",
        "CELU", "SELU", "Sigmoid", "Softplus", "Hardtanh", "Softsign")))  # fmt: skip
    net.extra = files.Bomb(os.system, files.touch(tmp_path / "canary"))
    report = holdall.verify(saved(tmp_path, net))
    assert report.ok and "names posix.system, torch.nn" in report.findings[0].message
    assert not (tmp_path / "canary").exists()


def test_objects_are_not_written_and_not_lost_in_silence(tmp_path):
    net = make_net()
    path = saved(tmp_path, net)
    before = path.read_bytes()
    report = holdall.convert(path, tmp_path / "out.safetensors")
    lost = [loss for loss in report.losses if loss.name == "objects"]
    assert len(lost) == 1 and lost[0].fate == "left out" and "tests.format.torch.framework.Net" in lost[0].reason
    report = holdall.convert(path, tmp_path / "plain.pt")
    assert any(loss.name == "objects" for loss in report.losses)
    assert any("a pickled module" in note for note in report.changes)
    state = torch.load(tmp_path / "plain.pt", weights_only=True)
    for name, tensor in net.state_dict().items():
        assert torch.equal(state[name], tensor), name
    with holdall.open(tmp_path / "plain.pt", allow_opaque=False) as plain, holdall.open(path) as model:
        assert list(plain) == list(model) and plain.native.opaque is None
        with pytest.raises(ContentError, match="objects"):
            holdall.save(tmp_path / "again.pt", model)
    with pytest.raises(ContentError, match="objects"):
        holdall.convert(path, tmp_path / "s.safetensors", strict=True)
    with pytest.raises(ContentError, match="an edit would lose it"):
        holdall.edit(path, set={"note": "x"})
    assert path.read_bytes() == before


def test_numpy_alone_is_not_lost_but_an_edit_is_refused(tmp_path):
    path = saved(tmp_path, {"a": np.arange(3.0), "best": np.float64(1.5), "inner": [torch.ones(1)]})
    report = holdall.convert(path, tmp_path / "out.npz")
    assert not [loss for loss in report.losses if loss.part == "native"]
    with pytest.raises(ContentError, match="only tensors can be written"):
        holdall.edit(path, set={"note": "x"})


def test_diff_compares_the_classes_of_objects(tmp_path):
    path = saved(tmp_path, {"w": torch.ones(2), "mode": framework.Mode.FAST})
    torch.save({"w": torch.ones(2), "mode": [framework.Mode.FAST, framework.State()]}, tmp_path / "other.pt")
    assert not holdall.diff(path, path)
    (name, how), *rest = holdall.diff(path, tmp_path / "other.pt").native
    assert name == "objects" and "framework.State" in how and not rest


def test_a_pickled_module_loads_as_a_state_dict(tmp_path):
    net = make_net()
    path = saved(tmp_path, net)
    loaded = holdall.torch.load_file(path)
    for name, tensor in net.state_dict().items():
        assert torch.equal(loaded[name], tensor), name


def test_a_carried_file_with_objects_is_restored(tmp_path):
    path = saved(tmp_path, lightning_checkpoint(make_net()))
    holdall.convert(path, tmp_path / "out.safetensors", carry=True)
    holdall.restore(tmp_path / "out.safetensors", tmp_path / "back.pt")
    assert (tmp_path / "back.pt").read_bytes() == path.read_bytes()


def test_refusals_name_what_the_file_is(tmp_path):
    torch.jit.save(torch.jit.script(torch.nn.Linear(1, 1)), tmp_path / "s.pt")
    with pytest.raises(FormatError, match="the file is a TorchScript archive"):
        holdall.open(tmp_path / "s.pt", allow_opaque=False)
    with pytest.raises(FormatError, match=rf"the file is a pickled object of class {framework.__name__}\.Net"):
        holdall.open(saved(tmp_path, make_net()), allow_opaque=False)


def test_a_model_with_objects_pickles_as_its_path(tmp_path):
    with holdall.open(saved(tmp_path, make_net())) as model:
        again = pickle.loads(pickle.dumps(model))
        assert list(again) == list(model) and again.native.opaque.what == model.native.opaque.what


@FORMS
def test_a_pickled_graph_module(tmp_path, legacy):
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Sequential(torch.nn.BatchNorm1d(3), framework.Block()))
    path = saved(tmp_path, torch.fx.symbolic_trace(net.eval()), legacy)
    expected = torch.load(path, weights_only=False).state_dict()
    with holdall.open(path) as model:
        assert set(model) == set(expected) == set(net.state_dict())
        for name, tensor in expected.items():
            same(model, name, tensor)
        assert model.native.opaque.what == "a pickled module of class torch.fx.graph_module.GraphModule"
        assert "torch.fx.graph_module.reduce_graph_module" in model.native.opaque.classes  # which runs code
    assert "reduce_graph_module" in holdall.verify(path).findings[0].message


def test_a_graph_module_in_a_package(tmp_path):
    with PackageExporter(tmp_path / "p.pt") as exporter:
        exporter.extern("**")
        exporter.save_pickle("model", "net.pkl", torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(2, 3))))
    expected = PackageImporter(tmp_path / "p.pt").load_pickle("model", "net.pkl").state_dict()
    with holdall.open(tmp_path / "p.pt") as model:
        assert set(model) == {f"model.net.{name}" for name in expected}
        for name, tensor in expected.items():
            same(model, f"model.net.{name}", tensor)
