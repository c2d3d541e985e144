"""A small random BERT, and the forward pass of the books in float64 to hold the runtime against."""

from __future__ import annotations

import json
from math import erf

import numpy as np

from holdall import profiles
from holdall.model.model import Model, model_of
from holdall.model.vocab import Vocab

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ",", ".", "!", "the", "cat", "##s", "sit", "on", "mat", "a"]
VOCAB = Vocab(WORDS)
CONFIG = {
    "model_type": "bert",
    "vocab_size": len(WORDS),
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "max_position_embeddings": 12,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-6,
    "hidden_act": "gelu",
}
TEXTS = ["The cats sit.", "a mat", "", "cat, cat, cat!", "on on on on on on on on on on on on on on", "a mat"]


def tensors(prefix: str = "", seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    made = {}
    for name, expected in profiles.from_config(CONFIG).tensors.items():
        if not expected.optional:
            values = random.standard_normal(expected.shape) * 0.4 + name.endswith("LayerNorm.weight")
            made[prefix + name] = values.astype(np.float32)
    return made


def folder_model(**assets: object) -> Model:
    """As a Hugging Face folder holds it."""
    files = {"config.json": json.dumps(CONFIG).encode(), "vocab.txt": VOCAB.to_text()}
    files |= {name: json.dumps(value).encode() for name, value in assets.items()}
    return Model(model_of(tensors()).tensors, assets=files)


def forward(weights: dict[str, np.ndarray], ids: list[int], seen: dict[str, list] | None = None) -> np.ndarray:
    """One text, float64, nothing folded or fused. ``seen`` receives the result of each module by its name."""
    seen = {} if seen is None else seen
    w = {name: value.astype(np.float64) for name, value in weights.items()}
    heads, size = CONFIG["num_attention_heads"], CONFIG["hidden_size"] // CONFIG["num_attention_heads"]

    def norm(x, name):
        apart = x - x.mean(-1, keepdims=True)
        scaled = apart / np.sqrt((apart * apart).mean(-1, keepdims=True) + CONFIG["layer_norm_eps"])
        return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]

    def linear(x, name):
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def split(x):
        return x.reshape(len(ids), heads, size).swapaxes(0, 1)

    x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][: len(ids)]
    x = norm(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    seen.setdefault("embeddings", []).append(x)
    for layer in range(CONFIG["num_hidden_layers"]):
        at = f"encoder.layer.{layer}"
        q, k, v = (split(linear(x, f"{at}.attention.self.{part}")) for part in ("query", "key", "value"))
        scores = np.exp(q @ k.swapaxes(1, 2) / np.sqrt(size))
        mixed = (scores / scores.sum(-1, keepdims=True) @ v).swapaxes(0, 1).reshape(len(ids), -1)
        seen.setdefault(f"{at}.attention.self", []).append(mixed)
        x = norm(linear(mixed, f"{at}.attention.output.dense") + x, f"{at}.attention.output.LayerNorm")
        seen.setdefault(f"{at}.attention.output", []).append(x)
        inner = linear(x, f"{at}.intermediate.dense")
        inner = inner * 0.5 * (1 + np.vectorize(erf)(inner / np.sqrt(2)))
        seen.setdefault(f"{at}.intermediate", []).append(inner)
        x = norm(linear(inner, f"{at}.output.dense") + x, f"{at}.output.LayerNorm")
        seen.setdefault(f"{at}.output", []).append(x)
    return x
