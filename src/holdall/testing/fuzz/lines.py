"""Which lines of a reader a corpus reaches: every input is replayed with a line tracer on the reader's files.

A reader's files are those of its format, without the ones that only write, and the shared ones that reading it uses.
Counted are the lines of the functions that at least one input enters; the functions that none enters, which only
writers and callers use, are listed by name. What runs at import, and lines that refuse a caller's value (``raise
ContentError``), are no lines of a reader.
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
from holdall.testing.fuzz.subjects import SUBJECTS

__all__ = ["functions_of", "measured", "reader_files"]

_SHARED: Mapping[str, tuple[str, ...]] = {
    "aero": ("documents/msgpack.py", "documents/json.py", "compression.py"),
    "aeroset": ("formats/aero", "documents/json.py", "documents/msgpack.py", "compression.py"),
    "gguf": ("ggml.py",),
    "gptrs": ("documents/json.py", "inline.py"),
    "embd": ("inline.py",),
    "hf": ("formats/safetensors", "documents/json.py"),
    "mcf": ("documents/json.py",),
    "npz": ("zipfiles.py", "zipdirectory.py", "ziplocals.py", "inflated.py"),
    "safetensors": ("documents/json.py",),
    "torch": ("zipfiles.py", "zipdirectory.py", "ziplocals.py", "inflated.py"),
}
_FUNCTION = 2  # CO_NEWLOCALS: not the body of a module or of a class
_WRITE = (
    "write.py",
    "pack.py",
    "placing.py",
    "survey.py",
    "outline.py",
    "encode.py",
    "repair.py",
    "fields.py",
    "inputs.py",
    "gojson.py",
    "canonical.py",
    "settings.py",
    "flatten.py",
)


def reader_files(name: str) -> list[Path]:
    """The files whose lines count for a subject."""
    root = Path(holdall.__file__).parent
    places = [root / f"formats/{name}", *(root / shared for shared in _SHARED.get(name, ()))]
    files = [file for place in places for file in (sorted(place.glob("*.py")) if place.is_dir() else [place])]
    return [file for file in files if file.name not in _WRITE and file.name != "__init__.py"]


def functions_of(file: Path) -> dict[str, set[int]]:
    """The lines of each function of a file, by its name."""
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


def measured(name: str, inputs: Iterable[bytes]) -> dict[str, Any]:
    """Lines that there are, lines that the inputs reach, those they miss by file, and functions that none enters."""
    files = {str(file): functions_of(file) for file in reader_files(name)}
    reached = _traced(name, inputs, files)
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


def _traced(name: str, inputs: Iterable[bytes], files: Container[str]) -> dict[str, set[int]]:
    """The lines of ``files`` that the inputs reach."""
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
    """``python -m holdall.testing.fuzz.lines NAME FOLDER...``: the measure as JSON."""
    name, *folders = sys.argv[1:]
    inputs = [path.read_bytes() for folder in folders for path in sorted(Path(folder).iterdir())]
    sys.stdout.write(json.dumps(measured(name, inputs)))


if __name__ == "__main__":
    main()
