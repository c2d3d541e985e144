"""What the command line may load before it is asked for anything heavy."""

from __future__ import annotations

import subprocess
import sys

import pytest

import holdall
from holdall.cli import COMMANDS, SUMMARIES, main
from holdall.format.registry import BUILT_IN
from tests.cli.conftest import SRC

HEAVY = ("rich", "ml_dtypes", "msgspec", "blake3", "isal", "backports", "torch", "json", "tempfile")
HEAVY += ("importlib.metadata", "concurrent.futures", "asyncio", "email", "http", "numpy.ma", "logging")

LIST = """
import io, sys
sys.path.insert(0, {src!r})
sys.stdout = io.StringIO()
from holdall.cli import main
main({arguments!r}, standalone_mode=False)
sys.__stdout__.write(" ".join(sys.modules))
"""


def loaded(*arguments: str) -> set[str]:
    """Return the modules that a call loads in a fresh process."""
    code = LIST.format(src=str(SRC), arguments=list(arguments))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=60)
    return set(done.stdout.decode().split())


def within(modules: set[str], package: str) -> set[str]:
    return {name for name in modules if name == package or name.startswith(package + ".")}


def test_version_loads_only_the_group():
    modules = loaded("--version")
    assert within(modules, "holdall") == {"holdall", "holdall.cli", "holdall.cli.secrets"}
    for package in ("numpy", *HEAVY):
        assert not within(modules, package), package


def test_help_imports_no_command():
    modules = loaded("--help")
    assert within(modules, "holdall") == {"holdall", "holdall.cli", "holdall.cli.secrets"}
    assert not within(modules, "numpy")


def test_info_into_a_pipe_loads_little(model_path):
    modules = loaded("info", str(model_path))
    for package in HEAVY:
        assert not within(modules, package), package
    assert within(modules, "holdall.format.oinf") == {
        "holdall.format.oinf",
        *(f"holdall.format.oinf.{part}" for part in ("layout", "quant", "read", "rules", "values")),
    }
    assert not {row.module for row in BUILT_IN if row.name != "oinf"} & modules
    assert not within(modules, "holdall.format.foreign")
    ours = {name for name in modules if name.startswith("holdall.cli")}
    assert ours == {"holdall.cli", *(f"holdall.cli.{part}" for part in ("info", "options", "output", "secrets"))}


def test_info_of_a_format_without_a_magic_asks_no_other_format(model_path):
    path = model_path.with_suffix(".safetensors")
    holdall.convert(model_path, path, exclude=["layers.1.w"])
    modules = loaded("info", str(path))
    assert not {row.module for row in BUILT_IN if row.name != "safetensors"} & modules
    assert not within(modules, "holdall.operations.convert")
    assert not within(modules, "holdall.sink")


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_is_there_and_says_how_to_use_it(cli, name):
    assert name in SUMMARIES
    shown = cli(name, "--help")
    assert shown.exit_code == 0
    assert "Example" in shown.output
    assert f"holdall {name} " in shown.output.partition("Example")[2]


def test_the_tables_agree():
    assert list(COMMANDS) == list(SUMMARIES)
    assert main.list_commands(None) == list(COMMANDS)
