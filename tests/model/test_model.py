import pickle

import numpy as np
import pytest

import holdall
from holdall.errors import ClosedError, ContentError, FormatError, MissingError, UnsupportedError
from holdall.model.dtypes import find_dtype
from holdall.model.metadata import Assets, Entry, Metadata
from holdall.model.model import Model, model_of
from holdall.model.payload import InMemory
from holdall.model.tensor import Tensor
from holdall.testing import ZOO, assert_same, cost_of, restrict_to, run_isolated


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "m.oinf"
    content = {
        "w": np.arange(6, dtype=np.float32).reshape(2, 3),
        "v": np.ones(3, np.int8),
        "e": np.zeros((0, 4), np.int8),
    }
    holdall.save(path, content, metadata={"mode": "fast"})
    return path


def test_a_model_is_a_mapping(path):
    with holdall.open(path) as model:
        assert (model.format, model.version) == ("oinf", (1,))
        assert list(model) == ["e", "v", "w"]
        assert len(model) == 3
        assert "w" in model
        assert "x" not in model
        assert 3 not in model
        assert [] not in model
        assert model.get("x") is None
        assert {name: tensor.shape for name, tensor in model.items()} == {"e": (0, 4), "v": (3,), "w": (2, 3)}
        with pytest.raises(KeyError, match="no tensor 'x' among the 3") as caught:
            model["x"]
        assert isinstance(caught.value, MissingError)
        assert model.nbytes == 27
        assert model.tensors[-1].name == "w"
        with pytest.raises(IndexError):
            model.tensors[3]
        assert {name: (t.tensors, t.elements, t.nbytes) for name, t in model.tensors.totals().items()} == {
            "i8": (2, 3, 3), "f32": (1, 6, 24),
        }  # fmt: skip
        assert model.sizevars == {}
        assert repr(model) == "<Model oinf 1: 3 tensors>"


def test_closing_ends_the_model_not_its_arrays(path):
    model = holdall.open(path)
    tensor, array = model["w"], model["w"].numpy()
    with model:
        pass
    assert array.tolist() == [[0, 1, 2], [3, 4, 5]]
    for use in (
        lambda: model["w"],
        lambda: len(model),
        lambda: list(model),
        lambda: "w" in model,
        tensor.numpy,
        tensor.raw,
    ):
        with pytest.raises(ClosedError):
            use()
    assert model.metadata["mode"] == "fast"


def test_a_replaced_file_is_not_unpickled(path):
    with holdall.open(path) as model:
        travelled = pickle.dumps(model)
    with pickle.loads(travelled) as reopen:
        assert reopen["w"].numpy().sum() == 15
        assert pickle.loads(pickle.dumps(reopen))["v"].shape == (3,)
    holdall.save(path, {"w": np.zeros(3, np.float32)})
    with pytest.raises(FormatError, match="replaced") as caught:
        pickle.loads(travelled)
    assert caught.value.rule == "core.identity"
    path.unlink()
    with pytest.raises(FileNotFoundError):
        pickle.loads(travelled)
    with pytest.raises(TypeError, match="path and identity"):
        pickle.dumps(Model())


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_models_of_bytes_can_be_pickled(path, kind):
    with holdall.open(kind(path.read_bytes())) as model:
        assert_same(model, pickle.loads(pickle.dumps(model)))


def test_opening_bytes_copies_none_of_them(tmp_path):
    holdall.save(tmp_path / "m.oinf", {"w": np.ones(16 << 20, np.float32)}, fsync=False)
    data = bytearray((tmp_path / "m.oinf").read_bytes())
    holdall.open(data).close()
    for given in (data, memoryview(data), bytes(data)):
        assert run_isolated(lambda given=given: cost_of(lambda: holdall.open(given))).peak_bytes < 8 << 20


def test_tensors_without_data():
    tensor = Tensor("d", find_dtype("f32"), (2, 2), None)
    assert (tensor.nbytes, tensor.has_data, tensor.offset) == (0, False, None)
    for use in (tensor.numpy, tensor.raw, lambda: tensor[0], lambda: list(tensor.blocks())):
        with pytest.raises(ContentError, match="without data"):
            use()
    assert tensor.numpy(fill=1.5).tolist() == [[1.5, 1.5], [1.5, 1.5]]
    assert "no data" in repr(tensor)


@pytest.mark.parametrize("shape", [(1,) * 65, (0, 2**62, 2**62), (0, 2**63), (2**40, 2**40)])
def test_shapes_that_numpy_cannot_hold(shape):
    tensor = Tensor("big", find_dtype("f32"), shape, InMemory(b""))
    for use in (tensor.numpy, lambda: tensor[...]):
        with pytest.raises(UnsupportedError):
            use()
    assert tensor.count == int(np.prod([int(n) for n in shape], dtype=object))


def test_tensors_from_arrays():
    tensor = Tensor.of("w", [[1, 2], [3, 4]], "i4")
    assert (str(tensor.dtype), tensor.shape, tensor.nbytes) == ("i4", (2, 2), 2)
    assert np.asarray(tensor).tolist() == [[1, 2], [3, 4]]
    assert np.asarray(tensor, np.float32).dtype == np.float32
    assert Tensor.of("s", 3.5).shape == ()
    assert tensor.replace(name="v", shape=(4,)).numpy().tolist() == [1, 2, 3, 4]
    with pytest.raises(ContentError, match=r"tensor 'w': values 1\.\.99 do not fit i4"):
        Tensor.of("w", [1, 99], "i4")
    with pytest.raises(ContentError, match="tensor 'w'"):
        Tensor.of("w", np.array(["a"]))
    array = np.arange(3.0)
    shared = Tensor.of("x", array).numpy()
    assert not shared.flags.writeable


def test_models_from_what_save_takes():
    array = np.ones(2, np.float32)
    from_arrays = model_of({"a": array, "b": Tensor.of("other", array)}, {"k": "v"})
    assert list(from_arrays) == ["a", "b"]
    assert from_arrays["b"].name == "b"
    assert model_of(from_arrays) is from_arrays
    other = model_of(from_arrays, {"k": "w"})
    assert (other.metadata["k"], from_arrays.metadata["k"]) == ("w", "v")
    assert list(model_of([Tensor.of("t", array)])) == ["t"]
    with pytest.raises(ContentError, match="names are text"):
        model_of({1: array})


def test_metadata_keeps_its_entries_and_shows_the_last():
    metadata = Metadata([Entry("a", 1, "u8"), Entry("b", 2), Entry("a", 3, "i64")])
    assert dict(metadata) == {"a": 3, "b": 2}
    assert [entry.value for entry in metadata.entries] == [1, 2, 3]
    assert metadata.kind("a") == "i64"
    assert Metadata(metadata).entries == metadata.entries
    with pytest.raises(KeyError):
        metadata["c"]


def test_assets_are_bytes():
    assets = Assets({"a": b"x", "b": InMemory(b"yz")})
    assert dict(assets) == {"a": b"x", "b": b"yz"}
    assert assets.payload("b").size == 2
    assert "2 bytes" in repr(assets)


def test_the_zoo_is_as_it_says_and_the_same_twice():
    for name, make in ZOO.items():
        assert_same(make(), make())
        for tensor in make().tensors:
            if tensor.has_data:
                assert tensor.nbytes == tensor.dtype.nbytes(tensor.shape), (name, tensor)


def test_assert_same_sees_differences():
    one = Model([Tensor.of("w", np.zeros(3, np.float32))], metadata={"k": 1}, assets={"a": b"x"})
    others = [
        Model([Tensor.of("w", -np.zeros(3, np.float32))], metadata={"k": 1}, assets={"a": b"x"}),
        Model([Tensor.of("w", np.zeros((3, 1), np.float32))], metadata={"k": 1}, assets={"a": b"x"}),
        Model([Tensor.of("w", np.zeros(3, np.int32))], metadata={"k": 1}, assets={"a": b"x"}),
        Model([Tensor("w", find_dtype("f32"), (3,), None)], metadata={"k": 1}, assets={"a": b"x"}),
        Model([Tensor.of("v", np.zeros(3, np.float32))], metadata={"k": 1}, assets={"a": b"x"}),
        Model(one.tensors, metadata={"k": 1.0}, assets={"a": b"x"}),
        Model(one.tensors, metadata={"k": True}, assets={"a": b"x"}),
        Model(one.tensors, metadata={"k": 1, "l": 1}, assets={"a": b"x"}),
        Model(one.tensors, metadata={"k": 1}, assets={"a": b"y"}),
    ]
    for other in others:
        with pytest.raises(AssertionError):
            assert_same(one, other)
    assert_same(one, Model(one.tensors, metadata={"k": 1, "l": 2}, assets=one.assets), extra_metadata=True)


def test_held_is_what_a_format_says():
    oinf = holdall.formats()["oinf"]
    assert restrict_to(ZOO["unicode"](), oinf) is not None
    assert list(restrict_to(ZOO["unicode"](), oinf)) == ["UPPER", "upper"]
    assert restrict_to(ZOO["dtype-c64"](), oinf) is None
    assert restrict_to(ZOO["assets"](), oinf) is None


def test_path_and_content_in_the_wrong_order_are_told_apart(tmp_path):
    arrays = {"w": np.ones(2, np.float32)}
    with pytest.raises(TypeError, match="not dict"):
        holdall.save(arrays, tmp_path / "w.oinf", format="oinf")


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 5), (4, 3, 2)])
def test_a_tensor_has_the_sizes_of_its_array(shape):
    array = np.zeros(shape, np.float32)
    tensor = Tensor.of("t", array)
    assert (tensor.ndim, tensor.size) == (array.ndim, array.size)
    assert bool(tensor) is True  # also an empty tensor is a tensor
    if shape:
        assert len(tensor) == len(array)
        assert [row.tolist() for row in tensor] == array.tolist()
    else:
        for unsized in (tensor, array):
            with pytest.raises(TypeError, match=r"^len\(\) of"):
                len(unsized)
