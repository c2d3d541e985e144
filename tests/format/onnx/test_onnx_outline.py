"""The protobuf fields that explain shows beside onnx's own message classes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from holdall.format.onnx.field_names import DATA_TYPES, find_fields
from holdall.operations.examine import examine
from holdall.operations.explain import list_records
from holdall.operations.outline import Opener

onnx = pytest.importorskip("onnx")
pytest.importorskip("google.protobuf")


def make_model():
    from onnx import TensorProto, helper, numpy_helper

    weights = [numpy_helper.from_array(np.arange(n * 50, dtype=np.float32), f"w{n}") for n in range(1, 5)]
    floats = helper.make_tensor("floats", TensorProto.FLOAT, [3], [1.5, -2.0, 3.25])
    negative = helper.make_tensor("ints", TensorProto.INT64, [4], [-1, 2, -(2**40), 7])
    branch = helper.make_graph(
        [helper.make_node("Constant", [], ["c"], value=floats)], "then", [],
        [helper.make_tensor_value_info("c", TensorProto.FLOAT, ["n", 3])],
    )  # fmt: skip
    node = helper.make_node("If", ["x"], ["y"], then_branch=branch, else_branch=branch, axis=-1, ratio=0.5, s="text")
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 3])
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", TensorProto.BOOL, [1])], [output])
    graph.initializer.extend([*weights, floats, negative])
    model = helper.make_model(graph, producer_name="é", opset_imports=[helper.make_opsetid("", 17)])
    helper.set_model_props(model, {"key": "value"})
    return model


def open_all(data: bytes, most: int = 100_000):
    with examine(data) as seen:
        (owner,) = (owner for owner in seen.ledger.owners if owner.name == "protobuf")
        opener = Opener(seen, most)
        opened = [opener.open(record) for record in list_records(owner)]
    return seen, opened, [item for each in opened for item in each.items]


def list_messages(message) -> list:
    found = []
    for descriptor, value in message.ListFields():
        if descriptor.message_type is not None:
            for each in value if hasattr(value, "__len__") else [value]:
                found += [(descriptor.name, each), *list_messages(each)]
    return found


def test_the_bytes_of_every_message_are_that_message():
    model = make_model()
    data = model.SerializeToString()
    _, opened, items = open_all(data)
    assert len(opened) > 3  # tensors lie between the ranges
    shown = [item for item in items if item.kind[:1].isupper()]
    expected = sorted(
        (name, each.DESCRIPTOR.full_name, each.SerializeToString()) for name, each in list_messages(model)
    )
    kinds = [(item.name.partition("[")[0], f"onnx.{item.kind}", data[item.start : item.stop]) for item in shown]
    assert sorted(kinds) == expected
    assert len(expected) > 40


def test_values_are_those_of_the_library():
    model = make_model()
    _, _, items = open_all(model.SerializeToString())
    inside = {-1: (model, Counter())}  # the message around, by depth, and how often each of its fields came
    checked = 0
    for item in items:
        for depth in [depth for depth in inside if depth >= item.depth]:
            del inside[depth]
        holder, met = inside[max(inside)]
        name, _, place = item.name.partition("[")
        value = getattr(holder, name)
        if item.kind[:1].isupper():
            inside[item.depth] = value[int(place[:-1])] if hasattr(value, "__len__") else value, Counter()
            continue
        if isinstance(item.value, list):
            assert item.value == list(value)
        elif isinstance(value, (str, bytes, int, float)):
            assert item.value == value, item
        else:
            assert item.value == value[met[name]], item
            met[name] += 1
        checked += 1
    assert checked > 70


def test_the_tag_before_each_value_is_where_it_says():
    data = make_model().SerializeToString()
    _, _, items = open_all(data)
    for item in items:
        assert item.key < item.start or item.start == item.stop
        assert data[item.start : item.stop].startswith(item.data)
    keys = [item.key for item in items]
    assert keys == sorted(keys)


def test_names_and_types_are_those_of_the_library():
    names = {"int64", "int32", "uint64", "float", "double", "string", "bytes", "enum"}
    from google.protobuf.descriptor import FieldDescriptor

    types = {value: name[5:].lower() for name, value in vars(FieldDescriptor).items() if name.startswith("TYPE_")}
    todo, done = [onnx.ModelProto.DESCRIPTOR], set()
    while todo:
        message = todo.pop()
        if message.full_name in done:
            continue
        done.add(message.full_name)
        known = find_fields(message.full_name.removeprefix("onnx."))
        for field in message.fields:
            inner = field.message_type
            type = types[field.type] if inner is None else inner.full_name.removeprefix("onnx.")
            assert known[field.number] == (field.name, type)
            assert inner is not None or type in names
            todo += [inner] if inner is not None else []
    assert len(done) > 20
    stated = onnx.TensorProto.DESCRIPTOR.enum_types_by_name["DataType"].values_by_number
    assert {number: value.name for number, value in stated.items()}.items() <= dict(enumerate(DATA_TYPES)).items()


def test_from_a_byte_on_the_messages_around_it_are_shown():
    data = make_model().SerializeToString()
    at = data.index(b"w3")
    with examine(data) as seen:
        (owner,) = (owner for owner in seen.ledger.owners if owner.name == "protobuf")
        row = next(record for record in list_records(owner) if record.start <= at < record.start + record.size)
        items = Opener(seen, 5, at).open(row).items
    assert [item.name for item in items[:3]] == ["graph[0]", "initializer[2]", "name"]
    assert items[2].value == "w3"
    assert items[2].start == at


def test_a_cut_model_shows_the_fields_before_the_cut_and_where_it_ends():
    data = make_model().SerializeToString()
    _, _, whole = open_all(data)
    known = {(item.key, item.name): item for item in whole}
    for cut in range(20, len(data), 61):
        seen, (opened,), items = open_all(data[:cut])
        assert seen.model is None
        assert opened.stopped is not None
        assert opened.stopped.offset <= cut
        for item in items:
            expected = known[item.key, item.name]
            assert (item.start, item.kind, item.depth) == (expected.start, expected.kind, expected.depth)
            assert item.stop == min(expected.stop, cut)
        before = [item.key for item in whole if item.key < cut]
        assert [item.key for item in items] == before[: len(items)]
        missing = [item for item in whole if item.stop <= cut][len(items) :]
        assert not missing


def test_a_broken_field_says_at_which_byte_and_why():
    data = bytearray(make_model().SerializeToString())
    at = data.index(b"w3")
    data[at - 2] = 0x47  # the tag of the name: field 8 of the wire type 7
    _, found, items = open_all(bytes(data))
    (opened,) = (each for each in found if each.stopped is not None)
    assert opened.stopped.offset == at - 2
    assert opened.stopped.message == "onnx: field 8 is of the kind 7, which is none"
    assert opened.items[-1].name == "data_type"
    assert "ints" in [item.value for item in items]  # later ranges are shown all the same


@pytest.mark.parametrize("most", [2, 100])
def test_ranges_are_opened_alike_alone_and_one_after_the_other(most):
    with examine(make_model().SerializeToString()) as seen:
        (owner,) = (owner for owner in seen.ledger.owners if owner.name == "protobuf")
        records, opener = list(list_records(owner)), Opener(seen, most)
        in_order = [opener.open(record).items for record in records]
        assert in_order == [Opener(seen, most).open(record).items for record in records]
        assert [opener.open(record).items for record in reversed(records)] == in_order[::-1]
        assert len(records) > 3
