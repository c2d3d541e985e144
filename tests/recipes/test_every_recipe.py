"""Each recipe has a test that goes there and back; two cannot, and their test says what comes back instead."""

from __future__ import annotations

import pytest

from holdall import recipes

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("xllamacpp")

from tests.recipes import test_flux, test_recipes_gptrs, test_recipes_oinf
from tests.recipes.test_gguf_families import BERT, CASES, TEXT_PART
from tests.recipes.test_recipes_embd import RECIPE as TO_EMBD
from tests.recipes.test_recipes_gptrs import IMAGES, RECIPES, VISION

# What comes back are norms that add: test_folded_models_come_back_as_norms_that_add_and_fold_again_bit_for_bit.
FOLDED = {"resnet34-gptrs", "mobilenet_v2-gptrs"}
# What comes back is the part that went there, as a model of its own.
PARTS = {"mistral3-gptrs", TEXT_PART, TO_EMBD}


def test_every_recipe_has_a_case() -> None:
    to_gguf = {case.recipe for case in CASES.values()} | {BERT.recipe}
    to_gptrs = {RECIPES[name] for name in test_recipes_gptrs.DECODERS}
    flux = {test_flux.FOLDER, test_flux.SINGLE_FILE}
    to_oinf = {*test_recipes_oinf.SIZES, *(f"{kind}-oinf" for kind in test_recipes_oinf.LIKE_LLAMA)}
    whole = to_gguf | to_gptrs | flux | to_oinf
    assert whole.isdisjoint(FOLDED | PARTS)
    assert set(recipes.names()) == whole | FOLDED | PARTS
    assert {RECIPES[name] for name in VISION} == FOLDED
    assert {RECIPES[name] for name in IMAGES} == PARTS - {TEXT_PART, TO_EMBD}
