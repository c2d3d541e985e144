"""The settings of a sentence encoder, from all places where a container may hold them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdall import profiles
from holdall.errors import ContentError, MissingError, UnsupportedError
from holdall.format.hf_assets import parse_asset

if TYPE_CHECKING:
    from holdall.model.model import Model
    from holdall.model.vocab import Vocab

__all__ = ["WORDS", "Settings", "settings_of"]

WORDS = "embeddings.word_embeddings.weight"
_POSITIONS = "embeddings.position_embeddings.weight"
_TYPES = "embeddings.token_type_embeddings.weight"
_QUERY = "encoder.layer.{}.attention.self.query.weight"
_FIRST = "encoder.layer.0.intermediate.dense.weight"

_USUAL_LENGTH = 256  # the most tokens of a text, if the model states no limit; longer texts are cut and counted
_HEADS = ("num_attention_heads", "mcf.head_count")  # the metadata keys that state it

_MODULES = ("Transformer", "Pooling", "Normalize")


@dataclass(frozen=True, slots=True)
class Settings:
    """The numbers of a BERT sentence encoder; ``prefix`` comes before the names of its tensors."""

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
    """A model, the model that it was made from, and the original that it carries: the first with an answer counts."""

    def __init__(self, model: Model) -> None:
        from holdall.operations.convert.carried_source import open_original

        self.holders = [model]
        while (origin := self.holders[-1].origin) is not None:
            self.holders.append(origin)
        original = open_original(self.holders[-1])
        if original is not None:
            self.holders.append(original)

    def facets(self, name: str) -> Iterator[Any]:
        from holdall.format import registry

        for holder in self.holders:
            found = registry.resolve_facet(holder, name)
            if found is not None:
                yield found

    def document(self, name: str) -> dict[str, Any]:
        """Return a JSON object among the assets, or an empty one."""
        found = self._parse(name)
        return found if isinstance(found, dict) else {}

    def modules(self) -> list[str] | None:
        """Return the modules that a text passes through, as sentence-transformers names them; None if not stated."""
        found = self._parse("modules.json")
        if not isinstance(found, list):
            return None
        return [str(row.get("type")).rpartition(".")[2] for row in found if isinstance(row, dict)]

    def _parse(self, name: str) -> Any:
        return next((parse_asset(holder.assets, name) for holder in self.holders if name in holder.assets), None)

    def config(self) -> Mapping[str, Any]:
        """Return the configuration that states the number of heads; else the first one."""
        found = [_unwrap(config) for config in self.facets("config")]
        return next((config for config in found if "num_attention_heads" in config), found[0] if found else {})


def settings_of(model: Model, config: Mapping[str, Any] | None, vocab: Vocab | None) -> tuple[Settings, Vocab]:
    """Return settings and vocabulary of a model; arguments win. MissingError names everything that is missing."""
    names = [name for name in model if name == WORDS or name.endswith(f".{WORDS}")]
    if not names:
        raise UnsupportedError(f"this is no BERT encoder: among its {len(model)} tensors there is no {WORDS!r}")
    prefix = names[0].removesuffix(WORDS)
    content = _Content(model)
    stated = content.config() if config is None else _unwrap(config)
    vocab = vocab if vocab is not None else next(content.facets("vocab"), None)
    heads = stated.get("num_attention_heads", _find_heads(model))
    lacks = []
    if vocab is None:
        lacks.append("the vocabulary (a vocab.txt: --vocab, or vocab= in Python)")
    if heads is None:
        lacks.append("the number of attention heads (num_attention_heads, of a config.json: --config, or config=)")
    if vocab is None or heads is None:
        raise MissingError(f"to embed texts, the model lacks {' and '.join(lacks)}")
    _check_kind(stated)
    sizes = _find_sizes(model, prefix, stated, heads)
    length, positions = _find_length(content), sizes["max_position_embeddings"]
    return Settings(
        prefix,
        hidden=sizes["hidden_size"],
        layers=sizes["num_hidden_layers"],
        heads=sizes["num_attention_heads"],
        eps=_read_eps(stated),
        max_length=min(length, positions),
        **_find_tokenization(content, vocab),
        **_find_pooling(content),
    ), vocab


def _unwrap(config: Any) -> Mapping[str, Any]:
    """Return the inner object of a gpt-rs configuration: ``{"kind": ..., "config": {...}}``."""
    if not isinstance(config, Mapping):
        raise ContentError(f"a configuration is an object, not {type(config).__name__}")
    inner = config.get("config")
    return inner if "kind" in config and isinstance(inner, Mapping) else config


def _find_heads(model: Model) -> int | None:
    for key in _HEADS:
        value = str(model.metadata.get(key, ""))
        if value.isascii() and value.isdigit() and len(value) < 10:
            return int(value)
    return None


def _check_kind(config: Mapping[str, Any]) -> None:
    for key, known in (("model_type", "bert"), ("hidden_act", "gelu"), ("position_embedding_type", "absolute")):
        if config.get(key, known) != known:
            raise UnsupportedError(f"an encoder with {key} {config[key]!r} cannot be run; {known} can")


def _read_eps(config: Mapping[str, Any]) -> float:
    eps = config.get("layer_norm_eps", 1e-12)
    if isinstance(eps, bool) or not isinstance(eps, (int, float)) or not 0 <= eps < 1:
        raise ContentError(f"layer_norm_eps is {eps!r}, not a small number")
    return float(eps)


def _find_sizes(model: Model, prefix: str, config: Mapping[str, Any], heads: Any) -> dict[str, int]:
    """Return the sizes of the encoder, from its tensors; check that all tensors are there and fit."""
    rows, hidden = _check_matrix(model, prefix + WORDS)
    layers = 0
    while prefix + _QUERY.format(layers) in model:
        layers += 1
    sizes = {
        "vocab_size": rows,
        "hidden_size": hidden,
        "num_hidden_layers": config.get("num_hidden_layers", layers),
        "num_attention_heads": heads,
        "intermediate_size": _check_matrix(model, prefix + _FIRST)[0] if prefix + _FIRST in model else 0,
        "max_position_embeddings": _check_matrix(model, prefix + _POSITIONS)[0],
        "type_vocab_size": _check_matrix(model, prefix + _TYPES)[0],
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


def _check_matrix(model: Model, name: str) -> tuple[int, int]:
    shape = model[name].shape
    if len(shape) != 2:
        raise ContentError(f"tensor {name!r} is {list(shape)}, but a matrix is expected")
    return shape[0], shape[1]


def _find_length(content: _Content) -> int:
    """Return how many tokens a text may have. tokenizer.json does not count: it states how it was used last."""
    stated = content.document("sentence_bert_config.json").get("max_seq_length")
    return stated if type(stated) is int and stated >= 2 else _USUAL_LENGTH


def _find_tokenization(content: _Content, vocab: Vocab) -> dict[str, Any]:
    stated = content.document("tokenizer_config.json")
    normalizer = content.document("tokenizer.json").get("normalizer")
    if isinstance(normalizer, dict) and normalizer.get("type") == "BertNormalizer":
        stated = {
            "do_lower_case": normalizer.get("lowercase"),
            "strip_accents": normalizer.get("strip_accents"),
            "tokenize_chinese_chars": normalizer.get("handle_chinese_chars"),
        }
    lower, accents, ideographs = map(stated.get, ("do_lower_case", "strip_accents", "tokenize_chinese_chars"))
    return {
        "lowercase": lower if isinstance(lower, bool) else vocab.is_lowercase,
        "strip_accents": accents if isinstance(accents, bool) else None,
        "ideographs": ideographs if isinstance(ideographs, bool) else True,
    }


def _find_pooling(content: _Content) -> dict[str, Any]:
    """Return pooling and normalization as the model states them; else the mean, normalized."""
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
