"""Files that name other files, and files that are none."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from holdall.format import registry
from tests.attacks.files import (
    aeroset,
    external,
    good,
    hf_folder,
    hf_index,
    member,
    npy,
    npz,
    onnx,
    proto,
)
from tests.attacks.kit import INSIDE, Attack, family
from tests.format.gguf import build as gguf
from tests.format.safetensors.files import build, entry
from tests.format.torch.files import checkpoint, named, tensor

_ALONE = "one file, which names no other"

# -- names of members -------------------------------------------------------------------------------------------------

TRAVERSAL = family("traversal", "a file that is named from inside a file lies in its folder, or is refused")

_OUTSIDE = (
    "../secret", "../../secret", "a/../../secret", "/etc/passwd", "./../secret", "a/./b", "a//b", "", ".", "..", "a/..",
    "\0", "part\0.aero", "..\\secret", "a\\b", "C:secret", "C:/secret", "c:\\secret", "//host/share", "\\\\host\\share",
    "file:///etc/passwd", "http://127.0.0.1/x", "~/secret", "secret/", "nul", "CON", "aux.txt", "x" * 5000, "\ud800",
    "%2e%2e/secret", "..%2fsecret", "\u2025/secret", "\uff0e\uff0e/secret", "$HOME/secret", "a:b",
)  # fmt: skip


def _each(folder: Path, make: Callable[[Path, str], Path]) -> Iterator[Attack]:
    (folder / "secret").write_bytes(good("aero"))
    for number, name in enumerate(_OUTSIDE):
        yield Attack(f"{name[:30]!r}", make(folder / f"in{number}", name))


@TRAVERSAL.on("aeroset")
def _(folder: Path, format: str) -> Iterator[Attack]:
    part = good("aero")
    yield from _each(folder, lambda inside, name: aeroset(inside, part, member(name, part)))
    (folder / "index").mkdir()
    yield from _each(folder / "index", lambda inside, name: aeroset(inside, part, global_tidx=member(name, part)))


@TRAVERSAL.on("hf")
def _(folder: Path, format: str) -> Iterator[Attack]:
    (folder / "secret").write_bytes(build({"w": entry()}, bytes(8)))
    for number, name in enumerate(_OUTSIDE):
        yield Attack(f"{name[:30]!r}", hf_index(folder / f"in{number}", {"w": name}))


@TRAVERSAL.on("onnx")
def _(folder: Path, format: str) -> Iterator[Attack]:
    (folder / "secret").write_bytes(bytes(8))
    for number, name in enumerate(_OUTSIDE):
        inside = folder / f"in{number}"
        inside.mkdir()
        try:
            rest = external(location=name)
        except UnicodeEncodeError:
            continue  # protobuf has only text that is UTF-8
        (inside / "m.onnx").write_bytes(onnx(proto(rest=rest)))
        yield Attack(f"{name[:30]!r}", inside / "m.onnx")
        yield Attack(f"{name[:30]!r}, by the folder", inside)


@TRAVERSAL.on("npz")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for name in _OUTSIDE:
        if name not in ("", ".") and "\ud800" not in name and "\0" not in name and _unsafe(name):
            yield Attack(f"{name[:30]!r}", npz((f"{name}.npy" if not name.endswith(("/", "..")) else name, npy())))


def _unsafe(name: str) -> bool:
    return (
        name.startswith("/")
        or "\\" in name
        or any(part in ("", ".", "..") for part in name.split("/"))
        or "://" in name
    )


@TRAVERSAL.on("torch")
def _(folder: Path, format: str) -> Iterator[Attack]:
    for name in ("../x", "/etc/passwd", "archive/../../x", "a\\b", "archive//data/0", "./archive/x"):
        data = npz(("archive/data.pkl", b"\x80\x02}."), (name, b"x"), ("archive/version", b"3\n"))
        yield Attack(f"an entry {name!r}", data)
    for key in ("../../x", "/etc/passwd", "..", "a/b"):
        yield Attack(f"a storage {key!r}", checkpoint(named(tensor(key=key)), {"0": bytes(16)}))


@TRAVERSAL.on("gguf")
def _(folder: Path, format: str) -> Iterator[Attack]:
    """The names of parts are made from the file's own, so that only numbers come from inside."""
    parts = (gguf.u16("split.no", 0), gguf.u16("split.count", 2), gguf.entry("split.tensors.count", 5, bytes(4)))
    for number, name in enumerate(
        ("m.gguf", "..-00001-of-00002.gguf", "-00001-of-00002.gguf", "a-00002-of-00002.gguf")
    ):
        (folder / f"{number}").mkdir()
        (folder / f"{number}" / name).write_bytes(gguf.file(parts))
        yield Attack(name, folder / f"{number}" / name)


TRAVERSAL.spare(_ALONE, "oinf", "embd", "gptrs-checkpoint", "gptrs-archive", "mcf", "aero", "safetensors")

# -- links ------------------------------------------------------------------------------------------------------------

LINKS = family("links", "a member that is a link, or lies behind one, is refused; a file opened by the user may be one")


def _linked(folder: Path, name: str, make: Callable[[Path, str], Path], data: bytes) -> Iterator[Attack]:
    """Sets whose member ``name`` is a link, or in a folder that is one; ``make`` gets a folder and a member's name."""
    (folder / "outside").mkdir(exist_ok=True)
    (folder / "outside" / name).write_bytes(data)
    targets = {"a file outside": "../outside/" + name, "an absolute one": str(folder / "outside" / name),
               "nothing": "missing", "itself": name, "a device": "/dev/zero", "a file inside": "real"}  # fmt: skip
    for number, (title, target) in enumerate(targets.items()):
        path = make(folder / f"{number}", name)
        (folder / f"{number}" / "real").write_bytes(data)
        (folder / f"{number}" / name).unlink(missing_ok=True)
        (folder / f"{number}" / name).symlink_to(target)
        yield Attack(f"a link to {title}", path)
    path = make(folder / "parent", f"sub/{name}")
    (folder / "parent" / "sub").symlink_to("../outside")
    yield Attack("a folder that is a link", path)
    path = make(folder / "hard", name)
    (folder / "hard" / name).unlink(missing_ok=True)
    os.link(folder / "outside" / name, folder / "hard" / name)
    yield Attack("a hard link", path, "never")  # no reader can tell one from the file: it is what the folder holds
    path = make(folder / "user", name)
    (folder / "user" / name).write_bytes(data)
    (folder / "by-link").symlink_to(folder / "user")
    by_link = folder / "by-link" if path.is_dir() else folder / "by-link" / path.name
    yield Attack("a folder that the user gives by a link", by_link, "never")


@LINKS.on("aeroset")
def _(folder: Path, format: str) -> Iterator[Attack]:
    part = good("aero")

    def make(inside: Path, name: str) -> Path:
        path = aeroset(inside, part, member(name, part))
        (inside / "part-000.aero").unlink()
        return path

    yield from _linked(folder, "p.aero", make, part)


@LINKS.on("hf")
def _(folder: Path, format: str) -> Iterator[Attack]:
    data = build({"w": entry()}, bytes(8))
    yield from _linked(folder, "w.safetensors", lambda inside, name: hf_index(inside, {"w": name}), data)


@LINKS.on("onnx")
def _(folder: Path, format: str) -> Iterator[Attack]:
    def make(inside: Path, name: str) -> Path:
        inside.mkdir()
        (inside / "m.onnx").write_bytes(onnx(proto(rest=external(location=name, length="8"))))
        return inside / "m.onnx"

    yield from _linked(folder, "w.bin", make, bytes(8))


@LINKS.on("gguf")
def _(folder: Path, format: str) -> Iterator[Attack]:
    def part(number: int) -> bytes:
        keys = (
            gguf.u16("split.no", number),
            gguf.u16("split.count", 2),
            gguf.entry("split.tensors.count", 5, bytes(4)),
        )
        return gguf.file(keys)

    def make(inside: Path, name: str) -> Path:
        inside.mkdir()
        (inside / "m-00001-of-00002.gguf").write_bytes(part(0))
        return inside / "m-00001-of-00002.gguf"

    yield from _linked(folder, "m-00002-of-00002.gguf", make, part(1))


LINKS.spare(_ALONE, "oinf", "embd", "gptrs-checkpoint", "gptrs-archive", "mcf", "aero", "safetensors", "torch", "npz")

# -- what is no file --------------------------------------------------------------------------------------------------

SPECIAL = family(
    "special", "a FIFO, socket, device or directory in the place of a file is refused, without waiting for it"
)


_KINDS = 10


def _special(path: Path) -> Iterator[str]:
    """Things at ``path`` that are no files, one after the other."""
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    yield "a FIFO"
    path.unlink()
    before = Path.cwd()
    os.chdir(path.parent)  # the path of a socket has room for a hundred bytes
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(before)
    yield "a socket"
    path.unlink()
    path.mkdir()
    yield "a directory"
    path.rmdir()
    for device in ("/dev/zero", "/dev/null", "/dev/full", "/dev/urandom", "/dev/tty", "/proc/self/mem"):
        path.symlink_to(device)
        yield device
        path.unlink()
    path.symlink_to(path.name)
    yield "a link to itself"


@SPECIAL.on(*(name for name in registry.names() if name not in INSIDE.values()))
def _(folder: Path, format: str) -> Iterator[Attack]:
    suffix = (registry.find(format).suffixes or ("",))[0]
    for number in range(_KINDS):
        (folder / f"{number}").mkdir()
        yield Attack(_nth(folder / f"{number}" / f"m{suffix}", number), folder / f"{number}" / f"m{suffix}")


def _nth(path: Path, number: int) -> str:
    """Leaves the thing of that number at ``path``; says what it is."""
    return next(islice(_special(path), number, None))


def _in_set(folder: Path, name: str, make: Callable[[Path, str], Path]) -> Iterator[Attack]:
    """A set for each thing that is no file, as its member."""
    for number in range(_KINDS):
        inside = folder / f"{number}"
        path = make(inside, name)
        yield Attack(f"{_nth(inside / name, number)} as a member", path)


@SPECIAL.on("aeroset")
def _(folder: Path, format: str) -> Iterator[Attack]:
    part = good("aero")
    yield from _in_set(folder, "part-000.aero", lambda inside, name: aeroset(inside, part))


@SPECIAL.on("hf")
def _(folder: Path, format: str) -> Iterator[Attack]:
    yield from _in_set(folder, "w.safetensors", lambda inside, name: hf_index(inside, {"w": name}))
    yield from _in_set(folder / "single", "model.safetensors", lambda inside, name: hf_folder(inside, b""))
