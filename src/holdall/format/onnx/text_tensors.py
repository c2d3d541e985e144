"""Tensors of texts: their payload is the whole message, name included, which is copied into a new model."""

from __future__ import annotations

from holdall.base.check import Check
from holdall.errors import ContentError, FormatError
from holdall.format.onnx import layout
from holdall.format.onnx.external import ExternalFiles
from holdall.format.onnx.tensor_proto import make_payload, read_proto
from holdall.format.onnx.wire import BYTES, Walker, varint
from holdall.model.payload import InMemory, Payload, SourceRange
from holdall.model.tensor import Tensor
from holdall.source import BytesSource, Source

__all__ = ["encode_text"]


def encode_text(tensor: Tensor) -> tuple[Payload, ...]:
    """Encode an initializer of texts; ContentError if its message is not one, or has another name."""
    payload = tensor.payload
    if str(tensor.dtype) != layout.TEXTS or payload is None:
        raise ContentError(f"onnx: tensor {tensor.name!r}: ONNX has no {tensor.dtype}")
    source: Source = payload.source if isinstance(payload, SourceRange) else BytesSource(bytes(payload.view()))
    start = payload.offset if isinstance(payload, SourceRange) else 0
    check = Check()
    walker = Walker(source, check)
    try:
        proto = read_proto(start, start + payload.size, walker, check)
        own = "" if proto.name is None else walker.text(*proto.name, "the name of a tensor")
        if proto.code != layout.STRING or tuple(proto.dims) != tensor.shape:
            raise ContentError(
                f"onnx: tensor {tensor.name!r}: its bytes are no texts of the shape {list(tensor.shape)}"
            )
        make_payload(tensor.name, proto, source, ExternalFiles(source, check), walker, check)
    except FormatError as error:
        raise ContentError(f"onnx: tensor {tensor.name!r}: {error.message}") from error
    if own != tensor.name:
        raise ContentError(f"onnx: tensor {tensor.name!r} holds texts, and its bytes call it {own!r}: keep that name")
    return InMemory(varint(layout.INITIALIZER << 3 | BYTES) + varint(payload.size)), payload
