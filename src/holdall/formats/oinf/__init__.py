"""OINF, versions 1 and 2: size variables, typed metadata, tensors down to one bit, quant parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from holdall.dtypes import DTYPES
from holdall.format import Format, Holds, Option, Tick
from holdall.formats.oinf.layout import MAGIC, TAG_OF
from holdall.formats.oinf.rules import RULES

if TYPE_CHECKING:
    from holdall.check import Check
    from holdall.ledger import Ledger
    from holdall.model import Model
    from holdall.plan import Plan
    from holdall.source import Source

__all__ = ["FORMAT"]


def _refuses_name(name: str) -> str | None:
    from holdall.formats.oinf.values import name_breach

    return name_breach(name)


def _refuses_metadata(key: str, value: Any) -> str | None:
    from holdall.formats.oinf.values import name_breach, value_breach

    return value_breach(value) or name_breach(key)


class Oinf(Format):
    """The OINF container."""

    name = "oinf"
    title = "OINF (Open Infer Neural Format)"
    suffixes = (".oinf",)
    holds = Holds(
        dtypes=frozenset(name for name in TAG_OF if name in DTYPES and name != "bitset"),
        declared=True,
        free_text=True,
        names="A-Z a-z 0-9 . _ -",
        refuses_name=_refuses_name,
        refuses_metadata=_refuses_metadata,
    )
    options = (
        Option("version", "auto", "1 or 2; auto is 1, or 2 with quant parameters or from a version 2 file",
               ("auto", "1", "2")),
        Option("sort", True, "sort each table by name, as the format's own writer does"),
    )  # fmt: skip
    rules = RULES

    def accepts(self, head: bytes, source: Source) -> bool:
        """By the magic."""
        return head.startswith(MAGIC)

    def read(self, source: Source, check: Check, ledger: Ledger) -> Model:
        """Header, tables and metadata values."""
        from holdall.formats.oinf.read import read

        return read(source, check, ledger)

    def plan(self, model: Model, options: Mapping[str, Any]) -> Plan:
        """Version 1 by default."""
        from holdall.formats.oinf.write import plan

        return plan(model, options)

    def audit(self, model: Model, check: Check, tick: Tick) -> None:
        """Element values and unused bits, at level strict."""
        from holdall.formats.oinf.audit import audit

        audit(model, check, tick)

    def bound_values(self, model: Model) -> dict[str, str]:
        """Tensors with quantization parameters, which version 2 has beside the payload."""
        if model.version == (1,):
            return {}
        from holdall.formats.oinf.quant import QuantParams

        quantized = (tensor.name for tensor in model.tensors if isinstance(tensor.native, QuantParams))
        return dict.fromkeys(quantized, "is scaled by the quantization parameters of its entry")

    def only_here(self, model: Model) -> Mapping[str, str]:
        """Size variables."""
        sizes = self.facet("sizevars", model)
        return {"sizevars": "size variables " + ", ".join(f"{k}={v}" for k, v in sizes.items())} if sizes else {}

    def facet(self, name: str, model: Model) -> Any:
        """Size variables."""
        from holdall.formats.oinf.read import OinfNative

        native = model.native
        return native.sizevars if name == "sizevars" and isinstance(native, OinfNative) else None


FORMAT = Oinf()
