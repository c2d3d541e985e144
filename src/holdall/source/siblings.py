"""The other files of a set at a URL: on the same origin, below the same folder, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress

from holdall.errors import FormatError
from holdall.source.base import Source
from holdall.source.folder import MISSING
from holdall.source.lanes import members
from holdall.source.object import RemoteObject
from holdall.source.requests import Trouble, listed
from holdall.source.stores import BUCKETS, AbsentError, Place, RemoteError, joined, shown

__all__ = ["WELL_KNOWN", "Siblings"]

# What lies beside weights on a server that cannot list its folders.
WELL_KNOWN = (
    "model.safetensors", "model.safetensors.index.json", "model.aeroset.json",
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "tokenizer.model",
    "special_tokens_map.json", "added_tokens.json", "vocab.txt", "vocab.json", "merges.txt", "chat_template.jinja",
    "preprocessor_config.json", "modules.json", "sentence_bert_config.json", "1_Pooling/config.json", "README.md",
)  # fmt: skip


class Siblings:
    """Members of the set that a URL belongs to. ``opener`` makes a source of a URL."""

    def __init__(self, url: str, opener: Callable[[str], Source]) -> None:
        self._url = url
        self._opener = opener
        self._coming: dict[str, Future[Source]] = {}
        self._names: list[str] | None = None

    def open(self, relative: str) -> Source:
        """The member ``relative``; FormatError for a name that leaves the folder, before anything is sent."""
        url = joined(self._url, relative)
        coming = self._coming.pop(relative, None)
        try:
            source = self._opener(url) if coming is None else coming.result()
        except AbsentError:
            message = f"the member {relative!r} is not in {shown(joined(self._url, 'x'))[:-2]}"
            raise FormatError(MISSING.id, None, message) from None
        source.member = relative
        return source

    def expect(self, names: Iterable[str]) -> None:
        """Begin to open these, side by side."""
        for name in names:
            with suppress(FormatError):  # said when it is opened
                url = joined(self._url, name)
                if name not in self._coming:
                    self._coming[name] = members().submit(self._opener, url)

    def names(self) -> list[str]:
        """By listing where there is such a thing, else those of the well-known names that are there."""
        if self._names is None:
            scheme = self._url.partition("://")[0].lower()
            if scheme in BUCKETS:
                folder = self._url.rpartition("/")[0] + "/"
                try:
                    self._names = listed(Place(folder))
                except Trouble as trouble:
                    raise RemoteError(f"{shown(folder)}: cannot be listed: {trouble.cause}") from None
            else:
                found = members().map(self._is_there, WELL_KNOWN)
                self._names = [name for name, there in zip(WELL_KNOWN, found, strict=True) if there]
        return self._names

    def close(self) -> None:
        """Let go of what was expected and never opened."""
        while self._coming:
            _, coming = self._coming.popitem()
            if not coming.cancel():
                coming.add_done_callback(lambda done: None if done.exception() else done.result().close())

    def _is_there(self, name: str) -> bool:
        if name in self._coming:
            return True
        try:
            RemoteObject(joined(self._url, name), 1)  # a byte: not every server answers HEAD
        except AbsentError:
            return False
        except RemoteError as error:
            if str(error).endswith("access is denied"):  # how some stores say that there is nothing to see
                return False
            raise
        return True
