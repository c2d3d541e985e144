"""The other files of a folder: opened, read and closed again when somebody asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from holdall.errors import UnsupportedError
from holdall.formats.hf.layout import is_weights
from holdall.metadata import is_own
from holdall.payload import Payload
from holdall.source import CHUNK, Source

__all__ = ["Member", "assets_of"]


class Member(Payload):
    """A file of a folder. It is open only while it is being read: a folder may have more files than a process."""

    def __init__(self, folder: Source, name: str) -> None:
        self._folder = folder
        self._name = name

    @cached_property
    def size(self) -> int:  # type: ignore[override]  # known when first asked for
        source = self._folder.sibling(self._name)
        try:
            return source.size
        finally:
            source.close()

    def part(self, start: int, stop: int) -> memoryview:
        source = self._folder.sibling(self._name)
        try:
            return memoryview(source.read(start, stop - start))
        finally:
            source.close()

    def chunks(self, piece: int = CHUNK) -> Iterator[memoryview]:
        source = self._folder.sibling(self._name)
        try:
            yield from source.chunks(0, self.size, piece)
        finally:
            source.close()


def assets_of(folder: Source) -> dict[str, Payload]:
    """Every file beside the weights but a carried original; none where the folder cannot be listed."""
    try:
        names = folder.files()
    except UnsupportedError:
        return {}
    wanted = [name for name in names if not is_weights(name) and not is_own(name) and "\\" not in name]
    return {name: Member(folder, name) for name in wanted}
