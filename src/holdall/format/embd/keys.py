"""Fills in the metadata that the EMBD document requires, where it is known without a configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdall.base.moments import state_time
from holdall.format.embd.layout import KEYS
from holdall.format.hf_assets import find_model_name
from holdall.model.metadata import Entry

if TYPE_CHECKING:
    from holdall.model.model import Model
    from holdall.model.vocab import Vocab

__all__ = ["add_required_keys"]


def add_required_keys(entries: list[Entry], vocab: Vocab | None, model: Model) -> list[Entry]:
    """``entries``, followed by the required keys that they lack and whose value is known."""
    known: dict[str, str] = {"model_version": "1.0.0", "created_at": state_time()}
    if vocab is not None:
        known["vocab_size"] = str(len(vocab))
    name = find_model_name(model)
    if name:
        known["model_name"] = name
    has = {entry.key for entry in entries}
    return entries + [Entry(key, known[key], "string") for key in KEYS if key in known and key not in has]
