"""Profiles: the tensors and metadata of a certain model, as data, and a check whether a file has them.

A profile is a JSON file beside this module: the sizes of a model, and its architecture, which gives the tensors.
One can also be made from the ``config.json`` of a Hugging Face folder.

>>> profile = load("all-MiniLM-L6-v2")
>>> len(profile.required), profile.tensors["pooler.dense.bias"].optional
(101, True)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdall.base.check import Finding, Rule
from holdall.errors import ContentError, UnsupportedError

if TYPE_CHECKING:
    from holdall.model.model import Model

__all__ = ["Expected", "Profile", "check", "from_config", "load", "names"]

METADATA = Rule("profile.metadata", "the metadata that the profile names is there with its values")
MISSING = Rule("profile.tensor.missing", "every tensor of the profile is there")
SHAPE = Rule("profile.tensor.shape", "tensors have the shapes of the profile")
DTYPE = Rule("profile.tensor.dtype", "tensors have the dtype of the profile")
EXTRA = Rule("profile.tensor.extra", "there are no other tensors", severity="note")
VOCAB = Rule("profile.vocab", "the vocabulary has as many tokens as the embeddings have rows")

_MOST_LAYERS = 100_000  # configurations are untrusted too
_LARGEST = 1 << 32


@dataclass(frozen=True, slots=True)
class Expected:
    """One tensor of a profile; any dtype matches None."""

    shape: tuple[int, ...]
    dtype: str | None = None
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Profile:
    """The content that a model must have. A metadata key with None must be there with any value."""

    name: str
    metadata: Mapping[str, str | None]
    tensors: Mapping[str, Expected]
    vocab_size: int

    @property
    def required(self) -> list[str]:
        """The names of the tensors that must be there."""
        return [name for name, tensor in self.tensors.items() if not tensor.optional]


def names() -> list[str]:
    """Return the names that :func:`load` knows."""
    from importlib.resources import files

    stems = (entry.name.removesuffix(".json") for entry in files(__name__).iterdir() if entry.name.endswith(".json"))
    return sorted(stem for stem in stems if "config" in _read_json(stem) and "architecture" in _read_json(stem))


def load(name: str) -> Profile:
    """Load the profile called ``name``.

    >>> load("all-MiniLM-L6-v2").tensors["embeddings.word_embeddings.weight"]
    Expected(shape=(30522, 384), dtype='f32', optional=False)
    """
    known = names()
    if name not in known:
        raise UnsupportedError(f"there is no profile {name!r}; the profiles are: {', '.join(known)}")
    data = _read_json(name)
    return _expand(name, _read_json(data["architecture"]), data["config"], data["dtype"])


def from_config(config: Mapping[str, Any], *, name: str | None = None, dtype: str | None = None) -> Profile:
    """Make the profile of a model from its Hugging Face configuration. Only BERT is known.

    >>> from_config({"model_type": "bert", "vocab_size": 99, "hidden_size": 8, "num_hidden_layers": 1,
    ...     "num_attention_heads": 2, "intermediate_size": 16, "max_position_embeddings": 12}).vocab_size
    99
    """
    architecture = config.get("model_type", "bert")
    if architecture != "bert":
        raise UnsupportedError(f"there is no profile for models of the type {architecture!r}; bert is known")
    stated = config.get("_name_or_path")
    title = name or (stated if isinstance(stated, str) and stated else architecture)
    return _expand(title, _read_json(architecture), config, dtype)


def _read_json(name: str) -> dict[str, Any]:
    import json
    from importlib.resources import files

    found: dict[str, Any] = json.loads((files(__name__) / f"{name}.json").read_text(encoding="utf-8"))
    return found


def _expand(name: str, architecture: Mapping[str, Any], config: Mapping[str, Any], dtype: str | None) -> Profile:
    """Put the numbers of ``config`` into the tables of its architecture."""
    sizes = {key: _read_size(config, key, architecture["defaults"].get(key)) for key in architecture["config"]}
    layers = sizes[architecture["layers"]]
    if layers > _MOST_LAYERS:
        raise ContentError(f"a configuration with {layers} layers; at most {_MOST_LAYERS}")
    tensors: dict[str, Expected] = {}
    for table, optional in (("tensors", False), ("optional", True)):
        repeated = [name for name in architecture[table] if "{layer}" in name]
        once = [name for name in architecture[table] if "{layer}" not in name]
        spelled = [(pattern, pattern) for pattern in once]
        spelled += [(pattern.replace("{layer}", str(n)), pattern) for n in range(layers) for pattern in repeated]
        for tensor, pattern in spelled:
            shape = tuple(sizes[dim] for dim in architecture[table][pattern])
            tensors[tensor] = Expected(shape, dtype, optional)
    metadata = {key: None if size is None else str(sizes[size]) for key, size in architecture["metadata"].items()}
    return Profile(name, metadata, tensors, sizes["vocab_size"])


def _read_size(config: Mapping[str, Any], key: str, default: int | None) -> int:
    value = config.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _LARGEST:
        raise ContentError(f"a configuration needs {key}, a whole number, not {value!r}")
    return value


def check(model: Model, profile: Profile) -> list[Finding]:
    """Return where ``model`` differs from ``profile``; empty if it fits.

    Metadata is checked only in files that have these keys: EMBD of the documented layout.
    """
    return [*_check_metadata(model, profile), *_check_tensors(model, profile), *_check_vocab(model, profile)]


def _make_finding(rule: Rule, at: int | None, message: str) -> Finding:
    return Finding(rule.id, rule.severity, at, message)


def _check_metadata(model: Model, profile: Profile) -> Iterator[Finding]:
    if model.format != "embd" or len(model.version) < 2:
        return
    for key, wanted in profile.metadata.items():
        if key not in model.metadata:
            yield _make_finding(METADATA, None, f"{profile.name}: the metadata key {key} is missing")
        elif wanted is not None and model.metadata[key] != wanted:
            message = f"{profile.name}: metadata {key} is {model.metadata[key]!r}, not {wanted!r}"
            yield _make_finding(METADATA, None, message)
        elif key == "created_at" and not _is_moment(model.metadata[key]):
            message = f"{profile.name}: metadata created_at is {model.metadata[key]!r}, not a time of ISO 8601"
            yield _make_finding(METADATA, None, message)


def _is_moment(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _check_tensors(model: Model, profile: Profile) -> Iterator[Finding]:
    for name, wanted in profile.tensors.items():
        if name not in model:
            if not wanted.optional:
                yield _make_finding(MISSING, None, f"{profile.name}: the tensor {name!r} is missing")
            continue
        tensor = model[name]
        if tensor.shape != wanted.shape:
            message = f"{profile.name}: tensor {name!r} is {list(tensor.shape)}, not {list(wanted.shape)}"
            yield _make_finding(SHAPE, tensor.offset, message)
        if wanted.dtype is not None and str(tensor.dtype) != wanted.dtype:
            message = f"{profile.name}: tensor {name!r} is {tensor.dtype}, not {wanted.dtype}"
            yield _make_finding(DTYPE, tensor.offset, message)
    others: Sequence[str] = [name for name in model if name not in profile.tensors]
    if others:
        shown = ", ".join(repr(name) for name in others[:3]) + (", ..." if len(others) > 3 else "")
        yield _make_finding(EXTRA, None, f"{profile.name}: {len(others)} tensors besides: {shown}")


def _check_vocab(model: Model, profile: Profile) -> Iterator[Finding]:
    vocab = model.vocab
    if vocab is None:
        return
    if len(vocab) != profile.vocab_size:
        yield _make_finding(VOCAB, None, f"{profile.name}: {len(vocab)} tokens, not {profile.vocab_size}")
    for name, id in vocab.special.items():
        if id >= len(vocab):
            message = f"{profile.name}: the special token {name} has the id {id}, which no token has"
            yield _make_finding(VOCAB, None, message)
