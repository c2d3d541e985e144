"""Files that torch writes and loads are read, or are not read for a reason that is said: none is called damaged."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

import holdall
from holdall.errors import ContentError, FormatError, LimitError

torch = pytest.importorskip("torch")

FORMS = pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
pytestmark = pytest.mark.filterwarnings("ignore:TypedStorage")


def saved(tmp_path: Path, content: object, legacy: bool = False, protocol: int = 2) -> Path:
    """The file that torch.save writes, which torch.load can read."""
    path = tmp_path / "m.pt"
    torch.save(content, path, _use_new_zipfile_serialization=not legacy, pickle_protocol=protocol)
    torch.load(path, weights_only=False)
    return path


@FORMS
def test_storages_as_values(tmp_path, legacy):
    content = {"s": torch.arange(5.0).storage(), "in": [torch.arange(3).storage()], "w": torch.ones(2), "n": 1}
    if not legacy:  # torch cannot write untyped ones there
        content["u"] = torch.arange(4.0).untyped_storage()
    path = saved(tmp_path, content, legacy)
    with holdall.open(path) as model:
        assert {name: model[name].numpy().tolist() for name in model if name != "u"} == {
            "s": [0, 1, 2, 3, 4], "in.0": [0, 1, 2], "w": [1, 1],
        }  # fmt: skip
        assert str(model["s"].dtype) == "f32" and str(model["in.0"].dtype) == "i64"
        if not legacy:
            assert str(model["u"].dtype) == "u8"
            assert bytes(model["u"].raw()) == torch.arange(4.0).numpy().tobytes()
        assert dict(model.metadata) == {"n": 1}
        assert model.native.opaque.what == "a checkpoint with storages as values"
    report = holdall.verify(path, level="strict")
    assert report.ok and not report.findings
    with pytest.raises(FormatError, match="torch: a storage stands where a plain value is expected"):
        holdall.open(path, allow_opaque=False)
    assert holdall.verify(path, allow_opaque=False).verdict == "not read"


def test_a_file_that_is_one_storage(tmp_path):
    path = saved(tmp_path, torch.arange(3.0).untyped_storage())
    with holdall.open(path) as model:
        assert list(model) == ["tensor"] and bytes(model["tensor"].raw()) == torch.arange(3.0).numpy().tobytes()
    assert holdall.verify(path).ok


@FORMS
def test_a_tensor_that_is_an_attribute(tmp_path, legacy):
    content = OrderedDict(w=torch.ones(2))
    content.ema = torch.zeros(3)
    content.step = 7
    path = saved(tmp_path, content, legacy)
    with holdall.open(path) as model:
        assert {name: model[name].numpy().tolist() for name in model} == {"w": [1, 1], "ema": [0, 0, 0]}
        assert dict(model.metadata) == {"step": 7}
        assert model.native.opaque.what == "a checkpoint with tensors as attributes"
    assert holdall.verify(path).ok
    with pytest.raises(FormatError, match="a tensor stands where a plain value is expected"):
        holdall.open(path, allow_opaque=False)


ARRAYS = "a checkpoint with arrays of numpy that no tensor can hold"


@FORMS
@pytest.mark.parametrize(
    ("value", "what"),
    [
        ({1, 2}, "a checkpoint with sets"),
        ([frozenset([1]), 1j], "a checkpoint with frozen sets and complex numbers"),
        (bytearray(b"x"), "a checkpoint with byte arrays"),
        (np.dtype("f4"), "a checkpoint with types of numpy"),
        (np.array(["a"]), ARRAYS), (np.array([{}], object), ARRAYS), (np.zeros(2, [("a", "i4")]), ARRAYS),
        (np.array(["2020-01-01"], "M8[D]"), ARRAYS), (np.zeros(2, np.longdouble), ARRAYS),
        ([np.float32(1), np.array(["a"])], "a checkpoint with arrays or numbers of numpy"),
        ([np.ones(2), {1}], "a checkpoint with arrays or numbers of numpy and sets"),
        (np.complex64(1j), "a checkpoint with objects"), ({1, Path("x")}, "a checkpoint with objects"),
        (torch.nn.Parameter, "a checkpoint with objects"),
    ],
)  # fmt: skip
def test_messages_say_what_a_checkpoint_has(tmp_path, value, what, legacy):
    path = saved(tmp_path, {"s": value, "w": torch.ones(2)}, legacy)
    with holdall.open(path) as model:
        assert model.native.opaque.what == what
    (finding,) = holdall.verify(path).findings
    assert f"torch: the file is {what}, and names " in finding.message
    with pytest.raises(ContentError, match=f"of {what}: an edit would lose it"):
        holdall.edit(path, set={"a": "b"})
    report = holdall.convert(path, tmp_path / "out.pt")
    assert any(f"was {what}: its tensors are written as a flat dict" in note for note in report.changes)


def test_deep_nesting_is_a_limit(tmp_path):
    content: object = torch.ones(1)
    for _ in range(200):
        content = [content]
    path = saved(tmp_path, content)
    with pytest.raises(LimitError, match="nested too deeply: above 128 levels"):
        holdall.open(path)
    assert holdall.verify(path).verdict == "not read"
    with holdall.open(path, limits=holdall.Limits(nesting=256)) as model:
        assert list(model) == [".".join("0" * 200)]


def test_long_integers_are_a_limit(tmp_path):
    with holdall.open(saved(tmp_path, {"n": 2**500, "w": torch.ones(1)})) as model:
        assert model.metadata["n"] == 2**500
    path = saved(tmp_path, {"n": 2**600, "w": torch.ones(1)})
    with pytest.raises(LimitError, match="an integer of 76 bytes is above 64"):
        holdall.open(path)
    assert holdall.verify(path).verdict == "not read"


@FORMS
@pytest.mark.parametrize("content", [{"t": "\ud800"}, {"\udfff": 1}, ["a" * 300 + "\ud83d"]], ids=repr)
def test_half_of_a_surrogate_pair_is_not_read(tmp_path, content, legacy):
    path = saved(tmp_path, content, legacy)
    with pytest.raises(FormatError, match="a text has half of a surrogate pair") as caught:
        holdall.open(path)
    assert caught.value.rule == "torch.pickle.text"
    assert holdall.verify(path).verdict == "not read"


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize(
    "content",
    [{True: 1, 1.5: 2, (1, 2): 3}, {((1,), 2): torch.ones(1)}, {1, 2}, {"f": frozenset([1])}, bytearray(b"x")],
    ids=repr,
)
def test_data_of_python_is_read_or_not_read_where_objects_are_not_allowed(tmp_path, content, protocol):
    path = saved(tmp_path, content, protocol=protocol)
    assert holdall.verify(path).ok
    report = holdall.verify(path, allow_opaque=False)
    plain = isinstance(content, dict) and True in content
    assert report.verdict == ("ok" if plain else "not read"), report.findings
