"""Every command exits alike for one file: 1 if it is invalid, 3 if it may be intact and holdall cannot read it."""

import bz2
import decimal
import pickle
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import holdall
from holdall.cli import main
from holdall.errors import FormatError, LimitError, UnsupportedError

ARRAYS = {"w": np.zeros((2, 2), np.float32), "v": np.zeros(2, np.float32)}
COMMANDS = {
    "info": ["info", "FILE"],
    "ls": ["ls", "FILE"],
    "ls --stats": ["ls", "FILE", "--stats"],
    "verify": ["verify", "FILE"],
    "explain": ["explain", "FILE"],
    "extract": ["extract", "FILE", "w"],
    "assets": ["assets", "FILE"],
    "convert": ["convert", "FILE", "out.safetensors"],
    "merge": ["convert", "good.npz", "FILE", "out.safetensors"],
    "restore": ["restore", "FILE", "out.npz"],
    "quantize": ["quantize", "FILE", "out.mcf"],
    "diff a": ["diff", "FILE", "good.npz"],
    "diff b": ["diff", "good.npz", "FILE"],
    "trace": ["diff", "--trace", "good.npz", "FILE"],
    "edit": ["edit", "FILE", "--set", "k=v"],
    "embed": ["embed", "FILE", "a text"],
    "calibrate": ["calibrate", "FILE", "texts.txt", "-o", "out.json"],
    "view": ["view", "FILE", "--export", "out.html"],
}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.txt").write_text("a text\n")
    holdall.save("good.npz", ARRAYS)


def make_objects(path):
    np.savez(path, w=np.array([{1}, None], dtype=object))


def make_packed(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as packed:
        packed.writestr("w.npy", bytes(100))


def make_long_header(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy warns of version 2.0
        np.savez(path, w=np.zeros(1, [(f"field{number}", "<i4") for number in range(4000)]))


UNREAD = {
    "an array of objects": ("m.npz", make_objects, "an array of Python objects is refused"),
    "a pickle": ("m.pkl", lambda path: Path(path).write_bytes(pickle.dumps(decimal.Decimal(1))), "decimal.Decimal"),
    "a packed file": (
        "m.bin",
        lambda path: Path(path).write_bytes(bz2.compress(b"x" * 99)),
        "compressed with bzip2",
    ),
    "a packed entry": ("m.npz", make_packed, "compress"),
    "a long header": ("m.npz", make_long_header, "a header of"),
}


def run(command, file, *options):
    return CliRunner().invoke(main, [*(file if word == "FILE" else word for word in COMMANDS[command]), *options])


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("what", UNREAD)
def test_a_file_that_is_not_read_gives_3(command, what):
    name, make, said = UNREAD[what]
    make(name)
    done = run(command, name)
    assert done.exit_code == 3, done.output
    assert said in done.output and name in done.output


@pytest.mark.parametrize("command", COMMANDS)
def test_content_beyond_the_limits_gives_3(command):
    done = run(command, "good.npz", "--limit", "tensors=1")
    assert done.exit_code == 3, done.output
    assert "2 is above the limit of 1" in done.output


@pytest.mark.parametrize("command", COMMANDS)
def test_a_damaged_file_gives_1(command):
    Path("bad.npz").write_bytes(Path("good.npz").read_bytes()[:-5])
    done = run(command, "bad.npz")
    assert done.exit_code == 1, done.output
    assert "the file may be cut short" in done.output


def test_what_a_target_cannot_hold_gives_1():
    holdall.save("b.safetensors", {"w": np.zeros(2, np.float32)})
    assert CliRunner().invoke(main, ["convert", "b.safetensors", "b.npz", "--cast", "bf16"]).exit_code == 1
    assert CliRunner().invoke(main, ["edit", "good.npz", "--rename", "w=../w"]).exit_code == 1
    assert CliRunner().invoke(main, ["ls", "good.npz", "none"]).exit_code == 1


def test_repair_calls_no_file_damaged_that_it_cannot_read():
    Path("m.pkl").write_bytes(pickle.dumps(decimal.Decimal(1)))
    done = CliRunner().invoke(main, ["repair", "m.pkl", "--from", "good.npz"])
    assert done.exit_code == 3 and "m.pkl: cannot be read, nor repaired: " in done.output
    Path("bad.npz").write_bytes(Path("good.npz").read_bytes()[:-5])
    done = CliRunner().invoke(main, ["repair", "bad.npz", "--from", "good.npz"])
    assert done.exit_code == 1 and "bad.npz: too damaged to be repaired: " in done.output


def test_errors_say_so_in_python():
    make_objects("m.npz")
    with pytest.raises(FormatError) as caught:
        holdall.open("m.npz")
    assert caught.value.unread and caught.value.rule == "npz.npy.object"
    assert pickle.loads(pickle.dumps(caught.value)).unread
    make_long_header("l.npz")
    with pytest.raises(UnsupportedError) as long:
        holdall.open("l.npz")
    assert long.value.unread
    with pytest.raises(LimitError) as limit:
        holdall.open("good.npz", limits=holdall.Limits(tensors=1))
    assert limit.value.unread
    with pytest.raises(UnsupportedError) as asked:
        holdall.convert("good.npz", "a.npz", cast=["nothing"])
    assert not asked.value.unread


@pytest.mark.parametrize("level", ["structure", "full"])
def test_a_report_of_a_file_that_is_read_in_part_says_what_was_checked(level, tmp_path):
    """One array of two is of Python objects: the other is checked, and the report says so."""
    np.savez(tmp_path / "some.npz", w=np.zeros(2), o=np.array([object()], object))
    (tmp_path / "model.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    with zipfile.ZipFile(tmp_path / "packed.npz", "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("w.npy", bytes(100))
    values = "without their values" if level == "structure" else "and their bytes at level full"
    expected = {
        "some.npz": (f"1 tensor, {values}", "what the findings called unread are about"),
        "model.h5": ("what kind of file it is", "its content"),
        "packed.npz": ("that it is npz, and what comes before the finding", "all tensors, and their values"),
    }
    for name, (checked, unchecked) in expected.items():
        report = holdall.verify(tmp_path / name, level=level)
        assert (report.verdict, report.checked, report.unchecked) == ("not read", checked, unchecked)
        shown = CliRunner().invoke(main, ["verify", str(tmp_path / name), "--level", level]).output.splitlines()
        assert [line.split(None, 1)[0] for line in shown[-2:]] == ["checked", "not"]
        assert shown[-2].endswith(checked) and shown[-1].endswith(unchecked)
    np.savez(tmp_path / "all.npz", w=np.zeros(2))
    assert (holdall.verify(tmp_path / "all.npz").checked, holdall.verify(b"OINF" + bytes(68)).unchecked) == ("", "")
