"""BITSET tensors: on request one byte an element, as the format's text says; refused otherwise."""

import struct
import subprocess
import sys

import numpy as np
import pytest

import holdall
from holdall import oinf
from tests.format.oinf import corpus

VALUES = [0, 1, 0x80, 0xFF]
REFUSED = "oinf: tensor 'w': readers disagree on bitset tensors; store u8, or write it with bitsets=write"


def model():
    return oinf.model({"w": oinf.TensorSpec(np.uint8(VALUES).reshape(2, 2), dtype="bitset"), "x": np.float32([1])})


def test_they_are_refused_unless_forced(tmp_path):
    with pytest.raises(holdall.ContentError) as error:
        holdall.save(tmp_path / "m.oinf", model())
    assert str(error.value) == REFUSED
    with pytest.raises(holdall.ContentError, match="bitsets=write"):
        holdall.save(tmp_path / "m.oinf", oinf.model({"w": oinf.Uninitialized(13, (3,))}))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("version", [1, 2])
def test_forced_they_are_one_byte_an_element(tmp_path, version):
    path = tmp_path / "m.oinf"
    holdall.save(path, model(), bitsets="write", version=version)
    data = path.read_bytes()
    start, at = struct.unpack_from("<Q", data, 45)[0], struct.unpack_from("<Q", data, 53)[0]
    assert struct.unpack_from("<I4sIII2QQQ", data, start) == (1, b"w\0\0\0", 13, 2, 1, 2, 2, 4, at)
    assert list(data[at : at + 8]) == [*VALUES, 0, 0, 0, 0]
    with holdall.open(path) as found:
        assert str(found["w"].dtype) == "bitset" and found["w"].numpy().ravel().tolist() == VALUES
    report = holdall.verify(path, level="strict")
    assert report.ok and [(f.rule, f.severity) for f in report.findings] == [("oinf.tensor.bitset", "warning")]


def test_a_file_with_one_is_written_again_byte_for_byte(tmp_path):
    path = corpus.FOLDER / "bad" / "tensor_dtype_bitset.oinf"
    with holdall.open(path) as found:
        holdall.save(tmp_path / "again.oinf", found, bitsets="write", version=found.version[0])
    assert (tmp_path / "again.oinf").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("version", [1, 2])
def test_an_edit_keeps_them(tmp_path, version):
    path, same = tmp_path / "m.oinf", tmp_path / "same.oinf"
    for file, level in ((path, 1), (same, 2)):
        holdall.save(file, model().replace(metadata={"level": level}), bitsets="write", version=version)
    command = [sys.executable, "-m", "holdall", "edit", "m.oinf", "--set", "level=2"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert path.read_bytes() == same.read_bytes()
    holdall.edit(path, rename={"w": "v"})
    with holdall.open(path) as found:
        assert found.version == (version,) and str(found["v"].dtype) == "bitset"
        assert found["v"].numpy().ravel().tolist() == VALUES


def test_the_command_line_forces_it_too(tmp_path):
    holdall.save(tmp_path / "m.oinf", model(), bitsets="write")
    command = [sys.executable, "-m", "holdall", "convert", "m.oinf", "two.oinf", "-o", "version=2"]
    plain = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert plain.returncode == 1 and "oinf cannot hold 1 tensor: 'w' bitset[2, 2] (no bitset)" in plain.stderr
    assert not (tmp_path / "two.oinf").exists()
    forced = subprocess.run([*command, "-o", "bitsets=write"], cwd=tmp_path, capture_output=True, text=True)
    assert forced.returncode == 0, forced.stderr
    with holdall.open(tmp_path / "two.oinf") as found:
        assert found.version == (2,) and found["w"].numpy().ravel().tolist() == VALUES
