"""Hugging Face folders: safetensors files with an index, and the files of the model and its tokenizer beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from holdall.errors import UnsupportedError
from holdall.format import Format, Holds, Option, Tick
from holdall.formats import safetensors
from holdall.formats.hf.layout import INDEX_SUFFIX, SUFFIX
from holdall.formats.hf.rules import RULES
from holdall.formats.safetensors.rules import RULES as FILE_RULES
from holdall.metadata import is_own

if TYPE_CHECKING:
    from holdall.check import Check
    from holdall.ledger import Ledger
    from holdall.model import Model
    from holdall.plan import FolderPlan
    from holdall.source import Source

__all__ = ["FORMAT"]


def _refuses_asset(name: str) -> str | None:
    from holdall.formats.hf.write import asset_breach

    return asset_breach(name)


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
        refuses_asset=_refuses_asset,
    )
    options = (
        Option("max_shard_size", "5GB", "the most bytes of tensors in a file, such as 5GB or 512MiB; keep: as it was"),
        *safetensors.OPTIONS,
    )
    rules = (*RULES, *FILE_RULES)

    def beside(self, model: Model) -> list[str]:
        """Weights that the index does not name, hidden files, and what lies deeper than one folder."""
        known = {*model.assets, *(source.member for source in model.sources)}
        there = [name for source in model.sources[:1] for name in source.everything()]
        return [name for name in there if name not in known and not is_own(name)]

    def accepts(self, head: bytes, source: Source) -> bool:
        """A folder with safetensors files, or an index by its name."""
        if not source.is_folder:
            return source.name.endswith(INDEX_SUFFIX)
        try:
            return any(name.endswith((SUFFIX, INDEX_SUFFIX)) for name in source.names())
        except (OSError, UnsupportedError):
            return False

    def read(self, source: Source, check: Check, ledger: Ledger) -> Model:
        """The headers of all files and the index; assets are read when asked for."""
        from holdall.formats.hf.read import read

        return read(source, check, ledger)

    def plan(self, model: Model, options: Mapping[str, Any]) -> FolderPlan:
        """One file, or shards and an index."""
        from holdall.formats.hf.write import plan

        return plan(model, options)

    def audit(self, model: Model, check: Check, tick: Tick) -> None:
        """Assets called .json are JSON."""
        from holdall.facets import parse_asset

        for name in model.assets:
            if name.endswith(".json"):
                check.file = name
                with check.scope():
                    parse_asset(model.assets, name)
        check.file = None

    def facet(self, name: str, model: Model) -> Any:
        """Configuration and vocabulary, from the assets."""
        from holdall import facets

        match name:
            case "config":
                return facets.config_of(model.assets)
            case "vocab":
                return facets.vocab_of(model.assets)
            case _:
                return None


FORMAT = HuggingFace()
