"""The subjects of fuzzing: one a format, with the facts that the fuzzer needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from zlib import crc32

from holdall.errors import FormatError
from holdall.format import registry
from holdall.testing.damage import probe
from tools.fuzz.framing import source_of, unframe

__all__ = ["SUBJECTS", "Subject"]

_REMOTE = 8  # one of this many inputs is read as if it came over a network


@dataclass(frozen=True, slots=True)
class Subject:
    """A format, or two that share their reader. ``tables`` is the format whose tables its files have."""

    name: str
    formats: tuple[str, ...]
    tables: str
    start: str = ""  # how the file is called, at its end, by which a set is opened as often as by its folder

    def format(self, files: Mapping[str, bytes]) -> str:
        """Return the format to read an input as; if there are two, by the first bytes."""
        if len(self.formats) == 1:
            return self.formats[0]
        head = next(iter(files.values()), b"")
        rows = (row for row in registry.BUILT_IN if row.name in self.formats)
        return next((row.name for row in rows if head.startswith(row.magic)), self.formats[0])

    def probe(self, data: bytes) -> bool:
        """Read one input in every way; see :func:`holdall.testing.damage.probe`. This is the fuzz function."""
        files, chance = unframe(data), crc32(data)
        start, is_remote = self.start if chance & 1 else None, chance % _REMOTE == 1
        try:
            return probe(lambda: source_of(files, start, is_remote=is_remote), self.format(files))
        except FormatError:  # the mutation gave a file an impossible name; errors of readers end in probe()
            return False


SUBJECTS: Mapping[str, Subject] = {
    subject.name: subject
    for subject in (
        Subject("oinf", ("oinf",), "oinf"),
        Subject("embd", ("embd",), "embd"),
        Subject("gptrs", ("gptrs-checkpoint", "gptrs-archive"), "gptrs"),
        Subject("mcf", ("mcf",), "mcf"),
        Subject("safetensors", ("safetensors",), "safetensors"),
        Subject("aero", ("aero",), "aero"),
        Subject("gguf", ("gguf",), "gguf"),
        Subject("aeroset", ("aeroset",), "aero", ".aeroset.json"),
        Subject("hf", ("hf",), "safetensors", ".index.json"),
        Subject("npz", ("npz",), "npz"),
        Subject("onnx", ("onnx",), "onnx"),
        Subject("torch", ("torch",), "torch"),
    )
}
