"""What people type who have read only the README, and what the command answers."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

import holdall
from holdall.testing import run_isolated
from tests.golden import golden
from tests.survival import shelf

CUT = {  # formats that say how long a file is, before its end; of an MCF file the index is at the end
    **dict.fromkeys(("oinf", "safetensors", "gguf", "aero", "gptrs-checkpoint", "gptrs-archive"), True),
    **dict.fromkeys(("mcf", "embd"), False),
}


# -- files that are not what they should be ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", CUT)
def test_info_says_what_is_left_of_a_cut_file(cli, tmp_path, name):
    path = shelf.put(tmp_path, name)
    whole = path.stat().st_size
    os.truncate(path, whole // 2)
    shown = cli("info", path)
    assert shown.exit_code == 1
    assert shown.stderr == ""
    assert f"{whole // 2:,} of {whole:,} bytes are here; the first missing one is at {whole // 2:#x}" in shown.stdout
    assert name in shown.stdout
    facts = json.loads(cli("info", path, "--json").stdout)
    assert facts["format"] == name
    assert facts["size"] == facts["cut"]["size"] == whole // 2
    assert facts["cut"]["needs"] == whole
    if CUT[name]:
        assert 4 <= facts["cut"]["whole_tensors"] <= 6
        assert facts["tensors"] == 12
        assert f"{facts['cut']['whole_tensors']} of 12 tensors" in shown.stdout


@pytest.mark.parametrize("name", ["torch", "npz", "onnx"])
def test_info_of_other_cut_files_shows_format_size_and_what_is_wrong(cli, tmp_path, name):
    path = shelf.put(tmp_path, name)
    os.truncate(path, path.stat().st_size // 2)
    shown = cli("info", path)
    assert shown.exit_code == 1
    assert f"format  {name}" in " ".join(shown.stdout.split()).replace("format ", "format  ")
    assert "1 error" in shown.stdout


def test_a_hostile_length_costs_nothing(tmp_path):
    """info of a bad file prints a sentence or a screen in little memory, whatever sizes the file states."""
    from click.testing import CliRunner

    from holdall.cli import main

    files = sorted(file for file in golden("oinf").parent.glob("*/bad/*") if file.is_file())
    assert len(files) > 100

    def look():
        return [(CliRunner().invoke(main, ["info", str(file)]).output, str(file)) for file in files]

    for output, file in run_isolated(look, memory=1 << 30):
        assert "should not happen" not in output, file
        assert "not enough memory" not in output, file


@pytest.mark.parametrize("suffix", [".pt", ".onnx", ".safetensors", ".gguf", ".oinf", ".npz", ".mcf", ".txt"])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"hello world, this is no model\n", "is text, which begins with 'hello world"),
        (b"<!DOCTYPE html><html><body>404</body></html>", "is an HTML page: the download may have failed"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 3\n", "is a Git LFS pointer"),
        (b"\x1f\x8b\x08\0\0\0\0\0\0\x03" + bytes(100), "is compressed with gzip"),
        (bytes(5000), "begins with zeros only"),
        (b"", "is an empty file"),
    ],
    ids=["text", "page", "pointer", "gzip", "zeros", "empty"],
)
def test_a_file_is_called_by_its_kind(cli, tmp_path, suffix, content, words):
    path = tmp_path / f"my model{suffix}"
    path.write_bytes(content)
    for name in ("info", "ls"):
        shown = cli(name, path)
        assert (shown.exit_code, shown.stdout) == (3 if words.startswith(("is text", "is compressed")) else 1, "")
        (line,) = shown.stderr.splitlines()
        assert line.startswith(f"holdall: {path}: {words}"), line


# -- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("typed", "meant"), [("inof", "info"), ("verfy", "verify"), ("quantise", "quantize")])
def test_a_misspelt_command(cli, typed, meant):
    shown = cli(typed, "x")
    assert shown.exit_code == 2
    assert f"there is no command '{typed}'. Did you mean '{meant}'?" in shown.stderr
    assert "Did you mean" not in cli("frobnicate").stderr


def test_a_misspelt_tensor(cli, model_path):
    shown = cli("extract", model_path, "layers.0.v")
    assert shown.exit_code == 1
    assert "there is no tensor 'layers.0.v' among the 5. Did you mean 'layers.0." in shown.stderr
    shown = cli("ls", model_path, "layers.0.v")
    assert shown.exit_code == 1
    assert "no tensor matches 'layers.0.v'. Did you mean 'layers.0." in shown.stderr
    assert "Did you mean" not in cli("ls", model_path, "layers.0.v*").stderr


def test_a_misspelt_format(cli, model_path):
    for line in (["info", model_path, "--format", "safetensor"], ["formats", "safetensor"]):
        shown = cli(*line)
        assert shown.exit_code == 2
        assert "Did you mean 'safetensors'?" in shown.stderr


def test_long_names_are_cut_for_people_and_whole_for_programs(cli, tmp_path):
    path, name = tmp_path / "long.safetensors", "n" * 5000
    holdall.save(path, {name: np.ones((2, 2), np.float32), "b": np.ones(3, np.float32)})
    for line in (["ls"], ["ls", "--long"], ["ls", "--tree"], ["info"], ["diff", path]):
        assert max(map(len, cli(*line, path).stdout.splitlines())) < 250, line
    assert [json.loads(line)["name"] for line in cli("ls", path, "--json").stdout.splitlines()] == ["b", name]
    shown = cli("extract", path, "x" * 5000)
    assert len(shown.stderr) < 600
    holdall.save(tmp_path / "other.safetensors", {name: np.zeros((2, 2), np.float32)})
    assert max(map(len, cli("diff", path, tmp_path / "other.safetensors").stdout.splitlines())) < 400


# -- wrong usage is 2, and is found before any work -------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        ["--rule", "nonsense"],
        ["--rule", "x*=k9"],
        ["--report", "report.txt"],
        ["--report", "nowhere/report.html"],
        ["--clip", "3", "1"],
        ["--clip", "nan", "1"],
        ["--clip", "1", "inf"],
        ["-o", "nosuch=1"],
    ],
)
def test_quantize_refuses_before_it_works(cli, model_path, tmp_path, options):
    shown = cli("quantize", model_path, tmp_path / "out.mcf", *options)
    assert shown.exit_code == 2, shown.output
    assert shown.stdout == ""
    assert not (tmp_path / "out.mcf").exists()


def test_other_reports_are_refused_before_the_work_too(cli, model_path, tmp_path, monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError("worked")

    monkeypatch.setattr("holdall.source.FileSource.__init__", refuse)
    assert cli("quantize", model_path, tmp_path / "out.xyz").exit_code == 2
    assert cli("diff", model_path, model_path, "--report", "nowhere/x.html").exit_code == 2
    assert cli("diff", model_path, model_path, "--report", "x.pdf").exit_code == 2
    assert cli("embed", model_path, "text", "-o", "nowhere/x.npy").exit_code == 2
    assert cli("embed", model_path, "text", "-o", "x.txt").exit_code == 2


# -- errors name the file ---------------------------------------------------------------------------------------------


def test_every_error_names_the_file_it_is_about(cli, model_path, broken_path, tmp_path):
    aero = tmp_path / "good.aero"
    holdall.save(aero, {"w": np.ones((8, 8), np.float32)}, page_hash=True)
    lines = {
        ("repair", aero, "--from", model_path): model_path,
        ("repair", model_path, "--from", model_path): model_path,
        ("repair", aero, "--from", tmp_path / "none.aero"): tmp_path / "none.aero",
        ("convert", model_path, tmp_path / "x.oinf", "--rename", "s/layers.*/same/"): tmp_path / "x.oinf",
        ("convert", model_path, broken_path, tmp_path / "x.oinf"): broken_path,
        ("edit", model_path, "--rename", "nope=x"): model_path,
        ("edit", model_path, "--unset", "nope"): model_path,
        ("edit", broken_path, "--set", "a=b"): broken_path,
        ("diff", model_path, broken_path): broken_path,
        ("quantize", broken_path, tmp_path / "x.mcf"): broken_path,
        ("extract", model_path, "nope"): model_path,
        ("embed", model_path, "text"): model_path,
    }
    for line, path in lines.items():
        shown = cli(*line)
        assert shown.exit_code == 1, line
        (said,) = shown.stderr.splitlines()
        assert said.startswith(f"holdall: {path}: "), (line, said)


def test_no_permission_to_write(cli, model_path, tmp_path, monkeypatch):
    honest = os.open

    def refuse(path, flags, *arguments, **options):  # root would be let in
        if flags & (os.O_WRONLY | os.O_RDWR):
            raise PermissionError(13, "Permission denied", path)
        return honest(path, flags, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    for line in (
        ["convert", model_path, tmp_path / "no.oinf"],
        ["extract", model_path, "wide", "-o", tmp_path / "no.npy"],
    ):
        shown = cli(*line)
        assert shown.exit_code == 1
        (said,) = shown.stderr.splitlines()
        assert "Permission denied" in said
        assert "no." in said


# -- answers that were missing ----------------------------------------------------------------------------------------


def test_diff_shows_what_is_wild_and_no_empty_column(cli, tmp_path):
    values = np.arange(12, dtype=np.float32)
    holdall.save(tmp_path / "a.oinf", {"w": values, "v": values})
    values = values.copy()
    values[3] = np.nan
    holdall.save(tmp_path / "b.oinf", {"w": values, "v": values + 1})
    head, first, _ = cli("diff", tmp_path / "a.oinf", tmp_path / "b.oinf").stdout.splitlines()[1:]
    assert head.split() == ["tensor", "verdict", "different", "wild", "max", "rmse", "snr", "dB", "cosine"]
    assert first.split()[:4] == ["v", "different", "12", "1"]
    head, *_ = cli("diff", tmp_path / "a.oinf", tmp_path / "b.oinf", "--quick").stdout.splitlines()[1:]
    assert head.split() == ["tensor", "verdict"]


def test_a_pattern_that_meets_nothing_is_named(cli, tmp_path):
    model_path = tmp_path / "model.npz"
    np.savez(model_path, **{"layers.0.w": np.ones((4, 6), np.float32), "b": np.ones(3, np.float32)})
    line = ["quantize", model_path, tmp_path / "q.mcf", "--method", "q8", "--rule", "zzz*=q4", "--exclude", "yyy"]
    line += ["--rule", "layers.0.w=q8"]  # too small to be chosen without
    shown = cli(*line)
    assert shown.exit_code == 0
    assert shown.stderr.splitlines() == [
        "holdall: --rule 'zzz*' matches no tensor",
        "holdall: --exclude 'yyy' matches no tensor",
    ]
    assert json.loads(cli(*line, "--json").stdout)["idle"] == [
        "--rule 'zzz*' matches no tensor",
        "--exclude 'yyy' matches no tensor",
    ]


def test_files_that_no_conversion_takes_along_are_listed(cli, tmp_path):
    folder = tmp_path / "hf"
    holdall.save(folder, {"w": np.ones((4, 4), np.float32)}, format="hf")
    (folder / "config.json").write_text("{}")
    for name in ("pytorch_model.bin", ".hidden", "a/b/deep.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    shown = cli("convert", folder, tmp_path / "x.oinf", "--carry")
    assert "left behind, no part of the model: .hidden, a/b/deep.txt, pytorch_model.bin" in shown.stdout
    back = cli("restore", tmp_path / "x.oinf", tmp_path / "back")
    assert "byte for byte the original: the hashes of all its tensors agree" in back.stdout
    assert (tmp_path / "back" / "config.json").read_text() == "{}"


def test_a_format_that_is_not_allowed_is_named(cli, model_path):
    shown = cli("info", model_path, "--allow", "mcf", "--allow", "gguf")
    assert shown.exit_code == 1
    assert f"{model_path}: is oinf: none of the formats mcf, gguf" in shown.stderr


def test_convert_without_a_target_or_into_nothing_is_wrong_usage(cli, model_path, tmp_path):
    shown = cli("convert", model_path)
    assert shown.exit_code == 2
    assert "Give a source and a target." in shown.stderr
    assert cli("convert", model_path, tmp_path / "x.oinf", "--split", "0").exit_code == 2


# -- the option that helps --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["convert", "quantize"])
@pytest.mark.parametrize(
    ("target", "hint"),
    [
        ("x.bin", "(--format gptrs-checkpoint or --format torch)"),
        ("folder", "(--format hf for a folder)"),
        ("new/", "(--format hf for a folder)"),
        ("x.foo", "(--format NAME)"),
    ],
)
def test_a_target_of_no_format_says_which_option_helps(cli, model_path, tmp_path, monkeypatch, name, target, hint):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    shown = cli(name, model_path, target)
    assert shown.exit_code == 2
    assert hint in shown.stderr
