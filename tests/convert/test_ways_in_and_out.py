"""Standard streams, names that are too long, files called otherwise: the edges of a conversion."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

import holdall
from holdall.errors import ContentError

W = np.arange(12, dtype=np.float32).reshape(3, 4)
LONG = "model.layers.0." + "very_deep_inside." * 4


def run(*words: object, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    line = [sys.executable, "-m", "holdall", *map(str, words)]
    return subprocess.run(line, input=data, capture_output=True, env={**os.environ, "PYTHONPATH": ":".join(sys.path)})


def test_a_conversion_in_a_pipe(tmp_path: Path) -> None:
    np.savez(tmp_path / "m.npz", w=W)
    done = run("convert", "-", "-", "--format", "safetensors", "--json", data=(tmp_path / "m.npz").read_bytes())
    assert done.returncode == 0, done.stderr
    from safetensors.numpy import load

    assert np.array_equal(load(done.stdout)["w"], W)
    facts = json.loads(done.stderr.splitlines()[-1])
    assert (facts["source"], facts["target"], facts["lossless"]) == (["-"], "-", True)
    back = run("convert", "-", "-", "--format", "npz", data=done.stdout)
    with np.load(io.BytesIO(back.stdout)) as arrays:
        assert np.array_equal(arrays["w"], W)


def test_streams_that_cannot_be_are_wrong_usage(tmp_path: Path) -> None:
    np.savez(tmp_path / "m.npz", w=W)
    assert run("convert", "-", "-", tmp_path / "x.oinf", data=b"x").returncode == 2
    folder = run("convert", tmp_path / "m.npz", "-", "--format", "hf")
    assert (folder.returncode, b"which standard output cannot be" in folder.stderr) == (2, True)
    empty = run("convert", "-", tmp_path / "x.oinf")
    assert (empty.returncode, (tmp_path / "x.oinf").exists()) == (1, False)


def test_long_names_are_shortened_when_asked_and_come_back(tmp_path: Path) -> None:
    names = [LONG + "a.weight", LONG + "b.weight", "x." + LONG + "a.weight", "short"]
    holdall.save(tmp_path / "m.oinf", {name: W + n for n, name in enumerate(names)})
    with pytest.raises(ContentError, match=r"at most 63.*--shorten-names"):
        holdall.convert(tmp_path / "m.oinf", tmp_path / "m.gguf")
    holdall.convert(tmp_path / "m.oinf", tmp_path / "m.gguf", shorten_names=True)
    reader = gguf.GGUFReader(tmp_path / "m.gguf")
    short = [tensor.name for tensor in reader.tensors]
    assert len(set(short)) == 4
    assert all(len(name) <= 63 for name in short)
    before = json.loads(reader.fields["holdall.names"].contents())
    assert sorted(before.values()) == sorted(names[:3])
    assert all(old.endswith(new.rpartition("~")[2]) for new, old in before.items())
    holdall.convert(tmp_path / "m.gguf", tmp_path / "back.oinf")
    assert (tmp_path / "back.oinf").read_bytes() == (tmp_path / "m.oinf").read_bytes()


@pytest.mark.parametrize("text", ["{", "[1]", '{"w": 5}', '{"nothing": "x"}', "[" * 100_000])
def test_a_map_of_names_that_is_none_is_ordinary_metadata(tmp_path: Path, text: str) -> None:
    holdall.save(tmp_path / "m.safetensors", {"w": W}, metadata={"holdall.names": text})
    report = holdall.convert(tmp_path / "m.safetensors", tmp_path / "m.npz")
    assert [(loss.name, loss.fate) for loss in report.losses] == [("holdall.names", "left out")]


def test_a_map_that_would_give_two_tensors_one_name_stops_it(tmp_path: Path) -> None:
    holdall.save(tmp_path / "m.safetensors", {"a": W, "b": W}, metadata={"holdall.names": '{"a": "x", "b": "x"}'})
    with pytest.raises(ContentError, match="two tensors would be called 'x'"):
        holdall.convert(tmp_path / "m.safetensors", tmp_path / "m.npz")


def test_a_suffix_that_says_something_else_is_noted(tmp_path: Path) -> None:
    np.savez(tmp_path / "m.npz", w=W)
    (tmp_path / "m.npz").rename(tmp_path / "m.gguf")
    report = holdall.convert(tmp_path / "m.gguf", tmp_path / "x.oinf")
    assert any("holds npz, not gguf as its suffix says" in text for text in report.changes)


def test_a_target_that_exists_is_kept_when_asked(tmp_path: Path) -> None:
    np.savez(tmp_path / "m.npz", w=W)
    (tmp_path / "x.oinf").write_bytes(b"old")
    done = run("convert", tmp_path / "m.npz", tmp_path / "x.oinf", "--no-clobber")
    assert (done.returncode, (tmp_path / "x.oinf").read_bytes()) == (1, b"old")
    assert b"not to be replaced" in done.stderr


def test_a_dtype_that_is_bound_to_its_format_is_not_parted_from_it(tmp_path: Path) -> None:
    from holdall import oinf

    scaled = oinf.TensorSpec(np.arange(6, dtype=np.int8), quant=oinf.QuantParams([0.5]))
    holdall.save(tmp_path / "m.oinf", oinf.model({"q": scaled}))
    with pytest.raises(ContentError, match=r"'q' i8.*quantization parameters"):
        holdall.convert(tmp_path / "m.oinf", tmp_path / "m.npz")
    with pytest.raises(ContentError, match="'q' is scaled by"):
        holdall.convert(tmp_path / "m.oinf", tmp_path / "x.oinf", cast={"q": "i16"})


def test_a_scalar_that_gguf_readers_stumble_over_is_refused(tmp_path: Path) -> None:
    import ml_dtypes

    holdall.save(tmp_path / "m.oinf", {"s": np.array(2, ml_dtypes.bfloat16), "w": W})
    with pytest.raises(ContentError, match=r"'s' bf16\[\] \(no bf16 without dimensions\).*--cast f32"):
        holdall.convert(tmp_path / "m.oinf", tmp_path / "m.gguf")
    holdall.convert(tmp_path / "m.oinf", tmp_path / "m.gguf", cast={"s": "f32"})
    assert {tensor.name for tensor in gguf.GGUFReader(tmp_path / "m.gguf").tensors} == {"s", "w"}
    holdall.convert(tmp_path / "m.oinf", tmp_path / "c.gguf", carry=True)
    assert {tensor.name for tensor in gguf.GGUFReader(tmp_path / "c.gguf").tensors} == {"s", "w"}
    holdall.restore(tmp_path / "c.gguf", tmp_path / "back.oinf")
    assert (tmp_path / "back.oinf").read_bytes() == (tmp_path / "m.oinf").read_bytes()
