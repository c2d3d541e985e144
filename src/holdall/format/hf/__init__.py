"""Hugging Face folders: safetensors files with an index, and the files of the model and its tokenizer beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdall.errors import UnsupportedError
from holdall.format import safetensors
from holdall.format.base import Format, Holds, OnProgress, Option, import_late
from holdall.format.hf.layout import INDEX_SUFFIX
from holdall.format.hf.rules import RULES
from holdall.format.safetensors.rules import RULES as FILE_RULES
from holdall.format.weight_files import has_safetensors
from holdall.model.metadata import is_carried_key

if TYPE_CHECKING:
    from holdall.base.check import Check
    from holdall.model.model import Model
    from holdall.source import Source

__all__ = ["FORMAT"]


class HuggingFace(Format):
    """A folder as ``save_pretrained`` leaves it and the hub stores it."""

    name = "hf"
    title = "Hugging Face folder"
    folder = True
    holds = Holds(
        dtypes=safetensors.FORMAT.holds.dtypes,
        whole_bytes=True,
        assets=True,
        free_text=True,
        text_bytes=safetensors.FORMAT.holds.text_bytes,
        names=safetensors.FORMAT.holds.names,
        refuses_name=safetensors.FORMAT.holds.refuses_name,
        refuses_metadata=safetensors.FORMAT.holds.refuses_metadata,
        refuses_asset=import_late("holdall.format.hf.write", "asset_breach"),
    )
    options = (
        Option("max_shard_size", "5GB", "the most bytes of tensors in a file, such as 5GB or 512MiB; keep: as it was"),
        *safetensors.OPTIONS,
    )
    rules = (*RULES, *FILE_RULES)

    def unread_files(self, model: Model) -> list[str]:
        """Weights that the index does not name, hidden files, and files deeper than one folder."""
        known = {*model.assets, *(source.member for source in model.sources)}
        there = [name for source in model.sources[:1] for name in source.everything()]
        return [name for name in there if name not in known and not is_carried_key(name)]

    def accepts(self, head: bytes, source: Source) -> bool:
        """A folder with safetensors files, or an index by its name."""
        if not source.is_folder:
            return source.name.endswith(INDEX_SUFFIX)
        try:
            return has_safetensors(source.names())
        except (OSError, UnsupportedError):
            return False

    def audit(self, model: Model, check: Check, on_progress: OnProgress) -> None:
        """Check that assets called .json are JSON."""
        from holdall.format.hf_assets import parse_asset

        for name in model.assets:
            if name.endswith(".json"):
                with check.inside(name), check.scope():
                    parse_asset(model.assets, name)

    def facet(self, name: str, model: Model) -> Any:
        """Configuration and vocabulary, from the assets."""
        from holdall.format import hf_assets

        match name:
            case "config":
                return hf_assets.config_of(model.assets)
            case "vocab":
                return hf_assets.vocab_of(model.assets)
            case _:
                return None


FORMAT = HuggingFace()
