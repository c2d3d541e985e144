"""The kinds of layers of an ONNX model by its nodes, where names of tensors tell nothing."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

import holdall
from holdall.cli import main
from holdall.format.onnx.wire import field
from holdall.operations.overview import OTHER, count_kinds
from tests.attacks.kit import MIB, SECONDS, cost_of

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402


def value(name):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, None)


def tensor(name, *shape, dtype=np.float32):
    return numpy_helper.from_array(np.ones(shape, dtype), name)


def constant(name, *shape):
    return helper.make_node("Constant", [], [name], value=tensor("", *shape))


def kinds_of(nodes, initializers=(), functions=(), sparse=()):
    graph = helper.make_graph(nodes, "g", [value("x")], [value("y")], initializers, sparse_initializer=sparse)
    model = holdall.open(helper.make_model(graph, functions=functions).SerializeToString())
    return model, holdall.formats()["onnx"].find_layer_kinds(model)


NODES = {
    "Conv": ("convolution", ["x", "a", "b"]),
    "ConvTranspose": ("convolution", ["x", "a", "b"]),
    "ConvInteger": ("convolution", ["x", "a", "", "b"]),
    "QLinearConv": ("convolution", ["x", "a", "b"]),
    "LSTM": ("recurrent", ["x", "a", "b"]),
    "GRU": ("recurrent", ["x", "a", "b"]),
    "RNN": ("recurrent", ["x", "a", "b"]),
    "DynamicQuantizeLSTM": ("recurrent", ["x", "a", "b"]),
    "BatchNormalization": ("norm", ["x", "a", "b"]),
    "LayerNormalization": ("norm", ["x", "a", "b"]),
    "SkipSimplifiedLayerNormalization": ("norm", ["x", "a", "b"]),
    "MatMul": ("linear", ["a", "b"]),
    "Gemm": ("linear", ["x", "a", "b"]),
    "MatMulInteger": ("linear", ["x", "a", "", "b"]),
    "QLinearMatMul": ("linear", ["x", "a", "b"]),
    "DynamicQuantizeMatMul": ("linear", ["x", "a", "b"]),
    "MatMulNBits": ("linear", ["x", "a", "b"]),
    "QGemm": ("linear", ["x", "a", "b"]),
}


@pytest.mark.parametrize("op", NODES)
def test_the_kind_is_that_of_the_node(op):
    kind, inputs = NODES[op]
    _, found = kinds_of([helper.make_node(op, inputs, ["y"])], [tensor("a", 2, 2), tensor("b", 2), tensor("c", 2)])
    assert found == {"a": kind, "b": kind}


def test_only_a_matrix_is_an_embedding():
    nodes = [helper.make_node("Gather", [name, "x"], [f"g{name}"]) for name in "abc"]
    nodes += [helper.make_node("Transpose", ["a"], ["t"]), helper.make_node("MatMul", ["x", "t"], ["y"])]
    _, found = kinds_of(nodes, [tensor("a", 2, 2), tensor("b", 2), tensor("c", 2, 2, 2)])
    assert found == {"a": "embedding"}  # also where it is the head as well


def test_values_that_are_changed_first_are_followed():
    nodes = [
        helper.make_node("Cast", ["a"], ["a16"], to=10),
        helper.make_node("Transpose", ["a16"], ["at"]),
        helper.make_node("MatMul", ["x", "at"], ["m"]),
        helper.make_node("DequantizeLinear", ["b", "scale", "zero"], ["bf"]),
        helper.make_node("Conv", ["m", "bf"], ["n"]),
        helper.make_node("DequantizeLinear", ["e", "scale2"], ["ef"]),
        helper.make_node("Gather", ["ef", "x"], ["o"]),
        constant("c", 2, 2),
        helper.make_node("Identity", ["c"], ["ci"]),
        helper.make_node("Gemm", ["o", "ci"], ["y"]),
    ]
    weights = [tensor("a", 2, 2), tensor("b", 2, dtype=np.int8), tensor("scale", 2), tensor("zero", 2, dtype=np.int8)]
    _, found = kinds_of(nodes, [*weights, tensor("e", 2, 2, dtype=np.int8), tensor("scale2", 2)])
    assert found == {
        "a": "linear", "b": "convolution", "scale": "convolution", "zero": "convolution", "e": "embedding",
        "scale2": "embedding", "graph.node[7].value": "linear",
    }  # fmt: skip


def test_gates_that_are_put_in_order_are_followed():
    """As PyTorch exports an LSTM; what is joined for another node is not."""
    nodes = [
        helper.make_node("Slice", ["w", "from", "to"], ["i"]),
        helper.make_node("Slice", ["w", "to", "end"], ["o"]),
        helper.make_node("Concat", ["o", "i"], ["io"], axis=0),
        helper.make_node("Unsqueeze", ["io", "axes"], ["iou"]),
        helper.make_node("Concat", ["x", "token"], ["xt"], axis=0),
        helper.make_node("LSTM", ["xt", "iou"], ["y"]),
        helper.make_node("MatMul", ["xt", "m"], ["z"]),
    ]
    _, found = kinds_of(nodes, [tensor("w", 4, 2), tensor("token", 2), tensor("m", 2), tensor("from", 1)])
    assert found == {"w": "recurrent", "m": "linear"}


def test_graphs_inside_nodes():
    """`w` of the outer graph is used in one branch, and hidden by another `w` in the other."""
    then_branch = helper.make_graph(
        [constant("k", 2, 2), helper.make_node("MatMul", ["w", "k"], ["t"])], "then", [], [value("t")]
    )
    else_branch = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["e"]), helper.make_node("GRU", ["x", "v"], ["f"])],
        "else", [], [value("e")], [tensor("w", 2, 2)],
    )  # fmt: skip
    nodes = [helper.make_node("If", ["c"], ["y"], then_branch=then_branch, else_branch=else_branch)]
    _, found = kinds_of(nodes, [tensor("w", 2, 2), tensor("v", 2)])
    assert found == {
        "w": "linear", "v": "recurrent", "graph.node[0].then_branch.node[0].value": "linear",
        "graph.node[0].else_branch.w": "convolution",
    }  # fmt: skip


def test_functions():
    """Weights are passed through one function into another; a third one has a constant of its own."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]

    def make(name, inputs, *nodes):
        return helper.make_function("own", name, inputs, ["out"], list(nodes), opsets)

    inner = make("Inner", ["p", "q"], helper.make_node("Conv", ["p", "q"], ["out"]))
    outer = make("Outer", ["r", "s"], helper.make_node("Inner", ["r", "s"], ["out"], domain="own"))
    own = make("Own", ["u"], constant("k", 2, 2), helper.make_node("MatMul", ["u", "k"], ["out"]))
    again = make("Again", ["u"], helper.make_node("Again", ["u"], ["out"], domain="own"))
    nodes = [
        helper.make_node("Outer", ["x", "w"], ["o"], domain="own"),
        helper.make_node("Own", ["o"], ["n"], domain="own"),
        helper.make_node("Again", ["v"], ["y"], domain="own"),
    ]
    _, found = kinds_of(nodes, [tensor("w", 2, 2), tensor("v", 2)], [outer, inner, own, again])
    assert found == {"w": "convolution", "functions[2].node[0].value": "linear"}


def test_sparse_tensors():
    values, indices = tensor("s", 2), numpy_helper.from_array(np.array([0, 3]), "")
    sparse = helper.make_sparse_tensor(values, indices, [2, 2])
    _, found = kinds_of([helper.make_node("MatMul", ["x", "s"], ["y"])], sparse=[sparse])
    assert found == {"s.values": "linear", "s.indices": "linear"}


def test_the_table_of_info(tmp_path):
    weights = [tensor("onnx::MatMul_7", 8, 8), tensor("onnx::Conv_9", 2, 2), tensor("ln.weight", 4), tensor("z", 1)]
    nodes = [
        helper.make_node("MatMul", ["x", "onnx::MatMul_7"], ["a"]),
        helper.make_node("Conv", ["a", "onnx::Conv_9"], ["b"]),
        helper.make_node("MatMul", ["b", "ln.weight"], ["y"]),  # the name comes first
    ]
    graph = helper.make_graph(nodes, "g", [value("x")], [value("y")], weights)
    onnx.save(helper.make_model(graph), tmp_path / "m.onnx")
    facts = json.loads(CliRunner().invoke(main, ["info", "--json", str(tmp_path / "m.onnx")]).output)
    assert [(each["kind"], each["parameters"]) for each in facts["kinds"]] == [
        ("linear", 64), ("convolution", 4), ("norm", 4), ("other", 1),
    ]  # fmt: skip
    assert "linear" in CliRunner().invoke(main, ["info", str(tmp_path / "m.onnx")]).output
    holdall.convert(tmp_path / "m.onnx", tmp_path / "m.npz")
    with holdall.open(tmp_path / "m.npz") as plain:
        assert "linear" not in count_kinds(plain)


INITIALIZER = field(5, b"\x08\x01\x10\x01" + field(8, b"w") + field(9, bytes(4)))
TAKEN = field(1, field(1, b"x") + field(1, b"w") + field(4, b"MatMul"))


def nest(levels, content):
    for _ in range(levels):
        content = field(1, field(5, field(1, b"b") + field(6, content)))
    return content


def call(name, *inputs):
    return b"".join(field(1, each) for each in inputs) + field(4, name)


def name_functions(count, target):
    """Functions that each call another one."""
    return b"".join(
        field(25, field(1, b"f%d" % number) + field(4, b"p") + field(7, call(b"f%d" % target(number), b"p")))
        for number in range(count)
    )


MANY = 1_000_000
HOSTILE = {
    "nodes": lambda: INITIALIZER + TAKEN + field(1, b"") * (MANY // 2 - 50),
    "inputs": lambda: INITIALIZER + field(1, field(1, b"w") * (MANY // 3 - 50) + field(4, b"MatMul")),
    "outputs": lambda: INITIALIZER + field(1, field(2, b"w") * (MANY // 3 - 50)),
    "a chain": lambda: INITIALIZER + b"".join(
        field(1, field(1, b"%d" % (n + 1)) + field(2, b"%d" % n) + field(4, b"Cast")) for n in range(30_000)
    ),
    "a cycle": lambda: INITIALIZER + field(1, field(1, b"w") + field(2, b"w") + field(4, b"Cast")) * 50_000,
    "deep": lambda: INITIALIZER + nest(120, TAKEN * 20_000),
    "wide graphs": lambda: INITIALIZER + field(1, b"".join(field(5, field(6, TAKEN)) for _ in range(30_000))),
    "names": lambda: INITIALIZER + nest(100, b"".join(field(1, field(2, b"%d" % n)) for n in range(90_000))),
    "operators": lambda: INITIALIZER + b"".join(field(1, field(4, b"MatMul%d_" % n)) for n in range(60_000)),
    "long": lambda: INITIALIZER + field(1, field(4, b"Q" * (MANY - 1000))),
    "attributes": lambda: INITIALIZER + field(1, field(5, b"") * (MANY // 2 - 50)),
}  # fmt: skip
FUNCTIONS = {
    "chain": lambda: name_functions(30_000, lambda number: number + 1),
    "backwards": lambda: name_functions(30_000, lambda number: max(0, number - 1)),
    "cycle": lambda: name_functions(30_000, lambda number: (number + 1) % 30_000),
    "one": lambda: field(25, field(1, b"f") + field(4, b"p") * 300 + field(7, call(b"f", *[b"p"] * 300))) * 500,
    "calls": lambda: field(25, field(1, b"f") + field(4, b"p") * 100_000 + field(7, call(b"Cast", b"p"))),
}


def check_cost(path):
    outputs = []
    cost = cost_of(lambda: outputs.append(CliRunner().invoke(main, ["info", str(path)])))
    assert cost.seconds < SECONDS and cost.peak_bytes < 200 * MIB, cost
    assert outputs[0].exit_code == 0 and "should not happen" not in outputs[0].output


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_graphs_take_little(name, tmp_path):
    data = b"\x08\x08" + field(7, HOSTILE[name]())
    assert len(data) < 2 * MIB
    (tmp_path / "m.onnx").write_bytes(data)
    check_cost(tmp_path / "m.onnx")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_hostile_functions_take_little(name, tmp_path):
    calls = field(1, call(b"f0", b"w")) + field(1, call(b"f", *[b"w"] * 30)) * 100
    data = b"\x08\x08" + field(7, INITIALIZER + calls) + FUNCTIONS[name]()
    assert len(data) < 2 * MIB
    (tmp_path / "m.onnx").write_bytes(data)
    check_cost(tmp_path / "m.onnx")


def test_kinds_are_those_of_the_table():
    from holdall.format.onnx.layer_kinds import _EMBEDDING, _OPERATORS
    from holdall.operations.overview import _KINDS

    assert {_EMBEDDING, *(kind for _, kind, _ in _OPERATORS)} <= {*_KINDS, "linear"}
    assert OTHER not in _KINDS
