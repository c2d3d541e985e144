"""Tensors of texts: not decoded, and kept in their places when a model is written anew."""

import numpy as np
import pytest

import holdall
from holdall.errors import ContentError
from holdall.model.encodings import Opaque
from holdall.model.model import Model
from holdall.model.payload import InMemory
from holdall.model.tensor import Tensor

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

TEXTS = [b"a", b"bc", "ä".encode(), b""]
MANY = [b"%d" % number for number in range(400_000)]  # beyond every buffer


@pytest.fixture
def path(tmp_path):
    nodes = [
        helper.make_node("Identity", ["s"], ["y"]),
        helper.make_node("Constant", [], ["c"], value=helper.make_tensor("", TensorProto.STRING, [1], [b"inside"])),
    ]
    weights = [helper.make_tensor("s", TensorProto.STRING, [2, 2], TEXTS), numpy_helper.from_array(np.ones(3000), "w")]
    weights.append(helper.make_tensor("many", TensorProto.STRING, [len(MANY)], MANY))
    outputs = [helper.make_tensor_value_info("y", TensorProto.STRING, [2, 2])]
    outputs.append(helper.make_tensor_value_info("c", TensorProto.STRING, [1]))
    graph = helper.make_graph(nodes, "g", [], outputs, weights)
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    onnx.checker.check_model(model)
    onnx.save(model, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def check(path):
    runtime = pytest.importorskip("onnxruntime")
    model = onnx.load(path)
    found = {tensor.name: tensor for tensor in model.graph.initializer}
    assert list(found["s"].string_data) == TEXTS and list(found["many"].string_data) == MANY
    assert np.array_equal(numpy_helper.to_array(found["w"]), np.ones(3000))
    assert list(model.graph.node[1].attribute[0].t.string_data) == [b"inside"]
    y, c = runtime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {})
    assert (y.tolist(), c.tolist()) == ([["a", "bc"], ["ä", ""]], ["inside"])


def test_texts_survive_every_way_from_onnx_to_onnx(path, tmp_path):
    holdall.edit(path, set={"note": "mine"})
    check(path)
    holdall.convert(path, tmp_path / "b.onnx", metadata={"k": "v"})
    check(tmp_path / "b.onnx")
    holdall.convert(path, tmp_path / "folder", format="onnx", options={"external": True})
    check(tmp_path / "folder" / "model.onnx")
    holdall.convert(tmp_path / "folder", tmp_path / "c.onnx")
    check(tmp_path / "c.onnx")
    assert holdall.verify(tmp_path / "c.onnx", level="strict").ok


def test_texts_keep_their_names_and_other_formats_refuse_them(path, tmp_path):
    with pytest.raises(ContentError, match="tensor 'many2' holds texts, and its bytes call it 'many': keep that name"):
        holdall.convert(path, tmp_path / "o.onnx", rename=["s/^many$/many2/"])
    with pytest.raises(
        ContentError, match=r"safetensors cannot hold 3 tensors: .*onnx\.string, which holdall does not"
    ):
        holdall.convert(path, tmp_path / "o.safetensors")


@pytest.mark.parametrize(
    ("dtype", "data"), [("onnx.string", b"\xff"), ("onnx.string", b"\x10\x01"), ("onnx.string", b""), ("npy.<U3", b"x")]
)
def test_bytes_that_are_no_texts_are_refused(tmp_path, dtype, data):
    tensor = Tensor("t", Opaque(dtype, len(data)), (1,), InMemory(data))
    with pytest.raises(ContentError, match="onnx: tensor 't': "):
        holdall.save(tmp_path / "o.onnx", Model([tensor]))
