"""A recipe of a user with every operation that has an inverse: numpy makes the same of it, and all of it comes back."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import holdall
from holdall import recipes
from holdall.errors import ContentError
from holdall.recipes.tensor_ops import OPERATIONS

RECIPE = """
family = "Every operation"
from.formats = ["hf"]
from.match = { model_type = "every" }
to.formats = ["gguf"]
to.match = { "general.architecture" = "every" }
let.heads = "num_heads"
values = [{ from = "num_heads", to = "arch.heads", kind = "u32" }]
tensors = [
    { from = "reshaped", to = "a.reshaped", do = "reshape([6, 4], [2, 3, 4])" },
    { from = "joined", to = ["b.first", "b.second", "b.third"], do = "split(0, [6, 4, 2])" },
    { from = "inner", to = ["b.left", "b.right"], do = "split(1, [1, 3])" },
    { from = "pile", to = "c.{e}.part", do = "unstack" },
    { from = ["left", "right"], to = "d.joined", do = "concatenate(1)" },
    { from = ["top", "bottom"], to = "d.piled", do = ["transpose", "concatenate(1, [3, 2])"] },
    { from = "expert.{e}.w", to = "e.experts", do = "stack" },
    { from = "layer.{n}.q", to = "blk.{n}.q", do = "permute(heads)" },
    { from = "norm", to = "f.norm", do = "add(1)" },
    { from = "wide", to = "f.wide", do = "cast('f64')" },
    { from = "words", to = "g.words" },
    { from = "words", to = "g.head", do = ["duplicate", "transpose"] },
    { from = "mixed", to = "h.mixed", do = ["transpose", "reshape([6, 4], [2, 3, 4])", "roll(1, 1)", "add(0.5)"] },
]
"""


def make_arrays() -> dict[str, np.ndarray]:
    chance = np.random.default_rng(11)

    def make(*shape: int) -> np.ndarray:
        return chance.standard_normal(shape).astype(np.float32)

    arrays = {"reshaped": make(6, 4), "joined": make(12, 4), "inner": make(3, 4), "pile": make(12, 2, 4)}
    arrays |= {"left": make(5, 2), "right": make(5, 2), "top": make(3, 4), "bottom": make(2, 4)}
    arrays |= {f"expert.{e}.w": make(2, 3) for e in range(11)} | {f"layer.{n}.q": make(8, 3) for n in range(2)}
    quarters = chance.integers(-8, 8, 24).astype(np.float32) / 4  # a sum rounds none of them
    return arrays | {"norm": quarters, "wide": make(7), "words": make(5, 4), "mixed": quarters.reshape(4, 6)}


def change(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What the recipe says, by numpy."""
    made = {
        "a.reshaped": arrays["reshaped"].reshape(2, 3, 4),
        "e.experts": np.stack([arrays[f"expert.{e}.w"] for e in range(11)]),
    }
    made |= dict(zip(("b.first", "b.second", "b.third"), np.split(arrays["joined"], [6, 10]), strict=True))
    made |= dict(zip(("b.left", "b.right"), np.split(arrays["inner"], [1], 1), strict=True))
    made |= {f"c.{e}.part": part for e, part in enumerate(arrays["pile"])}
    made["d.joined"] = np.hstack([arrays["left"], arrays["right"]])
    made["d.piled"] = np.concatenate([arrays["top"].T, arrays["bottom"].T], 1)
    for n in range(2):  # two heads of two halves of two rows
        made[f"blk.{n}.q"] = arrays[f"layer.{n}.q"].reshape(2, 2, 2, 3).swapaxes(1, 2).reshape(8, 3)
    made |= {"f.norm": arrays["norm"] + 1, "f.wide": arrays["wide"].astype(np.float64)}
    made |= {"g.words": arrays["words"], "g.head": arrays["words"].T}
    return made | {"h.mixed": np.roll(arrays["mixed"].T.reshape(2, 3, 4), 1, 1) + np.float32(0.5)}


def compare(path: Path, expected: dict[str, np.ndarray]) -> None:
    with holdall.open(path) as model:
        assert set(model) == set(expected)
        for name, array in expected.items():
            found = model[name].numpy()
            assert (found.shape, found.dtype) == (array.shape, array.dtype), name
            assert found.tobytes() == np.ascontiguousarray(array).tobytes(), name


def test_every_operation_makes_what_numpy_makes_and_comes_back_bit_for_bit(tmp_path: Path) -> None:
    (tmp_path / "every.toml").write_text(RECIPE)
    recipe, arrays = str(tmp_path / "every.toml"), make_arrays()
    holdall.save(tmp_path / "source", arrays, format="hf")
    (tmp_path / "source" / "config.json").write_text(json.dumps({"model_type": "every", "num_heads": 2}))
    report = holdall.convert(tmp_path / "source", tmp_path / "m.gguf", recipe=recipe)
    assert report.dropped == []
    compare(tmp_path / "m.gguf", change(arrays))
    holdall.convert(tmp_path / "m.gguf", tmp_path / "back", format="hf", recipe=recipe)
    compare(tmp_path / "back", arrays)


def test_the_recipe_has_every_operation_with_an_inverse() -> None:
    """drop has none, and what fold_norm makes comes back as norms that only add."""
    recipe = recipes.parse("every.toml", RECIPE.encode())
    used = {name for line in recipe.tensors for name, _ in line.operations}
    assert used == set(OPERATIONS) - {"drop", "fold_norm"}


def test_parts_of_other_sizes_than_are_said_would_not_come_back_and_are_refused(tmp_path: Path) -> None:
    (tmp_path / "every.toml").write_text(RECIPE)
    arrays = make_arrays() | {"right": np.ones((5, 3), np.float32), "top": np.ones((4, 4), np.float32)}
    holdall.save(tmp_path / "source", arrays, format="hf")
    (tmp_path / "source" / "config.json").write_text(json.dumps({"model_type": "every", "num_heads": 2}))
    with pytest.raises(ContentError) as caught:
        holdall.convert(tmp_path / "source", tmp_path / "m.gguf", recipe=str(tmp_path / "every.toml"))
    assert "tensor 'left' and those joined with it have [2, 3] places, not [2, 2]" in str(caught.value)
    assert "tensor 'top' f32[4, 6] cannot be split into [3, 2] along dimension 1" in str(caught.value)
