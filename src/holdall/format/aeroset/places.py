"""Where the files of a set are: beside its document, below its base_url, or at full URLs.

A document comes from an untrusted file: only origins that the caller names are followed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from holdall.base.urls import find_origin
from holdall.errors import FormatError, HashError
from holdall.format.aeroset import rules
from holdall.source import split_contained
from holdall.source.folder import MISSING, check_followed, describe_refusal
from holdall.source.pinned_source import PinnedSource

if TYPE_CHECKING:
    from holdall.format.aeroset.document import SetFile
    from holdall.source import Source

__all__ = ["Places", "open_file", "open_index", "pin_file"]


@dataclass(frozen=True, slots=True)
class Places:
    """Finds the files of one set, whose document states ``base_url``; ``origins`` are followed.

    >>> places = Places("https://host/set/?sig=1", {"https://host"})
    >>> places.locate("part 0.aero")
    'https://host/set/part%200.aero?sig=1'
    >>> Places("https://host/set", set()).locate("part-000.aero")
    """

    base_url: object
    origins: Collection[str]

    @property
    def base(self) -> str | None:
        """The origin of base_url; None if there is none, or it is not a plain URL."""
        return find_origin(self.base_url) if isinstance(self.base_url, str) else None

    def locate(self, name: str) -> str | None:
        """Return the URL of the file that the document calls ``name``; None for a file beside the document.

        FormatError for a path out of the folder, and for a full URL at an origin that is not followed. A base_url at
        such an origin is not used: the files may well be beside the document.
        """
        if name.lower().startswith(("http://", "https://")):
            check_followed(name, self.origins)
            return name
        split_contained(name)
        if isinstance(self.base_url, str) and self.base in self.origins:
            folder, mark, query = self.base_url.partition("?")
            return f"{folder.rstrip('/')}/{quote(name)}{mark}{query}"
        return None


def open_file(home: Source, file: SetFile) -> Source:
    """Open a file of the set, which must have the stated size. The bytes of errors are those of the document."""
    try:
        opened = home.sibling(file.path) if file.url is None else _fetch(file.url, home.origins)
    except OSError as error:
        message = f"aeroset: {file.path!r} cannot be opened: {error.strerror or error}"
        raise FormatError(rules.MISSING.id, file.locate("path"), message) from error
    except FormatError as error:
        if error.rule != MISSING.id:
            raise
        elsewhere = "" if file.base is None else f"; base_url is at {describe_refusal(file.base)}"
        raise FormatError(error.rule, file.locate("path"), f"{error.message}{elsewhere}") from None
    if opened.size != file.size:
        opened.close()
        message = f"aeroset: {file.path!r} has {opened.size} bytes, the index says {file.size}"
        raise FormatError(rules.SIZE.id, file.locate("size_bytes"), message)
    return opened


def _fetch(url: str, origins: Collection[str]) -> Source:
    from holdall.source.remote.followed import open_followed  # a set beside its document needs no client

    return open_followed(url, origins)


def open_index(home: Source, file: SetFile) -> Source:
    """Open the global index. All of it is read, so that one from another origin is compared first."""
    opened = open_file(home, file)
    if file.url is None:
        return opened
    pinned = pin_file(opened, file)
    pinned.pin()
    return pinned


def pin_file(opened: Source, file: SetFile) -> PinnedSource:
    """Return the file as a source that must have the SHA-256 that the document states."""

    def make_error(found: str | None) -> HashError:
        message = f"the SHA-256 of {file.path!r} is {found}, the index says {file.sha256}"
        if found is None:
            message = f"the server sent other bytes of {file.path!r} than those whose SHA-256 it was opened with"
        error = HashError(rules.HASH.id, None, f"aeroset: {message}")
        error.file = opened.name
        return error

    return PinnedSource(opened, file.sha256, make_error)
