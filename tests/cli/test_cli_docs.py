"""docs/command-line.md shows what the commands print."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import holdall
from holdall.cli import COMMANDS
from holdall.format import registry
from holdall.model.model import Model
from holdall.model.tensor import Tensor
from holdall.operations.demo import demo_model, fit

PAGE = (Path(__file__).resolve().parent.parent.parent / "docs" / "command-line.md").read_text()
EXAMPLES = re.findall(r"```console\n\$ holdall (.*?)\n(.*?)```", PAGE, re.DOTALL)
# The times that the demo prints differ from run to run.
REPEATABLE = [(line, expected) for line, expected in EXAMPLES if not line.startswith("demo")]


@pytest.fixture
def there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    holdall.save("model.oinf", fit(demo_model(), registry.find("oinf"))[0])
    data = Path("model.oinf").read_bytes()
    Path("cut.oinf").write_bytes(data[: len(data) // 2])
    files = {"config.json": b'{"model_type": "bert"}\n', "vocab.txt": b"[PAD]\n[UNK]\nkitten\n##s\n"}
    holdall.save("folder", Model([Tensor.of("w", np.ones(2, np.float32))], assets=files), format="hf")
    Path("mlp.py").write_text(re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1])
    Path("values.json").write_text('{"width": 4}')


@pytest.mark.parametrize(("line", "expected"), REPEATABLE, ids=[line for line, _ in REPEATABLE])
def test_examples_are_true(cli, there, line, expected):
    shown = cli(*shlex.split(line)).output
    if expected.endswith("[...]\n"):
        assert shown.startswith(expected.removesuffix("[...]\n"))
    else:
        assert shown == expected


@pytest.mark.parametrize("name", [name for name in COMMANDS if f"](#{name})" in PAGE])
def test_every_command_of_the_table_has_a_section(name):
    assert f"\n## {name}\n" in PAGE
    assert f"$ holdall {name} " in PAGE


def keys_in(begin: str) -> list[str]:
    """The keys that the page lists in backticks after these words."""
    return re.search(re.escape(begin) + r"\s*`([a-z_\s]+)`", PAGE)[1].split()


@pytest.mark.parametrize(
    ("line", "begin"),
    [
        ("convert model.oinf x.safetensors --carry", "JSON keys of all three:"),
        ("diff model.oinf other.oinf", "20 tensors\n```\n\nJSON keys:"),
        ("edit model.oinf --set layers=3", "became 3\n```\n\nJSON keys:"),
        ("repair good.aero --from good.aero", "takes its place. JSON keys:"),
    ],
)
def test_the_keys_of_json_are_those_listed(cli, there, line, begin):
    holdall.save("other.oinf", {"embed.positions": np.ones((128, 64), np.float16)})
    holdall.save("good.aero", {"w": np.ones((8, 8), np.float32)}, page_hash=True)
    assert list(json.loads(cli(*shlex.split(line), "--json").stdout)) == keys_in(begin)


def test_the_keys_of_tensors_that_differ_are_those_listed(cli, there):
    holdall.save("other.oinf", {"embed.positions": np.ones((128, 64), np.float16)})
    facts = json.loads(cli("diff", "model.oinf", "other.oinf", "--json").stdout)
    (found,) = [tensor for tensor in facts["tensors"] if tensor["name"] == "embed.positions"]
    assert list(found) == [*keys_in("A tensor that differs has"), "distance"]
    assert list(found["distance"]) == keys_in("`distance` with")
