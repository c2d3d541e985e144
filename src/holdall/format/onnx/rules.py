"""What ONNX files must obey: one row a rule."""

from __future__ import annotations

from typing import Final

from holdall.base.check import Rule

__all__ = ["RULES"]

WIRE: Final = Rule("onnx.wire.field", "the file is a protobuf message: fields of known kinds that end inside it")
VARINT: Final = Rule("onnx.wire.varint", "numbers have at most 64 bits")
TEXT: Final = Rule("onnx.wire.text", "names and metadata are UTF-8")
GRAPH: Final = Rule("onnx.model.graph", "the model has one graph")
PROPS: Final = Rule("onnx.model.metadata", "metadata entries have a key, and each key is there once")
ONCE: Final = Rule("onnx.tensor.once", "the fields of a tensor come once")
NAME: Final = Rule("onnx.tensor.name", "initializers of the graph have names, and no two tensors the same")
PATHS: Final = Rule("onnx.tensor.paths", "paths of tensors have at most 16 MiB and 8 x the bytes of the file in all")
DTYPE: Final = Rule("onnx.tensor.dtype", "a tensor states its data_type")
NEWER: Final = Rule("onnx.tensor.newer", "data_type is one of the known ones", severity="unread")
DIMS: Final = Rule("onnx.tensor.dims", "dims are from 0 to 2^63-1")
DATA: Final = Rule("onnx.tensor.data", "a tensor has its values in one place")
SIZE: Final = Rule("onnx.tensor.size", "a tensor has as many bytes or values as data_type and dims need")
SPARSE: Final = Rule("onnx.sparse.parts", "a sparse tensor has values, and indices for them", "full")
EXTERNAL: Final = Rule("onnx.external.range", "external data lies inside its file")
LOCATION: Final = Rule("onnx.external.location", "external data states its file, offset and length")

RULES: Final = tuple(value for value in list(globals().values()) if isinstance(value, Rule))
