"""The inputs that a campaign starts from: tiny files that use every feature of a format."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import holdall
from holdall.errors import ContentError, UnsupportedError
from holdall.format import registry
from holdall.model.model import Model
from holdall.testing.compare import restrict_to
from tools.fuzz.forms import FORMS
from tools.fuzz.framing import MAIN, frame
from tools.fuzz.subjects import SUBJECTS
from tools.fuzz.tiny import models

__all__ = ["files_at", "seeds"]

_LARGEST = 6000  # bytes: larger files are mostly payload, and slow

# Options of the writers that change the form of a file.
OPTIONS: Mapping[str, tuple[dict[str, Any], ...]] = {
    "oinf": ({"version": 1}, {"version": 2}),
    "embd": (
        {}, {"align": False}, {"checksums": False}, {"layout": "sequential"}, {"vocab": ["[PAD]", "a", "é"]},
        {"vocab": ["x"], "layout": "sequential"},
    ),
    "gptrs-checkpoint": ({}, {"align": 1, "ids": False}),
    "gptrs-archive": ({}, {"align": 1}),
    "mcf": ({}, {"minor": 0, "tensor_align": 8}),
    "aero": (
        {}, {"tensor_hash": True, "page_hash": 4096, "control_hash": True}, {"max_shard_bytes": 8, "align": 1},
    ),
    "aeroset": (
        {"part_shards": 1, "max_shard_bytes": 8}, {"base_url": "https://example.org/", "tensor_hash": True},
        {"control_hash": True, "page_hash": 4096},
    ),
    "safetensors": ({}, {"align": 8, "order": "given"}),
    "hf": ({}, {"max_shard_size": "8B"}),
    "npz": ({},),
}  # fmt: skip


def seeds(subject: str) -> dict[str, bytes]:
    """Return small inputs of a subject by name; sets of files are framed."""
    found: dict[str, bytes] = {}
    for format in SUBJECTS[subject].formats:
        for name, model in _models(format):
            for number, options in enumerate(OPTIONS.get(format, ({},))):
                data = _write(model, format, options)
                if data is not None and len(data) <= _LARGEST and data not in found.values():
                    found[f"{format}-{name}-{number}"] = data
    made: Callable[[], Iterator[tuple[str, bytes]]] | None = FORMS.get(subject)
    found.update(made() if made is not None else ())
    return found


def _models(format: str) -> Iterator[tuple[str, Model]]:
    target = registry.find(format)
    for name, make in models(format).items():
        whole = make()
        model = whole if whole.format == format else restrict_to(whole, target)
        if model is not None:
            yield name, model


def _write(model: Model, format: str, options: Mapping[str, Any]) -> bytes | None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "seed"
        try:
            holdall.save(path, model, format=format, fsync=False, **options)
        except (ContentError, UnsupportedError):
            return None
        return frame(files_at(path))


def files_at(path: Path) -> dict[str, bytes]:
    """A file, or all files of a folder by relative name."""
    if not path.is_dir():
        return {MAIN: path.read_bytes()}
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}
