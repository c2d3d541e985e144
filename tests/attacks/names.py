"""Names that are commands to a terminal, or paths."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.attacks.files import aero, good, npy, npz, onnx, proto, tidx_entry
from tests.attacks.kit import Attack, family
from tests.format.gguf import build as gguf
from tests.format.mcf.build import Entry, with_tensors
from tests.format.safetensors.files import build, entry
from tests.format.torch.files import checkpoint, named, tensor

NAMES = family("names", "a name is printed so that it steers no terminal, and extracted into the folder that was named")

HOSTILE = (
    "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x1b[2J\x1b[H", "\x9b31mred", "\u202egnp.exe", "\u2066a\u2069",
    "a\nok: fine", "a\rb", "\x07\x08\x7f", "a\u2028b", "\ufeffa", "\U000e0041", "../../outside", "/etc/outside",
    "a/../../outside", "..\\outside", "CON", "-rf", "~", "$(id)", "w\0v", ".", "..", "x" * 70_000,
)  # fmt: skip
_SHORT = [name for name in HOSTILE if len(name.encode()) <= 6]


@NAMES.on("oinf", "embd", "gptrs-checkpoint", "gptrs-archive")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for name in (*_SHORT, "\x1b[31mX", "\u202eabc", "\x9b31mX", "a\nb\rc\x07"):
        stored = name.encode().ljust(6, b"a")
        assert len(stored) == 6
        yield Attack(repr(name), good(format).replace(b"second", stored), "never")


@NAMES.on("mcf")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for name in HOSTILE:
        yield Attack(repr(name[:30]), with_tensors([Entry(name.encode(), 1, (2,), bytes(8))]), "never")


@NAMES.on("aero")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for name in HOSTILE:
        text = name.encode()[:60]
        chunk = (text[:4].ljust(4, b"\x1b"), text, 8, b"{}")
        yield Attack(repr(name[:30]), aero(tidx_entry(name=name), chunks=[chunk]), "never")


@NAMES.on("safetensors")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for name in HOSTILE:
        yield Attack(repr(name[:30]), build({"__metadata__": {name: name}, name: entry()}, bytes(8)), "never")
        yield Attack(f"dtype {name[:30]!r}", build({"w": entry(dtype=name)}, bytes(8)))


@NAMES.on("gguf")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for name in HOSTILE:
        value = gguf.entry(name, 8, gguf.text(name))
        yield Attack(repr(name[:30]), gguf.file((value,), (gguf.info(name),), bytes(32)), "never")
        texts = gguf.entry("tokenizer.ggml.tokens", 9, gguf.array(8, 1, gguf.text(name)))
        yield Attack(f"a token {name[:30]!r}", gguf.file((texts,), (gguf.info(),), bytes(32)), "never")


@NAMES.on("torch")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for name in HOSTILE:
        yield Attack(repr(name[:30]), checkpoint(named(tensor(), name.encode()), {"0": bytes(16)}), "never")
        asked = f"c{name}\n{name}\n".encode() if "\n" not in name else b"cos\nsystem\n"
        yield Attack(f"a global {name[:30]!r}", checkpoint(b"\x80\x02" + asked + b"."), "warning")


@NAMES.on("npz")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for name in HOSTILE:
        if len(name) < 60_000:
            yield Attack(repr(name[:30]), npz((f"{name}.npy", npy())), "never")
            yield Attack(f"type {name[:30]!r}", npz(("w.npy", npy(descr=repr(name)))))


@NAMES.on("onnx")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for name in HOSTILE:
        yield Attack(repr(name[:30]), onnx(proto(name.encode()), props={name: name}), "never")
