"""ONNX: the tensors of a model, in the file or beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdall.base.text import plural
from holdall.format.base import Format, Holds, Option, import_late
from holdall.format.onnx.layout import CODE_OF, TEXTS
from holdall.format.onnx.rules import RULES
from holdall.format.weight_files import has_safetensors

if TYPE_CHECKING:
    from holdall.model.model import Model
    from holdall.source import Source

__all__ = ["FORMAT"]

# The tags of fields that may follow ir_version in a model.
_TAGS = frozenset((0x12, 0x1A, 0x22, 0x28, 0x32, 0x3A, 0x42, 0x72))


class Onnx(Format):
    """The ONNX container."""

    name = "onnx"
    title = "ONNX"
    suffixes = (".onnx",)
    beside = True
    holds = Holds(
        dtypes=frozenset(CODE_OF),
        opaque=TEXTS,
        free_text=True,
        names="any text but none",
        refuses_name=import_late("holdall.format.onnx.write", "name_breach"),
        refuses_metadata=import_late("holdall.format.onnx.write", "metadata_breach"),
    )
    options = (
        Option("external", False, "make a folder: model.onnx, and model.onnx.data with payloads of 1 KiB or more"),
    )
    rules = RULES

    def accepts(self, head: bytes, source: Source) -> bool:
        """By its first two fields, since there is no magic; a folder by the files that this writer makes.

        Beside safetensors files the ONNX model is an export of the model that the folder is.
        """
        if source.is_folder:
            names = set(source.names())
            return {"model.onnx", "model.onnx.data"} <= names and not has_safetensors(names)
        return len(head) > 4 and head[0] == 0x08 and 0 < head[1] < 0x40 and head[2] in _TAGS

    def unique_content(self, model: Model) -> Mapping[str, str]:
        """The graph, if it has nodes."""
        from holdall.format.onnx.graph import has_nodes
        from holdall.format.onnx.read import OnnxNative

        native = model.native
        return {"graph": "nodes, inputs and outputs"} if isinstance(native, OnnxNative) and has_nodes(native) else {}

    def describe(self, model: Model) -> Mapping[str, str | Sequence[Mapping[str, Any]]]:
        """The producer, the operator sets, the nodes, inputs and outputs."""
        from holdall.format.onnx.describe import describe
        from holdall.format.onnx.read import OnnxNative

        return describe(model.native) if isinstance(model.native, OnnxNative) else {}

    def list_unchecked(self, model: Model) -> list[str]:
        """The checksums of external data."""
        stated = getattr(model.native, "checksums", 0)
        return [f"the {plural(stated, 'checksum')} of external data"] if stated else []

    def find_layer_kinds(self, model: Model) -> Mapping[str, str]:
        """By the nodes that take a tensor."""
        from holdall.format.onnx.layer_kinds import find_layer_kinds
        from holdall.format.onnx.read import OnnxNative

        return find_layer_kinds(model.native, model.limits) if isinstance(model.native, OnnxNative) else {}

    def own_values(self, model: Model) -> Mapping[str, Any]:
        """The graph without initializers, as a hash."""
        from holdall.format.onnx.graph import hash_graph
        from holdall.format.onnx.read import OnnxNative

        return {"graph": hash_graph(model.native)} if isinstance(model.native, OnnxNative) else {}

    def refuses_edit(self, model: Model, changed: Model) -> str | None:
        """A tensor whose old or new name the graph uses cannot be renamed."""
        from holdall.format.onnx.graph import explain_refusal
        from holdall.format.onnx.read import OnnxNative

        return explain_refusal(model.native, model, changed) if isinstance(model.native, OnnxNative) else None


FORMAT = Onnx()
