"""Every place of an ONNX model that can hold a tensor: found by its path, and written without the files beside it."""

import numpy as np
import pytest

import holdall
from holdall.binary.kernels.protobuf_tokens import RECORD
from holdall.errors import ContentError, FormatError
from holdall.format.onnx import layout
from holdall.model.model import Model
from holdall.model.tensor import Tensor
from holdall.operations.convert.compare_written import refuse_foreign_files

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

MESSAGES = {
    "ModelProto": layout.MODEL, "TrainingInfoProto": layout.TRAINING_INFO, "GraphProto": layout.GRAPH_PROTO,
    "FunctionProto": layout.FUNCTION, "NodeProto": layout.NODE_PROTO, "AttributeProto": layout.ATTRIBUTE_PROTO,
    "SparseTensorProto": layout.SPARSE, "TensorProto": RECORD,
}  # fmt: skip


def find_inside(message, seen):
    """Every field of a message and of those inside it whose type is a message: (message, number, type)."""
    if message.name in seen:
        return set()
    seen.add(message.name)
    found = set()
    for field in message.fields:
        if field.message_type is not None:
            found.add((message.name, field.number, field.message_type.name))
            found |= find_inside(field.message_type, seen)
    return found


def test_the_walk_knows_every_place_of_the_library():
    """A newer onnx with another place for tensors fails here."""
    fields = find_inside(onnx.ModelProto.DESCRIPTOR, set())
    holding = {"TensorProto"}
    while grown := {message for message, _, type in fields if type in holding} - holding:
        holding |= grown
    assert holding == set(MESSAGES)
    expected = {(MESSAGES[message], number): MESSAGES[type] for message, number, type in fields if type in holding}
    assert expected == layout.INSIDE


def floats(start, count=4):
    return np.arange(start, start + count, dtype=np.float32)


def tensor(start, name="", count=4):
    return numpy_helper.from_array(floats(start, count), name)


def sparse(start, name, count):
    indices = numpy_helper.from_array(np.arange(count), "")
    return helper.make_sparse_tensor(tensor(start, name, count), indices, [count])


def value(name, count, type=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, type, [count] if count else [])


def branch(start, count):
    nodes = [helper.make_node("Identity", ["w"], [f"b{start}"])]
    return helper.make_graph(nodes, f"g{start}", [], [value(f"b{start}", count)], [tensor(start, "w", count)])


def make_model(count):
    """A model that runs, with a tensor of ``count`` values in every place."""
    flag = numpy_helper.from_array(np.array(True), "flag")
    inside = helper.make_node("If", ["k_flag"], ["i"], then_branch=branch(5000, count), else_branch=branch(6000, count))
    default = helper.make_node("Constant", [], ["k"])
    default.attribute.add(name="value", ref_attr_name="k", type=onnx.AttributeProto.TENSOR)
    body = [helper.make_node("Constant", [], ["k_flag"], value=flag), inside, default,
            helper.make_node("Constant", [], ["c"], value=tensor(7000, "", count)),
            helper.make_node("Sum", ["i", "k", "c"], ["o"])]  # fmt: skip
    function = helper.make_function(
        "own", "F", [], ["o"], body, [helper.make_opsetid("", 17)],
        attribute_protos=[helper.make_attribute("k", tensor(8000, "", count))],
    )  # fmt: skip
    other = helper.make_function("own", "Unused", [], ["o"], [helper.make_node("Identity", ["o"], ["o"])], [])
    rest = other.node[0].attribute
    rest.append(helper.make_attribute("many", [tensor(100, "", count), tensor(200, "", count)]))
    rest.append(helper.make_attribute("graphs", [branch(300, count)]))
    rest.append(helper.make_attribute("sparse", sparse(400, "", count)))
    rest.append(helper.make_attribute("sparses", [sparse(500, "", count)]))
    nodes = [
        helper.make_node("Constant", [], ["a"], value=tensor(1000, "", count)),
        helper.make_node("If", ["flag"], ["b"], then_branch=branch(2000, count), else_branch=branch(3000, count)),
        helper.make_node("F", [], ["f"], domain="own"),
        helper.make_node("Sum", ["a", "b", "w", "f"], ["y"]),
    ]
    weights = [tensor(4000, "w", count), flag]
    graph = helper.make_graph(
        nodes, "g", [], [value("y", count)], weights, sparse_initializer=[sparse(9000, "S", count)]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("own", 1)])
    model.ir_version = 10
    model.functions.extend([function, other])
    training = model.training_info.add()
    training.initialization.CopyFrom(branch(600, count))
    training.algorithm.CopyFrom(branch(700, count))
    return model


def find_tensors(message, path=""):
    """Every TensorProto in a message, by the names of the fields that lead to it: found without holdall's tables."""
    if isinstance(message, TensorProto):
        yield path, message
        return
    for field, content in message.ListFields():
        if field.message_type is not None:
            for number, item in enumerate(content if not hasattr(content, "ListFields") else [content]):
                yield from find_tensors(item, f"{path}/{field.name}{number}")


def read_arrays(path):
    """The values of all tensors by the onnx library, those included whose external data it does not load itself."""
    model = onnx.load(path, load_external_data=False)
    arrays = {}
    for place, found in find_tensors(model):
        if found.data_location == TensorProto.EXTERNAL:
            onnx.external_data_helper.load_external_data_for_tensor(found, str(path.parent))
        arrays[place] = numpy_helper.to_array(found)
    return arrays


def save_external(model, path):
    """Save a model with the data of all its tensors in m.data, wherever they are."""
    data = b""
    for _, found in find_tensors(model):
        raw = numpy_helper.to_array(found).tobytes()
        onnx.external_data_helper.set_external_data(found, "m.data", len(data), len(raw))
        found.ClearField("raw_data")
        data += raw
    path.parent.mkdir()
    (path.parent / "m.data").write_bytes(data)
    path.write_bytes(model.SerializeToString())


def list_locations(path):
    """The files that tensors of a model name, with the places of those tensors."""
    found = find_tensors(onnx.load(path, load_external_data=False))
    return {place: entry.value for place, tensor in found for entry in tensor.external_data if entry.key == "location"}


def run(path):
    runtime = pytest.importorskip("onnxruntime")
    model = onnx.load(path)
    del model.training_info[:], model.functions[1], model.graph.sparse_initializer[:]  # what the runtime does not take
    return runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {})[0]


COUNTS = (4, 1 << 10, 3 << 19)  # below the bounds of external data, above them, and beyond every buffer
EXPECTED = 1000 + 2000 + 4000 + 5000 + 7000 + 8000  # what the model adds up, apart from six times the numbers from 0 on


@pytest.mark.parametrize("native", ["1", "0"])
def test_every_place_is_found(tmp_path, native, monkeypatch):
    monkeypatch.setattr("holdall.binary.kernels.NATIVE", native == "1" and holdall.binary.kernels.NATIVE)
    onnx.save(make_model(4), tmp_path / "m.onnx")
    with holdall.open(tmp_path / "m.onnx") as model:
        arrays = sorted(tensor.numpy().tolist() for tensor in model.tensors if tensor.shape == (4,))
        names = set(model.tensors.names)
    expected = [a.tolist() for a in read_arrays(tmp_path / "m.onnx").values() if a.shape == (4,)]
    assert arrays == sorted(expected)
    assert {"functions[0].k", "functions[0].node[1].then_branch.w", "functions[1].node[0].many[1]",
            "functions[1].node[0].graphs[0].w", "functions[1].node[0].sparse.values", "S.indices",
            "functions[1].node[0].sparses[0].indices", "training_info[0].algorithm.w"} <= names  # fmt: skip


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("decoy", [False, True])
def test_external_tensors_move_inside_from_every_place(tmp_path, count, decoy):
    save_external(make_model(count), tmp_path / "in" / "m.onnx")
    before = read_arrays(tmp_path / "in" / "m.onnx")
    (tmp_path / "out").mkdir()
    if decoy:
        (tmp_path / "out" / "m.data").write_bytes(bytes((tmp_path / "in" / "m.data").stat().st_size))
    report = holdall.convert(tmp_path / "in" / "m.onnx", tmp_path / "out" / "m.onnx")
    assert any("external data are inside the file now" in line for line in report.changes)
    (tmp_path / "in" / "m.data").unlink()
    assert list_locations(tmp_path / "out" / "m.onnx") == {}
    after = read_arrays(tmp_path / "out" / "m.onnx")
    assert after.keys() == before.keys()
    for place, array in before.items():
        assert np.array_equal(after[place], array), place
    assert np.array_equal(run(tmp_path / "out" / "m.onnx"), EXPECTED + 6 * floats(0, count))
    assert holdall.verify(tmp_path / "out" / "m.onnx", level="strict").ok


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("external", [False, True])
def test_external_tensors_move_into_the_new_data_file(tmp_path, count, external):
    """Where the library looks for external data large values leave the model, and no other file is needed."""
    (save_external if external else onnx.save)(make_model(count), tmp_path / ("in" if external else "") / "m.onnx")
    source = tmp_path / ("in" if external else "") / "m.onnx"
    before = read_arrays(source)
    report = holdall.convert(source, tmp_path / "out", format="onnx", options={"external": True})
    assert external == any("m.data are in the folder now" in line for line in report.changes)
    path = tmp_path / "out" / "model.onnx"
    assert set(list_locations(path).values()) == ({"model.onnx.data"} if count > 4 else set())
    after = read_arrays(path)
    for place, array in before.items():
        assert np.array_equal(after[place], array), place
    assert np.array_equal(run(path), EXPECTED + 6 * floats(0, count))  # of what onnx.load loads
    for _, found in find_tensors(onnx.load(path)):
        assert found.data_location == TensorProto.DEFAULT  # it finds all external data
    assert holdall.verify(tmp_path / "out", level="strict").ok
    holdall.convert(tmp_path / "out", tmp_path / "back.onnx")
    assert list_locations(tmp_path / "back.onnx") == {}
    assert all(np.array_equal(array, before[place]) for place, array in read_arrays(tmp_path / "back.onnx").items())


def test_the_library_saves_such_files(tmp_path):
    model = make_model(64)
    del model.training_info[:]
    (tmp_path / "in").mkdir()
    onnx.save(model, tmp_path / "in" / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0,
              convert_attribute=True)  # fmt: skip
    before = read_arrays(tmp_path / "in" / "m.onnx")
    assert len(list_locations(tmp_path / "in" / "m.onnx")) >= 6
    holdall.convert(tmp_path / "in" / "m.onnx", tmp_path / "m.onnx")
    assert list_locations(tmp_path / "m.onnx") == {}
    assert all(np.array_equal(array, before[place]) for place, array in read_arrays(tmp_path / "m.onnx").items())


def test_a_changed_external_tensor_and_its_unchanged_neighbours(tmp_path):
    save_external(make_model(8), tmp_path / "in" / "m.onnx")
    with holdall.open(tmp_path / "in" / "m.onnx") as model:
        new = Tensor.of("functions[0].k", floats(1, 8))
        tensors = [new if tensor.name == new.name else tensor for tensor in model.tensors]
        holdall.save(tmp_path / "o.onnx", model.replace(tensors=tensors))
    assert list_locations(tmp_path / "o.onnx") == {}
    assert np.array_equal(run(tmp_path / "o.onnx"), EXPECTED - 8000 + 1 + 6 * floats(0, 8))


def test_what_is_read_back_needs_no_other_file(tmp_path):
    save_external(make_model(8), tmp_path / "in" / "m.onnx")
    with holdall.open(tmp_path / "in" / "m.onnx") as model:
        with pytest.raises(ContentError, match=r"what was written needs m\.data, which is no part of it"):
            refuse_foreign_files(model, tmp_path / "in" / "m.onnx")
        refuse_foreign_files(model, tmp_path / "in")
        refuse_foreign_files(Model([]), tmp_path)


# -- names that are paths of others -----------------------------------------------------------------------------------


def clash():
    graph = helper.make_graph(
        [helper.make_node("Constant", [], ["c"], value=tensor(0)),
         helper.make_node("Add", ["c", "graph.node[0].value"], ["z"])],
        "g", [], [value("z", 4)], [tensor(10, "graph.node[0].value")], sparse_initializer=[sparse(5, "S", 3)],
    )  # fmt: skip
    graph.initializer.append(tensor(20, "S.values"))
    graph.initializer.append(tensor(30, "graph.node[0].value#2"))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model


CLASHING = {
    "graph.node[0].value": 10, "graph.node[0].value#2": 30, "graph.node[0].value#3": 0, "S.values": 20, "S.values#2": 5,
    "S.indices": 0,
}  # fmt: skip


@pytest.mark.parametrize("native", ["1", "0"])
def test_a_path_that_is_the_name_of_an_initializer_ends_with_a_number(tmp_path, native, monkeypatch):
    monkeypatch.setattr("holdall.binary.kernels.NATIVE", native == "1" and holdall.binary.kernels.NATIVE)
    onnx.save(clash(), tmp_path / "m.onnx")
    assert holdall.verify(tmp_path / "m.onnx", level="strict").ok
    holdall.convert(tmp_path / "m.onnx", tmp_path / "a.onnx")
    holdall.convert(tmp_path / "a.onnx", tmp_path / "b.safetensors")
    holdall.convert(tmp_path / "b.safetensors", tmp_path / "c.onnx")
    for name in ("m.onnx", "a.onnx", "b.safetensors", "c.onnx"):
        with holdall.open(tmp_path / name) as model:
            assert {tensor.name: tensor.numpy()[0] for tensor in model.tensors} == CLASHING, name
    with holdall.open(tmp_path / "m.onnx") as model:
        new = Tensor.of("graph.node[0].value#3", floats(7))
        tensors = [new if tensor.name == new.name else tensor for tensor in model.tensors]
        holdall.save(tmp_path / "o.onnx", model.replace(tensors=tensors))
    again = onnx.load(tmp_path / "o.onnx")
    assert np.array_equal(numpy_helper.to_array(again.graph.node[0].attribute[0].t), floats(7))
    assert np.array_equal(numpy_helper.to_array(again.graph.initializer[0]), floats(10))


def test_a_number_stays_only_beside_its_neighbour(tmp_path):
    onnx.save(clash(), tmp_path / "m.onnx")
    with pytest.raises(ContentError, match=r"'S\.values#2' would be called 'S\.values' in this file"):
        holdall.convert(tmp_path / "m.onnx", tmp_path / "o.onnx", exclude=["S.values"])
    assert not (tmp_path / "o.onnx").exists()


@pytest.mark.parametrize("names", [("w", "w"), ("", "w")])
def test_initializers_with_one_name_or_none_are_refused(tmp_path, names):
    graph = helper.make_graph([], "g", [], [], [tensor(number, name) for number, name in enumerate(names)])
    onnx.save(helper.make_model(graph), tmp_path / "m.onnx")
    said = "the name 'w' is there twice" if names[0] else "initializer 0 of the graph has no name"
    with pytest.raises(FormatError, match=said):
        holdall.open(tmp_path / "m.onnx")
    assert [finding.rule for finding in holdall.verify(tmp_path / "m.onnx").findings] == ["onnx.tensor.name"]


# -- where external data is, and halves of sparse tensors -------------------------------------------------------------


@pytest.mark.parametrize(
    "location", ["d", "./d", ".//d", "sub/../d", "./sub/.././d", "d/", "d/.", "../in/d", "/d", "", ".", "sub"]
)
def test_locations_are_those_that_the_library_takes(tmp_path, location):
    (tmp_path / "in" / "sub").mkdir(parents=True)
    (tmp_path / "in" / "d").write_bytes(floats(3).tobytes())
    stored = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    stored.external_data.add(key="location", value=location)
    path = tmp_path / "in" / "m.onnx"
    path.write_bytes(helper.make_model(helper.make_graph([], "g", [], [], [stored])).SerializeToString())
    try:
        onnx.load(path)
        taken = True
    except Exception:
        taken = False
    assert taken == (location in ("d", "./d", ".//d", "sub/../d", "./sub/.././d"))
    if taken:
        with holdall.open(path) as model:
            assert np.array_equal(model["w"].numpy(), floats(3))
    else:
        with pytest.raises(FormatError) as caught:
            holdall.open(path)
        assert caught.value.rule == "onnx.external.location"


@pytest.mark.parametrize("native", ["1", "0"])
@pytest.mark.parametrize(
    ("values", "indices", "lacks"), [(2, None, "indices"), (None, 2, "values"), (0, None, ""), (2, 2, "")]
)
def test_half_a_sparse_tensor_is_a_finding(tmp_path, values, indices, lacks, native, monkeypatch):
    monkeypatch.setattr("holdall.binary.kernels.NATIVE", native == "1" and holdall.binary.kernels.NATIVE)
    stored = onnx.SparseTensorProto(dims=[9])
    if values is not None:
        stored.values.CopyFrom(tensor(0, "S", values))
    if indices is not None:
        stored.indices.CopyFrom(numpy_helper.from_array(np.arange(indices), ""))
    model = helper.make_model(helper.make_graph([], "g", [], [], [tensor(0, "w")], sparse_initializer=[stored]))
    onnx.save(model, tmp_path / "m.onnx")
    report = holdall.verify(tmp_path / "m.onnx", level="full")
    if lacks:
        with pytest.raises(onnx.checker.ValidationError):
            onnx.checker.check_model(model)
        assert [(f.rule, f.message) for f in report.findings] == [
            ("onnx.sparse.parts", f"onnx: a sparse tensor has no {lacks}")
        ]
        assert not report.ok
    else:
        onnx.checker.check_model(model)
        assert report.ok


def test_texts_are_no_external_data(tmp_path):
    stored = TensorProto(name="w", data_type=TensorProto.STRING, dims=[0], data_location=TensorProto.EXTERNAL)
    path = tmp_path / "m.onnx"
    path.write_bytes(helper.make_model(helper.make_graph([], "g", [], [], [stored])).SerializeToString())
    with pytest.raises(FormatError, match="'w': texts cannot be external data"):
        holdall.open(path)
