"""Keys of dicts that are not text: what a pickle holds is shown, no two meet, and a copy has them as they were."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdall
from holdall.errors import ContentError, FormatError
from tests.format.torch.files import checkpoint, tensor

torch = pytest.importorskip("torch")

KEYS = {
    "None": None, "True": True, "False": False, "7": 7, "-7": -7, "1.5": 1.5, "inf": float("inf"), "b'x'": b"x",
    "(1, a)": (1, "a"), "()": (), "(None, True, 2.5, b'y')": (None, True, 2.5, b"y"), "torch.float16": torch.float16,
    "cpu": torch.device("cpu"), "(2, 3)": torch.Size((2, 3)), "(torch.int8, cuda:1)":
    (torch.int8, torch.device("cuda:1")),
}  # fmt: skip
FORMS = pytest.mark.parametrize(("legacy", "protocol"), [(False, 2), (False, 4), (True, 2)])


def same(a: Any, b: Any) -> bool:
    """Equal in values, types and order, keys included."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        attributes = same(dict(a.__dict__), dict(b.__dict__)) if isinstance(a, OrderedDict) else True
        return attributes and same(list(a), list(b)) and same(list(a.values()), list(b.values()))
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def save(folder: Path, content: Any, legacy: bool = False, protocol: int = 2) -> Path:
    path = folder / "m.pt"
    torch.save(content, path, pickle_protocol=protocol, _use_new_zipfile_serialization=not legacy)
    # Of protocol 4, weights_only knows only a part.
    assert same(torch.load(path, weights_only=protocol == 2), content), "PyTorch itself reads them"
    return path


def rewrite(path: Path) -> Any:
    """What PyTorch reads of the content, written anew; the source is verified."""
    assert holdall.verify(path, level="strict").findings == []
    with holdall.open(path) as model:
        holdall.save(path.with_name("copy.pt"), model)
    assert path.with_name("copy.pt").read_bytes() != path.read_bytes()
    return torch.load(path.with_name("copy.pt"), weights_only=True)


@FORMS
def test_values_under_any_key_are_metadata(tmp_path: Path, legacy: bool, protocol: int) -> None:
    content = {"w": torch.ones(2), **{key: name for name, key in KEYS.items()}}
    path = save(tmp_path, content, legacy, protocol)
    with holdall.open(path, allow_opaque=False) as model:
        assert dict(model.metadata) == {name: name for name in KEYS}
    assert same(rewrite(path), content)


@FORMS
def test_tensors_under_any_key_have_names(tmp_path: Path, legacy: bool, protocol: int) -> None:
    content = {"inner": {key: torch.tensor([float(row)]) for row, key in enumerate(KEYS.values())}}
    path = save(tmp_path, content, legacy, protocol)
    with holdall.open(path) as model:
        found = {name: model[name].numpy().tolist() for name in model}
    assert found == {f"inner.{name}": [row] for row, name in enumerate(KEYS)}
    assert same(rewrite(path), content)


@FORMS
@pytest.mark.parametrize("kind", [dict, OrderedDict])
def test_a_value_shows_every_key_and_is_kept(tmp_path: Path, legacy: bool, protocol: int, kind: type) -> None:
    inner = kind((key, [name]) for name, key in KEYS.items())
    content = {"w": torch.ones(2), "values": [{"deep": inner}]}
    path = save(tmp_path, content, legacy, protocol)
    with holdall.open(path) as model:
        wanted = {int(name) if name in ("7", "-7") else name: [name] for name in KEYS}
        assert model.metadata["values"] == [{"deep": wanted}]
    assert same(rewrite(path), content)


@FORMS
@pytest.mark.parametrize("attribute", ["metadata", "_metadata", "note"])
def test_an_attribute_with_such_keys_is_shown_and_kept(
    tmp_path: Path, legacy: bool, protocol: int, attribute: str
) -> None:
    """A key of None hid all metadata of a state dict."""
    content = OrderedDict(w=torch.ones(2))
    setattr(content, attribute, {"text": "plain", None: 1, (1, "a"): {1.5: 2}})
    path = save(tmp_path, content, legacy, protocol)
    with holdall.open(path) as model:
        entry = model.metadata.entries[0]
        assert (entry.key, entry.kind) == (attribute, "attribute")
        assert entry.value == {"text": "plain", "None": 1, "(1, a)": {"1.5": 2}}
    assert same(rewrite(path), content)


def test_metadata_that_holdall_wrote_keeps_values_with_such_keys(tmp_path: Path) -> None:
    content = OrderedDict(w=torch.ones(2))
    content.metadata = {"a": {None: 1}, "b": torch.float16}  # type: ignore[attr-defined]
    path = save(tmp_path, content)
    assert dict(holdall.open(path).metadata) == {"a": {"None": 1}, "b": "torch.float16"}
    assert same(rewrite(path), content)


def test_spellings_that_meet_stay_apart(tmp_path: Path) -> None:
    content = {
        "w": torch.ones(2), 1: "int", "1": "text", None: "none", "None": "text", "None#2": "also text",
        torch.device("cpu"): "device", "cpu": "text", (1, "2"): "a", (1, 2): "b",
        "v": {1: 1, "1": 2, None: 3, "None": 4},
    }  # fmt: skip
    path = save(tmp_path, content)
    with holdall.open(path) as model:
        assert len(model.metadata) == len(content) - 1
        assert model.metadata["1"] == model.metadata["None"] == model.metadata["cpu"] == "text"
        assert [model.metadata[name] for name in ("1#2", "None#3", "cpu#2", "(1, 2)", "(1, 2)#2")] == [
            "int", "none", "device", "a", "b",
        ]  # fmt: skip
        assert model.metadata["v"] == {"1#2": 1, "1": 2, "None#2": 3, "None": 4}
    assert same(rewrite(path), content)
    ran = subprocess.run(
        [sys.executable, "-m", "holdall", "info", "--json", str(path)], capture_output=True, text=True, check=True
    )
    assert len(json.loads(ran.stdout)["metadata"]) == len(content) - 1
    assert len(json.loads(ran.stdout)["metadata"]["v"]) == 4


@FORMS
@pytest.mark.parametrize("kind", [dict, OrderedDict])
@pytest.mark.parametrize("rest", [{}, {"nested": {1: torch.ones(1)}}, {"n": 5}])
@pytest.mark.parametrize("key", [*KEYS.values(), "text"], ids=str)
def test_a_dict_of_tensors_keeps_its_keys_and_its_type(
    tmp_path: Path, legacy: bool, protocol: int, kind: type, rest: dict[str, Any], key: Any
) -> None:
    """Whether tensors are all that it has, or not."""
    content = kind({key: torch.ones(2), "z": torch.zeros(3), **rest})
    renamed = kind({key: torch.ones(2), "y": torch.zeros(3), **rest})
    more = kind({**content, "a": "b"}) if kind is dict else kind(content)
    if kind is OrderedDict:
        more.metadata = {"a": "b"}
    path = save(tmp_path, content, legacy, protocol)
    assert same(rewrite(path), content)
    holdall.convert(path, tmp_path / "meta.pt", metadata={"a": "b"})
    assert same(torch.load(tmp_path / "meta.pt", weights_only=True), more)
    with holdall.open(tmp_path / "meta.pt") as model:
        assert model.metadata["a"] == "b"
    holdall.edit(path, rename={"z": "y"})
    assert same(torch.load(path, weights_only=True), renamed)
    holdall.edit(path, rename={"y": "z"})
    holdall.edit(path, set={"a": "b"})
    assert same(torch.load(path, weights_only=True), more)
    holdall.edit(path, unset=["a"])
    assert same(torch.load(path, weights_only=True), content)


def test_a_key_after_thousands_of_tensors_is_kept(tmp_path: Path) -> None:
    """The kernel reads the front of such a dict, and the machine the key after it."""
    content = {f"w{place}": torch.ones(1) for place in range(3000)} | {"1": torch.zeros(1), 1: torch.ones(2)}
    path = save(tmp_path, content)
    holdall.edit(path, set={"a": "b"})
    assert same(torch.load(path, weights_only=True), {**content, "a": "b"})


def test_metadata_called_like_a_tensor_of_a_plain_dict_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path, {"a": torch.ones(1)})
    before = path.read_bytes()
    with pytest.raises(ContentError, match="two things would be called 'a'"):
        holdall.edit(path, set={"a": "b"})
    assert path.read_bytes() == before


def test_an_entry_under_such_a_key_is_edited_in_its_place(tmp_path: Path) -> None:
    path = save(tmp_path, {"w": torch.ones(2), None: 1, (1, 2): 2, "d": {None: 3}})
    holdall.edit(path, set={"None": 5, "(1, 2)": "x"})
    assert same(torch.load(path, weights_only=True), {"w": torch.ones(2), None: 5, (1, 2): "x", "d": {None: 3}})


def test_one_key_is_one_key_as_in_python(tmp_path: Path) -> None:
    """1, 1.0 and True are one key of a dict; the first of them stays, with the last value."""
    items = b"K\1" + b"X\1\0\0\0a" + b"\x88" + b"X\1\0\0\0b" + b"G\x3f\xf0" + bytes(6) + b"X\1\0\0\0c"
    pickled = b"\x80\x02}(" + items + b"K\1K\2\x86X\1\0\0\0dK\1K\2\x86X\1\0\0\0eu."
    assert pickle.loads(pickled) == {1: "c", (1, 2): "e"}
    assert dict(holdall.open(checkpoint(pickled)).metadata) == {"1": "c", "(1, 2)": "e"}


def test_a_large_state_dict_before_such_a_key(tmp_path: Path) -> None:
    """The kernel reads the tensors, and the machine what follows: names are the same as without the kernel."""
    content = OrderedDict((f"{row}", torch.ones(1)) for row in range(3000))
    content[5] = "five"  # type: ignore[index]
    content[None] = "none"  # type: ignore[index]
    path = save(tmp_path, content)
    assert dict(holdall.open(path).metadata) == {"5#2": "five", "None": "none"}
    assert same(rewrite(path), content)


def test_keys_that_are_objects_stay_apart_and_are_reported(tmp_path: Path) -> None:
    """Tensors inside keys: a text with an ellipsis stands for each, and none takes the place of another."""
    one, two = torch.zeros(1), torch.ones(1)
    path = tmp_path / "m.pt"
    torch.save({"w": torch.ones(2), (one, 0): "a", (two, 0): "b", (one, (1,)): "c"}, path)
    with holdall.open(path) as model:
        assert dict(model.metadata) == {"(…, 0)": "a", "(…, 0)#2": "b", "(…, …)": "c"}
    assert [finding.rule for finding in holdall.verify(path).findings] == ["torch.pickle.opaque"]
    assert [loss.name for loss in holdall.convert(path, tmp_path / "copy.pt", cast="f16").losses] == ["objects"]
    with pytest.raises(ContentError, match="an edit would lose it"):
        holdall.edit(path, set={"x": 1})
    with pytest.raises(FormatError, match="a key that is a tuple"):
        holdall.open(path, allow_opaque=False)


def test_functions_that_are_only_named_are_text_and_reported() -> None:
    text = b"X\1\0\0\0"
    pickled = b"\x80\x02}(" + text + b"w" + tensor() + text + b"f" + b"ctorch._utils\n_rebuild_sparse_tensor\nu."
    data = checkpoint(pickled, {"0": bytes(16)})
    assert dict(holdall.open(data).metadata) == {"f": "torch._utils._rebuild_sparse_tensor"}
    assert "_rebuild_sparse_tensor" in holdall.verify(data).findings[0].message


def test_values_beside_tensors_in_an_attribute_are_metadata(tmp_path: Path) -> None:
    content = OrderedDict(w=torch.ones(2), odd=complex(1, 2))  # the number makes it a file with objects
    content.extra = {"t": torch.zeros(3), "n": 5, "w": {None: "x"}}  # type: ignore[attr-defined]
    torch.save(content, tmp_path / "m.pt")
    with holdall.open(tmp_path / "m.pt") as model:
        assert set(model) == {"w", "extra.t"}
        found = {entry.key: (entry.value, entry.kind) for entry in model.metadata.entries}
        assert found == {"extra.n": (5, "attribute"), "extra.w": ({"None": "x"}, "attribute")}


def test_keys_of_a_checkpoint_with_numbers_of_numpy_are_kept(tmp_path: Path) -> None:
    np = pytest.importorskip("numpy")
    content = {"w": torch.ones(2), "n": np.float64(0.5), "d": {None: torch.Size((1,))}}
    torch.save(content, tmp_path / "m.pt")
    assert same(rewrite(tmp_path / "m.pt"), {**content, "n": 0.5})


def collide(count: int) -> list[tuple[int, int]]:
    """Pairs of integers with one hash, found by going back through the rounds of Python's hash of a tuple."""
    mask, p1, p2, p5 = (1 << 64) - 1, 11400714785074694791, 14029467366897019727, 2870177450012600261
    back1, back2 = pow(p1, -1, 1 << 64), pow(p2, -1, 1 << 64)

    def turn(value: int, by: int) -> int:
        return ((value << by) | (value >> (64 - by))) & mask

    goal, found, first = turn(12345 * back1 & mask, 33), [], 0
    while len(found) < count:
        first += 1
        state = turn((p5 + first * p2) & mask, 31) * p1 & mask
        second = (goal - state) * back2 & mask
        if 0 < second < 1 << 60:
            found.append((first, second))
    assert len({hash(pair) for pair in found}) == 1
    return found


def test_tuples_cannot_be_made_to_collide_at_length() -> None:
    """Each is compared with all before it: 20,000 would take half a minute."""
    pairs = collide(20_000)
    data = checkpoint(pickle.dumps({"d": [{}, 1]}, 2)[:-1] + b"0}(" + b"".join(
        pickle.dumps(pair, 2)[2:-1].replace(b"q\0", b"") + b"N" for pair in pairs) + b"u.")  # fmt: skip
    began = time.process_time()
    with holdall.open(data) as model:
        assert len(model.metadata) == 20_000
    assert time.process_time() - began < 5
    with pytest.raises(FormatError, match="a key that is a tuple"):
        holdall.open(data, allow_opaque=False)


@pytest.mark.parametrize(
    "key", [b"\x8a\x08" + b"\x7f" * 8, b"B\1\1\0\0" + bytes(257), b"(" + b"N" * 9 + b"t", b"N\x85\x85"]
)
def test_large_keys_are_objects(key: bytes) -> None:
    data = checkpoint(b"\x80\x04}(" + key + b"K\x01u.")
    with pytest.raises(FormatError, match="not text, a number or another small value"):
        holdall.open(data, allow_opaque=False)
    assert list(holdall.open(data).metadata.values()) == [1]


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_key_that_is_a_tensor_is_an_ellipsis(tmp_path: Path, protocol: int) -> None:
    """The state of an optimizer has parameters as keys; paths once had the name of a class of holdall instead."""
    net = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.5)
    net(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    torch.save(optimizer, tmp_path / "m.pt", pickle_protocol=protocol)
    loaded = torch.load(tmp_path / "m.pt", weights_only=False)
    expected = {f"param_groups.0.params.{place}": value for place, value in enumerate(loaded.param_groups[0]["params"])}
    for key, state in zip(("…", "…#2"), loaded.state.values(), strict=True):
        expected |= {f"state.{key}.{name}": value for name, value in state.items()}
    with holdall.open(tmp_path / "m.pt") as model:
        assert set(model) == set(expected)
        for name, value in expected.items():
            assert np.array_equal(model[name].numpy(), value.detach().numpy()), name
