"""ONNX: the initializers of a model's graph, in the file or beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from holdall.format import Format, Holds
from holdall.formats.onnx.layout import CODE_OF
from holdall.formats.onnx.rules import RULES

if TYPE_CHECKING:
    from holdall.check import Check
    from holdall.ledger import Ledger
    from holdall.model import Model
    from holdall.plan import Plan
    from holdall.source import Source

__all__ = ["FORMAT"]

# What may follow the version in a model: the tags of its other fields.
_TAGS = frozenset((0x12, 0x1A, 0x22, 0x28, 0x32, 0x3A, 0x42, 0x72))


def _refuses_name(name: str) -> str | None:
    from holdall.formats.onnx.write import name_breach

    return name_breach(name)


def _refuses_metadata(key: str, value: Any) -> str | None:
    from holdall.formats.onnx.write import metadata_breach

    return metadata_breach(key, value)


class Onnx(Format):
    """The ONNX container."""

    name = "onnx"
    title = "ONNX"
    suffixes = (".onnx",)
    holds = Holds(
        dtypes=frozenset(CODE_OF),
        free_text=True,
        names="any text but none",
        refuses_name=_refuses_name,
        refuses_metadata=_refuses_metadata,
    )
    rules = RULES

    def accepts(self, head: bytes, source: Source) -> bool:
        """By its first two fields: there is no magic."""
        return len(head) > 4 and head[0] == 0x08 and 0 < head[1] < 0x40 and head[2] in _TAGS

    def read(self, source: Source, check: Check, ledger: Ledger) -> Model:
        """A walk over the fields; values stay where they are."""
        from holdall.formats.onnx.read import read

        return read(source, check, ledger)

    def plan(self, model: Model, options: Mapping[str, Any]) -> Plan:
        """One file; the graph is that of the model where it came from ONNX."""
        from holdall.formats.onnx.write import plan

        return plan(model, options)

    def only_here(self, model: Model) -> Mapping[str, str]:
        """The graph."""
        from holdall.formats.onnx.graph import has_nodes
        from holdall.formats.onnx.read import OnnxNative

        native = model.native
        return {"graph": "nodes, inputs and outputs"} if isinstance(native, OnnxNative) and has_nodes(native) else {}

    def refuses_edit(self, model: Model, changed: Model) -> str | None:
        """Names that the nodes of the graph use."""
        from holdall.formats.onnx.graph import refusal
        from holdall.formats.onnx.read import OnnxNative

        return refusal(model.native, model, changed) if isinstance(model.native, OnnxNative) else None


FORMAT = Onnx()
