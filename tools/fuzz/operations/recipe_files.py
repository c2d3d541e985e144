"""Recipes in files, changed or whole, and small models that the recipes of holdall know."""

from __future__ import annotations

import json
import random
import tempfile
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

import holdall
from holdall.format import registry
from holdall.model.model import Model, model_of
from holdall.recipes import names
from tools.fuzz.framing import frame, unframe
from tools.fuzz.operations.material import LARGEST, encoders
from tools.fuzz.seeds import files_at
from tools.fuzz.trees import Pairs, change_tree, damage_bytes

__all__ = ["RECIPES", "TARGETS", "known_models", "make_recipe"]

RECIPES = names()
TARGETS = ("gguf", "gptrs-checkpoint", "hf")  # what the recipes lead to, there and back

# A recipe that knows the names of the seeds, so that its operations meet tensors of every type and shape.
_ANY: dict[str, Any] = {
    "family": "Any", "title": "all operations",
    "from": {"formats": registry.names(), "when": "1 == 1"},
    "to": {"formats": registry.names(), "when": "has('v')"},
    "let": {"width": "hidden_size or 2"},
    "values": [{"from": "hidden_size", "to": "x.width", "kind": "u32", "optional": True}],
    "tensors": [
        {"from": "w", "to": "v", "do": ["transpose", "cast('f32')"], "optional": True},
        {"from": "a", "to": ["a.0", "a.1"], "do": "split(0, [1, 1])", "optional": True},
        {"from": "b", "to": "c", "do": ["reshape([2, -1], [-1])", "permute(width)"], "optional": True},
        {"from": "s{n}", "to": "stacked", "do": ["add(1)", "stack"], "optional": True},
        {"from": "{*}", "do": "drop", "optional": True},
    ],
}  # fmt: skip
_DOCUMENTS = [
    _ANY,
    *(
        tomllib.loads((files("holdall.recipes") / f"{name}.toml").read_text())
        for name in ("bert-gguf", "gpt2-gptrs", "mistral-gguf")
    ),
]

_WIDE = 4  # of the tiny GPT-2
_GPT2 = {
    "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 3, "n_positions": 2, "n_embd": _WIDE,
    "n_layer": 1, "n_head": 2, "n_inner": _WIDE, "resid_pdrop": 0.25, "layer_norm_epsilon": 1e-05,
    "activation_function": "gelu_new", "tie_word_embeddings": True,
}  # fmt: skip
_GPT2_SHAPES = {
    "attn.c_attn.weight": (_WIDE, 3 * _WIDE), "attn.c_attn.bias": (3 * _WIDE,), "attn.c_proj.weight": (_WIDE, _WIDE),
    "attn.c_proj.bias": (_WIDE,), "mlp.c_fc.weight": (_WIDE, _WIDE), "mlp.c_fc.bias": (_WIDE,),
    "mlp.c_proj.weight": (_WIDE, _WIDE), "mlp.c_proj.bias": (_WIDE,), "ln_1.weight": (_WIDE,), "ln_1.bias": (_WIDE,),
    "ln_2.weight": (_WIDE,), "ln_2.bias": (_WIDE,),
}  # fmt: skip


def make_recipe(chance: random.Random) -> bytes:
    """Return the file of a recipe: as it should be, with a few nodes of the document changed, or with bytes changed."""
    tree = _to_pairs(chance.choice(_DOCUMENTS))
    for _ in range(chance.choice((0, 0, 1, 1, 2, 4))):
        tree = change_tree(tree, chance)
    data = _write_toml(tree)
    return damage_bytes(data, chance) if chance.random() < 0.15 else data


@cache
def known_models(subject: str) -> tuple[bytes, ...]:
    """Return models that a recipe knows: in the format it leads from or to, or what it would need in another."""
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        _save_gpt2(base / "gpt2")
        if subject == "gptrs":
            holdall.convert(base / "gpt2", base / "gpt2.checkpoint", format="gptrs-checkpoint", fsync=False)
            made = [base / "gpt2.checkpoint"]
        elif subject == "gguf":
            whole = base / "bert"
            whole.mkdir()
            for name, data in unframe(encoders("hf")[0]).items():
                (whole / name).write_bytes(data)
            holdall.convert(whole, base / "bert.gguf", recipe="bert-gguf", fsync=False)
            made = [base / "bert.gguf"]
        else:
            made = [base / "gpt2"] if subject == "hf" else []
        found = [frame(files_at(path)) for path in made]
    return (*(data for data in found if len(data) <= LARGEST), *encoders(subject)[:1])


def _save_gpt2(path: Path) -> None:
    chance = np.random.default_rng(3)
    shapes = {"wte.weight": (3, _WIDE), "wpe.weight": (2, _WIDE), "ln_f.weight": (_WIDE,), "ln_f.bias": (_WIDE,)}
    shapes |= {f"h.0.{name}": shape for name, shape in _GPT2_SHAPES.items()}
    arrays = {f"transformer.{name}": chance.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    model = Model(model_of(arrays).tensors, assets={"config.json": json.dumps(_GPT2).encode()})
    holdall.save(path, model, format="hf", fsync=False)


def _to_pairs(value: Any) -> Any:
    if isinstance(value, Mapping):
        return Pairs([key, _to_pairs(item)] for key, item in value.items())
    return [_to_pairs(item) for item in value] if isinstance(value, list) else value


def _write_toml(tree: Any) -> bytes:
    """Write a tree; the outermost table has a line for each key, and what TOML has no spelling for is a text."""
    pairs = tree if isinstance(tree, Pairs) else Pairs([["family", tree]])
    lines = (
        f"{_spell(str(pair[0]))} = {_spell(pair[1])}" for pair in pairs if isinstance(pair, list) and len(pair) == 2
    )
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def _spell(value: Any) -> str:
    if isinstance(value, Pairs):
        pairs = (pair if isinstance(pair, list) and len(pair) == 2 else ["x", pair] for pair in value)
        return "{" + ", ".join(f"{_spell(str(key))} = {_spell(item)}" for key, item in pairs) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_spell, value)) + "]"
    if isinstance(value, bool | int | float):
        return str(value).lower()
    return json.dumps(value if isinstance(value, str) else str(value), ensure_ascii=False)
