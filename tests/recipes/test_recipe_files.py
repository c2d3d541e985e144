"""The grammar of recipes: what is wrong with a file is said with line and column, in one sentence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdall import recipes
from holdall.cli import main
from holdall.errors import ContentError, UnsupportedError
from holdall.recipes.expressions import evaluate
from holdall.recipes.toml_places import read_toml

PAGE = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text()
WORKED = re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)[1]


def test_the_worked_recipe_of_the_page_is_one():
    recipe = recipes.parse("tiny.toml", WORKED.encode())
    assert (recipe.name, recipe.family, recipe.counts) == ("tiny", "Tiny", {"n": "num_hidden_layers"})
    assert [call for line in recipe.tensors for call, _ in line.operations] == ["cast", "concatenate", "stack"]


def draw_families():
    """The table of families and the formats they go to, from the files."""
    found = {}
    for recipe in map(recipes.load, recipes.names()):
        for format in recipe.target.formats:
            found.setdefault(recipe.family, {}).setdefault(format, []).append(f"`{recipe.name}`")
    formats = sorted({format for cells in found.values() for format in cells})
    rows = [["family", *formats], ["---"] * (1 + len(formats))]
    rows += [[family, *(", ".join(cells.get(format, [])) for format in formats)] for family, cells in found.items()]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def test_the_page_has_the_table_of_families():
    assert draw_families() in PAGE, f"docs/recipes.md should have:\n{draw_families()}"


@pytest.mark.parametrize("name", recipes.names())
def test_every_recipe_can_be_read(name):
    recipe = recipes.load(name)
    assert recipe.family and recipe.title and recipe.tensors and recipe.needs
    assert recipe.name == name


# What is replaced in the worked recipe, by what, the text at which the error is, and its message.
ERRORS = [
    ('family = "Tiny"', "family = ", "\n", "invalid value"),
    ('family = "Tiny"', "family = 3", "family", "family is a text, not 3"),
    ('family = "Tiny"', "", "", "the key 'family' is missing"),
    ('family = "Tiny"', 'famly = "Tiny"', "famly", "there is no key 'famly' here; there are: family, title"),
    ('"stack" }', '"stak" }', 'do = "stak"', "there is no operation 'stak'; there are: permute, transpose"),
    ('"stack" }', '["stack", "permute"] }', '"permute"]', "permute(heads): interleave the two halves"),
    (', do = "stack"', "", '{ from = "layers.{n}.experts', "{e} is on one side only, which needs the operation stack"),
    ('counts.n = "num', 'counts.n = "1 + (', "counts.n", "'1 + (_hidden_layers' is no expression"),
    ("num_key_value_heads or heads", "open('x').read()", "let.kv_heads", "\"open('x').read()\": a call is a name"),
    ("num_key_value_heads or heads", "lambda: 1", "let.kv_heads", "'lambda: 1' has a part that recipes do not know"),
    ("num_key_value_heads or heads", "heads or", "let.kv_heads", "'heads or' is no expression"),
    ("embed.weight", "embed.{}.weight", 'from = "embed', "'embed.{}.weight': placeholders are different names"),
    ('"embed.weight"', '["a", "b"]', '{ from = ["a"', "several tensors become one by the operation concatenate"),
    ("optional = true", 'optional = "yes"', "optional", "optional is true or false, not 'yes'"),
    ('"tiny.block_count", kind = "u32"', '"tiny.block_count", kind = 32', "kind = 32", "kind is a text, not 32"),
    ("because", "why", "why", "there is no key 'why' here; there are: when, because"),
    ('"token_embd.weight" = "[', '"token_embd" = "[', '"token_embd"', "no line makes a tensor called 'token_embd'"),
    ('"[vocab_size, hidden_size]"', '"[vocab_size, "', '"token_embd.weight" =', "'[vocab_size, ' is no expression"),
    ('"[vocab_size, hidden_size]"', "3", '"token_embd.weight" =', "token_embd.weight is a text, not 3"),
    ('from.match = { model_type = "tiny" }', "", "from.formats", "match is a table of keys and their values"),
]


@pytest.mark.parametrize(("old", "new", "place", "message"), ERRORS, ids=[f"{new} {why}" for _, new, _, why in ERRORS])
def test_an_error_in_a_recipe_has_line_and_column(old, new, place, message):
    text = WORKED.replace(old, new, 1)
    assert text != WORKED
    before = text[: text.index(place)]
    line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    with pytest.raises(ContentError, match=re.escape(message)) as caught:
        recipes.parse("tiny.toml", text.encode())
    assert str(caught.value).startswith(f"tiny.toml, line {line}, column {column}: ")


def test_places_are_found_in_tables_arrays_and_long_strings():
    text = 'a = """x\n[b]\n""" # c = 1\n[[t]]\n"k.1" = [1, # 2\n { y = "}" }]\n[t.u]\nv = 1\n[[t]]\nw = \'\\\'\n'
    places = {path: text.count("\n", 0, at) + 1 for path, at in read_toml("x", text).places.items()}
    assert places[("t", 0, "k.1", 1, "y")] == 6
    assert places[("t", 1, "w")] == 10


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a * 2 + 1", 7),
        ("b.c[1]", "y"),
        ("x.y == null", True),
        ("6 / 3", 2),
        ("1 < a <= 3 and 'y' in b.c", True),
        ("-a", -3),
    ],
)
def test_expressions_are_those_of_python(text, value):
    assert evaluate(text, {"a": 3, "b": {"c": ["x", "y"]}}) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a + 1", "a is needed, and is not stated"),
        ("b + 1", "b is 'x', not a number"),
        ("1 // 0", "'1 // 0' has no value: "),
        ("f(1)", "there is no function 'f' here; there are: none"),
        ("99999999999 * 99999999999", "a number beyond"),
        ("9" * 1001, "an expression of 1001 characters; at most 1000"),
        ("().__class__", "has a part that recipes do not know"),
    ],
)
def test_an_expression_without_a_value_is_a_sentence(text, message):
    with pytest.raises(ContentError, match=re.escape(message)):
        evaluate(text, {"b": "x"})


def test_an_unknown_recipe_names_those_there_are():
    with pytest.raises(UnsupportedError, match=r"there is no recipe 'lama'.*llama-gguf"):
        recipes.load("lama")
    done = CliRunner().invoke(main, ["convert", "a.oinf", "b.gguf", "--recipe", "lama"])
    assert done.exit_code == 2
    assert "there is no recipe 'lama'" in done.output


def test_the_command_lists_recipes_and_shows_one():
    listed = CliRunner().invoke(main, ["recipes"]).output
    assert all(name in listed for name in recipes.names())
    shown = CliRunner().invoke(main, ["recipes", "llama-gguf"]).output
    assert "blk.{n}.attn_q.weight" in shown
    assert "permute(heads)" in shown
    assert '"name":"llama-gguf"' in CliRunner().invoke(main, ["recipes", "llama-gguf", "--json"]).output
