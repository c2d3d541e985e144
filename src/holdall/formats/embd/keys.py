"""The metadata that the EMBD document requires, as far as a model's configuration knows it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from holdall.errors import ContentError
from holdall.formats.embd.layout import KEYS
from holdall.metadata import Entry

if TYPE_CHECKING:
    from holdall.model import Model
    from holdall.vocab import Vocab

__all__ = ["NO_TIME", "completed", "created_at"]

NO_TIME = Entry("created_at", "1970-01-01T00:00:00Z", "string")  # what stands where nobody states a time

# What each key is called in a Hugging Face configuration.
_IN_CONFIG = {
    "embedding_dim": "hidden_size",
    "vocab_size": "vocab_size",
    "num_layers": "num_hidden_layers",
    "num_attention_heads": "num_attention_heads",
    "hidden_size": "hidden_size",
    "intermediate_size": "intermediate_size",
    "max_position_emb": "max_position_embeddings",
}


def completed(entries: list[Entry], config: Mapping[str, Any], vocab: Vocab | None, model: Model) -> list[Entry]:
    """``entries`` and, after them, every required key that they lack and ``config`` can answer."""
    known: dict[str, str] = {"model_version": "1.0.0", "created_at": created_at()}
    for key, name in _IN_CONFIG.items():
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            known[key] = str(value)
    if vocab is not None:
        known["vocab_size"] = str(len(vocab))
    name = _model_name(config, model)
    if name:
        known["model_name"] = name
    has = {entry.key for entry in entries}
    return entries + [Entry(key, known[key], "string") for key in KEYS if key in known and key not in has]


def created_at() -> str:
    """The time that the environment fixes, or that of the epoch: never the clock, so that bytes repeat."""
    stated = os.environ.get("SOURCE_DATE_EPOCH", "0")
    try:
        moment = datetime.fromtimestamp(int(stated), UTC)
    except (ValueError, OverflowError, OSError):
        raise ContentError(f"embd: SOURCE_DATE_EPOCH is {stated!r}, not a number of seconds") from None
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _model_name(config: Mapping[str, Any], model: Model) -> str:
    stated = config.get("_name_or_path")
    path = stated if isinstance(stated, str) and stated else ""
    if not path and model.sources and model.sources[0].is_folder:
        path = model.sources[0].name
    return path.replace("\\", "/").rstrip("/").rpartition("/")[2]
