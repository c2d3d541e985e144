"""Tables of tensors as columns: the same forms, payloads and native parts as the tensors themselves have."""

import numpy as np
import pytest

import holdall
from holdall.errors import ContentError
from holdall.model.arranged_table import ArrangedTable
from holdall.model.array_table import ArrayTable
from holdall.model.model import Model, model_of
from holdall.model.payload import Computed, InMemory
from holdall.model.table import ListTable
from holdall.model.tensor import Tensor
from holdall.testing.zoo import ZOO


def arrays():
    base = np.arange(600, dtype=np.float32).reshape(20, 30)
    return {
        "plain": base, "turned": base.T, "steps": base[::2, ::3], "big": base.astype(">f4"), "back": base[::-1],
        "list": [1, 2, 3], "scalar": np.float32(3), "number": 1.5, "empty": np.zeros((0, 4), np.int8),
        "bool": np.array([True, False]), "complex": np.ones(2, np.complex64), "tensor": Tensor.of("other", base[0]),
    }  # fmt: skip


def check(table):
    forms = table.forms()
    assert len(forms) == len(table)
    assert len({(str(form.dtype), form.shape, form.size) for form in forms.kinds}) <= len(forms.kinds)
    for row, tensor in enumerate(table):
        payload = table.payload(row)
        size = None if tensor.payload is None else tensor.nbytes
        assert forms[row] == (tensor.dtype, tensor.shape, size)
        assert (payload is None) == (tensor.payload is None)
        if payload is not None:
            assert payload.read() == tensor.payload.read()
            if isinstance(payload, InMemory):
                assert payload.copy() == payload.read()
    assert forms.firsts == [list(forms.codes).index(code) for code in range(len(forms.kinds))]
    assert forms.sizes().tolist() == [tensor.nbytes for tensor in table]
    assert table.find_trained().tolist() == [tensor.requires_grad for tensor in table]
    found = {row: native for row, native in table.natives(object) if native is not None}
    assert found == {row: t.native for row, t in enumerate(table) if t.native is not None}


def test_arrays_of_every_kind_are_stored_as_the_tensor_of_each():
    table = ArrayTable(arrays())
    check(table)
    for name, value in arrays().items():
        expected = value if isinstance(value, Tensor) else Tensor.of(name, value)
        assert model_of(arrays())[name].raw() == expected.raw()
        assert table.payload(table.row(name)).read() == bytes(expected.raw())
    assert table.totals()["f32"].tensors == 7


@pytest.mark.parametrize("name", ZOO)
def test_zoo(name):
    model = ZOO[name]()
    check(model.tensors)
    check(ArrangedTable.by_name(model.tensors))


def test_another_order_and_a_mark():
    values = {"b": np.zeros(3, np.int8), "a": Tensor.of("a", np.ones(2, np.float32), requires_grad=True), "c": [1]}
    check(ArrangedTable.by_name(ArrayTable(values)))
    check(ArrangedTable(ArrayTable(values), np.array([2, 0, 1], np.intp)))


@pytest.mark.parametrize("format", ["aero", "oinf", "safetensors", "npz", "torch", "gguf"])
def test_columns_of_a_file(tmp_path, format):
    shapes = [(2, 3), (3, 2), (6,), (1, 6), (), (6, 1)]
    content = {f"w{n}": np.full(shapes[n % 6], n, np.float32 if n % 3 else np.int8) for n in range(40)}
    holdall.save(tmp_path / "file", content, format=format)
    with holdall.open(tmp_path / "file") as model:
        check(model.tensors)
        assert len(model.tensors.forms().kinds) == 6


def test_a_value_that_no_tensor_holds_is_refused_at_once():
    with pytest.raises(ContentError, match="tensor 'o': arrays of object cannot be stored"):
        model_of({"a": np.ones(2), "o": np.array([None])})


def test_forms_of_other_sizes_differ():
    made = [Computed(size, list) for size in (4, 8)]
    dtype = Tensor.of("x", np.zeros(1, np.float32)).dtype
    forms = Model([Tensor(f"t{n}", dtype, (1,), payload) for n, payload in enumerate([*made, None, made[0]])])
    assert isinstance(forms.tensors, ListTable)
    assert [form.size for form in forms.tensors.forms()] == [4, 8, None, 4]


def test_names_that_occur_twice_among_many():
    from holdall.base.repeats import find_repeats

    names = [f"n{n}" for n in range(50_000)]
    assert find_repeats(names) == []
    assert find_repeats([*names, "n7", "other", "n7"]) == [50_000, 50_002]
