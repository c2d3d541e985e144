"""The seeds of the operations, and mutants of them."""

from __future__ import annotations

import json
import random
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import holdall
from holdall import profiles
from holdall.errors import HoldallError
from holdall.model.model import Model, model_of
from tools.fuzz.framing import frame, source_of, unframe
from tools.fuzz.mutate import mutate
from tools.fuzz.seeds import files_at, seeds
from tools.fuzz.subjects import SUBJECTS

__all__ = ["CONFIG", "LARGEST", "WORDS", "carriers", "encoders", "make_mutant", "matrices", "names_in", "plain_seeds"]

LARGEST = 8 << 10  # bytes of an input
_CARRIED = ("oinf", "gguf", "torch", "aero", "mcf", "npz")  # originals that carriers hold
_WRITERS = {"gptrs": "gptrs-checkpoint"}

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ",", ".", "the", "cat", "##s", "sit", "on", "mat", "a"]
CONFIG: dict[str, Any] = {
    "model_type": "bert", "vocab_size": len(WORDS), "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 4, "max_position_embeddings": 6, "type_vocab_size": 2, "layer_norm_eps": 1e-6,
    "hidden_act": "gelu",
}  # fmt: skip


@cache
def plain_seeds(subject: str) -> tuple[bytes, ...]:
    """Return the seeds of a format."""
    return tuple(seeds(subject).values())


@cache
def carriers(subject: str) -> tuple[bytes, ...]:
    """Return files of a format that carry an original of another, for restore."""
    format = _WRITERS.get(subject, subject)
    made: list[bytes] = []
    for original in _CARRIED:
        for data in plain_seeds(original)[:12:3]:
            made += _write(lambda target, data=data: _carry(data, target, format))
    return tuple(made)


def _carry(data: bytes, target: Path, format: str) -> None:
    source = target.with_name("original")
    source.write_bytes(data)
    holdall.convert(source, target, format=format, carry=True, fsync=False)


@cache
def encoders(subject: str) -> tuple[bytes, ...]:
    """Return a sentence encoder in a format, with and without what it needs besides its weights."""
    chance = np.random.default_rng(1)
    tensors = {
        name: (chance.standard_normal(expected.shape) * 0.4).astype(np.float32)
        for name, expected in profiles.from_config(CONFIG).tensors.items()
        if not expected.optional
    }
    assets = {"config.json": json.dumps(CONFIG).encode(), "vocab.txt": "\n".join(WORDS).encode() + b"\n"}
    whole = Model(model_of(tensors).tensors, assets=assets)
    format = _WRITERS.get(subject, subject)
    made: list[bytes] = []
    for model in (whole, Model(model_of(tensors).tensors)):
        made += _write(lambda target, model=model: holdall.save(target, model, format=format, fsync=False))
    return tuple(made)


@cache
def matrices(subject: str) -> tuple[bytes, ...]:
    """Return matrices large enough to be quantized."""
    chance = np.random.default_rng(2)
    arrays = {
        "w": chance.standard_normal((2, 256)).astype(np.float32),
        "v": chance.standard_normal((8, 64)).astype("f2"),
    }
    format = _WRITERS.get(subject, subject)
    return tuple(_write(lambda target: holdall.save(target, arrays, format=format, fsync=False)))


def _write(make: Any) -> list[bytes]:
    """Return what ``make`` writes, or nothing where the format cannot hold it or it is too large."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "target"
        try:
            make(target)
        except HoldallError:
            return []
        data = frame(files_at(target))
        return [data] if len(data) <= LARGEST else []


@cache
def names_in(seed: bytes, subject: str) -> tuple[str, ...]:
    """Return the names of tensors, metadata and assets of a seed, so that options can speak of them."""
    one, files = SUBJECTS[subject], unframe(seed)
    try:
        with holdall.open(source_of(files, one.start), format=one.format(files)) as model:
            return (*model.tensors.names, *model.metadata, *model.assets)
    except HoldallError:
        return ()


def make_mutant(seed: bytes, subject: str, chance: random.Random) -> bytes:
    """Return the seed, changed as a rule once or twice, and no larger than inputs may be."""
    tries = chance.choice((1, 4, 4))  # mutants that still open go deeper, and are one of six
    data = seed
    for _ in range(tries):
        data = seed
        for _ in range(chance.choice((0, 1, 1, 1, 1, 1, 1, 2, 2))):
            data = mutate(data, SUBJECTS[subject], chance)
        if tries > 1 and _opens(data, subject):
            break
    return data if len(data) <= LARGEST else seed


def _opens(data: bytes, subject: str) -> bool:
    one, files = SUBJECTS[subject], unframe(data)
    try:
        holdall.open(source_of(files, one.start), format=one.format(files)).close()
    except HoldallError:
        return False
    return True
