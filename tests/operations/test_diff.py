"""Comparison across containers: what is equal, what is not, and how far apart."""

from __future__ import annotations

import importlib
import json
import os
import struct
from math import inf
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner

import holdall
from holdall import oinf
from holdall.base.parallel import use_threads
from holdall.cli import main
from holdall.model.model import Model
from holdall.model.tensor import Tensor
from holdall.operations import distance
from holdall.operations.diff import TensorDifference
from holdall.report.diff_page import RENDERERS
from tests.format.mcf.document import raw_file

A = np.random.default_rng(0).standard_normal((64, 33)).astype(np.float32)


def _only(a: object, b: object) -> TensorDifference:
    found = holdall.diff(Model([Tensor.of("w", a)]), Model([Tensor.of("w", b)]))  # type: ignore[arg-type]
    assert len(found.tensors) == 1
    return found.tensors[0]


def test_a_file_equals_itself(tmp_path: Path) -> None:
    holdall.save(tmp_path / "a.oinf", {"w": A, "n": np.array([np.nan, -0.0], np.float32)}, metadata={"k": 1})
    found = holdall.diff(tmp_path / "a.oinf", tmp_path / "a.oinf")
    assert not found
    assert found.equal == 2


def test_how_far_apart() -> None:
    b = A.copy()
    b[0, 0] += 3
    item = _only(A, b)
    assert item.verdict == "different"
    assert item.distance is not None
    assert (item.distance.different, item.distance.wild) == (1, 0)
    assert item.distance.max == pytest.approx(3)
    assert item.distance.rmse == pytest.approx(3 / np.sqrt(A.size))
    expected = 10 * np.log10((A.astype(np.float64) ** 2).sum() / 9)
    assert item.distance.snr_db == pytest.approx(expected, rel=1e-5)


def test_dtype_change_is_measured_too() -> None:
    item = _only(A, A.astype(ml_dtypes.bfloat16))
    assert (item.verdict, item.detail) == ("dtype", "f32 became bf16")
    assert item.distance is not None
    assert 40 < item.distance.snr_db < 70


def test_nan_equals_nan_and_other_bits_are_said() -> None:
    item = _only(np.array([0.0, np.nan], np.float32), np.array([-0.0, np.nan], np.float32))
    assert item.verdict == "different"
    assert "other bits" in item.detail
    item = _only(np.array([1.0, np.nan], np.float32), np.array([1.0, 2.0], np.float32))
    assert item.distance is not None
    assert (item.distance.different, item.distance.wild, item.distance.max) == (1, 1, inf)


@pytest.mark.parametrize("kind", [np.int64, np.float64, np.complex128, np.uint64])
def test_wide_types(kind: type) -> None:
    a = np.arange(1000).astype(kind)
    b = a.copy()
    b[7] += 5
    item = _only(a, b)
    assert item.distance is not None
    assert (item.distance.different, item.distance.max) == (1, 5.0)


def test_large_integers_that_floats_cannot_tell_apart() -> None:
    item = _only(np.array([2**62], np.int64), np.array([2**62 + 1], np.int64))
    assert item.distance is not None
    assert item.distance.different == 1


def test_shapes_names_and_declared_ones() -> None:
    a = oinf.model({"same": A, "old": A + 1, "gone": A[:2], "shape": A}, sizevars={})
    b = oinf.model({"same": A, "new": A + 1, "come": A[:3], "shape": A.T.copy()}, sizevars={})
    found = holdall.diff(a, b)
    assert [(item.name, item.verdict) for item in found.tensors] == [
        ("shape", "shape"),
        ("old", "renamed"),
        ("gone", "only a"),
        ("come", "only b"),
    ]
    assert "'new'" in found.tensors[1].detail


def test_metadata_and_assets() -> None:
    a = Model(metadata={"k": 1, "x": np.arange(3), "old": "v"}, assets={"c.json": b"{}", "d": b"1"})
    b = Model(metadata={"k": 2, "x": np.arange(3), "new": "v"}, assets={"c.json": b"{ }", "e": b"1"})
    found = holdall.diff(a, b)
    assert found.metadata == [("k", 1, 2), ("old", "v", None), ("new", None, "v")]
    assert found.assets == [("d", "only a"), ("e", "only b"), ("c.json", "different")]


def test_blocks_of_different_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distance, "_BLOCK", 100)
    item = _only(A, A + np.float32(1))
    assert item.distance is not None
    assert item.distance.count == A.size
    assert item.distance.rmse == pytest.approx(1, rel=1e-5)


def test_the_page_is_whole_and_harmless() -> None:
    a = Model([Tensor.of("layers.0.<b>w", A), Tensor.of("layers.1.w", A), Tensor.of("gone", A[:1])])
    b = Model([Tensor.of("layers.0.<b>w", A + 1), Tensor.of("layers.1.w", A.astype(np.float16))])
    page = RENDERERS[".html"](holdall.diff(a, b))
    assert page.count("<circle") == 2
    assert "&lt;b&gt;w" in page
    assert "<b>" not in page
    assert "only a" in page
    assert "<script" not in page


def test_the_command_exits_1_when_different(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from holdall.cli import main

    holdall.save(tmp_path / "a.oinf", {"w": A})
    holdall.save(tmp_path / "b.oinf", {"w": A + 1})
    same = CliRunner().invoke(main, ["diff", str(tmp_path / "a.oinf"), str(tmp_path / "a.oinf")])
    assert (same.exit_code, "are equal: 1 tensor" in same.output) == (0, True)
    other = CliRunner().invoke(main, ["diff", str(tmp_path / "a.oinf"), str(tmp_path / "b.oinf"), "--json"])
    assert other.exit_code == 1
    assert '"verdict":"different"' in other.output


def test_metadata_that_read_the_same_are_shown_with_what_sets_them_apart(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    for name in "ab":
        writer = gguf.GGUFWriter(tmp_path / f"{name}.gguf", "llama")
        if name == "a":
            writer.add_uint32("count", 1)
            writer.add_bool("flag", True)
        else:
            writer.add_string("count", "1")
            writer.add_string("flag", "True")
        writer.add_string("long", "x" * 1000 + name)
        writer.add_tensor("w", A)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    shown = CliRunner().invoke(main, ["diff", str(tmp_path / "a.gguf"), str(tmp_path / "b.gguf")])
    assert shown.exit_code == 1
    _, count, flag, long = shown.output.splitlines()
    assert count == "metadata count: 1 (int) became '1' (text)"
    assert flag == "metadata flag: True (bool) became 'True' (text)"
    assert long.endswith("… became another text, which differs from letter 1,001 on")


@pytest.mark.parametrize(
    ("a", "b", "shown"),
    [
        ([1], ["1"], "[1] became ['1']"),
        ({"a": 1}, {"a": "1"}, "{'a': 1} became {'a': '1'}"),
        ([*range(100), 1], [*range(100), 2], "16, … became another value, which begins alike"),
        ("[1]", [1], "'[1]' (text) became [1] (list)"),
        (1, 2, "metadata k: 1 became 2"),
    ],
)
def test_nested_values_that_read_the_same(a: object, b: object, shown: str, tmp_path: Path) -> None:
    for name, value in (("a", a), ("b", b)):
        holdall.save(tmp_path / f"{name}.gptrs", {"w": A}, metadata={"kind": "k", "config": {}, "k": value})
    output = CliRunner().invoke(main, ["diff", str(tmp_path / "a.gptrs"), str(tmp_path / "b.gptrs")]).output
    assert output.endswith(f"{shown}\n"), output


def write_nested(path: Path, *arrays: tuple[int, list[bytes]]) -> None:
    """A GGUF file with an array of ``arrays``, each of elements of one kind by its number."""
    inner = b"".join(struct.pack("<IQ", kind, len(items)) + b"".join(items) for kind, items in arrays)
    entry = struct.pack("<Q", 6) + b"nested" + struct.pack("<IIQ", 9, 9, len(arrays)) + inner
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + entry)


U32, ARRAY, LETTER = 4, 9, [struct.pack("<Q", 1) + b"a"]
NUMBERS = [struct.pack("<I", number) for number in (1, 2, 3)]
DEEP = [struct.pack("<IQ", U32, 2) + b"".join(NUMBERS[:2]), struct.pack("<IQ", U32, 1) + NUMBERS[2]]


@pytest.mark.parametrize(
    ("a", "b", "shown"),
    [
        (
            [(U32, NUMBERS), (U32, NUMBERS[:1])],
            [(U32, NUMBERS), (U32, NUMBERS[1:2])],
            "uint32[1]: 1] became [uint32[3]: 1, 2, 3, uint32[1]: 2]",
        ),
        ([(U32, NUMBERS), (U32, [])], [(U32, NUMBERS)], "uint32[0]: ] became [uint32[3]: 1, 2, 3]"),
        ([(U32, NUMBERS), (8, LETTER)], [(U32, NUMBERS), (8, [])], "[a]] became [uint32[3]: 1, 2, 3, []]"),
        (
            [(ARRAY, DEEP), (U32, NUMBERS)],
            [(ARRAY, DEEP[::-1]), (U32, NUMBERS)],
            "became [[uint32[1]: 3, uint32[2]: 1, 2], uint32[3]: 1, 2, 3]",
        ),
        (
            [(6, [struct.pack("<f", np.nan)] * 2)] * 2,
            [(6, [struct.pack("<f", 0)] * 2)] * 2,
            "nan] became [float32[2]: 0.0, 0.0, float32[2]: 0.0, 0.0]",
        ),
    ],
)
def test_arrays_in_arrays(a: list[tuple[int, list[bytes]]], b: list[tuple[int, list[bytes]]], shown: str,
                          tmp_path: Path) -> None:  # fmt: skip
    write_nested(tmp_path / "a.gguf", *a)
    write_nested(tmp_path / "b.gguf", *b)
    (tmp_path / "c.gguf").write_bytes((tmp_path / "a.gguf").read_bytes())
    for other, code in (("c", 0), ("b", 1)):
        for option in ([], ["--json"], ["--report", str(tmp_path / f"{other}.html")]):
            done = CliRunner().invoke(
                main, ["diff", str(tmp_path / "a.gguf"), str(tmp_path / f"{other}.gguf"), *option]
            )
            assert done.exit_code == code, done.output
            assert "should not happen" not in done.output
            assert option or code == 0 or shown in done.output


def write_native(format: str, path: Path, second: bool) -> None:
    """A file of one tensor, which in the ``second`` form differs in nothing but what only its format has."""
    match format:
        case "oinf":
            holdall.save(path, oinf.model({"w": A}, sizevars={"B": 2, "D": 4 if second else 3}), format=format)
        case "embd":
            holdall.save(path, {"w": A}, vocab=["[PAD]", "[UNK]", "b" if second else "a", "c"], format=format)
        case "mcf":
            path.write_bytes(raw_file(sections=[(0x300, b"two" if second else b"one"), (0x301, b"same")]).data())
        case "onnx":
            onnx = pytest.importorskip("onnx")
            node = onnx.helper.make_node("Neg" if second else "Identity", ["w"], ["y"])
            output = onnx.helper.make_tensor_value_info("y", 1, A.shape)
            graph = onnx.helper.make_graph([node], "g", [], [output], [onnx.numpy_helper.from_array(A, "w")])
            onnx.save(onnx.helper.make_model(graph), path)
        case _:
            own = {"NOTE:a": b"two" if second else b"one", "NOTE:same": b"same", f"NOTE:{second}": b""}
            holdall.save(path, {"w": A}, chunk=own, format=format)


CHUNKS = [("chunk NOTE 'a'", "different"), ("chunk NOTE 'False'", "only a"), ("chunk NOTE 'True'", "only b")]
NATIVE = {
    ("oinf", "oinf"): [("size variable D", "3 became 4")],
    ("embd", "embd"): [("vocabulary", "4 items became 4, the first that differs is 2: 'a' became 'b'")],
    ("mcf", "mcf"): [("section 0x0300", "different")],
    ("onnx", "onnx"): [("graph", "different")],
    ("aero", "aero"): CHUNKS,
    ("aero", "aeroset"): CHUNKS,
}


@pytest.mark.parametrize(("a", "b"), NATIVE)
def test_what_only_a_format_has_is_compared(a: str, b: str, tmp_path: Path) -> None:
    one, two, other = tmp_path / f"one.{a}", tmp_path / f"two.{b}", tmp_path / f"other.{b}"
    write_native(a, one, False)
    write_native(b, two, True)
    write_native(b, other, False)
    assert not holdall.diff(one, other)
    found = holdall.diff(one, two)
    assert found and (found.tensors, found.metadata, found.assets) == ([], [], [])
    assert found.native == NATIVE[a, b]
    assert f"{len(found.native)} of their format's own content; 1 tensor equal" in str(found)
    shown = CliRunner().invoke(main, ["diff", str(one), str(two)])
    assert shown.exit_code == 1
    assert shown.output.splitlines()[1:] == [f"{name}: {what}" for name, what in found.native]
    listed = json.loads(CliRunner().invoke(main, ["diff", str(one), str(two), "--json"]).output)
    assert listed["different"] and listed["native"] == [{"name": name, "what": what} for name, what in found.native]
    assert found.native[0][0].split(" ")[0] in RENDERERS[".html"](found)
    holdall.save(tmp_path / "x.npz", {"w": A}, format="npz")
    assert holdall.diff(one, tmp_path / "x.npz").native == []


def test_small_tensors_in_blocks_are_told_apart_one_by_one(tmp_path: Path) -> None:
    """Equal ones are compared together; of the others each says what differs, in order."""
    old = {f"t{number}": np.full(number % 7 + 1, number, np.float32) for number in range(9000)}
    new = dict(old) | {"t5": old["t5"] + 1, "t4999": old["t4999"].astype(np.float16), "t8999": np.zeros(3, np.float32)}
    del new["t7"]
    holdall.save(tmp_path / "a.oinf", old)
    holdall.save(tmp_path / "b.safetensors", new)
    steps: list[int] = []
    found = holdall.diff(tmp_path / "a.oinf", tmp_path / "b.safetensors", progress=lambda done, _: steps.append(done))
    assert found.equal == 9000 - 4
    verdicts = {each.name: each.verdict for each in found.tensors}
    assert verdicts == {"t5": "different", "t4999": "dtype", "t8999": "shape", "t7": "only a"}
    assert [each.distance.max for each in found.tensors if each.name == "t5" and each.distance] == [1.0]
    assert max(steps) == sum(array.nbytes for name, array in old.items() if name != "t7")


def _open_and_cut(path: Path, arrays: dict[str, np.ndarray]) -> Model:
    """A model whose file loses its last two thirds after it was opened."""
    holdall.save(path, arrays)
    model = holdall.open(path, mmap=False)
    os.truncate(path, path.stat().st_size // 3)
    return model


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("shape", [(10, 100), (800, 900)])  # read together, and each alone
def test_what_cannot_be_read_is_no_difference(tmp_path: Path, shape: tuple[int, ...], threads: int) -> None:
    arrays = {f"w{number}": np.full(shape, number, np.float32) for number in range(9)}
    renamed = {f"v{number}": array for number, array in enumerate(arrays.values())}
    for number, other in enumerate((arrays, renamed, {name: array + 1 for name, array in arrays.items()})):
        holdall.save(tmp_path / "whole.safetensors", other)
        for measure in (True, False):
            cut = _open_and_cut(tmp_path / f"cut{number}{measure}.safetensors", arrays)
            with holdall.open(tmp_path / "whole.safetensors", mmap=False) as whole, use_threads(threads), cut:
                for a, b in ((cut, whole), (whole, cut)):
                    with pytest.raises(holdall.FormatError, match=r"cut\d.*\.safetensors: .* it was cut while open"):
                        holdall.diff(a, b, measure=measure)
                    if other is not renamed:
                        with pytest.raises(holdall.FormatError, match="it was cut while open"):
                            holdall.diff_trace(a, b)


@pytest.mark.parametrize("options", [(), ("--quick",), ("--trace",), ("--json",)])
def test_a_file_that_is_cut_ends_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple) -> None:
    arrays = {f"w{number}": np.full((300, 400), number, np.float32) for number in range(9)}
    for name in ("a.safetensors", "b.safetensors"):
        holdall.save(tmp_path / name, arrays)
    home = "trace" if options == ("--trace",) else "diff"
    opened = importlib.import_module(f"holdall.operations.{home}").open_model

    def open_and_cut(path: str, **given: object) -> Model:
        model = opened(path, **given)
        if str(path).endswith("b.safetensors"):
            os.truncate(path, 2_000_000)
        return model

    monkeypatch.setattr(f"holdall.operations.{home}.open_model", open_and_cut)
    done = CliRunner().invoke(main, ["diff", *options, *(str(tmp_path / f"{name}.safetensors") for name in "ab")])
    assert done.exit_code == 1 and "differ" not in done.output
    assert done.output.startswith(f"holdall: {tmp_path / 'b.safetensors'}: ended ")
    assert "it was cut while open" in done.output and done.output.count("\n") == 1


def test_bytes_that_nothing_decodes_differ_and_are_not_measured(tmp_path: Path) -> None:
    for name, words in (("a", ["abc", "d"]), ("b", ["abc", "e"]), ("c", ["abcd", "e"])):
        np.savez(tmp_path / f"{name}.npz", t=np.array(words), w=np.arange(3.0))
    found = holdall.diff(tmp_path / "a.npz", tmp_path / "b.npz")
    assert [(item.name, item.verdict, item.distance) for item in found.tensors] == [("t", "different", None)]
    assert found.tensors[0].detail.startswith("cannot be measured: npy.<U3: these bytes have no decoder")
    found = holdall.diff(tmp_path / "a.npz", tmp_path / "c.npz")
    assert found.tensors[0].verdict == "dtype"
    assert found.tensors[0].detail.startswith("npy.<U3 became npy.<U4; cannot be measured: ")
    assert not holdall.diff(tmp_path / "a.npz", tmp_path / "a.npz")
    assert holdall.diff(tmp_path / "a.npz", tmp_path / "b.npz", measure=False).tensors[0].detail == ""
