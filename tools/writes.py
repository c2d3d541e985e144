"""Every kind of write that the library does, for tools that break it off by a failing system call or by a kill.

Writing is deterministic, so a folder has exactly two right states afterwards: the one before, and the one that a run
without faults leaves. Comparing with these two shows that the destination is whole, that sources are unchanged and
that no other file is left.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import holdall
from holdall.format import registry
from holdall.sink.staging import SUFFIX

__all__ = ["Write", "fill", "is_part", "snapshot", "writes"]

Files = Mapping[str, bytes | None]  # relative path to content; None for a folder

_PART = re.compile(r"\..+\.[0-9]+" + re.escape(SUFFIX))


@dataclass(frozen=True, slots=True)
class Write:
    """One write: the folder before it, the call, and the path of its result."""

    name: str
    prepare: Callable[[Path], object]
    run: Callable[[Path], object]
    destination: str
    format: str | None = None  # of the destination, where it is a model

    def whole(self, folder: Path) -> bool:
        """Whether the destination, written without a fault, verifies."""
        path = folder / self.destination
        return path.exists() and (self.format is None or holdall.verify(path, format=self.format).ok)


def writes(size: int) -> Iterator[Write]:
    """Yield all writes, with tensors of about ``size`` bytes: save in every format, convert, edit, repair, extract."""
    for name in registry.names():
        yield _save(name, size, over=not registry.find(name).folder)
    yield _save("safetensors", size, over=False)
    for name in ("oinf", "aero", "mcf", "gguf", "npz", "hf", "aeroset"):
        yield _convert(f"convert safetensors to {name}", size, name)
    yield _convert("convert safetensors to safetensors", size, "safetensors")
    yield _convert("convert safetensors to a quantized mcf", size, "mcf", quantize="k4")
    yield _convert("convert safetensors to a split folder", size, "safetensors", "out", split=size)
    yield _convert("convert a safetensors file in its place", size, "safetensors", "in.safetensors", rename=["s/l/m/"])
    for name in ("oinf", "safetensors", "gguf", "mcf", "aero"):
        yield _edit(name, size)
    yield _repair(size)
    yield _extract(size)


def _content(size: int, seed: int = 0) -> dict[str, Any]:
    """Return a large tensor, one that takes several calls to move, and small ones that are written together."""
    random = np.random.Generator(np.random.PCG64(seed))
    rows = max(1, size // 4096)
    shapes = {"layers.0.weight": (rows, 1024), "layers.1.weight": (2 * rows, 1024), "norm": (256,), "bias": (256,)}
    return {name: random.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def _file_name(name: str, stem: str) -> str:
    """Return the name of a file or folder of the format, called ``stem``."""
    return stem + (registry.find(name).suffixes[0] if registry.find(name).suffixes else "")


def _save(name: str, size: int, *, over: bool) -> Write:
    out, new = _file_name(name, "out"), _content(size, 1)

    def prepare(folder: Path) -> None:
        if over:
            holdall.save(folder / out, _content(size // 2), format=name, fsync=False)

    what = f"save {name}" if over or registry.find(name).folder else f"save a new {name}"
    return Write(what, prepare, lambda folder: holdall.save(folder / out, new, format=name), out, name)


def _convert(what: str, size: int, name: str, out: str | None = None, **options: Any) -> Write:
    target = _file_name(name, "out") if out is None else out
    old = target.startswith("out.") and not registry.find(name).folder

    def prepare(folder: Path) -> None:
        holdall.save(folder / "in.safetensors", _content(size), metadata={"mode": "fast"}, fsync=False)
        if old:
            holdall.save(folder / target, _content(size // 2, 1), format=name, fsync=False)

    def run(folder: Path) -> None:
        holdall.convert(folder / "in.safetensors", folder / target, format=name, **options)

    return Write(what, prepare, run, target, None if "split" in options else name)


def _edit(name: str, size: int) -> Write:
    file = _file_name(name, "in")

    def prepare(folder: Path) -> None:
        holdall.save(folder / file, _content(size), format=name, fsync=False)

    def run(folder: Path) -> None:
        holdall.edit(folder / file, rename={"norm": "scale"})

    return Write(f"edit {name}", prepare, run, file, name)


def _repair(size: int) -> Write:
    def prepare(folder: Path) -> None:
        holdall.save(folder / "good.aero", _content(size), page_hash=4096, fsync=False)
        data = bytearray((folder / "good.aero").read_bytes())
        with holdall.open(folder / "good.aero") as model:
            for tensor in model.tensors:
                assert tensor.offset is not None
                data[tensor.offset] ^= 1
        (folder / "bad.aero").write_bytes(data)

    def run(folder: Path) -> None:
        from holdall.operations.repair import repair

        repair(folder / "bad.aero", folder / "good.aero")

    return Write("repair aero", prepare, run, "bad.aero", "aero")


def _extract(size: int) -> Write:
    def prepare(folder: Path) -> None:
        holdall.save(folder / "in.oinf", _content(size), fsync=False)
        np.save(folder / "out.npy", np.zeros(7))

    def run(folder: Path) -> None:
        from holdall.operations.extract import plan_npy
        from holdall.sink import write_file

        with holdall.open(folder / "in.oinf") as model:
            write_file(folder / "out.npy", plan_npy(model["layers.1.weight"]), fsync=False)

    return Write("extract", prepare, run, "out.npy")


def snapshot(folder: Path) -> Files:
    """Return all files of the folder with their content."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def fill(folder: Path, files: Files) -> None:
    """Make the folder hold exactly ``files``."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, data in files.items():
        if data is None:
            (folder / name).mkdir(exist_ok=True)
        else:
            (folder / name).write_bytes(data)


def is_part(path: str) -> bool:
    """Whether a relative path is, or lies in, a file or folder in progress.

    >>> is_part(".out.oinf.0.holdall.part"), is_part(".out.0.holdall.part/config.json"), is_part("out.oinf")
    (True, True, False)
    """
    return _PART.fullmatch(path.partition("/")[0]) is not None
