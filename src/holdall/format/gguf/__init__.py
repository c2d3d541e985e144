"""GGUF, versions 2 and 3: typed metadata, and tensors as ggml has them, plain or in quantized blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdall.errors import ContentError, UnsupportedError
from holdall.format.base import Format, Holds, Option, import_late
from holdall.format.gguf.layout import MAGIC, MAX_DIMS, MAX_NAME
from holdall.format.gguf.rules import RULES
from holdall.model.ggml import BLOCKS, PLAIN, PREFIX

if TYPE_CHECKING:
    from holdall.model.model import Model
    from holdall.source import Source

__all__ = ["FORMAT", "SPECIAL_WORDS"]

# Names of special tokens, and the words that GGUF has for them in keys (one of which GGUF misspells).
SPECIAL_WORDS = {
    "bos": "bos", "eos": "eos", "unk": "unknown", "sep": "seperator", "pad": "padding", "cls": "cls", "mask": "mask",
}  # fmt: skip


class Gguf(Format):
    """The GGUF container."""

    name = "gguf"
    title = "GGUF"
    suffixes = (".gguf",)
    splits = True
    defers_documents = True  # a vocabulary is decoded when it is asked for
    holds = Holds(
        dtypes=frozenset([*PLAIN.values(), *(blocks.name for blocks in BLOCKS.values())]),
        opaque=PREFIX,
        max_rank=MAX_DIMS,
        scalars=frozenset(PLAIN.values()) - {"bf16"},  # gguf-py counts bf16 in blocks, and blocks by the last dimension
        free_text=True,
        max_name=MAX_NAME,
        text_bytes=1 << 30,  # the limit of ggml
        names="1 to 63 bytes of any text without NUL",
        refuses_name=import_late("holdall.format.gguf.write", "name_breach"),
        refuses_metadata=import_late("holdall.format.gguf.write", "metadata_breach"),
    )
    options = (
        Option("alignment", "auto", "payloads begin on multiples of it; auto is what general.alignment says, or 32"),
    )
    rules = RULES

    def accepts(self, head: bytes, source: Source) -> bool:
        """By the magic; a folder by the names of parts in it."""
        if not source.is_folder:
            return head.startswith(MAGIC)
        from holdall.format.gguf.splits import sets_in

        try:
            return bool(sets_in(source.names()))
        except (OSError, UnsupportedError):
            return False

    def infer_kind(self, value: Any) -> str | None:
        """The kind by the value; None for one that GGUF cannot hold."""
        from holdall.format.gguf.encode import infer

        try:
            return infer(value)
        except ContentError:
            return None

    def part(self, model: Model, number: int, count: int, tensors: int) -> Model:
        """The model with the split.* entries added; unchanged if it is the only part."""
        if count == 1:
            return model
        from holdall.format.gguf.read import GgufNative
        from holdall.model.model import Model

        return Model(
            model.tensors,
            metadata=model.metadata,
            assets=model.assets,
            native=GgufNative(part=(number, count, tensors)),
            format=model.format,
            version=model.version,
            sources=model.sources,
        )

    def facet(self, name: str, model: Model) -> Any:
        """The vocabulary."""
        tokens = model.metadata.get("tokenizer.ggml.tokens") if name == "vocab" else None
        if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
            return None
        from holdall.model.vocab import Vocab

        ids = {name: model.metadata.get(f"tokenizer.ggml.{key}_token_id") for name, key in SPECIAL_WORDS.items()}
        return Vocab(tokens, {name: id for name, id in ids.items() if isinstance(id, int) and 0 <= id < 1 << 32})


FORMAT = Gguf()
