"""The assets of a folder: files beside the weights, each open only while it is read."""

from __future__ import annotations

from collections.abc import Iterator

from holdall.base.once import computed_once
from holdall.errors import UnsupportedError
from holdall.format.weight_files import is_weights
from holdall.model.metadata import is_carried_key
from holdall.model.payload import Payload
from holdall.source import CHUNK, Source

__all__ = ["FolderFile", "assets_of"]


class FolderFile(Payload):
    """A file of a folder. It is open only while it is read: a folder may have more files than a process may open."""

    def __init__(self, folder: Source, name: str) -> None:
        self._folder = folder
        self._name = name

    @computed_once
    def size(self) -> int:  # known when first asked for
        source = self._folder.sibling(self._name)
        try:
            return source.size
        finally:
            source.close()

    def slice(self, start: int, stop: int) -> memoryview:
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
    """Every file that is not weights or a carried original; none if the folder cannot be listed."""
    try:
        names = folder.files()
    except UnsupportedError:
        return {}
    wanted = [name for name in names if not is_weights(name) and not is_carried_key(name) and "\\" not in name]
    return {name: FolderFile(folder, name) for name in wanted}
