"""Arrays in metadata on their way through formats that hold JSON: read there by json, and in GGUF by gguf."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
from click.testing import CliRunner
from gguf import GGUFValueType as Kind

import holdall
from holdall.cli import main
from holdall.model.metadata import Entry, Metadata
from holdall.model.model import Model
from tests.format.aero.test_aero_options import read_chunks

MANY = np.random.default_rng(5).standard_normal(300_000).astype(np.float32).tolist()  # more bytes than any buffer
KEPT = {
    "a.i32": ([1, 2, -3], Kind.INT32),
    "a.i64": ([1, 1 << 40], Kind.INT64),
    "a.f32": ([0.5, float(np.float32(0.1))], Kind.FLOAT32),
    "a.many": (MANY[:3000], Kind.FLOAT32),
    "a.bool": ([True, False, True], Kind.BOOL),
    "a.text": (["x", "é"], Kind.STRING),
}
RETYPED = {  # kind in the file, kind after the way through JSON
    "b.i16": ([1, -2], Kind.INT16, "array:i16", "array:i32"),
    "b.u32": ([1, 2], Kind.UINT32, "array:u32", "array:i32"),
    "b.u8": ([1, 255], Kind.UINT8, "array:u8", "array:i32"),
    "b.f64": ([0.5, 2.0], Kind.FLOAT64, "array:f64", "array:f32"),
}
NAN = {"c.nan": ([float("nan"), 2.0], Kind.FLOAT32)}


def write_gguf(path: Path, entries: dict[str, tuple[list[object], Kind]]) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    for key, (items, kind) in entries.items():
        writer.add_key_value(key, items, Kind.ARRAY, kind)
    writer.add_tensor("w", np.ones((2, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def read_gguf(path: Path) -> dict[str, tuple[list[object], list[Kind]]]:
    return {key: (field.contents(), list(field.types)) for key, field in gguf.GGUFReader(path).fields.items()}


def read_json(path: Path) -> dict[str, object]:
    """The metadata of an AERO file, or of the first part of a set, by json alone."""
    file = path / "part-000.aero" if path.is_dir() else path
    found: dict[str, object] = json.loads(read_chunks(file.read_bytes())["MJSN", "meta.json"][1])
    return found


@pytest.mark.parametrize(
    ("target", "many"), [("m.aero", MANY[:3000]), ("m.aeroset", MANY)], ids=["aero", "aeroset and more"]
)
def test_arrays_are_lists_in_json_and_arrays_again(
    target: str, many: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KEPT, "a.many", (many, Kind.FLOAT32))
    write_gguf(tmp_path / "a.gguf", KEPT)
    done = CliRunner().invoke(main, ["convert", str(tmp_path / "a.gguf"), str(tmp_path / target), "--strict"])
    assert done.exit_code == 0, done.output
    assert "text" not in done.output and "otherwise" not in done.output
    stored = read_json(tmp_path / target)
    assert {key: stored[key] for key in KEPT} == {key: items for key, (items, _) in KEPT.items()}
    assert stored["a.bool"][0] is True  # type: ignore[index]
    report = holdall.convert(tmp_path / target, tmp_path / "b.gguf")
    assert [loss for loss in report.losses if loss.name in KEPT] == []
    found = read_gguf(tmp_path / "b.gguf")
    assert {key: found[key] for key in KEPT} == {
        key: (items, [Kind.ARRAY, kind]) for key, (items, kind) in KEPT.items()
    }


@pytest.mark.parametrize("target", ["m.aero", "m.aeroset"])
def test_a_type_that_does_not_come_back_is_reported(target: str, tmp_path: Path) -> None:
    write_gguf(tmp_path / "a.gguf", {**KEPT, **{key: row[:2] for key, row in RETYPED.items()}})
    report = holdall.convert(tmp_path / "a.gguf", tmp_path / target)
    assert not report.lossless
    assert {loss.name: (loss.reason, loss.fate) for loss in report.losses} == {
        key: (f"stored as a list, without the type {old}: gguf would make {new} of it", "changed")
        for key, (_, _, old, new) in RETYPED.items()
    }
    assert {key: read_json(tmp_path / target)[key] for key in RETYPED} == {key: row[0] for key, row in RETYPED.items()}
    holdall.convert(tmp_path / target, tmp_path / "b.gguf")
    with holdall.open(tmp_path / "b.gguf") as model:
        assert {key: model.metadata.kind(key) for key in RETYPED} == {key: row[3] for key, row in RETYPED.items()}
    with pytest.raises(holdall.ContentError, match="without the type array:i16: gguf would make array:i32"):
        holdall.convert(tmp_path / "a.gguf", tmp_path / "n.aero", strict=True)
    done = CliRunner().invoke(main, ["convert", str(tmp_path / "a.gguf"), str(tmp_path / f"again.{target}")])
    assert "written otherwise: metadata 'b.i16', metadata 'b.u32'" in done.output


SCALARS = {  # value, kind in the file, kind after the way through another format
    "s.u8": (7, Kind.UINT8, "u8", "u32"),
    "s.i16": (-7, Kind.INT16, "i16", "i32"),
    "s.i32": (7, Kind.INT32, "i32", "u32"),
    "s.u64": (7, Kind.UINT64, "u64", "u32"),
    "s.f64": (0.5, Kind.FLOAT64, "f64", "f32"),
    "t.u32": (7, Kind.UINT32, "u32", "u32"),
    "t.u64": (1 << 40, Kind.UINT64, "u64", "u64"),
    "t.f32": (float(np.float32(0.1)), Kind.FLOAT32, "f32", "f32"),
    "t.f64": (0.1, Kind.FLOAT64, "f64", "f64"),
    "t.bool": (True, Kind.BOOL, "bool", "bool"),
}


def write_scalars(path: Path, name: str) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    for key, (value, kind, _, _) in SCALARS.items():
        writer.add_key_value(key, value, kind)
    writer.add_tensor(name, np.ones((2, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("target", ["m.aero", "m.aeroset"])
def test_a_kind_of_number_that_does_not_come_back_is_reported(target: str, tmp_path: Path) -> None:
    write_scalars(tmp_path / "a.gguf", "w")
    report = holdall.convert(tmp_path / "a.gguf", tmp_path / target)
    lost = {loss.name: (loss.reason, loss.fate) for loss in report.losses if loss.name in SCALARS}
    assert lost == {
        key: (f"stored without the type {old}: gguf would make {new} of it", "changed")
        for key, (_, _, old, new) in SCALARS.items()
        if key.startswith("s.")
    }
    assert report.lossless is False
    with pytest.raises(holdall.ContentError, match="without the type u8: gguf would make u32 of it"):
        holdall.convert(tmp_path / "a.gguf", tmp_path / f"x.{target}", strict=True)
    holdall.convert(tmp_path / target, tmp_path / "b.gguf")
    found = read_gguf(tmp_path / "b.gguf")
    back = {"u32": Kind.UINT32, "i32": Kind.INT32, "u64": Kind.UINT64, "f32": Kind.FLOAT32, "f64": Kind.FLOAT64}
    assert {key: found[key] for key in SCALARS} == {
        key: (value, [back.get(new, Kind.BOOL)]) for key, (value, _, _, new) in SCALARS.items()
    }


def test_files_that_become_one_keep_the_kinds_of_numbers(tmp_path: Path) -> None:
    for name in "ab":
        write_scalars(tmp_path / f"{name}.gguf", name)
    report = holdall.convert([tmp_path / "a.gguf", tmp_path / "b.gguf"], tmp_path / "ab.gguf")
    assert report.lossless
    found = read_gguf(tmp_path / "ab.gguf")
    assert {key: found[key] for key in SCALARS} == {
        key: (value, [kind]) for key, (value, kind, _, _) in SCALARS.items()
    }


def test_what_json_cannot_hold_is_text_for_the_true_reason(tmp_path: Path) -> None:
    write_gguf(tmp_path / "a.gguf", NAN)
    report = holdall.convert(tmp_path / "a.gguf", tmp_path / "m.aero")
    assert [(loss.name, loss.reason, loss.fate) for loss in report.losses] == [
        ("c.nan", "nan is not a number of JSON: stored as text", "text")
    ]
    report = holdall.convert(tmp_path / "a.gguf", tmp_path / "m.safetensors")
    assert [loss.fate for loss in report.losses if loss.name == "c.nan"] == ["text"]


def test_arrays_in_arrays_are_lists_of_lists(tmp_path: Path) -> None:
    nested = Metadata([Entry("n", [np.array([1, 2], np.int32), np.array([3], np.int32)], "array:array:i32")])
    holdall.save(tmp_path / "a.gguf", Model([holdall.Tensor.of("w", np.ones(32, np.float32))], metadata=nested))
    report = holdall.convert(tmp_path / "a.gguf", tmp_path / "m.aero")
    assert [(loss.name, loss.reason, loss.fate) for loss in report.losses] == [
        ("n", "the arrays in it are stored as lists, without their types", "changed")
    ]
    assert read_json(tmp_path / "m.aero")["n"] == [[1, 2], [3]]


def test_arrays_of_oinf(tmp_path: Path) -> None:
    """Of several dimensions, of types that OINF infers again or not, and without items."""
    arrays = {
        "grid": np.array([[1, 2], [3, 300]], np.int16),
        "wide": np.array([1, 2], np.int64),
        "half": np.array([0.5, 2], np.float16),
        "none": np.zeros((0, 4), np.float32),
    }
    holdall.save(tmp_path / "a.oinf", {"w": np.ones(3, np.float32)}, metadata=arrays)
    report = holdall.convert(tmp_path / "a.oinf", tmp_path / "m.aero")
    assert {loss.name: loss.reason for loss in report.losses} == {
        "wide": "stored as a list, without the type ndarray:i64: oinf would make ndarray:i8 of it",
        "half": "stored as a list, without the type ndarray:f16: oinf would make ndarray:f32 of it",
        "none": "stored as a list, without the shape [0, 4]",
    }
    assert {key: read_json(tmp_path / "m.aero")[key] for key in arrays} == {
        key: array.tolist() for key, array in arrays.items()
    }
    holdall.convert(tmp_path / "m.aero", tmp_path / "b.oinf")
    with holdall.open(tmp_path / "b.oinf") as model:
        assert model.metadata["grid"].dtype == np.int16
        np.testing.assert_array_equal(model.metadata["grid"], arrays["grid"])


def test_an_array_that_is_given_is_a_list(tmp_path: Path) -> None:
    holdall.save(tmp_path / "a.safetensors", {"w": np.ones(3, np.float32)})
    report = holdall.convert(
        tmp_path / "a.safetensors", tmp_path / "m.aero", metadata={"ids": np.array([1, 2], np.int16)}
    )
    assert (report.losses, read_json(tmp_path / "m.aero")["ids"]) == ([], [1, 2])
