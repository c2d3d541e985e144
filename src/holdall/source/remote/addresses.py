"""Finds where the object of a web or hub URL is, and what proves to that server who asks."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from urllib3.exceptions import LocationParseError
from urllib3.util import parse_url

from holdall.base.text import file_text
from holdall.errors import UnsupportedError
from holdall.source.remote.credentials import encode_basic_auth
from holdall.source.remote.stores import RemoteError

__all__ = ["Address", "find_address"]


@dataclass(frozen=True, slots=True)
class Address:
    """An http or https URL without user and fragment, and the headers that are for its origin alone."""

    url: str
    secrets: dict[str, str] = field(repr=False)
    is_hub: bool = False  # its server is the Hugging Face hub, which redirects to stores of its choice


def find_address(url: str) -> Address:
    """Find the address of an ``http``, ``https`` or ``hf`` URL.

    >>> find_address("http://me:secret@Host/a b?sig=1#part")
    Address(url='http://host/a%20b?sig=1', is_hub=False)
    """
    is_hub = url.partition("://")[0].lower() == "hf"
    if is_hub:
        at, secrets = _resolve_hub(url)
    else:
        parts = urlsplit(url)
        at, secrets = url, {}
        if parts.username is not None:
            secrets["authorization"] = encode_basic_auth(unquote(parts.username), unquote(parts.password or ""))
    try:
        found = parse_url(at)._replace(auth=None, fragment=None)
    except LocationParseError:
        raise RemoteError(f"{file_text(url)}: is not the URL of a file") from None
    return Address(found.url, secrets, is_hub)


def _resolve_hub(url: str) -> tuple[str, dict[str, str]]:
    """Return the address and the headers that huggingface_hub gives for ``hf://owner/repo[@revision]/path/in/repo``."""
    try:
        from huggingface_hub import get_token, hf_hub_url
    except ImportError:
        raise UnsupportedError("hf:// URLs need the extra 'remote': pip install 'holdall[remote]'") from None
    parts = urlsplit(url)
    repo, _, file = parts.path.lstrip("/").partition("/")
    repo, _, revision = repo.partition("@")
    if not parts.netloc or not repo or not file:
        raise UnsupportedError(f"a hub URL looks like hf://owner/repo/file, not {file_text(url)}")
    token = get_token()
    secrets = {"authorization": f"Bearer {token}"} if token else {}
    # The library reads HF_ENDPOINT only when it is imported; a program may set it later.
    endpoint = os.environ.get("HF_ENDPOINT") or None
    name, revision = f"{parts.netloc}/{repo}", unquote(revision)
    return hf_hub_url(name, unquote(file), revision=revision or None, endpoint=endpoint), secrets
