"""formats, from-dataclass, demo, completion."""

from __future__ import annotations

import json

import pytest

import holdall
from holdall.format import registry


def test_in_a_working_folder_that_was_removed_errors_have_names(cli, tmp_path, monkeypatch):
    holdall.save(tmp_path / "a.oinf", {"w": [1.0]})
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for arguments, name in (
        (["convert", tmp_path / "a.oinf", "x.gguf"], "x.gguf"),
        (["extract", tmp_path / "a.oinf", "w", "-o", "x.npy"], "x.npy"),
        (["convert", "x.gguf", tmp_path / "b.oinf"], "x.gguf"),
        (["info", "x.gguf"], "x.gguf"),
    ):
        done = cli(*arguments)
        assert done.exit_code != 0
        assert done.stderr == f"holdall: {name}: No such file or directory\n"


def test_formats_lists_all(cli):
    shown = cli("formats")
    assert shown.exit_code == 0
    assert [line.split()[0] for line in shown.output.splitlines()[1:]] == registry.names()
    rows = [json.loads(line) for line in cli("formats", "--json").output.splitlines()]
    assert [row["name"] for row in rows] == registry.names()


def test_one_format_with_its_options(cli):
    shown = cli("formats", "oinf").output
    assert "t2 t1 bool" in shown
    assert "auto 1 2" in shown
    facts = json.loads(cli("formats", "oinf", "--json").output)
    assert facts["writes"] is True
    assert {option["name"] for option in facts["options"]} >= {"version", "sort"}
    assert cli("formats", "nonsense").exit_code == 2


MODULE = """
from dataclasses import dataclass, field
import numpy as np

@dataclass
class Mlp:
    width: int
    mode: str = "fast"
    w: np.ndarray = field(default_factory=lambda: np.ones((2, 3), np.float32))

small = Mlp(4)
number = 7

@dataclass
class Broken:
    def __post_init__(self):
        raise RuntimeError("no")
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    name = f"definitions_{tmp_path.name}"  # imported once a name
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    return name


@pytest.mark.shows("O50")
def test_an_instance_becomes_a_file(cli, module):
    shown = cli("from-dataclass", f"{module}:small", "out.oinf")
    assert (shown.exit_code, shown.output) == (0, "out.oinf: 1 tensor\n")
    with holdall.open("out.oinf") as model:
        assert dict(model.sizevars) == {"width": 4}
        assert model.metadata["mode"] == "fast"
        assert model["w"].shape == (2, 3)


def test_json_fills_a_class_and_overrides_an_instance(cli, module, tmp_path):
    (tmp_path / "values.json").write_text('{"width": 9, "mode": "slow"}')
    for target in ("Mlp", "small"):
        assert cli("from-dataclass", f"{module}:{target}", "out.oinf", "--json", "values.json").exit_code == 0
        with holdall.open("out.oinf") as model:
            assert (model.sizevars["width"], model.metadata["mode"]) == (9, "slow")


@pytest.mark.parametrize(
    ("target", "values", "code", "message"),
    [
        ("{}", None, 2, "is not MODULE:OBJECT"),
        ("{}:nothing", None, 2, "has no nothing"),
        ("no_such_module:x", None, 2, "cannot import no_such_module"),
        ("{}:number", None, 2, "is not a dataclass"),
        ("{}:Mlp", None, 1, "cannot be made"),
        ("{}:Broken", None, 1, "RuntimeError: no"),
        ("{}:small", '{"depth": 1}', 1, "has no field 'depth'"),
        ("{}:small", '{"width": "abc"}', 1, "values.json: oinf: field 'width': 'abc' is text, its annotation int"),
        ("{}:small", '{"width": 1.5}', 1, "values.json: oinf: sizevar 'width': 1.5 is not an integer"),
        ("{}:small", '{"w": "abc"}', 1, "values.json: oinf: tensor 'w': "),
        ("{}:small", '{"w": [[1], [2, 3]]}', 1, "values.json: oinf: tensor 'w': a ragged list is no array"),
        ("{}:small", "[1]", 1, "not a JSON object"),
        ("{}:small", "{", 1, "is not JSON"),
        ("{}:small", "[" * 100_000, 1, "is not JSON"),
    ],
)
def test_what_cannot_be_made(cli, module, tmp_path, target, values, code, message):
    arguments = [target.format(module), "out.oinf"]
    if values is not None:
        (tmp_path / "values.json").write_text(values)
        arguments += ["--json", "values.json"]
    shown = cli("from-dataclass", *arguments)
    assert shown.exit_code == code
    assert message in shown.stderr
    assert not (tmp_path / "out.oinf").exists()


def test_lists_of_json_become_the_arrays_that_fields_are(cli, module, tmp_path):
    (tmp_path / "values.json").write_text('{"w": [[1, 2], [3, 4]]}')
    shown = cli("from-dataclass", f"{module}:small", "out.oinf", "--json", "values.json")
    assert (shown.exit_code, shown.output) == (0, "out.oinf: 1 tensor\n")
    with holdall.open("out.oinf") as model:
        assert model["w"].numpy().tolist() == [[1, 2], [3, 4]]
        assert "w" not in model.metadata


@pytest.mark.parametrize("name", ["mlp.safetensors", "mlp.bin", "mlp"])
def test_a_dataclass_becomes_no_other_format(cli, module, tmp_path, name):
    shown = cli("from-dataclass", f"{module}:small", name)
    assert shown.exit_code == 2
    assert f"{name!r} does not end in .oinf" in shown.stderr
    assert not (tmp_path / name).exists()


def test_demo_is_fine_and_keeps_its_files(cli, tmp_path):
    shown = cli("demo", tmp_path / "out")
    assert shown.exit_code == 0, shown.output
    assert (tmp_path / "out" / "demo-oinf.oinf").is_file()
    *rows, pairs = [json.loads(line) for line in cli("demo", "--json").output.splitlines()]
    assert {row["format"] for row in rows} <= set(registry.names())
    assert rows[0]["identical"] is True
    assert pairs["conversions"]["wrong"] == []
    assert pairs["conversions"]["exact"] > 0


def test_demo_fails_when_something_changed(cli, monkeypatch):
    monkeypatch.setattr(
        "holdall.operations.demo._find_difference", lambda wrote, back, read: "tensor w: its bytes changed"
    )
    shown = cli("demo")
    assert shown.exit_code == 1
    assert "WRONG: tensor w: its bytes changed" in shown.output


@pytest.mark.parametrize(("shell", "sign"), [("bash", "COMP_WORDS"), ("zsh", "#compdef holdall"), ("fish", "function")])
def test_completion_scripts(cli, tmp_path, shell, sign):
    shown = cli("completion", shell)
    assert shown.exit_code == 0
    assert sign in shown.output
    assert "_HOLDALL_COMPLETE" in shown.output
    home = {"HOME": str(tmp_path), "XDG_DATA_HOME": "", "XDG_CONFIG_HOME": ""}
    assert cli("completion", shell, "--install", env=home).exit_code == 0
    (written,) = [path for path in tmp_path.rglob("*holdall*") if path.is_file()]
    assert written.read_text() == shown.output


def test_completion_asks_for_the_shell(cli):
    assert cli("completion", env={"SHELL": "/bin/tcsh"}).exit_code == 2
    assert cli("completion", env={"SHELL": "/bin/zsh"}).exit_code == 0


@pytest.mark.parametrize(
    ("words", "number", "expected"),
    [
        ("holdall ver", 1, ["plain,verify"]),
        ("holdall info --format oi", 3, ["plain,oinf"]),
        ("holdall formats oi", 2, ["plain,oinf"]),
        ("holdall ls --sort si", 3, ["plain,size"]),
        ("holdall info mod", 2, ["file,mod"]),
    ],
)
def test_completion_answers(cli, words, number, expected):
    shown = cli(env={"_HOLDALL_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(number)})
    assert shown.output.split() == expected
