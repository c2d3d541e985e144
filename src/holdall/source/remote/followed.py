"""Files of a set at full URLs that its document states, fetched from origins that the caller named."""

from __future__ import annotations

from collections.abc import Collection

from holdall.base.text import file_text
from holdall.errors import FormatError
from holdall.source.base import Source
from holdall.source.folder import MISSING, check_followed
from holdall.source.remote.disk_cache import default_cache
from holdall.source.remote.remote_source import RemoteSource
from holdall.source.remote.stores import AbsentError

__all__ = ["open_followed"]


def open_followed(url: str, origins: Collection[str]) -> Source:
    """Open the file at ``url``; FormatError for an origin that is not among ``origins``, before a request is sent."""
    check_followed(url, origins)
    try:
        source = RemoteSource(url, cache=default_cache(), origins=origins)
    except AbsentError:
        raise FormatError(MISSING.id, None, f"{file_text(url)}: is not there") from None
    source.member = file_text(url)
    return source
