"""Profiles: which tensors and metadata a certain model has, as data, and whether a file has them.

A profile is a JSON file beside this one: the numbers of a model, and the architecture that says which tensors
follow from them. One can as well be made from the ``config.json`` of a Hugging Face folder.

>>> profile = load("all-MiniLM-L6-v2")
>>> len(profile.required), profile.tensors["pooler.dense.bias"].optional
(101, True)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdall.check import Finding, Rule
from holdall.errors import ContentError, UnsupportedError

if TYPE_CHECKING:
    from holdall.model import Model

__all__ = ["Expected", "Profile", "check", "from_config", "load", "names"]

METADATA = Rule("profile.metadata", "the metadata that the profile names is there and says what it says")
MISSING = Rule("profile.tensor.missing", "every tensor of the profile is there")
SHAPE = Rule("profile.tensor.shape", "tensors have the shapes of the profile")
DTYPE = Rule("profile.tensor.dtype", "tensors have the dtype of the profile")
EXTRA = Rule("profile.tensor.extra", "there are no other tensors", severity="note")
VOCAB = Rule("profile.vocab", "the vocabulary has as many tokens as the embeddings have rows")

_MOST_LAYERS = 100_000  # a configuration is a file of strangers, too
_LARGEST = 1 << 32


@dataclass(frozen=True, slots=True)
class Expected:
    """One tensor of a profile. ``dtype`` None takes any."""

    shape: tuple[int, ...]
    dtype: str | None = None
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Profile:
    """What a model must hold. A metadata value of None means that the key must be there, whatever it says."""

    name: str
    metadata: Mapping[str, str | None]
    tensors: Mapping[str, Expected]
    vocab_size: int

    @property
    def required(self) -> list[str]:
        """The names of the tensors that may not be missing."""
        return [name for name, tensor in self.tensors.items() if not tensor.optional]


def names() -> list[str]:
    """The profiles that :func:`load` knows by name."""
    from importlib.resources import files

    stems = (entry.name.removesuffix(".json") for entry in files(__name__).iterdir() if entry.name.endswith(".json"))
    return sorted(stem for stem in stems if "config" in _data(stem) and "architecture" in _data(stem))


def load(name: str) -> Profile:
    """The profile called ``name``.

    >>> load("all-MiniLM-L6-v2").tensors["embeddings.word_embeddings.weight"]
    Expected(shape=(30522, 384), dtype='f32', optional=False)
    """
    known = names()
    if name not in known:
        raise UnsupportedError(f"there is no profile {name!r}; the profiles are: {', '.join(known)}")
    data = _data(name)
    return _expanded(name, _data(data["architecture"]), data["config"], data["dtype"])


def from_config(config: Mapping[str, Any], *, name: str | None = None, dtype: str | None = None) -> Profile:
    """The profile of a model with this Hugging Face configuration; BERT is the architecture that is known.

    >>> from_config({"model_type": "bert", "vocab_size": 99, "hidden_size": 8, "num_hidden_layers": 1,
    ...     "num_attention_heads": 2, "intermediate_size": 16, "max_position_embeddings": 12}).vocab_size
    99
    """
    architecture = config.get("model_type", "bert")
    if architecture != "bert":
        raise UnsupportedError(f"there is no profile for models of the type {architecture!r}; bert is known")
    stated = config.get("_name_or_path")
    title = name or (stated if isinstance(stated, str) and stated else architecture)
    return _expanded(title, _data(architecture), config, dtype)


def _data(name: str) -> dict[str, Any]:
    import json
    from importlib.resources import files

    found: dict[str, Any] = json.loads((files(__name__) / f"{name}.json").read_text())
    return found


def _expanded(name: str, architecture: Mapping[str, Any], config: Mapping[str, Any], dtype: str | None) -> Profile:
    """Put the numbers of ``config`` into the tables of its architecture."""
    sizes = {key: _size(config, key, architecture["defaults"].get(key)) for key in architecture["config"]}
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


def _size(config: Mapping[str, Any], key: str, default: int | None) -> int:
    value = config.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _LARGEST:
        raise ContentError(f"a configuration needs {key}, a whole number, not {value!r}")
    return value


# -- checking ---------------------------------------------------------------------------------------------------------


def check(model: Model, profile: Profile) -> list[Finding]:
    """What ``model`` lacks of ``profile``, or holds otherwise; empty when it is such a model.

    Metadata is looked at in files that have a place for these keys: EMBD of the documented layout.
    """
    return [*_metadata(model, profile), *_tensors(model, profile), *_vocab(model, profile)]


def _finding(rule: Rule, at: int | None, message: str) -> Finding:
    return Finding(rule.id, rule.severity, at, message)


def _metadata(model: Model, profile: Profile) -> Iterator[Finding]:
    if model.format != "embd" or len(model.version) < 2:
        return
    for key, wanted in profile.metadata.items():
        if key not in model.metadata:
            yield _finding(METADATA, None, f"{profile.name}: the metadata key {key} is missing")
        elif wanted is not None and model.metadata[key] != wanted:
            message = f"{profile.name}: metadata {key} is {model.metadata[key]!r}, not {wanted!r}"
            yield _finding(METADATA, None, message)
        elif key == "created_at" and not _is_moment(model.metadata[key]):
            message = f"{profile.name}: metadata created_at is {model.metadata[key]!r}, not a time of ISO 8601"
            yield _finding(METADATA, None, message)


def _is_moment(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _tensors(model: Model, profile: Profile) -> Iterator[Finding]:
    for name, wanted in profile.tensors.items():
        if name not in model:
            if not wanted.optional:
                yield _finding(MISSING, None, f"{profile.name}: the tensor {name!r} is missing")
            continue
        tensor = model[name]
        if tensor.shape != wanted.shape:
            message = f"{profile.name}: tensor {name!r} is {list(tensor.shape)}, not {list(wanted.shape)}"
            yield _finding(SHAPE, tensor.offset, message)
        if wanted.dtype is not None and str(tensor.dtype) != wanted.dtype:
            message = f"{profile.name}: tensor {name!r} is {tensor.dtype}, not {wanted.dtype}"
            yield _finding(DTYPE, tensor.offset, message)
    others: Sequence[str] = [name for name in model if name not in profile.tensors]
    if others:
        shown = ", ".join(repr(name) for name in others[:3]) + (", ..." if len(others) > 3 else "")
        yield _finding(EXTRA, None, f"{profile.name}: {len(others)} tensors besides: {shown}")


def _vocab(model: Model, profile: Profile) -> Iterator[Finding]:
    vocab = model.vocab
    if vocab is None:
        return
    if len(vocab) != profile.vocab_size:
        yield _finding(VOCAB, None, f"{profile.name}: {len(vocab)} tokens, not {profile.vocab_size}")
    for name, id in vocab.special.items():
        if id >= len(vocab):
            message = f"{profile.name}: the special token {name} has the id {id}, which no token has"
            yield _finding(VOCAB, None, message)
