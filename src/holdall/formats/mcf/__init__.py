"""MCF, major version 1: sections with a directory, a tensor index, quantized weights, Hugging Face files inside."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from holdall.format import Format, Holds, Option, Tick
from holdall.formats.mcf.layout import ASSETS, CHAT_TEMPLATE, DTYPE_IDS, MAGIC
from holdall.formats.mcf.rules import REQUIRED, RULES

if TYPE_CHECKING:
    from holdall.check import Check
    from holdall.ledger import Ledger
    from holdall.model import Model
    from holdall.plan import Plan
    from holdall.source import Source

__all__ = ["FORMAT"]


def _refuses_name(name: str) -> str | None:
    return None if name else "names are not empty"


def _refuses_metadata(key: str, value: Any) -> str | None:
    from holdall.formats.mcf.modelinfo import refusal

    return refusal(key, value)


def _refuses_asset(name: str) -> str | None:
    if name in ASSETS.values() or name == CHAT_TEMPLATE:
        return None
    return f"there is no section for it; there is one for {', '.join(ASSETS.values())}"


class Mcf(Format):
    """The MCF container."""

    name = "mcf"
    title = "MCF (Model Container File)"
    suffixes = (".mcf",)
    holds = Holds(
        dtypes=frozenset(DTYPE_IDS),
        zero_size=False,
        aliases=True,
        assets=True,
        free_text=True,
        names="any text but the empty one",
        refuses_name=_refuses_name,
        refuses_metadata=_refuses_metadata,
        refuses_asset=_refuses_asset,
    )
    options = (
        Option("tensor_align", "auto", "payloads start on multiples of this; auto is 64, or what an MCF source has"),
        Option("minor", "auto", "minor version; auto is 1, or 0 from a file of version 1.0", ("auto", "0", "1")),
        Option("arrange", "auto", "order of sections: keep an MCF file's own, pack as for a folder, plain, or as the "
               "reference quantizer; auto chooses by where the model comes from",
               ("auto", "keep", "pack", "plain", "quantize")),
        Option("dedup", "auto", "share bytes of equal content, of aliases, or none; auto is content when packing, "
               "and aliases otherwise"),
        Option("cast", "keep", "floats to f16 or bf16, as the reference packer rounds", ("keep", "f16", "bf16")),
        Option("resources", True, "when packing, include tokenizer and configuration files"),
        Option("model_name", None, "when packing, the name in ModelInfo instead of the folder's"),
    )  # fmt: skip
    rules = RULES

    def accepts(self, head: bytes, source: Source) -> bool:
        """By the magic."""
        return head.startswith(MAGIC)

    def read(self, source: Source, check: Check, ledger: Ledger) -> Model:
        """Header, directory, index and quant records."""
        from holdall.formats.mcf.read import read

        return read(source, check, ledger)

    def require(self, model: Model, parts: Collection[str]) -> None:
        """Sections by name: "TensorIndex", "ModelInfo", "tokenizer.json", "0x0200"."""
        from holdall.errors import FormatError
        from holdall.formats.mcf.sections import McfNative

        assert isinstance(model.native, McfNative)
        missing = [part for part in parts if model.native.get(part) is None]
        if missing:
            has = ", ".join(section.name for section in model.native.sections)
            raise FormatError(REQUIRED.id, None, f"mcf: there is no section {missing[0]}; the sections are: {has}")

    def plan(self, model: Model, options: Mapping[str, Any]) -> Plan:
        """Packed from a folder, kept from an MCF file, plain from anything else."""
        from holdall.formats.mcf.write import plan

        return plan(model, options)

    def leaves(self, model: Model, options: Mapping[str, Any]) -> Mapping[str, str]:
        """Packing a folder writes what the reference packer writes, which is no metadata of the weights' own files."""
        from holdall.formats.mcf.pack import left_out
        from holdall.formats.mcf.write import arrangement

        return left_out(model) if arrangement(options["arrange"], model, list(model.tensors)) == "pack" else {}

    def only_here(self, model: Model) -> Mapping[str, str]:
        """Sections of kinds that the format does not define."""
        from holdall.formats.mcf.layout import SECTION_NAMES
        from holdall.formats.mcf.sections import McfNative

        sections = model.native.sections if isinstance(model.native, McfNative) else ()
        return {s.name: f"a section of {s.size} bytes" for s in sections if s.type not in SECTION_NAMES}

    def audit(self, model: Model, check: Check, tick: Tick) -> None:
        """ModelInfo; at level strict also what must be zero inside quantized payloads."""
        from holdall.formats.mcf.audit import audit

        audit(model, check, tick)

    def facet(self, name: str, model: Model) -> Any:
        """The configuration, from config.json; the vocabulary, from tokenizer.json or vocab.json."""
        from holdall.facets import config_of, vocab_of

        if name == "config":
            return config_of(model.assets)
        return vocab_of(model.assets) if name == "vocab" else None


FORMAT = Mcf()
