"""GGUF, versions 2 and 3: typed metadata, and tensors as ggml has them, plain or in quantized blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from holdall.errors import UnsupportedError
from holdall.format import Format, Holds, Option
from holdall.formats.gguf.layout import MAGIC, MAX_DIMS, MAX_NAME
from holdall.formats.gguf.rules import RULES
from holdall.ggml import BLOCKS, PLAIN

if TYPE_CHECKING:
    from holdall.check import Check
    from holdall.ledger import Ledger
    from holdall.model import Model
    from holdall.plan import Plan
    from holdall.source import Source

__all__ = ["FORMAT"]

# The special tokens by name, and the keys under which GGUF has their ids.
_SPECIAL = {
    "bos": "bos", "eos": "eos", "unk": "unknown", "sep": "seperator", "pad": "padding", "cls": "cls", "mask": "mask",
}  # fmt: skip


def _refuses_name(name: str) -> str | None:
    from holdall.formats.gguf.write import name_breach

    return name_breach(name)


def _refuses_metadata(key: str, value: Any) -> str | None:
    from holdall.formats.gguf.write import metadata_breach

    return metadata_breach(key, value)


class Gguf(Format):
    """The GGUF container."""

    name = "gguf"
    title = "GGUF"
    suffixes = (".gguf",)
    splits = True
    defers_documents = True  # a vocabulary is decoded when it is asked for
    holds = Holds(
        dtypes=frozenset([*PLAIN.values(), *(blocks.name for blocks in BLOCKS.values())]),
        max_rank=MAX_DIMS,
        scalars=frozenset(PLAIN.values()) - {"bf16"},  # gguf-py counts bf16 in blocks, and blocks by the last dimension
        free_text=True,
        max_name=MAX_NAME,
        text_bytes=1 << 30,  # of ggml
        names="1 to 63 bytes of any text without NUL",
        refuses_name=_refuses_name,
        refuses_metadata=_refuses_metadata,
    )
    options = (
        Option("alignment", "auto", "payloads begin on multiples of it; auto is what general.alignment says, or 32"),
    )
    rules = RULES

    def accepts(self, head: bytes, source: Source) -> bool:
        """By the magic; a folder by the names of parts in it."""
        if not source.is_folder:
            return head.startswith(MAGIC)
        from holdall.formats.gguf.splits import sets_in

        try:
            return bool(sets_in(source.names()))
        except (OSError, UnsupportedError):
            return False

    def read(self, source: Source, check: Check, ledger: Ledger) -> Model:
        """Header, metadata and tensor table; of a split model, those of all parts."""
        from holdall.formats.gguf.read import read

        return read(source, check, ledger)

    def plan(self, model: Model, options: Mapping[str, Any]) -> Plan:
        """One file of version 3."""
        from holdall.formats.gguf.write import plan

        return plan(model, options)

    def part(self, model: Model, number: int, count: int, tensors: int) -> Model:
        """With the split.* entries; the first part has the metadata, and a single one says nothing of splitting."""
        if count == 1:
            return model
        from holdall.formats.gguf.read import GgufNative
        from holdall.model import Model

        return Model(
            model.tensors,
            metadata=model.metadata,
            assets=model.assets,
            native=GgufNative(part=(number, count, tensors)),
            format=model.format,
            version=model.version,
            sources=model.sources,
        )

    def beside(self, model: Model) -> list[str]:
        """Files of the folder that are no parts of the split model."""
        known = {source.member for source in model.sources}
        folders = (source for source in model.sources[:1] if source.is_folder)
        return [name for source in folders for name in source.everything() if name not in known]

    def facet(self, name: str, model: Model) -> Any:
        """The vocabulary."""
        tokens = model.metadata.get("tokenizer.ggml.tokens") if name == "vocab" else None
        if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
            return None
        from holdall.vocab import Vocab

        ids = {name: model.metadata.get(f"tokenizer.ggml.{key}_token_id") for name, key in _SPECIAL.items()}
        return Vocab(tokens, {name: id for name, id in ids.items() if isinstance(id, int) and 0 <= id < 1 << 32})


FORMAT = Gguf()
