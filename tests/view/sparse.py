"""A file whose payload takes no room on the disk."""

from __future__ import annotations

import json
from pathlib import Path


def write_sparse(path: Path, count: int, rows: int, columns: int) -> None:
    """Write a safetensors file of f32 matrices whose payload is a hole, and reads as zeros."""
    size = rows * columns * 4
    entries = {
        f"layers.{n}.w": {"dtype": "F32", "shape": [rows, columns], "data_offsets": [n * size, (n + 1) * size]}
        for n in range(count)
    }
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + count * size)
