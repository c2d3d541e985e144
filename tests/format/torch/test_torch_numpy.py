"""Arrays of numpy in pickles that numpy would not write: their values are numpy's own, or none are shown."""

from __future__ import annotations

import io
from collections import OrderedDict
from itertools import permutations
from pickle import UnpicklingError

import numpy as np
import pytest

import holdall
from holdall.errors import FormatError
from tests.format.torch.files import blob, call, checkpoint, named, number, row, text
from tests.format.torch.test_torch_keys import same

torch = pytest.importorskip("torch")

VALUES = np.arange(6, dtype="<i4").reshape(2, 3)
CORE = "numpy.core.multiarray"
pytestmark = pytest.mark.filterwarnings("ignore:numpy.core")
YES, NO = b"\x88", b"\x89"


REST = (b"N", b"N", b"N", number(-1), number(-1), number(0))


def kind(code="i4", copied=YES, order="<", rest=REST) -> bytes:
    """The opcodes of a numpy.dtype with its state."""
    made = call("numpy", "dtype", text(code), NO, copied)
    return made if order is None else made + row(number(3), text(order), *rest) + b"b"


def array(type_: bytes, by_columns: bytes = NO, data: bytes = VALUES.tobytes(), sizes=(2, 3)) -> bytes:
    """The opcodes of an array with its state."""
    made = call(CORE, "_reconstruct", b"cnumpy\nndarray\n", row(number(0)), blob(b"b"))
    return made + row(number(1), row(*map(number, sizes)), type_, by_columns, blob(data)) + b"b"


def buffer(order: str, rows: int = 2) -> bytes:
    shape = row(number(rows), number(3))
    return call("numpy.core.numeric", "_frombuffer", blob(VALUES.tobytes()), kind(), shape, text(order))


def load(opcodes: bytes) -> np.ndarray:
    """What torch and numpy make of the opcodes."""
    return torch.load(io.BytesIO(checkpoint(named(opcodes))), weights_only=False)["w"]


@pytest.mark.parametrize(
    "opcodes",
    [
        array(kind()), array(kind(), YES), array(kind(order=">")), array(kind("u1", order="|"), data=b"abcdef"),
        buffer("C"), buffer("F"),
    ],
)  # fmt: skip
def test_what_numpy_writes_is_read(opcodes):
    expected = load(opcodes)
    with holdall.open(checkpoint(named(opcodes))) as model:
        np.testing.assert_array_equal(model["w"].numpy(), expected)
        assert model["w"].shape == expected.shape


@pytest.mark.parametrize(
    "opcodes",
    [
        array(kind(copied=NO, order=">")),  # numpy ignores the state of a type that is shared
        array(kind(order=None)), array(kind(">i4", order=None)), array(kind(">i4", order="<")),
        array(kind(order="=")), array(kind(order="|")), array(kind("i")), array(kind("int32")),
        array(kind(rest=(b"N", b"N", b"N", number(8), number(8), number(0)))),
        buffer("f"), buffer("c"), buffer("A"), buffer("C", -1),
        call("numpy", "ndarray", row(number(2), number(3)), kind(), blob(VALUES.tobytes())),
    ],
)  # fmt: skip
def test_what_numpy_would_not_write_stays_an_object(opcodes):
    assert load(opcodes).shape == (2, 3)  # numpy has values, but not always those that the pickle seems to state
    data = checkpoint(named(opcodes))
    with holdall.open(data) as model:
        assert not list(model) and "w" in model.native.opaque.objects
    report = holdall.verify(data)
    assert [finding.rule for finding in report.findings] == ["torch.pickle.opaque"]
    assert "numpy." in report.findings[0].message


def test_an_order_that_numpy_refuses_stays_an_object():
    with pytest.raises(ValueError, match="'K' is not permitted"):
        load(buffer("K"))
    with holdall.open(checkpoint(named(buffer("K")))) as model:
        assert not list(model)


AGAIN = row(number(3), text(">"), *REST) + b"b"
SHARED = call("builtins", "bytearray", blob(VALUES.tobytes()))
OVER = call("numpy.core.numeric", "_frombuffer", SHARED + b"q\x09", kind(), row(number(2), number(3)), text("C"))


@pytest.mark.parametrize(
    ("opcodes", "message"),
    [
        (array(kind()) + number(0) + number(55) + b"s", "items are set in an object of class numpy.ndarray"),
        (array(kind() + b"q\x05") + text("v") + b"h\x05" + AGAIN, "the state of a numpy type is set twice"),
        (array(kind()) + row(number(1), row(number(6)), kind(order=">"), NO, blob(VALUES.tobytes())) + b"b",
         "the state of a numpy array is set twice"),
        (OVER + text("v") + b"h\x09" + number(0) + number(7) + b"s",
         "items are set in an object of class builtins.bytearray"),
    ],
)  # fmt: skip
def test_values_that_change_after_they_were_made_are_not_read(opcodes, message):
    """numpy has other numbers at the end than where the array was made: the file is intact, and its numbers unread."""
    first = load(opcodes)
    assert not np.array_equal(first, VALUES)
    data = checkpoint(named(opcodes))
    with pytest.raises(FormatError, match=message) as caught:
        holdall.open(data)
    assert caught.value.rule == "torch.pickle.unusual"
    assert holdall.verify(data).verdict == "not read"


class Tagged(np.ndarray):
    """An array that pickles with a tag in its state, as many frameworks have them."""

    def __reduce__(self):
        function, arguments, state = super().__reduce__()
        return function, arguments, (*state, {"tag": torch.ones(2)})


def test_an_array_with_a_state_of_its_own_is_an_object(tmp_path):
    torch.save({"w": np.arange(3.0).view(Tagged), "v": torch.zeros(1)}, tmp_path / "m.pt")
    with holdall.open(tmp_path / "m.pt") as model:
        assert {name: model[name].numpy().tolist() for name in model} == {"w.__state__.5.tag": [1, 1], "v": [0]}
        assert model.native.opaque.classes[f"{__name__}.Tagged"] == 1


GRID = np.arange(24.0).reshape(2, 3, 4)
MOVED = {
    **{f"axes {axes}": GRID.transpose(axes) for axes in permutations(range(3))},
    **{f"small {axes}": GRID.astype(">i2").reshape(2, 3, 1, 4).transpose(axes) for axes in permutations(range(4))},
    "empty": np.zeros((0, 3, 2)).transpose(1, 2, 0), "complex": (GRID * 1j).transpose(2, 0, 1),
    "cut": GRID.transpose(2, 0, 1)[1:, ::-1], "large": np.arange(1 << 20).reshape(64, 128, 128).transpose(1, 0, 2),
}  # fmt: skip


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize("legacy", [False, True])
def test_arrays_with_exchanged_axes(tmp_path, protocol, legacy):
    path = tmp_path / "m.pt"
    torch.save(MOVED, path, pickle_protocol=protocol, _use_new_zipfile_serialization=not legacy)
    with holdall.open(path) as model:
        assert list(model) == list(MOVED) and not model.native.opaque.classes
        for name, expected in MOVED.items():
            found = model[name].numpy()
            assert found.shape == expected.shape and found.dtype == expected.dtype.newbyteorder("="), name
            np.testing.assert_array_equal(found, expected)
    assert holdall.verify(path, level="full").findings == []


def exchange(*axes: int, order: str = "K", sizes=(2, 3)) -> bytes:
    shape = row(*map(number, sizes))
    values = blob(VALUES.tobytes())
    return call("numpy.core.numeric", "_frombuffer", values, kind(), shape, text(order), row(*map(number, axes)))


@pytest.mark.parametrize(
    "opcodes",
    [exchange(), exchange(0), exchange(0, 0), exchange(0, 2), exchange(0, 1, 2), exchange(-1, 0),
     exchange(1, 0, order="C"), exchange(1, 0, sizes=(-1, 3))],
)  # fmt: skip
def test_axes_that_numpy_would_not_write_stay_an_object(opcodes):
    data = checkpoint(named(opcodes))
    with holdall.open(data) as model:
        assert not list(model) and "w" in model.native.opaque.objects
    assert [finding.rule for finding in holdall.verify(data).findings] == ["torch.pickle.opaque"]


def test_exchanged_axes_of_too_few_bytes_are_damaged():
    with pytest.raises(FormatError, match="does not have the shape it states"):
        holdall.open(checkpoint(named(exchange(1, 0, sizes=(2, 4)))))


def test_complex_numbers_stay_objects(tmp_path):
    """Metadata has no complex numbers: the file says that it has them, and a conversion names what is left out."""
    torch.save({"c": np.complex64(1 + 2j), "w": torch.ones(1)}, tmp_path / "m.pt")
    with holdall.open(tmp_path / "m.pt") as model:
        assert list(model) == ["w"] and not model.metadata and "c" in model.native.opaque.objects
    report = holdall.convert(tmp_path / "m.pt", tmp_path / "out.npz")
    assert [loss.part for loss in report.losses] == ["native"]


def as_torch(value):
    """The same content with tensors and plain numbers in the place of those of numpy."""
    if isinstance(value, np.ndarray):
        return torch.from_numpy(np.ascontiguousarray(value).reshape(value.shape).astype(value.dtype.newbyteorder("=")))
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, OrderedDict):
        made = OrderedDict((key, as_torch(item)) for key, item in value.items())
        made.__dict__.update(value.__dict__)
        return made
    if isinstance(value, dict):
        return {key: as_torch(item) for key, item in value.items()}
    return type(value)(map(as_torch, value)) if isinstance(value, (list, tuple)) else value


def attribute(content: OrderedDict) -> OrderedDict:
    content._metadata = {"version": 1}
    return content


TIED = np.arange(3.0)
CHECKPOINTS = {
    "flat": {"a": GRID.transpose(2, 0, 1), "w": torch.ones(2)},
    "nested": {"model": OrderedDict(w=torch.ones(2), b=TIED), "epoch": np.int64(7), "lr": [np.float32(0.5), 3]},
    "keys": {1: np.ones(2, ">f4"), None: {2.5: np.zeros(1), "cpu": torch.device("cpu")}, (1, "a"): TIED},
    "lists": [np.ones(2), (TIED, np.bool_(True), "text"), {"tied": TIED}],
    "ordered": attribute(OrderedDict(w=np.ones(2), n=np.int8(-3))),
    "numbers": {"best": np.float64(1.5)}, "one array": GRID.transpose(1, 2, 0), "one number": np.float64(2.5),
    "names that meet": {"a.b": np.ones(1), "a": {"b": np.zeros(2)}},
    "large": {"x": np.arange(1 << 20).reshape(1024, 1024).T, "n": np.int16(1)},
}  # fmt: skip


@pytest.mark.parametrize(("legacy", "protocol"), [(False, 2), (False, 5), (True, 2)])
@pytest.mark.parametrize("content", CHECKPOINTS.values(), ids=CHECKPOINTS)
def test_a_conversion_writes_tensors_and_plain_numbers_where_they_were(tmp_path, content, legacy, protocol):
    """PyTorch loads what is written without running anything; it refuses the file with numpy in it."""
    path, out = tmp_path / "m.pt", tmp_path / "out.pt"
    torch.save(content, path, _use_new_zipfile_serialization=not legacy, pickle_protocol=protocol)
    with pytest.raises(UnpicklingError):
        torch.load(path, weights_only=True)
    report = holdall.convert(path, out, strict=True)
    note = "was a checkpoint with arrays or numbers of numpy: written as tensors and plain numbers"
    assert note in report.changes and not report.losses and not report.dropped
    assert same(torch.load(out, weights_only=True), as_torch(content))
    with holdall.open(path) as old, holdall.open(out) as new:
        assert list(old) == list(new) and dict(old.metadata) == dict(new.metadata) and new.native.opaque is None
    assert holdall.convert(out, tmp_path / "again.pt").changes == ["is torch already: copied as it is"]


def test_a_carried_file_with_arrays_is_restored(tmp_path):
    torch.save(CHECKPOINTS["nested"], tmp_path / "m.pt")
    holdall.convert(tmp_path / "m.pt", tmp_path / "out.pt", carry=True)
    holdall.restore(tmp_path / "out.pt", tmp_path / "back.pt")
    assert (tmp_path / "back.pt").read_bytes() == (tmp_path / "m.pt").read_bytes()
    assert torch.equal(torch.load(tmp_path / "out.pt", weights_only=True)["model"]["w"], torch.ones(2))


def test_arrays_beside_objects_are_written_as_a_flat_dict(tmp_path):
    torch.save({"m": {"a": np.arange(3.0)}, "s": {1}}, tmp_path / "m.pt")
    report = holdall.convert(tmp_path / "m.pt", tmp_path / "out.pt")
    assert any("written as a flat dict" in note for note in report.changes)
    assert torch.load(tmp_path / "out.pt", weights_only=True)["m.a"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "array",
    [
        np.array(["a", "b"]), np.array([b"a"]), np.array(["2020-01-01"], "M8[D]"), np.array([1], "m8[s]"),
        np.zeros(2, [("a", "f4"), ("b", "i4")]), np.ma.array([1.0, 2.0], mask=[0, 1]),
    ],
    ids=["text", "bytes", "date", "time", "record", "masked"],
)  # fmt: skip
def test_arrays_of_other_kinds_stay_objects(tmp_path, array):
    torch.save({"x": array, "w": torch.ones(2)}, tmp_path / "m.pt")
    with holdall.open(tmp_path / "m.pt") as model:
        assert model.tensors.names == ["w"]
        assert "numpy" in holdall.formats()["torch"].unique_content(model)["objects"]
    report = holdall.verify(tmp_path / "m.pt")
    assert report.ok and "numpy" in report.unchecked
