"""Measures which lines of a reader a corpus reaches, by replaying every input under a line tracer.

A reader's files are those of its format, without the ones that only write, and the shared ones that reading it uses.
Counted are the lines of the functions that at least one input enters; the functions that none enters, which only
writers and callers use, are listed by name. Lines that run at import, or refuse a caller's value (``raise
ContentError``), do not count.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import holdall
from tools.fuzz.subjects import SUBJECTS

__all__ = ["functions_of", "measure", "reader_files"]

_SHARED: Mapping[str, tuple[str, ...]] = {
    "aero": ("binary/documents", "binary/compression.py"),
    "aeroset": ("format/aero", "binary/documents", "binary/compression.py"),
    "gguf": ("model/ggml.py",),
    "gptrs": ("binary/documents/json.py", "source/interleaved.py"),
    "embd": ("source/interleaved.py",),
    "hf": ("format/safetensors", "binary/documents/json.py"),
    "mcf": ("binary/documents/json.py",),
    "npz": ("format/zip",),
    "safetensors": ("binary/documents/json.py",),
    "torch": ("format/zip",),
}
_FUNCTION = 2  # CO_NEWLOCALS: not the body of a module or of a class
_WRITE = (
    "write.py",
    "writer.py",
    "pack.py",
    "offsets.py",
    "dedup.py",
    "file_plan.py",
    "encode.py",
    "repair.py",
    "fields.py",
    "inputs.py",
    "gojson.py",
    "settings.py",
    "flatten.py",
)


def reader_files(name: str) -> list[Path]:
    """Return the files whose lines count for a subject."""
    root = Path(holdall.__file__).parent
    places = [root / f"format/{name}", *(root / shared for shared in _SHARED.get(name, ()))]
    assert all(place.exists() for place in places), f"{name}: of {places} not all exist"
    files = [file for place in places for file in (sorted(place.glob("*.py")) if place.is_dir() else [place])]
    return [file for file in files if file.name not in _WRITE and file.name != "__init__.py"]


def functions_of(file: Path) -> dict[str, set[int]]:
    """Return the lines of each function of a file, by its name."""
    text = file.read_text()
    refusals = {number for number, line in enumerate(text.splitlines(), 1) if "raise ContentError" in line}
    found: dict[str, set[int]] = {}

    def walk(code: CodeType) -> None:
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                if constant.co_flags & _FUNCTION:
                    lines = {line for _, _, line in constant.co_lines() if line is not None} - refusals
                    found.setdefault(constant.co_qualname, set()).update(lines - {constant.co_firstlineno})
                walk(constant)

    walk(compile(text, str(file), "exec"))
    return {name: lines for name, lines in found.items() if lines}


def measure(name: str, inputs: Iterable[bytes]) -> dict[str, Any]:
    """Count all lines and those that the inputs reach; list the lines missed and the functions never entered."""
    files = {str(file): functions_of(file) for file in reader_files(name)}
    reached = _trace(name, inputs, files)
    root = Path(holdall.__file__).parent
    total, missed, closed = 0, {}, {}
    for file, functions in files.items():
        entered = {function: lines for function, lines in functions.items() if lines & reached[file]}
        lines = set().union(*entered.values())
        total += len(lines)
        short = str(Path(file).relative_to(root))
        missed[short] = sorted(lines - reached[file])
        closed[short] = sorted(functions.keys() - entered.keys())
    return {
        "lines": total,
        "reached": total - sum(map(len, missed.values())),
        "missed": {file: lines for file, lines in missed.items() if lines},
        "never_entered": {file: names for file, names in closed.items() if names},
    }


def _trace(name: str, inputs: Iterable[bytes], files: Container[str]) -> dict[str, set[int]]:
    """Return the lines of ``files`` that the inputs reach."""
    reached: dict[str, set[int]] = defaultdict(set)

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename not in files:
            return None
        seen = reached[frame.f_code.co_filename]

        def line(frame: FrameType, event: str, _: object) -> Any:
            seen.add(frame.f_lineno)
            return line

        return line

    probe = SUBJECTS[name].probe
    sys.settrace(trace)
    try:
        for data in inputs:
            probe(data)
    finally:
        sys.settrace(None)
    return reached


def main() -> None:
    """Print the measure as JSON: ``python -m tools.fuzz.lines NAME FOLDER...``."""
    name, *folders = sys.argv[1:]
    inputs = [path.read_bytes() for folder in folders for path in sorted(Path(folder).iterdir())]
    sys.stdout.write(json.dumps(measure(name, inputs)))


if __name__ == "__main__":
    main()
