"""Tensors in nodes, in graphs inside of nodes, in functions, and sparse ones: found, and put back into their places."""

import json

import numpy as np
import pytest

import holdall
from holdall.errors import ContentError, FormatError
from holdall.format.onnx.wire import field
from holdall.model.tensor import Tensor

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
W = np.arange(12, dtype=np.float32).reshape(3, 4)
X = np.array([[1, 2, 3]], np.float32)


def value(name, *shape, type=FLOAT):
    return helper.make_tensor_value_info(name, type, shape)


def constant(output, array, **more):
    return helper.make_node("Constant", [], [output], value=numpy_helper.from_array(array, **more))


def sparse(name, values, indices, dims):
    made = helper.make_tensor(name, FLOAT, [len(values)], values)
    return helper.make_sparse_tensor(made, helper.make_tensor("", INT64, [len(indices)], indices), dims)


def branch(factor):
    nodes = [
        constant(f"c{factor}", np.full(4, factor, np.float32)),
        helper.make_node("MatMul", ["x", "w"], [f"m{factor}"]),
        helper.make_node("Add", [f"m{factor}", f"c{factor}"], [f"o{factor}"]),
    ]
    weights = [numpy_helper.from_array(W * factor, "w")]
    return helper.make_graph(nodes, f"branch{factor}", [], [value(f"o{factor}", 1, 4)], weights)


def loop_body():
    nodes = [
        constant("step", np.array([0.5], np.float32)),
        helper.make_node("Add", ["kept", "step"], ["next"]),
        helper.make_node("Identity", ["go"], ["on"]),
    ]
    inputs = [value("turn", type=INT64), value("go", type=TensorProto.BOOL), value("kept", 1)]
    return helper.make_graph(nodes, "body", inputs, [value("on", type=TensorProto.BOOL), value("next", 1)])


def scan_body():
    nodes = [constant("factor", np.array([3], np.float32)), helper.make_node("Mul", ["row", "factor"], ["scaled"]),
             helper.make_node("Identity", ["state"], ["state_out"])]  # fmt: skip
    inputs, outputs = [value("state", 1), value("row", 1)], [value("state_out", 1), value("scaled", 1)]
    return helper.make_graph(nodes, "scan", inputs, outputs)


def make_model():
    """A model with a tensor of every kind of place, which runs."""
    nodes = [
        constant("flag", np.array(True)),
        helper.make_node("If", ["flag"], ["z"], then_branch=branch(1), else_branch=branch(2)),
        helper.make_node("ConstantOfShape", ["shape"], ["s"], value=helper.make_tensor("v", FLOAT, [1], [2.5])),
        helper.make_node("Loop", ["turns", "more", "begin"], ["sum"], body=loop_body()),
        helper.make_node("Scan", ["begin", "rows"], ["last", "scans"], body=scan_body(), num_scan_inputs=1),
        helper.make_node("Shift", ["z"], ["y"], domain="own"),
    ]
    shift = [constant("k", np.array([10], np.float32)), helper.make_node("Add", ["a", "k"], ["b"])]
    function = helper.make_function("own", "Shift", ["a"], ["b"], shift, [helper.make_opsetid("", 17)])
    weights = {"shape": np.array([2]), "turns": np.array(4), "more": np.array(True), "begin": np.array([1], np.float32),
               "rows": np.ones((3, 1), np.float32)}  # fmt: skip
    outputs = [value("y", 1, 4), value("s", None), value("sum", 1), value("scans", 3, 1)]
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", 1, 3)],
        outputs,
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    model = helper.make_model(graph, functions=[function], opset_imports=opsets, ir_version=8, producer_name="tests")
    onnx.checker.check_model(model)
    return model


def find_all(model):
    """Every tensor of a model by its path, found by the library's own messages."""
    found = {tensor.name: tensor for tensor in model.graph.initializer}

    def nodes_of(path, nodes):
        for number, node in enumerate(nodes):
            for attribute in node.attribute:
                inner = f"{path}.node[{number}].{attribute.name}"
                if attribute.type == onnx.AttributeProto.TENSOR:
                    found[inner] = attribute.t
                if attribute.type == onnx.AttributeProto.GRAPH:
                    for tensor in attribute.g.initializer:
                        found[f"{inner}.{tensor.name}"] = tensor
                    nodes_of(inner, attribute.g.node)

    nodes_of("graph", model.graph.node)
    for number, function in enumerate(model.functions):
        nodes_of(f"functions[{number}]", function.node)
    return found


def run(path, **feeds):
    """The outputs by onnxruntime and by the reference of the onnx library, which agree."""
    runtime = pytest.importorskip("onnxruntime")
    from onnx.reference import ReferenceEvaluator

    got = runtime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, feeds)
    for ours, theirs in zip(got, ReferenceEvaluator(onnx.load(path)).run(None, feeds), strict=True):
        np.testing.assert_allclose(ours, theirs)
    return got


def call(*arguments):
    from click.testing import CliRunner

    from holdall.cli import main

    return CliRunner().invoke(main, [str(argument) for argument in arguments]).output


@pytest.fixture
def path(tmp_path):
    onnx.save(make_model(), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def change(model, **new):
    """The tensors of ``model``, with new values for some."""
    return [Tensor.of(t.name, new[t.name]) if t.name in new else t for t in model.tensors]


def test_every_tensor_is_found(path):
    expected = find_all(onnx.load(path))
    assert "graph.node[1].then_branch.w" in expected and "functions[0].node[0].value" in expected
    with holdall.open(path) as model:
        assert set(model.tensors.names) == set(expected)
        for name, proto in expected.items():
            array = numpy_helper.to_array(proto)
            assert model[name].shape == array.shape
            assert np.array_equal(model[name].numpy(), array)


def test_sparse_tensors_are_their_values_and_indices(tmp_path):
    node = helper.make_node("Constant", [], ["y"], sparse_value=sparse("", [1.0, 2.0], [0, 3], [4]))
    graph = helper.make_graph([node], "g", [], [value("y", 4)], sparse_initializer=[sparse("S", [5.0], [2], [3])])
    onnx.save(helper.make_model(graph), tmp_path / "m.onnx")
    with holdall.open(tmp_path / "m.onnx") as model:
        found = {tensor.name: tensor.numpy().tolist() for tensor in model.tensors}
    assert found == {
        "graph.node[0].sparse_value.values": [1, 2],
        "graph.node[0].sparse_value.indices": [0, 3],
        "S.values": [5],
        "S.indices": [2],
    }


def test_unchanged_models_stay_byte_for_byte_what_they_were(path, tmp_path):
    with holdall.open(path) as model:
        holdall.save(tmp_path / "o.onnx", model)
    again = onnx.load(tmp_path / "o.onnx")
    assert again.graph.node == make_model().graph.node
    assert again.functions == make_model().functions
    assert {t.name for t in again.graph.initializer} == {"shape", "turns", "more", "begin", "rows"}


@pytest.mark.parametrize(
    ("name", "array", "output", "expected"),
    [
        ("graph.node[1].then_branch.w", W * 100, 0, X @ (W * 100) + 1 + 10),
        ("graph.node[1].then_branch.node[0].value", np.full(4, 7, np.float32), 0, X @ W + 7 + 10),
        ("graph.node[0].value", np.array(False), 0, X @ (W * 2) + 2 + 10),
        ("functions[0].node[0].value", np.array([-1], np.float32), 0, X @ W + 1 - 1),
        ("graph.node[2].value", np.array([9], np.float32), 1, [9, 9]),
        ("graph.node[3].body.node[0].value", np.array([2], np.float32), 2, [9]),
        ("graph.node[4].body.node[0].value", np.array([5], np.float32), 3, [[5], [5], [5]]),
        ("begin", np.array([2], np.float32), 2, [4]),
    ],
)
def test_changed_models_run_with_other_results(path, tmp_path, name, array, output, expected):
    before = run(path, x=X)
    with holdall.open(path) as model:
        holdall.save(tmp_path / "o.onnx", model.replace(tensors=change(model, **{name: array})))
    onnx.checker.check_model(onnx.load(tmp_path / "o.onnx"))
    after = run(tmp_path / "o.onnx", x=X)
    for number, (old, new) in enumerate(zip(before, after, strict=True)):
        np.testing.assert_allclose(new, expected if number == output else old)
    with holdall.open(tmp_path / "o.onnx") as model:
        assert np.array_equal(model[name].numpy(), array)


def test_all_at_once_and_beyond_every_buffer(path, tmp_path):
    """Lengths of messages grow by some bytes, and one of them by megabytes: its values are broadcast."""
    big = np.zeros((3, 4), np.float32) + np.arange(4, dtype=np.float32)
    huge = np.full((1 << 20, 1, 4), 3, np.float32)  # 16 MiB
    new = {"graph.node[1].then_branch.w": big, "graph.node[1].then_branch.node[0].value": huge,
           "functions[0].node[0].value": np.arange(4, dtype=np.float32)}  # fmt: skip
    with holdall.open(path) as model:
        holdall.save(tmp_path / "o.onnx", model.replace(tensors=change(model, **new)))
    y = run(tmp_path / "o.onnx", x=X)[0]
    assert np.array_equal(y, np.broadcast_to(X @ big + 3 + np.arange(4), huge.shape))
    assert holdall.verify(tmp_path / "o.onnx", level="strict").ok


def test_a_report_names_values_that_nodes_lost(path, tmp_path):
    report = holdall.convert(path, tmp_path / "o.onnx", exclude=["functions*"])
    assert any(
        "'functions[0].node[0].value': the graph uses what no tensor is called" in line for line in report.changes
    )
    assert not onnx.load(tmp_path / "o.onnx").functions[0].node[0].attribute[0].HasField("t")


def test_places_are_no_names_to_edit(path):
    before = path.read_bytes()
    with pytest.raises(ContentError, match="its name is its place in the model"):
        holdall.edit(path, rename={"functions[0].node[0].value": "k"})
    assert path.read_bytes() == before
    holdall.edit(path, set={"note": "mine"})
    assert onnx.load(path).functions == make_model().functions


def test_a_chain_of_conversions_keeps_all_values(path, tmp_path):
    arrays = {name: numpy_helper.to_array(proto) for name, proto in find_all(onnx.load(path)).items()}
    holdall.convert(path, tmp_path / "a.safetensors")
    holdall.convert(tmp_path / "a.safetensors", tmp_path / "b.onnx")
    for tensor in onnx.load(tmp_path / "b.onnx").graph.initializer:
        assert np.array_equal(numpy_helper.to_array(tensor), arrays.pop(tensor.name))
    assert not arrays


def test_diff_tells_tensors_from_the_graph(path, tmp_path):
    with holdall.open(path) as model:
        new = {
            "functions[0].node[0].value": np.array([7], np.float32),
            "graph.node[2].value": np.array([7], np.float32),
        }
        holdall.save(tmp_path / "o.onnx", model.replace(tensors=change(model, **new)))
    told = json.loads(call("diff", path, tmp_path / "o.onnx", "--json"))
    assert sorted(entry["name"] for entry in told["tensors"]) == sorted(new)
    assert not told["native"], told


@pytest.mark.parametrize(
    ("node", "rule"),
    [
        (field(5, field(1, b"value") + 2 * field(5, field(2, 1) + field(9, bytes(4)))), "onnx.tensor.once"),
        (2 * field(5, field(1, b"value") + field(5, field(2, 1) + field(9, bytes(4)))), "onnx.tensor.name"),
        (field(5, field(1, b"value") + field(5, field(2, 1) + field(9, bytes(3)))), "onnx.tensor.size"),
        (field(5, field(1, b"value") + field(5, field(9, bytes(4)))), "onnx.tensor.dtype"),
        (field(5, field(1, b"\xff") + field(5, field(2, 1) + field(9, bytes(4)))), "onnx.wire.text"),
        (field(5, b"\x2a\x7f"), "onnx.wire.field"),
    ],
)
def test_damaged_nodes_are_refused(node, rule):
    data = field(1, 8) + field(2, b"x") + field(7, field(1, b"") + field(1, node))
    with pytest.raises(FormatError) as caught:
        holdall.open(data, format="onnx")
    assert caught.value.rule == rule
    assert caught.value.offset is not None


def test_graphs_in_graphs_end(tmp_path):
    graph = b""
    for _ in range(200):
        graph = field(1, field(5, field(1, b"g") + field(6, graph)))
    with pytest.raises(FormatError, match="graphs in graphs"):
        holdall.open(field(1, 8) + field(2, b"x") + field(7, graph), format="onnx")


def test_info_shows_the_model(path):
    told = json.loads(call("info", path, "--json"))["native"]
    assert told == {
        "producer": "tests",
        "opset": "ai.onnx 17, own 1",
        "functions": "1",
        "nodes": "6: 1 Constant, 1 If, 1 ConstantOfShape, 1 Loop, 1 Scan and others",
        "inputs": [{"name": "x", "dtype": "f32", "shape": "[1, 3]"}],
        "outputs": [
            {"name": "y", "dtype": "f32", "shape": "[1, 4]"},
            {"name": "s", "dtype": "f32", "shape": "[?]"},
            {"name": "sum", "dtype": "f32", "shape": "[1]"},
            {"name": "scans", "dtype": "f32", "shape": "[3, 1]"},
        ],
    }


def test_external_data(path, tmp_path):
    weights = {"big": np.arange(1 << 20, dtype=np.float32), "mid": np.arange(400, dtype=np.float32), "tiny": W[0]}
    holdall.save(tmp_path / "a.safetensors", weights)
    holdall.convert(tmp_path / "a.safetensors", tmp_path / "folder", format="onnx", options={"external": True})
    assert sorted(file.name for file in (tmp_path / "folder").iterdir()) == ["model.onnx", "model.onnx.data"]
    model = onnx.load(tmp_path / "folder" / "model.onnx")
    onnx.checker.check_model(str(tmp_path / "folder" / "model.onnx"))
    for tensor in model.graph.initializer:
        assert np.array_equal(numpy_helper.to_array(tensor), weights[tensor.name])
    bare = onnx.load(tmp_path / "folder" / "model.onnx", load_external_data=False)
    assert {t.name: t.data_location for t in bare.graph.initializer} == {"big": 1, "mid": 1, "tiny": 0}
    offsets = {entry.value for t in bare.graph.initializer for entry in t.external_data if entry.key == "offset"}
    assert all(int(offset) % 64 == 0 for offset in offsets)
    with holdall.open(tmp_path / "folder") as model:
        assert np.array_equal(model["big"].numpy(), weights["big"])
    holdall.convert(tmp_path / "folder", tmp_path / "back.safetensors")
    assert (tmp_path / "back.safetensors").read_bytes() == (tmp_path / "a.safetensors").read_bytes()


def test_a_graph_with_external_data_runs(tmp_path):
    large = np.arange(3000, dtype=np.float32).reshape(3, 1000)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [value("x", 1, 3)], [value("y", 1, 1000)],
        [numpy_helper.from_array(large, "w")],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "m.onnx")
    holdall.convert(tmp_path / "m.onnx", tmp_path / "folder", format="onnx", options={"external": True})
    np.testing.assert_allclose(run(tmp_path / "folder" / "model.onnx", x=X)[0], X @ large)


def test_a_model_above_two_gigabytes_gets_external_data(tmp_path):
    """The weights are a hole in a file, and nothing is written."""
    size = (1 << 31) + 4
    header = json.dumps({"w": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}}).encode()
    with (tmp_path / "big.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + size)
    report = holdall.convert(tmp_path / "big.safetensors", tmp_path / "big.onnx", dry_run=True)
    assert any("above the 2147483647 of a protobuf message" in change for change in report.changes)
