"""Packs the files of a set into one byte string: a fuzzer works on bytes only."""

from __future__ import annotations

from collections.abc import Mapping

from holdall.source import BytesFolder, BytesSource, Source

__all__ = ["MAIN", "frame", "source_of", "unframe"]

MAIN = ""  # the name of the one file of an input that is not a set
_MAGIC = b"FRAME\n"


def frame(files: Mapping[str, bytes]) -> bytes:
    """Pack files into one string: each with the length of its name, the name, its size and its bytes.

    >>> unframe(frame({"index.json": b"{}", "part": b"12"}))
    {'index.json': b'{}', 'part': b'12'}
    """
    if list(files) == [MAIN]:
        return files[MAIN]
    parts = [_MAGIC]
    for name, data in files.items():
        stored = name.encode("utf-8", "surrogatepass")[:255]
        parts += [bytes([len(stored)]), stored, len(data).to_bytes(4, "little"), data]
    return b"".join(parts)


def unframe(data: bytes) -> dict[str, bytes]:
    """Unpack the files in ``data``. Any bytes are a frame: a file that runs past the end is cut off."""
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


def source_of(files: Mapping[str, bytes], start: str | None, *, is_remote: bool = False) -> Source:
    """Return the source to open: the first file whose name ends with ``start``, or the folder when there is none.

    ``is_remote``: as if it came over a network, where reads differ.
    """
    if MAIN in files or not files:
        single = BytesSource(files.get(MAIN, b""))
        single.is_remote = is_remote
        return single
    whole = _FarFolder(files) if is_remote else BytesFolder(files)
    first = None if start is None else next((name for name in files if name.endswith(start)), None)
    return whole if first is None else whole.sibling(first)


class _FarFolder(BytesFolder):
    is_remote = True

    def sibling(self, relative: str) -> Source:
        member = super().sibling(relative)
        member.is_remote = True
        return member
