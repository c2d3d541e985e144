"""The sources that a model can be read from: files, folders, bytes and URLs."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable

from holdall.base import platform
from holdall.base.urls import SCHEMES, is_url, parse_origins
from holdall.errors import UnsupportedError
from holdall.source.base import CHUNK, Source
from holdall.source.file import FileSource, FolderSource
from holdall.source.folder import Folder, split_contained
from holdall.source.memory import BytesFolder, BytesSource

__all__ = ["CHUNK", "BytesFolder", "BytesSource", "FileSource", "Folder", "FolderSource", "Openable", "Source"]
__all__ += ["source_of", "split_contained"]

Openable = str | os.PathLike[str] | bytes | bytearray | memoryview | Source


def source_of(what: Openable, *, map: bool = True, follow: str | Iterable[str] = ()) -> Source:
    """The source for a path, a URL, a bytes-like object, or a source itself.

    ``follow`` are origins to which, beside its own, a server may redirect, and at which a set may have its files.
    """
    origins = parse_origins(follow)
    source = _make_source(what, map, origins)
    source.origins = origins
    return source


def _make_source(what: Openable, map: bool, origins: frozenset[str]) -> Source:
    if isinstance(what, Source):
        return what
    if isinstance(what, (bytes, bytearray, memoryview)):
        return BytesSource(what)
    if isinstance(what, str) and "://" in what:
        from holdall.source.remote.disk_cache import default_cache
        from holdall.source.remote.remote_source import remote_source

        if is_url(what):
            return remote_source(what, default_cache(), origins)
        scheme = what.partition("://")[0]
        if scheme.isalnum() and not platform.full_path(what).exists():
            raise UnsupportedError(f"the scheme {scheme} is none of {' '.join(SCHEMES)}")
    if not os.fspath(what):
        raise FileNotFoundError(errno.ENOENT, "a path is empty", "")
    if platform.full_path(what).is_dir():
        return FolderSource(what, map=map)
    return FileSource(what, map=map)
