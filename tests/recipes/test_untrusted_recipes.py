"""Recipes that someone else wrote: what would crash, hang or fill the memory is a sentence with file, line, column."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import holdall
from holdall import recipes
from holdall.cli import main
from holdall.errors import ContentError
from holdall.recipes.patterns import Pattern
from holdall.recipes.toml_places import read_toml
from holdall.testing.isolation import cost_of

SECONDS, BYTES = 3, 200 << 20
HEAD = """family = "Mean"
from.formats = ["hf"]
from.match = { model_type = "mean" }
to.formats = ["gguf"]
to.match = { "general.architecture" = "mean" }
"""
ROW = 'tensors = [{ from = "w", to = "w"'
LINE = 'tensors = [{ from = "w", to = "w" }]\n'
DEEP = "+".join(["1"] * 300)
# A list of ten in a list of ten, and so on: each level has ten times the items of the one before.
LISTS = "".join(f'let.a{n} = "[{", ".join([f"a{n - 1}"] * 10)}]"\n' for n in range(1, 60))

# What stands in a recipe, the line and column of the mistake, and its message.
MISTAKES = [
    (f'{LINE}shapes."w" = "layers"', 7, 1, "the shape of w is 2, not a list of numbers"),
    (f'{LINE}shapes."w" = "true"', 7, 1, "the shape of w is True, not a list of numbers"),
    (f'{LINE}shapes."w" = "0"', 7, 1, "the shape of w is 0, not a list of numbers"),
    (f'{LINE}shapes."w" = "[\'a\', 3]"', 7, 1, "the shape of w is ['a', 3], not a list of numbers"),
    (f'{LINE}let.a = "{DEEP}"', 7, 1, "has more than 40 parts in each other"),
    (f'{LINE}let.a = "{"not " * 200}1"', 7, 1, "has more than 40 parts in each other"),
    (f'{LINE}let.a = "x{".a" * 90}"', 7, 1, "has more than 40 parts in each other"),
    (f'{ROW}, do = "cast([1])" }}]', 6, 36, "there is no dtype [1] to cast to"),
    (f'{ROW}, do = "add(0x{"f" * 600})" }}]', 6, 36, "a value is a text of Unicode, a number up to"),
    (f'{ROW}, do = "add(1e300)" }}]', 6, 36, "the constant is 1e+300, which f32 does not hold"),
    (f'{ROW}, do = "permute([{"1," * 450}1])" }}]', 6, 36, "an expression of 1353 characters"),
    (f"{LINE}let.a = \"file('config.json', 4)\"", 7, 1, "the key is 4, not a text"),
    (f'{LINE}let.a = "has(3)"', 7, 1, "the name of a tensor is 3, not a text"),
    (f'{LINE}let.a = "count([])"', 7, 1, "the pattern is [], not a text"),
    (f'{LINE}let.a = "len(3)"', 7, 1, "'len(3)' has no value: "),
    (f'{LINE}let.a = "cycle([1], 99999)"', 7, 1, "cycle takes a list and a number up to 4096"),
    (f'{LINE}let.a0 = "1"\n{LISTS}', 11, 1, "a list has more than 4096 items"),
    ('tensors = [{ from = "w.{e}", to = "w", do = "unstack" }]', 6, 12, "stack joins what a placeholder of from"),
    ('tensors = [{ from = "w", to = "w.{e}", do = "stack" }]', 6, 12, "stack joins what a placeholder of from"),
    ('tensors = [{ from = ["w", "v"], to = "w", do = ["duplicate", "concatenate(0,[4,8])"] }]', 6, 12, "duplicate is"),
    ('tensors = [{ from = "w", to = "w", do = ["stack", "unstack"] }]', 6, 12, "stack and unstack join or part"),
    (f'{LINE}values = [{{ from = "a", back = "3j" }}]', 7, 25, "'3j' states complex 3j: a value is a text of Unicode"),
    (f"{LINE}values = [{{ from = \"a\", back = \"b'x'\" }}]", 7, 25, "states bytes b'x'"),
    (f'{LINE}values = [{{ from = "a", back = "..." }}]', 7, 25, "states ellipsis ..."),
    (f"{LINE}values = [{{ from = \"a\", back = '''\"\\ud800\"''' }}]", 7, 25, "states str '\\ud800'"),
    (f'{LINE}values = [{{ from = "a", back = "1e999" }}]', 7, 25, "states float 1e309"),
    (f'{LINE}values = [{{ from = "a", default = 1979-05-27 }}]', 7, 25, "a default is a text, a number, true or false"),
    (f'{LINE}values = [{{ from = "a", to = "a", kind = "u3" }}]', 7, 35, "there is no kind 'u3'; there are: bool"),
    (f'{LINE}values = [{{ from = "{"a." * 200}a", to = "a" }}]', 7, 11, "a key leads through at most 16 tables"),
    (f'{LINE}{"a." * 400}a = 1', 7, 1, "a line has at most 256 dots"),
    ('tensors = [{ from = "' + "{*}e" * 10 + '", do = "drop" }]', 6, 14, "{*} stands for any text, and at most once"),
    ('tensors = [{ from = "' + "<e|ee>" * 30 + '", to = "w" }]', 6, 14, "make more than 64 names"),
    ('tensors = [{ from = "{a}{b}{c}", to = "{a}{b}{c}" }]', 6, 14, "a number is followed by a digit or another one"),
    ('tensors = [{ from = "{a}<|0>", to = "{a}" }]', 6, 14, "a number is followed by a digit or another one"),
    (f'{LINE}by_way_of = ["nothing"]', 7, 14, "there is no recipe 'nothing'"),
]  # fmt: skip


def write_source(folder: Path) -> Path:
    holdall.save(folder, {"w": np.ones((12, 2), np.float32), "v": np.ones((12, 2), np.float32)}, format="hf")
    (folder / "config.json").write_text(json.dumps({"model_type": "mean", "layers": 2}))
    return folder


@pytest.mark.parametrize(("text", "line", "column", "message"), MISTAKES, ids=[row[3] for row in MISTAKES])
def test_a_mistake_is_a_sentence_with_its_place_and_nothing_is_written(
    text: str, line: int, column: int, message: str, tmp_path: Path
) -> None:
    source, recipe = write_source(tmp_path / "source"), tmp_path / "mean.toml"
    recipe.write_text(HEAD + text)
    command = ["convert", str(source), str(tmp_path / "m.gguf"), "--recipe", str(recipe)]
    cost = cost_of(lambda: CliRunner().invoke(main, command))
    done = CliRunner().invoke(main, command)
    assert done.exit_code in (1, 2) and isinstance(done.exception, SystemExit), done.exception
    assert re.search(rf"mean.toml, line {line}, column {column}: .*{re.escape(message)}", done.stderr), done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "m.gguf").exists()
    assert cost.seconds < SECONDS and cost.peak_bytes < BYTES


MATCHES = ["1979-05-27", "[]", "[[1]]", "{ a = 1 }", "nan", "inf", "12:00:00"]


@pytest.mark.parametrize("wanted", MATCHES)
def test_a_match_is_of_plain_values(wanted: str) -> None:
    text = HEAD.replace('{ model_type = "mean" }', f"{{ model_type = {wanted} }}") + LINE
    with pytest.raises(ContentError, match=r"mean.toml, line 3, column 16: model_type is a text, a number, true or"):
        recipes.parse("mean.toml", text.encode())


def test_a_mistake_that_only_the_way_back_shows_has_its_place(tmp_path: Path) -> None:
    (tmp_path / "mean.toml").write_text(f'{HEAD}{LINE}values = [{{ from = "a", back = "shape(\'w\')[9]" }}]')
    holdall.save(tmp_path / "m.gguf", {"w": np.ones(2, np.float32)}, metadata={"general.architecture": "mean"})
    with pytest.raises(ContentError, match=r"mean.toml, line 7, column 25: .*has no value: list index out of range"):
        holdall.convert(tmp_path / "m.gguf", tmp_path / "back", format="hf", recipe=str(tmp_path / "mean.toml"))


@pytest.mark.parametrize("text", ["a{n}.b<x|y>.{m}", "<transformer.|>h.{n}.w", "{*}.w", "<a|b><c|d><e|f>.{n+1}"])
def test_the_time_to_match_is_in_proportion_to_the_name(text: str) -> None:
    pattern = Pattern(text)
    for name in ("a" * 60, "0" * 5000, "a" * 100_000, "1." * 5000, "acac" * 9999):
        assert cost_of(lambda name=name: pattern.match(name)).seconds < SECONDS


def test_an_architecture_that_is_an_array_is_none_that_a_recipe_knows(tmp_path: Path) -> None:
    for value in ([1, 2, 3], [1.5], ["llama"], [True]):
        holdall.save(tmp_path / "m.gguf", {"w": np.ones(2, np.float32)}, metadata={"general.architecture": value})
        with holdall.open(tmp_path / "m.gguf") as model:
            assert recipes.choose(model, "hf") is None
        done = CliRunner().invoke(main, ["convert", str(tmp_path / "m.gguf"), str(tmp_path / "m.mcf")])
        assert done.exit_code == 0, done.output
        done = CliRunner().invoke(main, ["convert", str(tmp_path / "m.gguf"), str(tmp_path / "back"), "--format", "hf"])
        assert done.exit_code in (0, 1) and "should not happen" not in done.output, done.output
        (tmp_path / "m.gguf").unlink(), (tmp_path / "m.mcf").unlink()


def test_a_matrix_without_dimensions_has_no_heads(tmp_path: Path) -> None:
    from tests.recipes.test_bad_input import ARRAYS, refuse, write_folder

    scalar = {"model.layers.0.self_attn.q_proj.weight": np.ones((), np.float32)}
    said = refuse(write_folder(tmp_path / "folder", ARRAYS | scalar), tmp_path / "m.gguf")
    assert "q_proj.weight' f32[] has no 2 heads of 2 equal parts in its first dimension" in said


def test_an_integer_of_too_many_digits_is_refused() -> None:
    with pytest.raises(ContentError, match=r"a\.toml: has a value that cannot be held: Exceeds the limit"):
        read_toml("a.toml", f"x = {'9' * 120_000}")
