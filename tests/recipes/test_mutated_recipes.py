"""Recipes with parts exchanged, left out and put in: each is applied, or refused in a sentence."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

import holdall
from holdall import recipes
from holdall.errors import HoldallError
from holdall.model.model import Model
from holdall.testing.isolation import cost_of
from tests.recipes.test_recipe_operations import RECIPE, make_arrays

SECONDS = 10  # of one recipe
COUNT = 150  # mutations of each seed
FOLDER = Path(recipes.__file__).parent
TEXTS = [path.read_text() for path in sorted(FOLDER.glob("*.toml"))] + [RECIPE] * 8
PARTS = [
    "null",
    "-1",
    "0",
    "1e999",
    "nan",
    "[]",
    "{}",
    '""',
    "1979-05-27",
    "true",
    "[[1]]",
    "{*}",
    "<a|>",
    "{n}",
    "{e}",
    "x.y",
    "shape('a')",
    "cycle([1], 3)",
    "\\",
    "0xfff",
    "9" * 30,
    "h.{n}.w",
    "len(",
]
CALLS = [
    "transpose",
    "permute(2)",
    "reshape([6, 4], [4, 6])",
    "cast('f16')",
    "cast('i8')",
    "add(1)",
    "concatenate(0)",
    "split(0, [1, 1])",
    "roll(0, 1)",
    "roll(null, 1)",
    "stack",
    "unstack",
    "fold_norm(2)",
    "duplicate",
    "drop",
]
WORDS = r"\"[^\"\n]*\"|[A-Za-z_.]+|[0-9.]+"


def mutate(text: str, chance: random.Random) -> str:
    """Change one thing to six."""
    for _ in range(chance.choice([1, 1, 1, 2, 3, 6])):
        kind, lines = chance.randrange(4), text.split("\n")
        if kind == 0:  # a line moves, twice over
            lines.insert(chance.randrange(len(lines)), chance.choice(chance.choice(TEXTS).split("\n")))
            text = "\n".join(lines)
        elif kind == 1:  # operations
            calls = json.dumps(chance.choices(CALLS, k=chance.choice([1, 2, 3])))
            text = _replace_one(text, r"do = (\"[^\"\n]*\"|\[[^\]]*\])", f"do = {calls}", chance)
        elif kind == 2:  # a word, a number or a text
            part = chance.choice(PARTS)
            text = _replace_one(text, WORDS, chance.choice([part, json.dumps(part)]), chance)
        else:  # some letters are gone
            at = chance.randrange(len(text))
            text = text[:at] + text[at + chance.choice([1, 2, 5, 20]) :]
    return text


def _replace_one(text: str, wanted: str, new: str, chance: random.Random) -> str:
    found = list(re.finditer(wanted, text))
    if not found:
        return text
    place = chance.choice(found)
    return text[: place.start()] + new + text[place.end() :]


def apply_both_ways(text: str, there: Model, back: Model) -> None:
    """Parse and apply a recipe; HoldallError is all that may come out."""
    try:
        recipe = recipes.parse("mutated.toml", text.encode())
    except HoldallError:
        return
    for model, format in ((there, "gguf"), (back, "hf")):
        try:
            applied = recipes.apply_recipe(recipe, model, format, back=format == "hf")
            for tensor in applied.model.tensors:
                tensor.raw()
        except HoldallError:
            continue


@pytest.mark.parametrize("seed", range(4))
def test_nothing_but_a_sentence_comes_out(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    (tmp_path / "every.toml").write_text(RECIPE)
    holdall.save(tmp_path / "source", make_arrays(), format="hf")
    (tmp_path / "source" / "config.json").write_text(json.dumps({"model_type": "every", "num_heads": 2}))
    holdall.convert(tmp_path / "source", tmp_path / "m.gguf", recipe=str(tmp_path / "every.toml"))
    with holdall.open(tmp_path / "source") as there, holdall.open(tmp_path / "m.gguf") as back:
        for _ in range(COUNT):
            text = mutate(chance.choice(TEXTS), chance)
            cost = cost_of(lambda text=text: apply_both_ways(text, there, back))
            assert cost.seconds < SECONDS, text
