"""EMBD ``.weights``: embedding models with metadata and vocabulary, in two layouts that share a magic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from holdall.format import Format, Holds, Option, Tick
from holdall.formats.embd.layout import DTYPES, MAGIC
from holdall.formats.embd.rules import RULES

if TYPE_CHECKING:
    from holdall.check import Check
    from holdall.ledger import Ledger
    from holdall.model import Model
    from holdall.payload import Span
    from holdall.plan import Plan
    from holdall.proof import Proof
    from holdall.source import Source

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


class Embd(Format):
    """The EMBD container."""

    name = "embd"
    title = "EMBD (.weights of cpp_embedder)"
    suffixes = (".weights",)
    holds = Holds(
        dtypes=frozenset(DTYPES),
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
        Option("vocab", None, "the vocabulary to store, a holdall.Vocab or tokens; by default the model's own"),
        Option("fill", "auto", "add the required metadata keys that are missing and known: auto does so from a Hugging "
               "Face configuration, all also without one (created_at, model_version)", ("auto", "all", "none")),
    )  # fmt: skip
    rules = RULES

    def accepts(self, head: bytes, source: Source) -> bool:
        """By the magic."""
        return head.startswith(MAGIC)

    def read(self, source: Source, check: Check, ledger: Ledger) -> Model:
        """Whichever of the layouts the file has."""
        from holdall.formats.embd.read import read

        return read(source, check, ledger)

    def plan(self, model: Model, options: Mapping[str, Any]) -> Plan:
        """Aligned and with checksums by default."""
        from holdall.formats.embd.write import plan

        return plan(model, options)

    def leaves(self, model: Model, options: Mapping[str, Any]) -> Mapping[str, str]:
        """All metadata, in the sequential layout: the C++ loader has no place for it."""
        from holdall.formats.embd.write import layout_of

        if layout_of(model, options) != "sequential":
            return {}
        return dict.fromkeys(model.metadata, "the sequential layout has no metadata")

    def proofs(self, model: Model, spans: Iterable[Span]) -> Iterable[Proof]:
        """The checksum of the tensor data."""
        from holdall.formats.embd.audit import proofs

        return proofs(model, spans)

    def only_here(self, model: Model) -> Mapping[str, str]:
        """The vocabulary."""
        vocab = self.facet("vocab", model)
        return {} if vocab is None else {"vocab": f"a vocabulary of {len(vocab)} tokens"}

    def audit(self, model: Model, check: Check, tick: Tick) -> None:
        """The checksums of tensor data and file, in one pass."""
        from holdall.formats.embd.audit import audit

        audit(model, check, tick)

    def facet(self, name: str, model: Model) -> Any:
        """The vocabulary."""
        from holdall.formats.embd.native import EmbdNative

        native = model.native
        return native.vocab if name == "vocab" and isinstance(native, EmbdNative) else None


FORMAT = Embd()
