"""Graphs whose tensors are renamed, dropped or changed: edits refuse it, conversions report it."""

import numpy as np
import pytest

import holdall
from holdall.errors import ContentError, UnsupportedError
from holdall.format.onnx.wire import field

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

W = np.arange(12, dtype=np.float32).reshape(3, 4)


def value(name, *shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def branch(name):
    """A graph inside a node, which takes ``name`` from the graph around it."""
    return helper.make_graph([helper.make_node("Identity", [name], [f"{name}.out"])], name, [], [value(f"{name}.out")])


@pytest.fixture
def path(tmp_path):
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["y"]),
        helper.make_node("If", ["flag"], ["z"], then_branch=branch("w2"), else_branch=branch("w3")),
    ]
    weights = {"w1": W, "w2": W[0], "w3": W[1], "flag": np.array(True), "spare": W}
    initializers = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", [value("x", 1, 3)], [value("y", 1, 4), value("z", 4)], initializers)
    onnx.save(helper.make_model(graph), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


@pytest.mark.parametrize(
    ("rename", "used"),
    [
        ({"w1": "w9"}, "'w1'"),
        ({"w2": "w9"}, "'w2'"),
        ({"w1": "w2", "w2": "w1"}, "'w1'"),
        ({"spare": "y"}, "'y'"),
    ],
)
def test_names_of_the_graph_are_not_edited(path, rename, used):
    before = path.read_bytes()
    with pytest.raises(ContentError, match=f"nodes of the graph would still use {used}"):
        holdall.edit(path, rename=rename)
    assert path.read_bytes() == before


def test_other_names_are_edited(path):
    holdall.edit(path, rename={"spare": "more"}, set={"note": "mine"})
    onnx.checker.check_model(onnx.load(path))


def test_a_conversion_says_what_the_graph_misses(path, tmp_path):
    report = holdall.convert(path, tmp_path / "o.onnx", rename=["s/^w1$/w9/"], exclude=["w3"])
    notes = [change for change in report.changes if "graph" in change]
    assert notes == ["'w1', 'w3': the graph uses what no tensor is called any more; the model may not run any more"]
    report = holdall.convert(path, tmp_path / "o.onnx", cast=["w2=f16"], transpose=["w1", "spare"])
    notes = [change for change in report.changes if "graph" in change]
    assert notes == [
        "'w1', 'w2': the graph was written for another type or shape; the model may not run any more"
    ]  # fmt: skip
    report = holdall.convert(path, tmp_path / "o.onnx", exclude=["spare"])
    assert not [change for change in report.changes if "graph" in change]


def test_nodes_that_cannot_be_read_are_no_reason_to_fail(tmp_path):
    tensor = field(8, b"w") + field(2, 1) + field(1, 1) + field(9, bytes(4))
    graph = field(1, field(1, b"\xff")) + field(2, b"g") + field(5, tensor)
    (tmp_path / "m.onnx").write_bytes(field(1, 8) + field(2, b"x") + field(7, graph))
    with pytest.raises(ContentError, match="it is unknown whether"):
        holdall.edit(tmp_path / "m.onnx", rename={"w": "v"})
    report = holdall.convert(tmp_path / "m.onnx", tmp_path / "o.onnx", cast="f16")
    assert any("it is unknown whether" in change for change in report.changes)


def test_external_data_are_not_taken_in(path, tmp_path):
    model = onnx.load(path)
    onnx.save(model, tmp_path / "e.onnx", save_as_external_data=True, location="e.data", size_threshold=0)
    before = (tmp_path / "e.onnx").read_bytes()
    with pytest.raises(UnsupportedError, match=r"e\.data.*set of files"):
        holdall.edit(tmp_path / "e.onnx", set={"a": "b"})
    assert (tmp_path / "e.onnx").read_bytes() == before
    report = holdall.convert(tmp_path / "e.onnx", tmp_path / "o.onnx", metadata={"a": "b"})
    notes = [change for change in report.changes if "external" in change]
    assert len(notes) == 1 and "e.data" in notes[0]
    onnx.checker.check_model(onnx.load(tmp_path / "o.onnx", load_external_data=False))
