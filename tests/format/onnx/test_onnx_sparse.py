"""Sparse tensors that were changed and saved run in ONNX Runtime with the changed results."""

import numpy as np
import pytest

import holdall
from holdall.model.tensor import Tensor

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper  # noqa: E402

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
X = np.array([10, 20, 30, 40], np.float32)


def sparse(name, values, indices, dims=(4,)):
    made = helper.make_tensor(name, FLOAT, [len(values)], values)
    places = np.array(indices)
    return helper.make_sparse_tensor(made, helper.make_tensor("", INT64, places.shape, places.ravel().tolist()), dims)


def run(path):
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return [output.tolist() for output in session.run(None, {"x": X})]


@pytest.fixture
def path(tmp_path):
    """y = x + S, z = x * C and m = x @ M, in which S and M are sparse initializers, and C the value of a Constant."""
    nodes = [
        helper.make_node("Constant", [], ["C"], sparse_value=sparse("", [1.0, 2.0], [0, 3])),
        helper.make_node("Add", ["x", "S"], ["y"]),
        helper.make_node("Mul", ["x", "C"], ["z"]),
        helper.make_node("MatMul", ["x", "M"], ["m"]),
    ]
    sizes = {"x": 4, "y": 4, "z": 4, "m": 2}
    infos = {name: helper.make_tensor_value_info(name, FLOAT, [size]) for name, size in sizes.items()}
    stored = [sparse("S", [5.0, 6.0], [1, 2]), sparse("M", [1.0, 2.0], [[0, 0], [3, 1]], (4, 2))]
    graph = helper.make_graph(nodes, "g", [infos["x"]], [infos["y"], infos["z"], infos["m"]], sparse_initializer=stored)
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "m.onnx")
    assert run(tmp_path / "m.onnx") == [[10, 25, 36, 40], [10, 0, 0, 80], [10, 80]]
    return tmp_path / "m.onnx"


CONSTANT = "graph.node[0].sparse_value"
CASES = {
    "values of an initializer": ({"S.values": [7, -8]}, 0, [10, 27, 22, 40]),
    "places of an initializer": ({"S.indices": [0, 3]}, 0, [15, 20, 30, 46]),
    "more of both": ({"S.values": [1, 2, 3], "S.indices": [0, 2, 3]}, 0, [11, 20, 32, 43]),
    "values of a constant": ({f"{CONSTANT}.values": [3, 4]}, 1, [30, 0, 0, 160]),
    "places of a constant": ({f"{CONSTANT}.indices": [1, 2]}, 1, [0, 20, 60, 0]),
    "fewer of a constant": ({f"{CONSTANT}.values": [2], f"{CONSTANT}.indices": [2]}, 1, [0, 0, 60, 0]),
    "places in two dimensions": ({"M.indices": [[1, 0], [2, 1]]}, 2, [20, 60]),
}


@pytest.mark.parametrize(("new", "output", "expected"), CASES.values(), ids=CASES)
def test_what_is_changed_runs_so(path, tmp_path, new, output, expected):
    before = run(path)
    with holdall.open(path) as model:
        arrays = {name: np.array(values, model[name].numpy().dtype) for name, values in new.items()}
        tensors = [Tensor.of(t.name, arrays[t.name]) if t.name in arrays else t for t in model.tensors]
        holdall.save(tmp_path / "o.onnx", model.replace(tensors=tensors))
    assert run(tmp_path / "o.onnx") == [expected if place == output else old for place, old in enumerate(before)]
    with holdall.open(tmp_path / "o.onnx") as model:
        for name, values in new.items():
            assert model[name].numpy().tolist() == values
    assert holdall.verify(tmp_path / "o.onnx", level="strict").ok
