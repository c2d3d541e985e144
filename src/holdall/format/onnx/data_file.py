"""Where the values of tensors go when ONNX is written: into the model, or into a file of external data beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdall.format.onnx import layout
from holdall.format.onnx.layout import CODE_OF
from holdall.format.onnx.wire import BYTES, field, varint
from holdall.model.payload import InMemory, Payload
from holdall.sink.plan import Plan

if TYPE_CHECKING:
    from holdall.model.encodings import Stored

__all__ = ["DATA_NAME", "MODEL_NAME", "DataFile"]

MODEL_NAME, DATA_NAME = "model.onnx", "model.onnx.data"
_LEAST = 1024  # bytes of a payload from which on it is external, as in the onnx library
_LARGE, _PAGE, _ALIGN = 1 << 16, 4096, 64  # large payloads begin with a page, so that they can be mapped


class DataFile:
    """Decides for each tensor of a model where its values go, and encodes what its message says of them.

    Without ``used`` all values go into the model. With it the large ones go into ``plan``, a file beside the model, if
    the onnx library ``looks`` for external data in their place.
    """

    def __init__(self, used: bool) -> None:
        self.used = used
        self.plan = Plan()

    def takes(self, dtype: Stored, size: int, looks: bool = True) -> bool:
        """Whether a payload of ``size`` bytes goes into the data file."""
        return self.used and looks and size >= _LEAST and str(dtype) in CODE_OF

    def encode(
        self, number: int, dtype: Stored, shape: tuple[int, ...], payload: Payload, rest: bytes, looks: bool = True
    ) -> tuple[Payload, ...]:
        """Encode the field ``number``, a TensorProto; ``rest`` are those of its fields that do not say its values."""
        body = b"".join(field(layout.DIMS, dim) for dim in shape)
        body += field(layout.DATA_TYPE, CODE_OF[str(dtype)]) + rest
        if self.takes(dtype, payload.size, looks):
            return (InMemory(field(number, body + self._place(payload))),)
        body += varint(layout.RAW << 3 | BYTES) + varint(payload.size)
        return InMemory(varint(number << 3 | BYTES) + varint(len(body) + payload.size) + body), payload

    def _place(self, payload: Payload) -> bytes:
        """Put the payload into the data file; returns the fields that say where."""
        unit = _PAGE if payload.size >= _LARGE else _ALIGN
        self.plan.align(unit)
        offset = self.plan.stream(payload)
        entries = {"location": DATA_NAME, "offset": str(offset), "length": str(payload.size)}
        pairs = (field(1, key.encode()) + field(2, value.encode()) for key, value in entries.items())
        return b"".join(field(layout.EXTERNAL, pair) for pair in pairs) + field(layout.LOCATION, 1)
