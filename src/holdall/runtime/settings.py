"""What a sentence encoder needs to know besides its weights, from wherever the container holds it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdall import profiles
from holdall.errors import ContentError, MissingError, UnsupportedError
from holdall.facets import parse_asset

if TYPE_CHECKING:
    from holdall.model import Model
    from holdall.vocab import Vocab

__all__ = ["WORDS", "Settings", "settings_of"]

WORDS = "embeddings.word_embeddings.weight"
_POSITIONS = "embeddings.position_embeddings.weight"
_TYPES = "embeddings.token_type_embeddings.weight"
_QUERY = "encoder.layer.{}.attention.self.query.weight"
_FIRST = "encoder.layer.0.intermediate.dense.weight"

_USUAL_LENGTH = 256  # where nothing says how long a text may be; longer ones are cut, and that is told
_HEADS = ("num_attention_heads", "mcf.head_count")  # in metadata

_MODULES = ("Transformer", "Pooling", "Normalize")


@dataclass(frozen=True, slots=True)
class Settings:
    """A BERT sentence encoder in numbers; ``prefix`` stands before the names of its tensors."""

    prefix: str
    hidden: int
    layers: int
    heads: int
    eps: float
    max_length: int
    lowercase: bool = True
    strip_accents: bool | None = None
    ideographs: bool = True
    pooling: str = "mean"
    normalize: bool = True


class _Content:
    """A model, what it was made from, and the original whose skeleton it carries: whoever knows something answers."""

    def __init__(self, model: Model) -> None:
        from holdall.operations.convert.bound import original_of

        self.holders = [model]
        while (origin := self.holders[-1].origin) is not None:
            self.holders.append(origin)
        original = original_of(self.holders[-1])
        if original is not None:
            self.holders.append(original)

    def facets(self, name: str) -> Iterator[Any]:
        from holdall import registry

        for holder in self.holders:
            found = None if holder.format is None else registry.find(holder.format).facet(name, holder)
            if found is not None:
                yield found

    def document(self, name: str) -> dict[str, Any]:
        """A JSON object among the assets; empty where there is none."""
        found = self._parsed(name)
        return found if isinstance(found, dict) else {}

    def modules(self) -> list[str] | None:
        """What a text goes through, by the names of sentence-transformers; None where it is not said."""
        found = self._parsed("modules.json")
        if not isinstance(found, list):
            return None
        return [str(row.get("type")).rpartition(".")[2] for row in found if isinstance(row, dict)]

    def _parsed(self, name: str) -> Any:
        return next((parse_asset(holder.assets, name) for holder in self.holders if name in holder.assets), None)

    def config(self) -> Mapping[str, Any]:
        """The configuration that states the heads, unwrapped from its kind; else the first there is."""
        found = [_unwrapped(config) for config in self.facets("config")]
        return next((config for config in found if "num_attention_heads" in config), found[0] if found else {})


def settings_of(model: Model, config: Mapping[str, Any] | None, vocab: Vocab | None) -> tuple[Settings, Vocab]:
    """Settings and vocabulary of a model; what is given wins. MissingError names all that is nowhere to be found."""
    names = [name for name in model if name == WORDS or name.endswith(f".{WORDS}")]
    if not names:
        raise UnsupportedError(f"this is no BERT encoder: among its {len(model)} tensors there is no {WORDS!r}")
    prefix = names[0].removesuffix(WORDS)
    content = _Content(model)
    stated = content.config() if config is None else _unwrapped(config)
    vocab = vocab if vocab is not None else next(content.facets("vocab"), None)
    heads = stated.get("num_attention_heads", _stated_heads(model))
    lacks = []
    if vocab is None:
        lacks.append("the vocabulary (a vocab.txt: --vocab, or vocab= in Python)")
    if heads is None:
        lacks.append("the number of attention heads (num_attention_heads, of a config.json: --config, or config=)")
    if vocab is None or heads is None:
        raise MissingError(f"to embed texts, the model lacks {' and '.join(lacks)}")
    _check_kind(stated)
    sizes = _sizes(model, prefix, stated, heads)
    length, positions = _length(content), sizes["max_position_embeddings"]
    return Settings(
        prefix,
        hidden=sizes["hidden_size"],
        layers=sizes["num_hidden_layers"],
        heads=sizes["num_attention_heads"],
        eps=_eps(stated),
        max_length=min(length, positions),
        **_tokenization(content, vocab),
        **_after(content),
    ), vocab


def _unwrapped(config: Any) -> Mapping[str, Any]:
    """The inner one of a gpt-rs configuration: ``{"kind": ..., "config": {...}}``."""
    if not isinstance(config, Mapping):
        raise ContentError(f"a configuration is an object, not {type(config).__name__}")
    inner = config.get("config")
    return inner if "kind" in config and isinstance(inner, Mapping) else config


def _stated_heads(model: Model) -> int | None:
    for key in _HEADS:
        value = str(model.metadata.get(key, ""))
        if value.isascii() and value.isdigit() and len(value) < 10:
            return int(value)
    return None


def _check_kind(config: Mapping[str, Any]) -> None:
    for key, known in (("model_type", "bert"), ("hidden_act", "gelu"), ("position_embedding_type", "absolute")):
        if config.get(key, known) != known:
            raise UnsupportedError(f"an encoder with {key} {config[key]!r} cannot be run; {known} can")


def _eps(config: Mapping[str, Any]) -> float:
    eps = config.get("layer_norm_eps", 1e-12)
    if isinstance(eps, bool) or not isinstance(eps, (int, float)) or not 0 <= eps < 1:
        raise ContentError(f"layer_norm_eps is {eps!r}, not a small number")
    return float(eps)


def _sizes(model: Model, prefix: str, config: Mapping[str, Any], heads: Any) -> dict[str, int]:
    """The sizes of the encoder by its tensors; every tensor that it needs is there and fits them."""
    rows, hidden = _matrix(model, prefix + WORDS)
    layers = 0
    while prefix + _QUERY.format(layers) in model:
        layers += 1
    sizes = {
        "vocab_size": rows,
        "hidden_size": hidden,
        "num_hidden_layers": config.get("num_hidden_layers", layers),
        "num_attention_heads": heads,
        "intermediate_size": _matrix(model, prefix + _FIRST)[0] if prefix + _FIRST in model else 0,
        "max_position_embeddings": _matrix(model, prefix + _POSITIONS)[0],
        "type_vocab_size": _matrix(model, prefix + _TYPES)[0],
    }
    profile = profiles.from_config({"model_type": "bert", **sizes})
    for name in profile.required:
        wanted = profile.tensors[name].shape
        if prefix + name not in model:
            raise MissingError(f"the encoder needs the tensor {prefix + name!r}, which is not there")
        if model[prefix + name].shape != wanted:
            found = list(model[prefix + name].shape)
            raise ContentError(f"tensor {prefix + name!r} is {found}, but the encoder needs {list(wanted)}")
    for key, size in sizes.items():
        if size < 1:
            raise ContentError(f"the encoder has {key} {size}")
        if config.get(key, size) != size and key != "vocab_size":  # rows may have been added to the table
            raise ContentError(f"the configuration says {key} {config[key]!r}, but the tensors say {size}")
    if hidden % heads:
        raise ContentError(f"{heads} attention heads do not divide the hidden size {hidden}")
    return sizes


def _matrix(model: Model, name: str) -> tuple[int, int]:
    shape = model[name].shape
    if len(shape) != 2:
        raise ContentError(f"tensor {name!r} is {list(shape)}, but a matrix is expected")
    return shape[0], shape[1]


def _length(content: _Content) -> int:
    """How many tokens a text may have. (tokenizer.json states how its last user cut, not what the model takes.)"""
    stated = content.document("sentence_bert_config.json").get("max_seq_length")
    return stated if type(stated) is int and stated >= 2 else _USUAL_LENGTH


def _tokenization(content: _Content, vocab: Vocab) -> dict[str, Any]:
    stated = content.document("tokenizer_config.json")
    normalizer = content.document("tokenizer.json").get("normalizer")
    if isinstance(normalizer, dict) and normalizer.get("type") == "BertNormalizer":
        stated = {
            "do_lower_case": normalizer.get("lowercase"),
            "strip_accents": normalizer.get("strip_accents"),
            "tokenize_chinese_chars": normalizer.get("handle_chinese_chars"),
        }
    lower, accents, ideographs = map(stated.get, ("do_lower_case", "strip_accents", "tokenize_chinese_chars"))
    if not isinstance(lower, bool):  # a vocabulary without capitals is one of lower-case words
        special = set(vocab.special.values())
        lower = not any(
            token != token.lower() for id, token in enumerate(vocab) if id not in special and token.isalpha()
        )
    return {
        "lowercase": lower,
        "strip_accents": accents if isinstance(accents, bool) else None,
        "ideographs": ideographs if isinstance(ideographs, bool) else True,
    }


def _after(content: _Content) -> dict[str, Any]:
    """Pooling and normalization: what the model states, else the mean, normalized."""
    modules = content.modules()
    others = [name for name in modules or () if name not in _MODULES]
    if others:
        raise UnsupportedError(f"the model passes its texts through {', '.join(others)}, which cannot be run")
    stated = content.document("1_Pooling/config.json")
    chosen = [key for key, value in stated.items() if key.startswith("pooling_mode_") and value is True]
    known = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
    if len(chosen) > 1 or any(key not in known for key in chosen):
        raise UnsupportedError(f"the model pools by {', '.join(chosen)}; mean_tokens and cls_token can be run")
    return {
        "pooling": known[chosen[0]] if chosen else "mean",
        "normalize": modules is None or "Normalize" in modules,
    }
