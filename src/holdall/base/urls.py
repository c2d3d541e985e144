"""Recognizes URLs, hides the secrets in them, and compares their origins."""

from __future__ import annotations

import re
from collections.abc import Iterable

from holdall.errors import UnsupportedError

__all__ = ["BUCKETS", "SCHEMES", "drop_signature", "find_origin", "hide_exactly", "hide_secrets", "hide_secrets_in"]
__all__ += ["is_url", "parse_origins"]

SCHEMES = ("http", "https", "s3", "gs", "az", "abfs", "hf")
BUCKETS = ("s3", "gs", "az", "abfs")  # paths are keys: nothing in them is quoted, and folders can be listed

# Nothing that two parsers of URLs could read in two ways: no user, no backslash, no space, no letter beyond ASCII.
_WEB_URL = re.compile(
    r"(https?)://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?([/?][!-\[\]-~]*)?", re.IGNORECASE
)
_HALF_PASSWORD = re.compile(r"[^/?#@\[\]]*:[^/?#@]*[^/?#@0-9][^/?#@]*([/?#]|$)")
_SIGNING = ("x-amz-", "x-goog-", "awsaccesskeyid", "signature", "expires", "policy", "key-pair-id", "token")
_SIGNING_AZURE = ("sig", "se", "st", "sp", "sv", "sr", "spr", "skoid", "sktid", "skt", "ske", "sks", "skv")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_BEGINNING = "[A-Za-z][A-Za-z0-9+.-]{0,20}://"  # bounded, or a search in a long text would take its square
_UP_TO_THE_NEXT = re.compile(f"{_BEGINNING}(?:(?!{_BEGINNING}).)*", re.DOTALL)
_UP_TO_A_SPACE = re.compile(rf"{_BEGINNING}(?:(?!{_BEGINNING})[^\s'\"()])*")
_STOPS = ".,;:!"
_USUAL_PORTS = {"http": 80, "https": 443}


def is_url(text: str) -> bool:
    """Whether ``text`` is a URL that holdall can read.

    >>> is_url("s3://bucket/model.aero"), is_url("C:/model.aero")
    (True, False)
    """
    scheme, separator, _ = text.partition("://")
    return bool(separator) and scheme.lower() in SCHEMES


def hide_secrets(url: str) -> str:
    """Return the URL, of any scheme, without user, password and query: a query may hold a signature.

    >>> hide_secrets("https://me:secret@host/model.oinf?X-Amz-Signature=abc")
    'https://host/model.oinf'
    """
    scheme, separator, rest = url.partition("://")
    if not separator or not _SCHEME.fullmatch(scheme):
        return url
    if scheme.lower() in BUCKETS:
        host, slash, key = rest.partition("/")
        path, mark, query = key.partition("?")  # a mark may be part of a key
        key = path if _is_signed(query) else f"{path}{mark}{query}"
        return f"{scheme}://{host.rpartition('@')[2]}{slash}{key}"
    if _HALF_PASSWORD.match(rest):  # it has a mark that should have been quoted, and goes on behind it
        rest = rest.rpartition("@")[2] if "@" in rest else rest.partition(":")[0]
    host, slash, path = re.split("[?#]", rest, maxsplit=1)[0].partition("/")
    return f"{scheme.lower()}://{host.rpartition('@')[2]}{slash}{path}"


def hide_secrets_in(text: str, arguments: Iterable[str] = ()) -> str:
    """Return a message without the secrets of the URLs in it; those of ``arguments`` are known, and may have spaces.

    >>> hide_secrets_in("there is no x=https://me:secret@host/a?sig=1 here")
    'there is no x=https://host/a here'
    >>> hide_secrets_in("'https://me:my secret@host/a?sig=1' is not a size", ["https://me:my secret@host/a?sig=1"])
    "'https://host/a' is not a size"
    """
    text = hide_exactly(text, arguments)
    return _UP_TO_A_SPACE.sub(_hide_found, text) if "://" in text else text


def hide_exactly(text: str, arguments: Iterable[str]) -> str:
    """Return a message without the secrets of the URLs in ``arguments``, where they stand in it as they were given.

    >>> hide_exactly("there is no 'https://me:my secret@host/a?sig=1'", ["x=https://me:my secret@host/a?sig=1"])
    "there is no 'https://host/a'"
    """
    urls = {url for given in arguments if "://" in given for url in _UP_TO_THE_NEXT.findall(given)}
    for url in sorted(urls, key=len, reverse=True):
        text = text.replace(url, hide_secrets(url)).replace(repr(url)[1:-1], repr(hide_secrets(url))[1:-1])
    return text


def _hide_found(found: re.Match[str]) -> str:
    url = found[0].rstrip(_STOPS)  # the sentence may go on with a comma
    return hide_secrets(url) + found[0][len(url) :]


def drop_signature(query: str) -> list[tuple[str, str]]:
    """Return the parameters of a query without those that sign it, which differ from one signature to the next.

    >>> drop_signature("part=1&X-Amz-Signature=abc&sig=def")
    [('part', '1')]
    """
    from urllib.parse import parse_qsl

    return [
        (key, value)
        for key, value in parse_qsl(query, keep_blank_values=True)
        if not key.lower().startswith(_SIGNING) and key.lower() not in _SIGNING_AZURE
    ]


def _is_signed(query: str) -> bool:
    return len(drop_signature(query)) <= query.count("&") and "=" in query


def find_origin(url: str) -> str | None:
    """Return scheme, host and port of an http or https URL, in one spelling; None for every other text.

    A URL with a user, a fragment, or letters that parsers of URLs disagree about has no origin either.

    >>> find_origin("HTTPS://Host.example:443/set/part?sig=1"), find_origin("http://[::1]:8000/")
    ('https://host.example', 'http://[::1]:8000')
    >>> find_origin("https://me:secret@host/"), find_origin("file:///etc/passwd")
    (None, None)
    """
    match = _WEB_URL.fullmatch(url)
    if match is None or "#" in (match[4] or ""):
        return None
    scheme, host, port = match[1].lower(), match[2].lower(), match[3]
    if port is None or int(port) == _USUAL_PORTS[scheme]:
        return f"{scheme}://{host}"
    return f"{scheme}://{host}:{int(port)}" if int(port) < 1 << 16 else None


def parse_origins(given: str | Iterable[str] | None) -> frozenset[str]:
    """Return the origins that a caller names: one, several or none; UnsupportedError for what is no origin.

    >>> parse_origins("https://host/")
    frozenset({'https://host'})
    """
    origins = set()
    several = () if given is None else given
    if isinstance(several, (str, bytes)) or not isinstance(several, Iterable):
        several = (several,)
    for text in several:
        if not isinstance(text, str):
            raise UnsupportedError(f"an origin to follow is a text such as https://host, not {text!r}")
        origin = find_origin(text)
        rest = text.partition("://")[2].partition("/")[2]
        if origin is None or rest or "?" in text:
            raise UnsupportedError(
                f"an origin to follow looks like https://host or http://host:8000, not {_brief(text)}"
            )
        origins.add(origin)
    return frozenset(origins)


def _brief(text: str) -> str:
    return repr(hide_secrets(text).rpartition("@")[2])
