"""Which lines of a reader a corpus reaches: every input is replayed with a line tracer on the reader's files.

A reader's files are those of its format, without the ones that only write, and the shared ones that reading it uses.
Lines are lines of function bodies; what runs at import is not counted.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import holdall
from holdall.testing.fuzz.subjects import SUBJECTS

__all__ = ["lines_of", "measured", "reader_files"]

_SHARED: Mapping[str, tuple[str, ...]] = {
    "aero": ("documents/msgpack.py", "documents/json.py", "compression.py"),
    "aeroset": ("formats/aero", "documents/json.py", "documents/msgpack.py", "compression.py"),
    "gguf": ("ggml.py",),
    "gptrs": ("documents/json.py", "inline.py"),
    "embd": ("inline.py",),
    "hf": ("formats/safetensors", "documents/json.py"),
    "mcf": ("documents/json.py",),
    "npz": ("zipfiles.py", "inflated.py"),
    "safetensors": ("documents/json.py",),
    "torch": ("zipfiles.py", "inflated.py"),
}
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


def lines_of(file: Path) -> set[int]:
    """The lines of the bodies of all functions in a file."""

    def inside(code: CodeType, function: bool) -> Iterator[int]:
        if function:
            yield from (line for _, _, line in code.co_lines() if line is not None and line != code.co_firstlineno)
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                yield from inside(constant, constant.co_flags & 2 != 0)  # CO_NEWLOCALS: not a class body

    return set(inside(compile(file.read_text(), str(file), "exec"), False))


def measured(name: str, inputs: Iterable[bytes]) -> dict[str, Any]:
    """Lines that there are, lines that the inputs reach, and those that they do not, by file."""
    files = {str(file): lines_of(file) for file in reader_files(name)}
    reached: dict[str, set[int]] = {file: set() for file in files}

    def trace(frame: FrameType, event: str, _: object) -> Any:
        seen = reached.get(frame.f_code.co_filename)
        if seen is None:
            return None
        seen.add(frame.f_lineno)

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
    root = Path(holdall.__file__).parent
    missed = {str(Path(file).relative_to(root)): sorted(lines - reached[file]) for file, lines in files.items()}
    return {
        "lines": sum(map(len, files.values())),
        "reached": sum(len(lines & reached[file]) for file, lines in files.items()),
        "missed": {file: lines for file, lines in missed.items() if lines},
    }


def main() -> None:
    """``python -m holdall.testing.fuzz.lines NAME FOLDER...``: the measure as JSON."""
    name, *folders = sys.argv[1:]
    inputs = [path.read_bytes() for folder in folders for path in sorted(Path(folder).iterdir())]
    sys.stdout.write(json.dumps(measured(name, inputs)))


if __name__ == "__main__":
    main()
