"""Bytes in: the sources a model can be opened from."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from holdall.errors import UnsupportedError
from holdall.source.base import CHUNK, Source
from holdall.source.file import FileSource
from holdall.source.folder import Folder, FolderSource, contained
from holdall.source.memory import BytesFolder, BytesSource

__all__ = ["CHUNK", "BytesFolder", "BytesSource", "FileSource", "Folder", "FolderSource", "Openable", "Source"]
__all__ += ["contained", "source_of"]

Openable = str | os.PathLike[str] | bytes | bytearray | memoryview | Source


def source_of(what: Openable, *, map: bool = True) -> Source:
    """The source for a path, a URL, a bytes-like object, or a source itself."""
    if isinstance(what, Source):
        return what
    if isinstance(what, (bytes, bytearray, memoryview)):
        return BytesSource(what)
    if isinstance(what, str) and "://" in what:
        from holdall.source.cache import default_cache
        from holdall.source.remote import is_url, remote_source
        from holdall.source.stores import SCHEMES

        if is_url(what):
            return remote_source(what, default_cache())
        scheme = what.partition("://")[0]
        if scheme.isalnum() and not Path(what).exists():
            raise UnsupportedError(f"the scheme {scheme} is none of {' '.join(SCHEMES)}")
    if not os.fspath(what):
        raise FileNotFoundError(errno.ENOENT, "a path is empty", "")
    if Path(what).is_dir():
        return FolderSource(what, map=map)
    return FileSource(what, map=map)
