"""Mutants that holdall and the format's own library both read mean the same; `make differential` runs more of them."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections import OrderedDict
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from tools.differential import ours
from tools.differential.campaign import FORMATS, make_input, run
from tools.differential.child import Died, Library
from tools.differential.exceptions import EXCEPTIONS, explain
from tools.differential.normal import Content, compare, normalize
from tools.fuzz.onnxforms import onnx_places

import holdall
from holdall import oinf

_LIBRARY = {"npz": "numpy", "oinf": "oinf_verify"}  # where it is called otherwise than the format
_COUNT = {"safetensors": 1800, "gguf": 1200, "npz": 900, "onnx": 1500, "torch": 750, "oinf": 300}  # two seconds each
_LONG = 30  # times as many: a minute each

needs = {
    format: pytest.mark.skipif(find_spec(_LIBRARY.get(format, format)) is None, reason=f"needs the extra {format}")
    for format in FORMATS
}


@pytest.mark.parametrize("format", [pytest.param(format, marks=needs[format]) for format in FORMATS])
def test_what_both_read_means_the_same(format: str, tmp_path: Path) -> None:
    result = run(format, _COUNT[format], seed=3, keep=tmp_path)
    assert result.differences == [], [path.read_text() for path in tmp_path.glob("*.txt")]
    assert result.counts["inputs"] == _COUNT[format]
    assert result.counts["both"] > _COUNT[format] // 25


@pytest.mark.long
@pytest.mark.parametrize("format", [pytest.param(format, marks=needs[format]) for format in FORMATS])
def test_what_both_read_means_the_same_for_longer(format: str, tmp_path: Path) -> None:
    result = run(format, _LONG * _COUNT[format], seed=4, keep=tmp_path)
    assert result.differences == [], [path.read_text() for path in tmp_path.glob("*.txt")]


def test_inputs_depend_on_the_seed_and_their_number_alone() -> None:
    first = [make_input("safetensors", 1, number) for number in range(60, 90)]
    assert [make_input("safetensors", 1, number) for number in reversed(range(60, 90))] == first[::-1]
    assert [make_input("safetensors", 2, number) for number in range(60, 90)] != first


_FRAGILE = """
import os, time
from tools.differential.child import serve
from tools.differential.normal import Content

def read(data):
    print("a library may print")
    if data == b"crash":
        os.abort()
    while data == b"hang":
        pass
    return Content(metadata={"size": len(bytearray(1 << 40) if data == b"memory" else data)})

serve(read)
"""


def test_a_library_that_crashes_hangs_or_takes_memory_is_started_again() -> None:
    batch = [b"1", b"crash", b"22", b"memory", b"hang", b"crash", b"333"]
    with Library("fragile", [sys.executable, "-c", _FRAGILE]) as library:
        for _ in range(2):
            read = list(library.read(batch))
            found = ["died" if isinstance(one, Died) else one and one.metadata["size"] for one in read]
            assert found == [1, "died", 2, None, "died", "died", 3]


def test_every_kind_of_difference_is_seen() -> None:
    ours = Content({"w": ("f32", (2,), "00")}, {"a": normalize(1)})
    for other, word in (
        (Content({"v": ("f32", (2,), "00")}, ours.metadata), "names"),
        (Content({"w": ("f16", (2,), "00")}, ours.metadata), "dtype"),
        (Content({"w": ("f32", (2, 1), "00")}, ours.metadata), "shape"),
        (Content({"w": ("f32", (2,), "01")}, ours.metadata), "values"),
        (Content(ours.tensors, {"a": normalize(1.0)}), "metadata"),
        (Content(ours.tensors, {"a": normalize(True)}), "metadata"),
        (Content(ours.tensors, {}), "metadata"),
    ):
        assert [text.split(":")[0] for text in compare(ours, other)] == [word]
    assert compare(ours, Content(dict(ours.tensors), dict(ours.metadata))) == []


def test_a_byte_of_a_bool_above_1_is_true_and_kept() -> None:
    header = b'{"w":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}}'
    read = ours.read("safetensors", len(header).to_bytes(8, "little") + header + b"\0\2\xff")
    assert read is not None
    assert read.tensors["w"] == ("bool", (3,), "0002ff")


@needs["onnx"]
def test_onnx_tensors_are_compared_wherever_they_are() -> None:
    found = dict(onnx_places())
    paths = {
        "constant": "graph.node[0].value", "if": "graph.node[0].else_branch.node[0].value",
        "loop": "graph.node[0].body.node[0].then_branch.w", "scan": "graph.node[0].body.s",
        "lists": "graph.node[0].list[1]", "sparse": "graph.node[0].sparse_value.indices",
        "clash": "graph.node[0].value#2", "function": "functions[0].k", "training": "training_info[0].algorithm.t",
    }  # fmt: skip
    with Library("onnx") as library:
        for title, theirs in zip(found, library.read([*found.values()]), strict=True):
            own = ours.read("onnx", found[title])
            assert isinstance(theirs, Content) and own is not None
            assert compare(own, theirs) == []
            assert title == "everywhere" or paths[title] in theirs.tensors
            for name in theirs.tensors:  # a tensor that only one has is a finding
                fewer = {key: values for key, values in theirs.tensors.items() if key != name}
                assert compare(own, Content(fewer, theirs.metadata))


@needs["oinf"]
def test_the_verifier_of_oinf_is_a_reader(tmp_path: Path) -> None:
    """The worked example of docs/formats/oinf.md: what is taken from the verifier are the values themselves."""
    model = oinf.model(
        {
            "w": np.array([[1.5, -2]], np.float32), "codes": oinf.TensorSpec([1, -8, 7], dtype="i4"),
            "half": oinf.TensorSpec(np.array([float("nan"), 3], np.float32), dtype="bf16"),
            "one": np.array([[7]], np.int16), "later": oinf.Uninitialized("f64", (2, 3)),
        },
        sizevars={"D": 16},
        metadata={"mode": "clamp_up", "bits": oinf.Bitset([1, 0, 1]), "list": np.array([[True, False]])},
    )  # fmt: skip
    holdall.save(tmp_path / "m.oinf", model, fsync=False)
    data = (tmp_path / "m.oinf").read_bytes()
    expected = Content(
        {
            "w": ("f32", (1, 2), "0000c03f000000c0"), "codes": ("i4", (3,), "01f807"),
            "half": ("bf16", (2,), "0000c07f00004040"), "one": ("i16", (1, 1), "0700"),
            "later": ("f64", (2, 3), "no data"),
        },
        {
            "sizevar D": ("int", 16), "mode": ("string", ("text", "clamp_up")),
            "bits": ("bitset", ("list", [("int", 3), ("bytes", "05")])),
            "list": ("ndarray:bool", "bool", (1, 2), "0100"),
        },
    )  # fmt: skip
    with Library("oinf") as library:
        (theirs,) = library.read([data])
    assert isinstance(theirs, Content)
    assert compare(expected, theirs) == []
    own = ours.read("oinf", data)
    assert own is not None
    assert compare(own, theirs) == []


def test_exceptions_are_few_and_have_reasons() -> None:
    assert len(EXCEPTIONS) < 8
    assert all(len(row.why) > 40 and row.format in FORMATS for row in EXCEPTIONS)


def test_names_of_functions_and_objects_stand_and_nothing_else_does() -> None:
    ours = {"f": ("text", "a.b.run"), "(…, 0)": None, "t": ("list", [("text", "torch.int8"), ("text", "os.Path")])}
    items = [("other", "torch.int8"), ("other", "<class 'os.Path'>")]
    theirs = {"f": ("other", "<function run at 0x7f00>"), "(tensor([1.]), 0)": None, "t": ("list", items)}
    assert explain("torch", b"", Content({}, ours), Content({}, theirs)) == "names of functions and objects"
    for key, value in (
        ("f", ("other", "<function stop at 0x7f00>")), ("f", ("text", "a.b.stop")), ("f", ("other", "a.b")),
        ("(tensor([1.]), 0)", 1), ("t", ("list", items[:1])), ("t", ("dict", [items])), ("t", ("list", items[::-1])),
        ("more", None),
    ):  # fmt: skip
        assert explain("torch", b"", Content({}, ours), Content({}, {**theirs, key: value})) is None, (key, value)
    plain = Content({}, {"a": ("text", "x")})
    assert explain("torch", b"", plain, Content({}, {"b": ("text", "x")})) is None


def test_nan_of_f8_stands_and_nothing_else_does() -> None:
    nan, inf, one = "0000c07f", "000080ff", "0000803f"
    ours = Content(
        {"w": ("f8_e5m2", (2,), nan + one), "v": ("f32", (1,), one)}, {"a": ("f8_e5m2", normalize(float("nan")))}
    )
    theirs = Content({**ours.tensors, "w": ("f8_e5m2", (2,), inf + one)}, {"a": ("f8_e5m2", normalize(float("-inf")))})
    assert explain("oinf", b"", ours, theirs) == "NaN of F8"
    for name, values in (
        ("w", ("f8_e5m2", (2,), inf + inf)), ("w", ("f8_e5m2", (1, 2), inf + one)), ("v", ("f32", (1,), inf)),
        ("w", ("bf16", (2,), inf + one)), ("w", ("f8_e5m2", (2,), one)), ("u", ("f32", (1,), one)),
    ):  # fmt: skip
        assert explain("oinf", b"", ours, Content({**theirs.tensors, name: values}, theirs.metadata)) is None
    assert explain("oinf", b"", ours, Content(theirs.tensors, {"a": ("f8_e5m2", normalize(1.0))})) is None


def _pickled(value: object) -> bytes:
    out = io.BytesIO()
    pytest.importorskip("torch").save(value, out)
    return out.getvalue()


@needs["torch"]
def test_keys_of_any_kind_are_the_same_to_both() -> None:
    torch = pytest.importorskip("torch")
    keys = (None, True, 7, "7", "None", 1.5, "1.5", b"x", (1, "a"), "(1, a)", float("nan"), 2.0**60)
    state = OrderedDict(w=torch.ones(2))
    state.metadata = {"a": dict.fromkeys(keys, 1)}  # type: ignore[attr-defined]
    values = [
        dict.fromkeys(keys, torch.ones(1)), dict.fromkeys(keys, "x"), [dict.fromkeys(keys)], state,
        OrderedDict(w=torch.ones(1), keys=OrderedDict.fromkeys(keys)), {"w": torch.ones(1), torch.float32: torch.int8},
    ]  # fmt: skip
    files = [_pickled(value) for value in values]
    with Library("torch") as library:
        for data, theirs in zip(files, library.read(files), strict=True):
            own = ours.read("torch", data)
            assert own is not None
            assert isinstance(theirs, Content)
            assert compare(own, theirs) == [] or explain("torch", data, own, theirs)


def test_the_command_prints_one_line_of_json(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tools.differential", "--format", "safetensors", "--count", "60", "--jobs", "2"]
    ran = subprocess.run([*command, "--keep", str(tmp_path)], capture_output=True, text=True, timeout=120, check=True)
    line = json.loads(ran.stdout)
    assert (line["format"], line["inputs"], line["differences"]) == ("safetensors", 60, 0)
    assert line["both"] + line["only_ours"] + line["only_theirs"] + line["neither"] + line["died"] == 60


def test_keys_of_several_types_are_compared() -> None:
    ours, theirs = Content(metadata={"a": 1}), Content(metadata={"a": 1, None: 2, 3: 4})  # type: ignore[dict-item]
    assert compare(ours, theirs) == [
        "metadata: 3 is absent here and 4 there",
        "metadata: None is absent here and 2 there",
    ]
