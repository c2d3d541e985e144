"""Writes the models of a contract in a fresh process: ``python -m holdall.testing.fresh MODULE:CLASS``."""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from importlib import import_module
from pathlib import Path

__all__ = ["digest_of", "main"]


def digest_of(path: Path) -> str:
    """Return one digest of a file, or of all files of a folder with their names."""
    total = hashlib.sha256()
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    for file in files:
        if file.is_file():
            total.update(f"{file.relative_to(path)}:{file.stat().st_size}:".encode())
            total.update(file.read_bytes())
    return total.hexdigest()


def main() -> None:
    """Print the digest of every model, as JSON."""
    module, _, name = sys.argv[1].partition(":")
    contract = getattr(import_module(module), name)()
    with tempfile.TemporaryDirectory() as folder, contract.in_registry():
        written = {
            name: digest_of(contract.write(Path(folder), name, model)) for name, model in contract.models().items()
        }
    print(json.dumps(written))  # noqa: T201  # the test reads it


if __name__ == "__main__":
    main()
