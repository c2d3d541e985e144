"""URLs of objects: what they name, and for a bucket the obstore store and the path of the object in it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

from holdall.base.once import computed_once
from holdall.base.text import file_text
from holdall.base.urls import BUCKETS, drop_signature, hide_secrets
from holdall.errors import HoldallError, UnsupportedError
from holdall.source.folder import split_contained
from holdall.source.remote.credentials import client_options, endpoint_is_plain, s3_config

__all__ = ["AbsentError", "Place", "RemoteError", "is_folder_url", "join_url", "remove_signature"]


class RemoteError(HoldallError, OSError):
    """The object could not be read from its server."""


class AbsentError(RemoteError):
    """The server has no such object."""


@dataclass(frozen=True)
class Place:
    """Where an object of a bucket is: its store, which is opened on first use, and its path there."""

    url: str

    @property
    def store(self) -> Any:
        """The store."""
        return self._store_and_path[0]

    @property
    def path(self) -> str:
        """The path in the store."""
        return self._store_and_path[1]

    @computed_once
    def _store_and_path(self) -> tuple[Any, str]:
        try:
            return _open_store(self.url)
        except HoldallError:
            raise
        except Exception as error:  # its text is not shown: it may hold secrets of the URL or the configuration
            raise RemoteError(f"{file_text(self.url)}: cannot be set up ({type(error).__name__})") from None


def is_folder_url(url: str) -> bool:
    """Whether the URL names a folder: it ends in a slash, or is a whole repository of the hub."""
    scheme, _, rest = url.partition("://")
    return _path_of(url).endswith("/") or (scheme.lower() == "hf" and rest.strip("/").count("/") == 1)


def remove_signature(url: str) -> str:
    """Remove the secrets of the URL, and the parts of its query that sign it: the rest is the key of caches."""
    scheme = url.partition("://")[0].lower()
    if scheme in BUCKETS or "?" not in url:
        return hide_secrets(url)
    query = drop_signature(urlsplit(url).query)
    return hide_secrets(url) + (f"?{urlencode(query)}" if query else "")


def join_url(url: str, relative: str) -> str:
    """Return the URL of ``relative`` in the folder of ``url``, on the same server.

    >>> join_url("https://host/set/model.json?sig=1", "parts/a b.aero")
    'https://host/set/parts/a%20b.aero'
    """
    split_contained(relative)
    scheme, _, rest = url.partition("://")
    if scheme.lower() in BUCKETS:
        return f"{scheme}://{rest.rpartition('/')[0]}/{relative}"
    parts = urlsplit(url)
    path = parts.path
    if scheme.lower() == "hf" and path.strip("/").count("/") == 0:
        path = f"/{path.strip('/')}/"  # the URL names a repository: its files lie inside
    # The name comes from a file: quoted, it cannot become a query, a fragment or a way up after decoding.
    return urlunsplit((parts.scheme, parts.netloc, f"{path.rpartition('/')[0]}/{quote(relative)}", "", ""))


def _open_store(url: str) -> tuple[Any, str]:
    """Open the store of a bucket, which is shared, and return it with the path in it."""
    scheme = url.partition("://")[0].lower()
    bucket, path = url.partition("://")[2].partition("/")[0], _path_of(url).lstrip("/")
    config = s3_config() if scheme == "s3" else {}
    plain = config.get("endpoint", "").startswith("http://") if scheme == "s3" else endpoint_is_plain(scheme)
    return _make_store(scheme, bucket, tuple(config.items()), tuple(client_options(plain_http=plain).items())), path


@lru_cache(maxsize=64)
def _make_store(
    kind: str, where: str, config: tuple[tuple[str, str], ...], options: tuple[tuple[str, Any], ...]
) -> Any:
    try:
        import obstore.store
    except ImportError:
        raise UnsupportedError("reading from buckets needs the extra 'remote': pip install 'holdall[remote]'") from None
    store: Any = obstore.store  # its stubs have an overload for each option of each cloud
    # RemoteObject repeats requests, since it also notices responses that end too early.
    common = {
        "client_options": dict(options),
        "retry_config": {"max_retries": 0, "retry_timeout": timedelta(seconds=60)},
    }
    if kind == "s3":
        return store.S3Store(where, config=dict(config), **common)
    return store.from_url(f"{kind}://{where}", **common)


def _path_of(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return rest.partition("/")[1] + rest.partition("/")[2] if scheme.lower() in BUCKETS else urlsplit(url).path
