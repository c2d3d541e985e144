"""Values that a pickle states twice: what Python keeps is what is shown under the name that Python has for it."""

from __future__ import annotations

import argparse
import io
from collections import deque

import numpy as np
import pytest

import holdall
from tests.format.torch.files import call, checkpoint, named, number, row, table, tensor, text
from tests.format.torch.test_torch_numpy import array, kind

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore:numpy.core")
STORAGES = {"0": np.arange(4, dtype="<f4").tobytes(), "1": np.arange(4, 8, dtype="<f4").tobytes()}
A, B = tensor(), tensor(key="1")
NAMESPACE = b"cargparse\nNamespace\n)\x81"


def load(opcodes: bytes):
    """What torch makes of the opcodes."""
    return torch.load(io.BytesIO(checkpoint(named(opcodes), STORAGES)), weights_only=False)["w"]


def read(opcodes: bytes) -> dict[str, list[float]]:
    """The tensors that holdall finds."""
    with holdall.open(checkpoint(named(opcodes), STORAGES)) as model:
        return {name: model[name].numpy().tolist() for name in model}


@pytest.mark.parametrize(
    "opcodes",
    [
        NAMESPACE + table(text("x"), A) + b"b" + table(text("x"), B) + b"b",
        NAMESPACE + row(table(text("x"), A), table(text("x"), B)) + b"b",
        NAMESPACE + table(text("x"), A, text("y"), B) + b"b" + row(b"N", table(text("x"), B)) + b"b",
    ],
)
def test_of_an_attribute_that_is_set_twice_the_last_value_stays(opcodes):
    loaded = load(opcodes)
    assert isinstance(loaded, argparse.Namespace)
    assert read(opcodes) == {f"w.{name}": value.tolist() for name, value in vars(loaded).items()}


@pytest.mark.parametrize(
    "items", [(number(1), A, b"\x88", B), (number(1), A, b"G?\xf0" + bytes(6), B),
              (row(number(1)), A, row(b"\x88"), B),
              (row(row(number(1)), text("a")), A, row(row(b"\x88"), text("a")), B), (text("a"), A, text("a"), B)]
)  # fmt: skip
@pytest.mark.parametrize("beside", [b"", text("o") + NAMESPACE], ids=["plain", "object"])
def test_equal_keys_are_one(items, beside):
    opcodes = table(*items, beside)
    loaded = load(opcodes)
    assert len(loaded) == 1 + bool(beside)
    assert list(read(opcodes).values()) == [next(iter(loaded.values())).tolist()] == [[4, 5]]


def test_unequal_keys_stay_apart():
    keys = (row(row(number(1)), text("a")), row(row(number(1)), text("b")), row(row(text("1.0")), text("a")))
    opcodes = table(*(part for key in keys for part in (key, A)))
    assert len(read(opcodes)) == len(load(opcodes)) == 3


def test_a_list_of_items_to_which_more_are_appended():
    opcodes = call("builtins", "list", b"]" + A + b"a") + b"(" + B + b"e"
    assert read(opcodes) == {f"w.{place}": value.tolist() for place, value in enumerate(load(opcodes))}
    assert read(call("builtins", "list") + b"(" + B + b"e") == {"w.0": [4, 5]}


def test_items_whose_places_are_not_known_have_no_places(tmp_path):
    """Arguments may have been items too: then the first item that is appended is not the first of the object."""
    filled = call("collections", "deque", b"]" + A + b"a", number(1)) + b"(" + B + b"e"
    assert [value.tolist() for value in load(filled)] == [[4, 5]]
    assert read(filled) == {"w.__items__.0": [4, 5], "w.__args__.0.0": [0, 1]}
    full = call("collections", "deque", b")", number(1)) + b"(" + A + B + b"e"
    assert len(load(full)) == 1
    assert read(full) == {"w.__items__.0": [0, 1], "w.__items__.1": [4, 5]}
    torch.save({"w": deque([torch.ones(1), torch.zeros(2)], 3), "v": deque([torch.ones(2)])}, tmp_path / "m.pt")
    with holdall.open(tmp_path / "m.pt") as model:
        assert list(model) == ["w.0", "w.1", "v.0"]


def test_items_by_place_and_by_key():
    opcodes = call("collections", "UserList") + b"(" + A + b"e" + number(0) + B + b"s"
    assert [value.tolist() for value in load(opcodes)] == [[4, 5]]
    assert read(opcodes) == {"w.0": [4, 5], "w.__items__.0": [0, 1]}


def test_a_tensor_that_torch_casts_is_an_object():
    parts = (text("cpu"), b"\x89")
    cast = call("torch._utils", "_rebuild_device_tensor_from_numpy", array(kind()), b"ctorch\nfloat32\n", *parts)
    assert load(cast).dtype == torch.float32
    assert read(cast) == {"w.__args__.0": [[0, 1, 2], [3, 4, 5]]}
    same = call("torch._utils", "_rebuild_device_tensor_from_numpy", array(kind()), b"ctorch\nint32\n", *parts)
    assert read(same) == {"w": load(same).tolist()}
