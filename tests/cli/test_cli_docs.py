"""docs/command-line.md shows what the commands print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import holdall
from holdall import registry
from holdall.cli import COMMANDS
from holdall.demo import demo_model, fit

PAGE = (Path(__file__).resolve().parent.parent.parent / "docs" / "command-line.md").read_text()
EXAMPLES = re.findall(r"```console\n\$ holdall (.*?)\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    holdall.save("model.oinf", fit(demo_model(), registry.find("oinf"))[0])
    data = Path("model.oinf").read_bytes()
    Path("cut.oinf").write_bytes(data[: len(data) // 2])
    Path("mlp.py").write_text(re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1])
    Path("values.json").write_text('{"width": 4}')


@pytest.mark.parametrize(("line", "expected"), EXAMPLES, ids=[line for line, _ in EXAMPLES])
def test_examples_are_true(cli, there, line, expected):
    if line.startswith("demo"):
        pytest.skip("its times differ from run to run")
    shown = cli(*shlex.split(line)).output
    if expected.endswith("[...]\n"):
        assert shown.startswith(expected.removesuffix("[...]\n"))
    else:
        assert shown == expected


@pytest.mark.parametrize("name", [name for name in COMMANDS if f"](#{name})" in PAGE])
def test_every_command_of_the_table_has_a_section(name):
    assert f"\n## {name}\n" in PAGE
    assert f"$ holdall {name} " in PAGE
