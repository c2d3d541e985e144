"""Where a URL leads: the store that obstore makes of it, its path there, and how it may be shown."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property, lru_cache
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from holdall.errors import HoldallError, UnsupportedError
from holdall.source.credentials import client_options, endpoint_is_plain, s3_config
from holdall.source.folder import contained

__all__ = ["SCHEMES", "AbsentError", "Place", "RemoteError", "is_folder_url", "is_url", "joined", "shown", "stable"]

SCHEMES = ("http", "https", "s3", "gs", "az", "abfs", "hf")
BUCKETS = ("s3", "gs", "az", "abfs")  # paths are keys: nothing in them is quoted, and they can be listed

# Paths that mean the same however they are quoted.
_PLAIN = re.compile(r"(/[A-Za-z0-9_=-][A-Za-z0-9._=-]*)+")

# Parts of a query that sign it, and change from one signing to the next.
_SIGNING = ("x-amz-", "x-goog-", "awsaccesskeyid", "signature", "expires", "policy", "key-pair-id", "token")
_SIGNING_AZURE = ("sig", "se", "st", "sp", "sv", "sr", "spr", "skoid", "sktid", "skt", "ske", "sks", "skv")


class RemoteError(HoldallError, OSError):
    """The object could not be reached, or is not there."""


class AbsentError(RemoteError):
    """There is no such object."""


@dataclass(frozen=True)
class Place:
    """An object: the store it is in, made when it is first needed, and its path there."""

    url: str

    @property
    def store(self) -> Any:
        """The store."""
        return self._made[0]

    @property
    def path(self) -> str:
        """The path in the store."""
        return self._made[1]

    @cached_property
    def _made(self) -> tuple[Any, str]:
        try:
            return _store_of(self.url)
        except HoldallError:
            raise
        except Exception as error:  # what the libraries say may hold parts of the URL or of the configuration
            raise RemoteError(f"{shown(self.url)}: cannot be set up ({type(error).__name__})") from None


def is_url(text: str) -> bool:
    """Whether ``text`` names something far away.

    >>> is_url("s3://bucket/model.aero"), is_url("C:/model.aero")
    (True, False)
    """
    scheme, separator, _ = text.partition("://")
    return bool(separator) and scheme.lower() in SCHEMES


def is_folder_url(url: str) -> bool:
    """Whether the URL names a folder: it ends in a slash, or is a whole repository of the hub."""
    scheme, _, rest = url.partition("://")
    return _path_of(url).endswith("/") or (scheme.lower() == "hf" and rest.strip("/").count("/") == 1)


def shown(url: str) -> str:
    """The URL as it may be shown: no user, no password, no query, which is where signatures are.

    >>> shown("https://me:secret@host/model.oinf?X-Amz-Signature=abc")
    'https://host/model.oinf'
    """
    scheme, separator, rest = url.partition("://")
    if not separator or scheme.lower() not in SCHEMES:
        return url
    if scheme.lower() in BUCKETS:
        host, slash, key = rest.partition("/")
        return f"{scheme}://{host.rpartition('@')[2]}{slash}{key}"
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def stable(url: str) -> str:
    """The URL without what is different each time the same object is signed for: what caches go by."""
    scheme = url.partition("://")[0].lower()
    if scheme in BUCKETS or "?" not in url:
        return shown(url)
    query = [
        (key, value)
        for key, value in parse_qsl(urlsplit(url).query, keep_blank_values=True)
        if not key.lower().startswith(_SIGNING) and key.lower() not in _SIGNING_AZURE
    ]
    return shown(url) + (f"?{urlencode(query)}" if query else "")


def joined(url: str, relative: str) -> str:
    """The URL of ``relative`` in the folder of ``url``: below the same place, so on the same origin.

    >>> joined("https://host/set/model.json?sig=1", "parts/a b.aero")
    'https://host/set/parts/a%20b.aero'
    """
    contained(relative)
    scheme, _, rest = url.partition("://")
    if scheme.lower() in BUCKETS:
        return f"{scheme}://{rest.rpartition('/')[0]}/{relative}"
    parts = urlsplit(url)
    path = parts.path
    if scheme.lower() == "hf" and path.strip("/").count("/") == 0:
        path = f"/{path.strip('/')}/"  # the repository itself
    # Quoted, so that nothing a stranger calls a member is a query, a fragment or a way up after decoding.
    return urlunsplit((parts.scheme, parts.netloc, f"{path.rpartition('/')[0]}/{quote(relative)}", "", ""))


def _store_of(url: str) -> tuple[Any, str]:
    """A store that serves everything of its origin where it can, so that connections are used again; and the path."""
    scheme = url.partition("://")[0].lower()
    if scheme in ("http", "https", "hf"):
        headers: dict[str, str] = {}
        if scheme == "hf":
            url, headers = _resolve_hub(url)
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        options = client_options(plain_http=parts.scheme.lower() == "http")
        if parts.username is not None:
            headers = {"authorization": _basic(parts.username, parts.password or "")}
        if headers:
            options["default_headers"] = tuple(headers.items())
        if _PLAIN.fullmatch(parts.path) and not parts.query:
            origin = urlunsplit((parts.scheme, host, "", "", ""))
            return _store("http", origin, (), tuple(options.items())), parts.path[1:]
        whole = urlunsplit((parts.scheme, host, parts.path, parts.query, ""))
        return _store("http", whole, (), tuple(options.items())), ""
    bucket, path = url.partition("://")[2].partition("/")[0], _path_of(url).lstrip("/")
    config = s3_config() if scheme == "s3" else {}
    plain = config.get("endpoint", "").startswith("http://") if scheme == "s3" else endpoint_is_plain(scheme)
    return _store(scheme, bucket, tuple(config.items()), tuple(client_options(plain_http=plain).items())), path


@lru_cache(maxsize=64)
def _store(kind: str, where: str, config: tuple[tuple[str, str], ...], options: tuple[tuple[str, Any], ...]) -> Any:
    try:
        import obstore.store
    except ImportError:
        raise UnsupportedError("reading from URLs needs the extra 'remote': pip install 'holdall[remote]'") from None
    store: Any = obstore.store  # its stubs have an overload for every option of every cloud
    client = dict(options)
    if "default_headers" in client:
        client["default_headers"] = dict(client["default_headers"])
    # Trying again is done in one place, which also sees what goes wrong in the middle of an answer.
    common = {"client_options": client, "retry_config": {"max_retries": 0, "retry_timeout": timedelta(seconds=60)}}
    if kind == "http":
        return store.HTTPStore.from_url(where, **common)
    if kind == "s3":
        return store.S3Store(where, config=dict(config), **common)
    return store.from_url(f"{kind}://{where}", **common)


def _path_of(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return rest.partition("/")[1] + rest.partition("/")[2] if scheme.lower() in BUCKETS else urlsplit(url).path


def _basic(user: str, password: str) -> str:
    from base64 import b64encode
    from urllib.parse import unquote

    return "Basic " + b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()


def _resolve_hub(url: str) -> tuple[str, dict[str, str]]:
    """``hf://owner/repo[@revision]/path/in/repo`` as the address that the hub's own library resolves it to."""
    try:
        from huggingface_hub import get_token, hf_hub_url
    except ImportError:
        raise UnsupportedError("hf:// URLs need the extra 'remote': pip install 'holdall[remote]'") from None
    from urllib.parse import unquote

    parts = urlsplit(url)
    repo, _, file = parts.path.lstrip("/").partition("/")
    repo, _, revision = repo.partition("@")
    if not parts.netloc or not repo or not file:
        raise UnsupportedError(f"a hub URL looks like hf://owner/repo/file, not {shown(url)}")
    token = get_token()
    headers = {"authorization": f"Bearer {token}"} if token else {}
    # The library reads its endpoint when it is imported; a process that sets it later means it too.
    endpoint = os.environ.get("HF_ENDPOINT") or None
    name, revision = f"{parts.netloc}/{repo}", unquote(revision)
    return hf_hub_url(name, unquote(file), revision=revision or None, endpoint=endpoint), headers
