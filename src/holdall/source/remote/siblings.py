"""The other files of a set at a URL, which must be below the same folder of the same server."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future
from contextlib import suppress

from holdall.base.text import file_text
from holdall.base.urls import BUCKETS
from holdall.errors import FormatError
from holdall.source.base import Source
from holdall.source.folder import MISSING
from holdall.source.remote.remote_object import RemoteObject
from holdall.source.remote.requests import Trouble, list_names
from holdall.source.remote.stores import AbsentError, Place, RemoteError, join_url
from holdall.source.thread_pools import member_pool, refuse_after_fork

__all__ = ["WELL_KNOWN", "Siblings"]

# The files to look for beside weights if the server cannot list a folder.
WELL_KNOWN = (
    "model.safetensors", "model.safetensors.index.json", "model.aeroset.json",
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "tokenizer.model",
    "special_tokens_map.json", "added_tokens.json", "vocab.txt", "vocab.json", "merges.txt", "chat_template.jinja",
    "preprocessor_config.json", "modules.json", "sentence_bert_config.json", "1_Pooling/config.json", "README.md",
)  # fmt: skip


class Siblings:
    """The members of the set that a URL belongs to. ``opener`` makes a source of a URL; ``origins`` are followed."""

    def __init__(self, url: str, opener: Callable[[str], Source], origins: Collection[str]) -> None:
        self._url = url
        self._opener = opener
        self._origins = origins
        self._pending: dict[str, Future[Source]] = {}
        self._names: list[str] | None = None

    def open(self, relative: str) -> Source:
        """Open the member ``relative``; FormatError for a name that leaves the folder, before any request is sent."""
        url = join_url(self._url, relative)
        refuse_after_fork()
        pending = self._pending.pop(relative, None)
        try:
            source = self._opener(url) if pending is None else pending.result()
        except AbsentError:
            message = f"the member {relative!r} is not in {file_text(join_url(self._url, 'x'))[:-2]}"
            raise FormatError(MISSING.id, None, message) from None
        source.member = relative
        return source

    def expect(self, names: Iterable[str]) -> None:
        """Start to open these members in parallel."""
        for name in names:
            with suppress(FormatError):  # open() raises it
                url = join_url(self._url, name)
                if name not in self._pending:
                    self._pending[name] = member_pool().submit(self._opener, url)

    def names(self) -> list[str]:
        """The names in the folder if the store can list it, else those of the well-known names that exist."""
        if self._names is None:
            scheme = self._url.partition("://")[0].lower()
            if scheme in BUCKETS:
                folder = self._url.rpartition("/")[0] + "/"
                try:
                    self._names = list_names(Place(folder))
                except Trouble as trouble:
                    raise RemoteError(f"{file_text(folder)}: cannot be listed: {trouble.cause}") from None
            else:
                found = member_pool().map(self._exists, WELL_KNOWN)
                self._names = [name for name, exists in zip(WELL_KNOWN, found, strict=True) if exists]
        return self._names

    def close(self) -> None:
        """Close the members that were expected and never opened."""
        while self._pending:
            _, pending = self._pending.popitem()
            if not pending.cancel():
                pending.add_done_callback(lambda done: None if done.exception() else done.result().close())

    def _exists(self, name: str) -> bool:
        if name in self._pending:
            return True
        try:
            # A byte is requested, since not every server answers HEAD.
            RemoteObject(join_url(self._url, name), 1, origins=self._origins)
        except AbsentError:
            return False
        except RemoteError as error:
            if str(error).endswith("access is denied"):  # some stores answer 403 for missing keys
                return False
            raise
        return True
