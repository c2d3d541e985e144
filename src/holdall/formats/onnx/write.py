"""Writing ONNX: the initializers, in the graph they came from or in one that has nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdall.dtypes import DType
from holdall.errors import ContentError
from holdall.formats.onnx import layout
from holdall.formats.onnx.graph import what_changed
from holdall.formats.onnx.layout import CODE_OF, IR_OF, OLDEST, OPSET_OF
from holdall.formats.onnx.read import OnnxNative
from holdall.formats.onnx.wire import BYTES, field, varint
from holdall.model import Model
from holdall.payload import Held, Payload
from holdall.plan import Plan
from holdall.sizes import tuned
from holdall.tensor import Tensor

__all__ = ["metadata_breach", "name_breach", "plan"]

MOST = (1 << 31) - 1  # bytes of a protobuf message
_LENGTH = 5  # bytes of a length: always all five, so that places are known before sizes are
_ALIGN = 8
_SMALL = tuned(1 << 16)  # bytes that are put where they are known, rather than streamed


def plan(model: Model, options: Mapping[str, Any]) -> Plan:
    """The ONNX file that holds ``model``."""
    if model.assets:
        raise ContentError(f"onnx has no place for assets: {', '.join(model.assets)}")
    tensors = list(model.tensors)
    seen: set[str] = set()
    for tensor in tensors:
        _check(tensor)
        if tensor.name in seen:
            raise ContentError(f"onnx: two tensors are called {tensor.name!r}")
        seen.add(tensor.name)
    native = model.native if isinstance(model.native, OnnxNative) else _bare(tensors)
    front = [*native.model, Held(_properties(model))]
    graph_start = sum(part.size for part in front) + 1 + _LENGTH
    at = graph_start + sum(part.size for part in native.graph)
    pieces: list[Payload] = []
    for tensor in tensors:
        head = _head(tensor, at)
        assert tensor.payload is not None
        pieces += [Held(head), tensor.payload]
        at += len(head) + tensor.payload.size
    if at > MOST:
        raise ContentError(f"onnx: a model of {at} bytes is above the {MOST} of a protobuf message")
    out = Plan()
    for part in front:
        _put(out, part)
    out.put(varint(layout.GRAPH << 3 | BYTES) + varint(at - graph_start, _LENGTH))
    for part in (*native.graph, *pieces):
        _put(out, part)
    assert out.cursor == at
    if isinstance(model.native, OnnxNative):
        out.notes += what_changed(model.native, model)
        out.notes += [
            f"external data are inside the file now, which needs {name} no more" for name in model.native.external
        ]
    return out


def _put(out: Plan, part: Payload) -> None:
    if isinstance(part, Held) and part.size <= _SMALL:
        out.put(bytes(part.data))
    elif part.size:
        out.stream(part)


def _bare(tensors: list[Tensor]) -> Any:
    """A model around a graph without nodes, of the oldest version that has all the types."""
    version = max((IR_OF.get(str(tensor.dtype), OLDEST) for tensor in tensors), default=OLDEST)
    opset = field(layout.OPSET, field(2, OPSET_OF[version]))
    front = field(layout.IR_VERSION, version) + field(2, b"holdall") + opset
    return _Around((Held(front),), (Held(field(2, b"weights")),))


class _Around:
    """The parts of a model that is made anew, as :class:`OnnxNative` has those of one that was read."""

    def __init__(self, model: tuple[Payload, ...], graph: tuple[Payload, ...]) -> None:
        self.model = model
        self.graph = graph


def _properties(model: Model) -> bytes:
    out = bytearray()
    seen: set[str] = set()
    for entry in model.metadata.entries:
        wrong = metadata_breach(entry.key, entry.value)
        if wrong:
            raise ContentError(f"onnx: metadata {entry.key!r}: {wrong}")
        if entry.key in seen:
            raise ContentError(f"onnx: two metadata entries are called {entry.key!r}")
        seen.add(entry.key)
        out += field(layout.PROPS, field(1, entry.key.encode()) + field(2, entry.value.encode()))
    return bytes(out)


def _head(tensor: Tensor, at: int) -> bytes:
    """A TensorProto up to its raw data; data_type is as long as it takes for the data to begin at a multiple of 8."""
    dims = b"".join(field(layout.DIMS, dim) for dim in tensor.shape)
    name = field(layout.NAME, tensor.name.encode())
    raw = varint(layout.RAW << 3 | BYTES) + varint(tensor.nbytes)
    code = CODE_OF[str(tensor.dtype)]
    fixed = at + 1 + _LENGTH + len(dims) + 1 + len(name) + len(raw)
    body = dims + varint(layout.DATA_TYPE << 3) + varint(code, 1 + -(fixed + 1) % _ALIGN) + name + raw
    return varint(layout.INITIALIZER << 3 | BYTES) + varint(len(body) + tensor.nbytes, _LENGTH) + body


def _check(tensor: Tensor) -> None:
    wrong = name_breach(tensor.name)
    if wrong:
        raise ContentError(f"onnx: {wrong}")
    if not isinstance(tensor.dtype, DType) or tensor.dtype.name not in CODE_OF:
        raise ContentError(f"{_what(tensor)}: ONNX has no {tensor.dtype}")
    if tensor.payload is None:
        raise ContentError(f"{_what(tensor)} is declared without data, which ONNX cannot say")
    if any(not 0 <= size < 1 << 63 for size in tensor.shape):
        raise ContentError(f"{_what(tensor)}: a dim does not fit 63 bits")
    if tensor.nbytes != tensor.dtype.nbytes(tensor.shape):
        raise ContentError(f"{_what(tensor)} takes {tensor.dtype.nbytes(tensor.shape)} bytes, not {tensor.nbytes}")


def _what(tensor: Tensor) -> str:
    return f"onnx: tensor {tensor.name!r}: {tensor.dtype}{list(tensor.shape)}"


def name_breach(name: str) -> str | None:
    """Why a tensor cannot be called ``name``; None when it can."""
    return "initializers have names" if not name else _text_breach("the tensor name", name)


def metadata_breach(key: str, value: Any) -> str | None:
    """Why the entry cannot be stored; None when it can."""
    if not isinstance(value, str):
        return f"values are text, not {type(value).__name__}"
    return _text_breach("the key", key) or _text_breach("the value", value)


def _text_breach(what: str, text: str) -> str | None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return f"{what} {text!r} holds half of a surrogate pair, which is no text"
    return None
