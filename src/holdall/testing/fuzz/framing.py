"""One byte string for the files of a set, so that a fuzzer, which knows bytes only, can work on folders."""

from __future__ import annotations

from collections.abc import Mapping

from holdall.source import BytesFolder, BytesSource, Source

__all__ = ["MAIN", "framed", "source_of", "unframed"]

MAIN = ""  # the name of the one file of an input that is not a set
_MAGIC = b"FRAME\n"


def framed(files: Mapping[str, bytes]) -> bytes:
    """The files as one string: each with the length of its name, the name, its size and its bytes.

    >>> unframed(framed({"index.json": b"{}", "part": b"12"}))
    {'index.json': b'{}', 'part': b'12'}
    """
    if list(files) == [MAIN]:
        return files[MAIN]
    parts = [_MAGIC]
    for name, data in files.items():
        stored = name.encode("utf-8", "surrogatepass")[:255]
        parts += [bytes([len(stored)]), stored, len(data).to_bytes(4, "little"), data]
    return b"".join(parts)


def unframed(data: bytes) -> dict[str, bytes]:
    """The files in ``data``. Any bytes are a frame: what runs past the end is cut off."""
    if not data.startswith(_MAGIC):
        return {MAIN: data}
    files: dict[str, bytes] = {}
    at = len(_MAGIC)
    while at < len(data):
        name = data[at + 1 : at + 1 + data[at]]
        at += 1 + len(name)
        size = int.from_bytes(data[at : at + 4], "little")
        files[name.decode("utf-8", "replace")] = data[at + 4 : at + 4 + size]
        at += 4 + size
    return files


def source_of(files: Mapping[str, bytes], start: str | None, *, far: bool = False) -> Source:
    """What is opened: the first file whose name ends with ``start``, or the folder when there is none.

    ``far``: as if it came over a network, where reads differ.
    """
    if MAIN in files or not files:
        single = BytesSource(files.get(MAIN, b""))
        single.far = far
        return single
    whole = _FarFolder(files) if far else BytesFolder(files)
    first = None if start is None else next((name for name in files if name.endswith(start)), None)
    return whole if first is None else whole.sibling(first)


class _FarFolder(BytesFolder):
    far = True

    def sibling(self, relative: str) -> Source:
        member = super().sibling(relative)
        member.far = True
        return member
