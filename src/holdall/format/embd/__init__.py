"""EMBD ``.weights``: embedding models with metadata and vocabulary, in two layouts that share a magic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from holdall.format.base import Holds, MagicFormat, Option
from holdall.format.embd.layout import DTYPES, MAGIC
from holdall.format.embd.rules import RULES

if TYPE_CHECKING:
    from holdall.model.model import Model

__all__ = ["FORMAT"]

_LONGEST = (1 << 16) - 1  # bytes of a name, key or value


def _refuses_text(what: str, text: str) -> str | None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return f"{what} {text!r} cannot be written as UTF-8"
    return f"{what} of {size} bytes: at most {_LONGEST} can be stored" if size > _LONGEST else None


def _refuses_name(name: str) -> str | None:
    return _refuses_text("the name", name)


def _refuses_metadata(key: str, value: Any) -> str | None:
    if not isinstance(value, str):
        return f"values are text, not {type(value).__name__}"
    return _refuses_text("the key", key) or _refuses_text("the value", value)


class Embd(MagicFormat):
    """The EMBD container."""

    name = "embd"
    title = "EMBD (.weights of cpp_embedder)"
    suffixes = (".weights",)
    holds = Holds(
        dtypes=frozenset(DTYPES),
        read_assets=frozenset(("vocab.txt",)),
        min_rank=1,
        max_rank=4,
        free_text=True,
        text_bytes=_LONGEST,
        names="any text up to 65,535 bytes; 1 to 4 dims",
        refuses_name=_refuses_name,
        refuses_metadata=_refuses_metadata,
    )
    options = (
        Option("layout", "auto", "the layout of the document, or the sequential one that the C++ loader reads (f32 "
               "tensors and vocabulary only); auto is that of the file the model came from, else spec",
               ("auto", "spec", "sequential")),
        Option("align", None, "start every tensor at a multiple of 64; by default as in the file, else true"),
        Option("checksums", None, "store the three CRC-32s; by default as in the file, else true"),
        Option("vocab", None, "the vocabulary to store: a holdall.Vocab, tokens, or the bytes of a vocab.txt; by "
               "default the model's own. On the command line @FILE", document=True),
        Option("fill", "none", "all: add the required metadata keys that are missing and known without a configuration "
               "(model_name, model_version, vocab_size, created_at)", ("none", "all")),
    )  # fmt: skip
    rules = RULES
    magic = MAGIC

    def omitted_metadata(self, model: Model, options: Mapping[str, Any]) -> Mapping[str, str]:
        """All metadata, in the sequential layout: the C++ loader has no place for it."""
        from holdall.format.embd.write import layout_of

        if layout_of(model, options) != "sequential":
            return {}
        return dict.fromkeys(model.metadata, "the sequential layout has no metadata")

    def unique_content(self, model: Model) -> Mapping[str, str]:
        """The vocabulary."""
        vocab = self.facet("vocab", model)
        return {} if vocab is None else {"vocab": f"a vocabulary of {len(vocab)} tokens"}

    def own_values(self, model: Model) -> Mapping[str, Any]:
        """The tokens, and the ids of the special ones."""
        vocab = self.facet("vocab", model)
        return {} if vocab is None else {"vocabulary": list(vocab.tokens), "special tokens": dict(vocab.special)}

    def make_native(self, facets: Mapping[str, Any]) -> object:
        """Make the native part that holds a vocabulary."""
        from holdall.format.embd.native import EmbdNative

        return EmbdNative(facets["vocab"]) if facets.keys() == {"vocab"} else None

    def facet(self, name: str, model: Model) -> Any:
        """The vocabulary."""
        from holdall.format.embd.native import EmbdNative

        native = model.native
        return native.vocab if name == "vocab" and isinstance(native, EmbdNative) else None


FORMAT = Embd()
