"""Untrusted files: every command that reads one has the options for it, and keeps to them."""

from __future__ import annotations

import mmap
import re
import sys
from pathlib import Path

import click
import numpy as np
import pytest

import holdall
from holdall import oinf
from holdall.cli import COMMANDS, main

# Commands that open no weight file.
OWN_FILES = {"formats", "from-dataclass", "demo", "completion", "recipes"}
READING = [name for name in COMMANDS if name not in OWN_FILES]


def arguments(name: str, path: Path, out: Path) -> list[object]:
    """What makes each command read ``path``."""
    return {
        "extract": [path, "w", "-o", out / "w.npy"],
        "convert": [path, out / "copy.safetensors"],
        "quantize": [path, out / "small.mcf", "--method", "q8", "--report", out / "report.json"],
        "restore": [path, out / "original.oinf"],
        "diff": [path, path],
        "edit": [path, "--set", "mode=slow", "--dry-run"],
        "repair": [path, "--from", path],
        "embed": [path, "a text"],
        "calibrate": [path, "a text"],
        "verify": [path, "--stats"],
        "view": [path, "--export", out / "page.html"],
    }.get(name, [path])


def options_of(name: str) -> set[str]:
    command = main.get_command(click.Context(main), name)
    return {option for parameter in command.params for option in parameter.opts}


@pytest.mark.parametrize("name", READING)
def test_every_reading_command_has_the_options(cli, name):
    assert {"--untrusted", "--allow", "--json"} <= options_of(name)
    shown = " ".join(cli(name, "--help").output.split())
    assert "For files you do not trust: tight limits, no memory map." in shown
    assert "Read files of this format only" in shown


def test_the_pages_say_so():
    page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text()
    assert "`--untrusted`" in page
    assert "`--allow FORMAT`" in page


@pytest.mark.shows("O60")
@pytest.mark.parametrize("name", READING)
def test_limits_are_tight(cli, tmp_path, name):
    path = tmp_path / "deep.oinf"
    dtype = holdall.Tensor.of("x", np.zeros(1, np.float32)).dtype
    holdall.save(path, [holdall.Tensor("w", dtype, (1,) * 100, None)])
    shown = cli(name, *arguments(name, path, tmp_path), "--untrusted")
    assert shown.exit_code in (1, 3)
    if name != "info":  # info counts problems, and shows the first
        assert "above the limit of 64" in shown.output


@pytest.mark.shows("O60")
@pytest.mark.parametrize("name", READING)
def test_nothing_is_mapped(cli, tmp_path, monkeypatch, name):
    path = tmp_path / "good.aero" if name == "repair" else tmp_path / "good.oinf"
    options = {"page_hash": True} if name == "repair" else {}
    holdall.save(path, {"w": np.ones((64, 64), np.float32)}, **options)

    def refuse(*arguments, **options):
        raise AssertionError("a memory map")

    monkeypatch.setattr(mmap, "mmap", refuse)
    shown = cli(name, *arguments(name, path, tmp_path), "--untrusted")
    assert "a memory map" not in shown.output
    assert not isinstance(shown.exception, AssertionError)
    refused = name in ("embed", "calibrate", "restore")  # it is no encoder, no carrier
    assert shown.exit_code == (1 if refused else 0), shown.output


@pytest.mark.parametrize("name", READING)
def test_the_code_of_other_formats_does_not_run(command, tmp_path, name):
    path = tmp_path / "model.oinf"
    holdall.save(path, {"w": np.ones((8, 8), np.float32)})
    (tmp_path / "sitecustomize.py").write_text(
        "import atexit, sys\n"
        "told = lambda: print('LOADED', 'holdall.format.oinf.read' in sys.modules, file=sys.stderr)\n"
        "atexit.register(told)\n"
    )
    extra = {"PYTHONPATH": f"{Path(holdall.__file__).parents[1]}:{tmp_path}"}
    done = command(name, *arguments(name, path, tmp_path), "--allow", "mcf", extra=extra)
    assert done.returncode == 1, done.stderr
    assert b"none of the formats mcf" in done.stdout + done.stderr
    assert b"LOADED False" in done.stderr
    assert command(name, path, "--allow", "nonsense").returncode == 2


def test_what_a_file_carries_is_under_the_allowlist_too(tmp_path):
    path = tmp_path / "carrier.safetensors"
    holdall.save(tmp_path / "original.oinf", oinf.model({"w": np.ones(4, np.float32)}, sizevars={"B": 4}))
    assert holdall.convert(tmp_path / "original.oinf", path, carry=True).skeleton_bytes
    with holdall.open(path) as model:
        assert dict(model.sizevars) == {"B": 4}
    with holdall.open(path, allowed=("safetensors",)) as model:
        assert dict(model.sizevars) == {}
        assert dict(model.replace(metadata=model.metadata).sizevars) == {}
    with holdall.open(path, allowed=("safetensors", "oinf")) as model:
        assert dict(model.sizevars) == {"B": 4}


def test_one_definition():
    """The options are defined in one place only."""
    folder = Path(sys.modules["holdall.cli"].__file__).parent
    found = [path.name for path in folder.glob("*.py") if re.search(r'"--(untrusted|allow)"', path.read_text())]
    assert found == ["options.py"]
