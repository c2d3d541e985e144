"""Parts of the grammar that some families need: shifted numbers, any text, questions to tensors, folded norms."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import holdall
from holdall import recipes
from holdall.errors import ContentError
from holdall.model.model import model_of
from holdall.recipes.patterns import Pattern
from holdall.recipes.values import Environment

HEAD = """
family = "Parts"
from.formats = ["hf"]
from.match = { model_type = "parts" }
to.formats = ["gguf"]
to.match = { "general.architecture" = "parts" }
"""
ARRAYS = {f"h.{n}.w": np.full((2, 3), n, np.float32) for n in range(1, 4)} | {"head": np.ones(2, np.float32)}


def write_source(folder: Path, arrays: dict[str, np.ndarray]) -> Path:
    holdall.save(folder, arrays, format="hf")
    (folder / "config.json").write_text(json.dumps({"model_type": "parts", "layers": 3}))
    return folder


def write_recipe(folder: Path, text: str) -> str:
    path = folder / "parts.toml"
    path.write_text(HEAD + text)
    return str(path)


LINES = """
counts.n = "layers"
values = [{ from = "layers", to = "parts.count", kind = "u32" }]
tensors = [
    { from = "h.{n+1}.w", to = "blk.{n}.w" },
    { from = "head", to = "head" },
]
"""


def test_numbers_are_shifted(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, LINES)
    holdall.convert(write_source(tmp_path / "source", ARRAYS), tmp_path / "m.gguf", recipe=recipe)
    with holdall.open(tmp_path / "m.gguf") as model:
        assert sorted(model) == ["blk.0.w", "blk.1.w", "blk.2.w", "head"]
        assert model["blk.2.w"].numpy()[0, 0] == 3
    holdall.convert(tmp_path / "m.gguf", tmp_path / "back", format="hf", recipe=recipe)
    with holdall.open(tmp_path / "back") as model:
        assert {name: model[name].numpy().tolist() for name in model} == {k: v.tolist() for k, v in ARRAYS.items()}


def test_a_number_before_the_shift_is_another_name(tmp_path: Path) -> None:
    arrays = ARRAYS | {"h.0.w": np.zeros(2, np.float32)}
    del arrays["h.3.w"]
    with pytest.raises(ContentError) as caught:
        holdall.convert(
            write_source(tmp_path / "source", arrays), tmp_path / "m.gguf", recipe=write_recipe(tmp_path, LINES)
        )
    assert "no line takes the tensor 'h.0.w'" in str(caught.value)
    assert "the tensor 'h.3.w' is missing" in str(caught.value)


@pytest.mark.parametrize("text", ["a.{n+0}.w", "a.{n+}.w", "a.{+1}", "a.{n-1}.w", "a.{n + 1}", "{n}.{n+1}", "{n}.{*}"])
def test_shifts_that_are_none(text: str) -> None:
    with pytest.raises(ContentError):
        Pattern(text)


def test_everything_of_a_beginning_is_dropped(tmp_path: Path) -> None:
    more = {f"vision.{name}": np.zeros(2, np.float32) for name in ("a.weight", "b.0.weight")}
    lines = LINES.replace("tensors = [", 'tensors = [\n    { from = "vision.{*}", do = "drop" },')
    recipe = write_recipe(tmp_path, lines)
    report = holdall.convert(write_source(tmp_path / "source", ARRAYS | more), tmp_path / "m.gguf", recipe=recipe)
    assert report.recipe is not None
    assert sorted(row.before for row in report.recipe.rows if not row.after) == sorted((name,) for name in more)
    with holdall.open(tmp_path / "m.gguf") as model:
        assert len(model) == 4
    with pytest.raises(ContentError, match=r"the tensor 'vision.{\*}' is missing"):
        holdall.convert(write_source(tmp_path / "without", ARRAYS), tmp_path / "n.gguf", recipe=recipe)


def test_what_is_kept_has_a_name_of_its_own() -> None:
    line = 'tensors = [{ from = "a.{*}", to = "b.{*}" }]'
    with pytest.raises(ContentError, match=r"line 7, column 12: {\*} stands for any text, and is for tensors that"):
        recipes.parse("parts.toml", f"{HEAD}{line}".encode())


def test_questions_to_tensors() -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    more = {"same": values.copy(), "turned": values.T.copy(), "other": values + 1, "bytes": values.view(np.int32)}
    env = Environment({}, model_of({"w": values, **more, "flat": values.reshape(-1)}))
    assert env.evaluate("shape('turned')") == [3, 2]
    assert env.evaluate("shape('w')[1] * 2") == 6
    assert env.evaluate("is_copy('same', 'w')") and env.evaluate("is_copy('turned', 'w')")
    for name in ("other", "bytes", "flat", "missing"):
        assert not env.evaluate(f"is_copy('{name}', 'w')")
    with pytest.raises(ContentError, match="there is no tensor 'missing' to ask for its shape"):
        env.evaluate("shape('missing')")


def test_a_copy_is_found_beyond_every_buffer() -> None:
    values = np.random.default_rng(0).standard_normal((1501, 1000), np.float32)
    other = values.T.copy()
    other[-1, -1] += 1
    env = Environment({}, model_of({"w": values, "turned": values.T.copy(), "other": other}))
    assert env.evaluate("is_copy('turned', 'w')") and not env.evaluate("is_copy('other', 'w')")


def test_fold_norm_has_five_names_and_two() -> None:
    line = 'tensors = [{ from = ["a", "b", "c"], to = ["d", "e"], do = "fold_norm(1e-5)" }]'
    with pytest.raises(ContentError, match=r"line 7, column 12: fold_norm makes .* 5 names become 2"):
        recipes.parse("parts.toml", f"{HEAD}{line}".encode())


@pytest.mark.parametrize(("eps", "message"), [("'x'", "the epsilon is 'x', not a number"), ("null", "None, not a num")])
def test_an_epsilon_is_a_number(eps: str, message: str, tmp_path: Path) -> None:
    names = ", ".join(f'"{name}"' for name in "wgbmv")
    line = f'tensors = [{{ from = [{names}], to = ["x", "y"], do = "fold_norm({eps})" }}]'
    arrays = {name: np.ones(1, np.float32) for name in "wgbmv"}
    with pytest.raises(ContentError, match=message):
        holdall.convert(
            write_source(tmp_path / "source", arrays), tmp_path / "m.gguf", recipe=write_recipe(tmp_path, line)
        )


ROLLED = """
values = [{ from = "layers", back = "count('blk.{n}.w')" }]
tensors = [
    { from = "h.{n}.w", to = "blk.{n}.w", do = "roll(1, 1)" },
    { from = "head", to = "head", do = "roll(0, PLACES)" },
]
"""


def test_places_are_rolled_as_in_numpy_and_names_are_counted(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, ROLLED.replace("PLACES", "2"))
    arrays = {f"h.{n}.w": np.arange(15 * 100_000, dtype=np.float32).reshape(2, 3, -1) * n for n in range(1, 3)}
    arrays["head"] = np.arange(5, dtype=np.float32)
    holdall.convert(write_source(tmp_path / "source", arrays), tmp_path / "m.gguf", recipe=recipe)
    with holdall.open(tmp_path / "m.gguf") as model:
        np.testing.assert_array_equal(model["blk.2.w"].numpy(), np.roll(arrays["h.2.w"], 1, 1))
        assert model["head"].numpy().tolist() == [3, 4, 0, 1, 2]
    holdall.convert(tmp_path / "m.gguf", tmp_path / "back", format="hf", recipe=recipe)
    with holdall.open(tmp_path / "back") as model:
        assert all(model[name].numpy().tobytes() == array.tobytes() for name, array in arrays.items())
        assert model.config == {"model_type": "parts", "layers": 2}


def test_more_places_than_there_are_cannot_be_rolled(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, ROLLED.replace("PLACES", "6"))
    source = write_source(tmp_path / "source", ARRAYS)
    with pytest.raises(ContentError, match=r"tensor 'head' \[2\] has no 6 places in dimension 0"):
        holdall.convert(source, tmp_path / "m.gguf", recipe=recipe)


ADDED = 'tensors = [{ from = "w", to = "w", do = ["cast(\'f32\')", "add(1)"] }, { from = "v", to = "v" }]'


def test_values_that_a_sum_rounds_are_counted_and_come_back_where_they_are_not(tmp_path: Path) -> None:
    """All numbers of bf16: those from 2**-16 to 2**23 come back, and tiny ones cannot."""
    every = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16)
    every = every[np.isfinite(every.astype(np.float32))]
    wide = every.astype(np.float32)
    expected = (wide + np.float32(1)) - np.float32(1)
    rounded = int(np.count_nonzero(expected.view(np.uint32) != wide.view(np.uint32)))
    kept = (np.abs(wide) >= 2.0**-16) & (np.abs(wide) <= 2.0**23)
    assert (expected == wide)[kept].all() and 0 < rounded < every.size
    arrays = {"w": every, "v": np.zeros((2, every.size), every.dtype)}
    source, recipe = write_source(tmp_path / "source", arrays), write_recipe(tmp_path, ADDED)
    said = f"{rounded:,} values rounded by a sum, which do not come back bit for bit: in 'w'"
    for dry_run in (True, False):
        report = holdall.convert(source, tmp_path / "m.gguf", recipe=recipe, dry_run=dry_run)
        assert said in report.changes and said in report.dropped and not report.lossless
    holdall.convert(tmp_path / "m.gguf", tmp_path / "back", format="hf", recipe=recipe)
    with holdall.open(tmp_path / "back") as model:
        assert model["w"].numpy().tobytes() == expected.tobytes()  # f32, since bf16 does not hold all of them


def test_values_that_no_sum_rounds_come_back_with_their_type(tmp_path: Path) -> None:
    values = np.random.default_rng(3).standard_normal(4096).astype(ml_dtypes.bfloat16)
    arrays = {"w": values[np.abs(values.astype(np.float32)) > 2.0**-16], "v": np.zeros((2, 5000), values.dtype)}
    source, recipe = write_source(tmp_path / "source", arrays), write_recipe(tmp_path, ADDED)
    assert holdall.convert(source, tmp_path / "m.gguf", recipe=recipe).dropped == []
    report = holdall.convert(tmp_path / "m.gguf", tmp_path / "back", format="hf", recipe=recipe)
    assert report.dropped == []
    with holdall.open(tmp_path / "back") as model:
        assert all(bytes(model[name].raw()) == array.tobytes() for name, array in arrays.items())
        assert {str(model[name].dtype) for name in model} == {"bf16"}


def test_a_difference_that_rounds_is_counted_on_the_way_back(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, ADDED)
    arrays = {"w": np.array([1e-9, 0.5, 2], np.float32), "v": np.zeros(9, np.float32)}
    holdall.save(tmp_path / "m.gguf", arrays, metadata={"general.architecture": "parts"})
    report = holdall.convert(tmp_path / "m.gguf", tmp_path / "back", format="hf", recipe=recipe)
    assert report.dropped == ["1 value rounded by a sum, which do not come back bit for bit: in 'w'"]


def test_what_is_left_out_or_narrowed_is_lost(tmp_path: Path) -> None:
    lines = """tensors = [
        { from = "w", to = "w", do = "cast('f32')" },
        { from = "v", to = "v", do = "cast('f64')" },
        { from = "old.{*}", do = "drop" },
    ]"""
    arrays = {"w": np.ones(2, np.float64), "v": np.ones(2, np.float32), "old.a": np.ones(2, np.float32)}
    source, recipe = write_source(tmp_path / "source", arrays), write_recipe(tmp_path, lines)
    report = holdall.convert(source, tmp_path / "m.gguf", recipe=recipe)
    assert report.dropped == ["1 tensor left out: old.a", "tensor 'w' goes from f64 to f32"]
    assert report.lossless is False
