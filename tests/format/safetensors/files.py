"""safetensors files built by hand, byte for byte."""

import json
import struct
from typing import Any


def build(header: bytes | dict[str, Any], data: bytes = b"", *, length: int | None = None) -> bytes:
    """A file with this header, well-formed or not."""
    if isinstance(header, dict):
        header = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def entry(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8), **more: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets, **more}


def header_of(data: bytes) -> dict[str, Any]:
    length = int.from_bytes(data[:8], "little")
    found: dict[str, Any] = json.loads(data[8 : 8 + length])
    return found
