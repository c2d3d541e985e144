"""Checkpoints made by hand, which torch itself would never write."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path


def checkpoint(pickled: bytes, storages: dict[str, bytes] | None = None, **entries: bytes) -> bytes:
    """A zip checkpoint around any pickle."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/byteorder", entries.get("byteorder", b"little"))
        for key, data in (storages or {}).items():
            archive.writestr(f"archive/data/{key}", data)
        archive.writestr("archive/version", b"3\n")
    return out.getvalue()


def legacy(pickled: bytes, keys: list[str] | None = None, tail: bytes = b"") -> bytes:
    """A legacy file around any pickle."""
    head = [0x1950A86A20F9469CFC6C, 1001, {"protocol_version": 1001, "little_endian": True, "type_sizes": {}}]
    front = b"".join(pickle.dumps(value, 2) for value in head)
    return front + pickled + pickle.dumps(keys or [], 2) + tail


def tensor(
    shape: str = "K\x02\x85", strides: str = "K\x01\x85", *, elements: str = "K\x04", first: str = "K\x00",
    key: str = "0", extra: str = "",
) -> bytes:  # fmt: skip
    """The opcodes of a tensor of f32."""
    text = (
        "ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\n"
        f"X{chr(len(key))}\x00\x00\x00{key}X\x03\x00\x00\x00cpu{elements}tQ{first}{shape}{strides}"
        f"\x89ccollections\nOrderedDict\n)R{extra}tR"
    )
    return text.encode("latin-1")


def named(value: bytes, name: bytes = b"w") -> bytes:
    """A pickle of {name: value}, from the value's opcodes."""
    return b"\x80\x02}(X" + len(name).to_bytes(4, "little") + name + value + b"u."


class Bomb:
    """Pickles into a call that leaves a trace if it is ever made."""

    def __init__(self, function: object, *arguments: object) -> None:
        self._call = (function, arguments)

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return self._call  # type: ignore[return-value]


def touch(path: Path) -> str:
    """A command that would show that something was run."""
    return f"touch {path}"


def text(word: str) -> bytes:
    """The opcode of a text."""
    data = word.encode("utf-8", "surrogatepass")
    return b"X" + len(data).to_bytes(4, "little") + data


def number(value: int) -> bytes:
    """The opcode of an integer."""
    return b"J" + value.to_bytes(4, "little", signed=True)


def blob(data: bytes) -> bytes:
    """The opcode of bytes."""
    return b"B" + len(data).to_bytes(4, "little") + data


def call(module: str, name: str, *arguments: bytes) -> bytes:
    """The opcodes of a call."""
    return f"c{module}\n{name}\n".encode() + row(*arguments) + b"R"


def row(*items: bytes) -> bytes:
    """The opcodes of a tuple."""
    return b"(" + b"".join(items) + b"t"


def table(*items: bytes) -> bytes:
    """The opcodes of a dict, from those of its keys and values."""
    return b"}(" + b"".join(items) + b"u"
