"""Tiny models of transformers with random weights, and llama.cpp that runs what holdall makes of them."""

from __future__ import annotations

import json
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

import holdall
from holdall import recipes
from holdall.recipes.expressions import parse_call

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
xllamacpp = pytest.importorskip("xllamacpp")

STEPS = 8
CLOSE = 1e-3
PROMPT = [5, 17, 200, 33, 91, 7, 64, 250]
SIZES = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "initializer_range": 0.3, "max_position_embeddings": 128,
}  # fmt: skip


def save_tiny(folder, config, assets, kind=None, dtype=None):
    """Save a model with random weights, of which also those are random that start as ones or zeros."""
    torch.manual_seed(7)
    model = (kind or transformers.AutoModelForCausalLM.from_config)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:  # multiples of 1/64 up to 1/2 more or less: a constant can be added to them
                parameter += torch.randint(-32, 33, parameter.shape) / 64
    model = model.to(dtype or torch.float32)
    model.save_pretrained(folder)
    for name, data in assets.items():
        (Path(folder) / name).write_bytes(data)
    return type(model).from_pretrained(folder, dtype=torch.float32).eval()  # .float() would keep rounded frequencies


class Runtime:
    """llama.cpp with one file."""

    def __init__(self, path, **settings):
        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.n_ctx = 128
        params.n_parallel = 1
        params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED  # it rounds to f16
        params.warmup = False
        params.cpuparams.n_threads = 1
        for name, value in settings.items():
            setattr(params, name, value)
        self.server = xllamacpp.Server(params)

    def encode(self, text):
        """The ids of a text, with the tokens that are put around it."""
        asked = json.dumps({"content": text, "add_special": True, "parse_special": True}).encode()
        where = f"{self.server.listening_address}/tokenize"
        request = urllib.request.Request(where, asked, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return json.loads(answer.read())["tokens"]

    def continue_prompt(self, broken=(), prompt=PROMPT, steps=STEPS):
        """The log-probabilities of the best tokens at each greedy step, and the token taken.

        Tokens that are ``broken`` UTF-8 are not taken: llama.cpp says no probabilities before the text is whole.
        """
        asked = {"prompt": list(prompt), "max_tokens": steps, "temperature": 0, "logprobs": 5, "ignore_eos": True}
        asked["logit_bias"] = [[token, False] for token in broken]
        found = self.server.handle_completions(asked)["choices"][0]["logprobs"]["content"]
        return [({each["id"]: each["logprob"] for each in step["top_logprobs"]}, step["id"]) for step in found]


def measure_distance(model, runtime, tokenizer) -> float:
    """The largest difference of a log-probability between torch and llama.cpp, in eight greedy steps of llama.cpp."""
    ids, worst = list(PROMPT), 0.0
    tokens = range(tokenizer.get_vocab_size())
    broken = [token for token in tokens if "\ufffd" in tokenizer.decode([token], skip_special_tokens=False)]
    steps = runtime.continue_prompt(broken)
    assert len(steps) == STEPS
    for stated, taken in steps:
        with torch.no_grad():
            expected = torch.log_softmax(model(torch.tensor([ids])).logits[0, -1], -1)
        worst = max(worst, *(abs(float(expected[token]) - value) for token, value in stated.items()))
        ids.append(taken)
    return worst


def measure_cosine(model, runtime, tokenizer, texts, pool) -> float:
    """The smallest cosine between what torch and llama.cpp make of a text; ``pool`` makes one vector of many."""
    found = runtime.server.handle_embeddings({"input": texts})["data"]
    worst = 1.0
    for text, each in zip(texts, found, strict=True):
        with torch.no_grad():
            states = model(torch.tensor([tokenizer.encode(text).ids]))[0][0]
        worst = min(worst, float(torch.cosine_similarity(pool(states), torch.tensor(each["embedding"]), dim=0)))
    return worst


def without(name, operation) -> recipes.Recipe:
    """The recipe ``name`` without one operation in all lines."""
    recipe, call = recipes.load(name), parse_call(operation)
    lines = [
        replace(line, operations=tuple(each for each in line.operations if each != call)) for line in recipe.tensors
    ]
    assert lines != recipe.tensors, f"{operation} is not in {name}"
    return replace(recipe, tensors=lines)


def compare_back(model, folder, path, back, recipe="auto"):
    """Convert ``path`` back, and compare tensors, and the logits of what transformers opens, with the first ones."""
    holdall.convert(path, back, format="hf", recipe=recipe)
    with holdall.open(folder) as first, holdall.open(back) as second:
        assert set(first) == set(second)
        for name in first:
            assert (first[name].dtype, first[name].shape) == (second[name].dtype, second[name].shape), name
            assert bytes(first[name].raw()) == bytes(second[name].raw()), name
    again = type(model).from_pretrained(back, dtype=torch.float32).eval()
    with torch.no_grad():
        ids = torch.tensor([PROMPT])
        expected, found = model(ids), again(ids)
        assert torch.equal(expected[0], found[0])
    return json.loads((Path(back) / "config.json").read_text())
