"""The secrets of all URLs among the arguments of a command, to be blanked in what it prints.

A command takes its arguments apart: at an equals sign, a colon, an at sign, a quote. What is left of a URL then no
longer looks like one. So the secrets are found before that, in the arguments as they were given, and blanked wherever
they turn up afterwards.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any
from urllib.parse import unquote

from holdall.base.text import clean
from holdall.base.urls import SCHEMES, hide_exactly, hide_secrets_in

__all__ = ["Secret", "Secrets", "find_secrets"]

_BLANK = "…"
_WORD = 4  # letters: a shorter secret is blanked only beside the rest of its URL
_RARE = 8  # letters: a shorter one is not blanked inside of a longer word
_MOST = 2000  # secrets of one command line

# A URL of any scheme, and with too few slashes one of a scheme that holdall knows: pathlib makes one slash of two.
_START = re.compile(rf"(?:\b(?:ftp|{'|'.join(SCHEMES)}):|[a-z][a-z0-9+.-]{{0,20}}:[/\\]{{2}})[/\\]*", re.IGNORECASE)
_PORT = re.compile(r"[^:]*:\d*|\[[0-9a-f:.]*\]?(?::\d*)?", re.IGNORECASE)
_TELLING = re.compile("sig|tok|secret|pass|pwd|key|auth|cred|jwt|session|sas|x-amz-|x-goog-|policy", re.IGNORECASE)
_COMMON = re.compile(r"[a-z]+|[0-9A-F.:TZ+-]+")  # a plain word, a number, a date: files have them too
_SEPARATORS = re.compile(r"[=:@,/;&\s]+")


@dataclass(frozen=True, slots=True)
class Secret:
    """One secret. ``sure``: a password or a signature, and not just any value of a query; ``beside``: its context."""

    text: str
    sure: bool
    beside: tuple[str, ...] = ()


def find_secrets(argument: str) -> Iterator[Secret]:
    """Yield the passwords, values of queries and fragments of all that looks like a URL in ``argument``.

    >>> [secret.text for secret in find_secrets("x=https://me:pa'ss@host:80/a?sig=abc=f16#d")]
    ["pa'ss", 'abc=f16', 'd']
    """
    starts = list(_START.finditer(argument))
    for start, following in zip_longest(starts, starts[1:]):
        stop = following.start() if following else len(argument)
        yield from _take_apart(argument[start.end() : stop])


def _take_apart(rest: str) -> Iterator[Secret]:
    """Yield the secrets of a URL without its scheme."""
    server = re.split(r"[/\\?#]", rest, maxsplit=1)[0]
    login = ""
    if "@" in server:
        login = server.rpartition("@")[0]
    elif ":" in server and not _PORT.fullmatch(server):  # the password has a mark that should have been quoted
        login = rest.rpartition("@")[0] or server
    user, colon, password = login.partition(":")
    if password:
        yield Secret(password, True, (f"{user}:{password}", f":{password}@"))
    if user and (len(user) >= _RARE or not colon):  # an access key, or a token in the place of a user
        yield Secret(user, len(user) >= _RARE and not colon, (f"{user}@",))
    rest = rest[len(login) :]
    rest, _, fragment = rest.partition("#")
    for pair in re.split("[&;]", rest.partition("?")[2]):
        key, equals, value = pair.partition("=")
        if equals and value:
            yield Secret(value, bool(_TELLING.search(key)), (pair,))
        elif key:
            yield Secret(key, False, (f"?{key}",))
    if fragment:
        yield Secret(fragment, False, (f"#{fragment}",))


class Secrets:
    """What must not be printed of the arguments of one command.

    >>> secrets = Secrets(["convert", "--cast", "http://me:pa'SECRET@h/a?sig=hunter2=f16"])
    >>> secrets.hide("there is no file SECRET@h/a, and no dtype hunter2")
    'there is no file …@h/a, and no dtype …'
    """

    def __init__(self, arguments: Iterable[str]) -> None:
        given = list(arguments)
        self._arguments = [each for each in given if ":" in each]
        found = list(dict.fromkeys(secret for each in self._arguments for secret in find_secrets(each)))[:_MOST]
        rest = " ".join(_START.split(each)[0] for each in given)
        wanted = [secret for secret in found if secret.sure or not _stands_in(secret.text, rest)]
        self._texts = sorted({text for secret in wanted for text in _list_pieces(secret)}, key=len, reverse=True)[
            :_MOST
        ]
        beside = {text for secret in wanted for text in secret.beside if len(secret.text) < _WORD}
        rare = {secret.text for secret in found if secret.sure and _is_rare(secret.text)}
        self._in_messages = _compile([*self._texts, *beside])
        self._in_data = _compile(rare)

    def hide(self, text: str) -> str:
        """Blank all of them in a message: what was given is known to its reader, and nothing there is data."""
        if not self._arguments:
            return text
        text = hide_exactly(text, self._arguments)
        if self._in_messages is not None:
            text = self._hide_cut(self._in_messages.sub(_blank, text))
        return hide_secrets_in(text)

    def hide_in_data(self, value: Any) -> Any:
        """Blank passwords and signatures that no file is likely to hold, in a text or in all texts of a JSON value."""
        if self._in_data is None:
            return value
        if isinstance(value, str):
            return self._in_data.sub(_BLANK, value)
        if isinstance(value, dict):
            return {key: self.hide_in_data(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.hide_in_data(item) for item in value]
        return value

    def _hide_cut(self, text: str) -> str:
        """Blank the beginning of a secret that was cut with an ellipsis."""
        if _BLANK not in text:
            return text
        parts = text.split(_BLANK)
        for number, part in enumerate(parts[:-1]):
            lengths = (_find_overlap(part, secret) for secret in self._texts)
            parts[number] = part[: len(part) - max(lengths, default=0)]
        return _BLANK.join(parts)


def _blank(found: re.Match[str]) -> str:
    """The ellipsis, with the colon before and the at sign behind it that tell a URL."""
    return f"{found[0][0] * (found[0][0] in ':?#')}{_BLANK}{'@' * (found[0][-1] == '@')}"


def _list_pieces(secret: Secret) -> Iterator[str]:
    """Yield a secret as it may turn up: whole, in pieces, and spelled in other ways."""
    pieces = [secret.text, unquote(secret.text), *_SEPARATORS.split(secret.text)]
    if secret.sure:
        pieces += re.findall(r"\w+", secret.text)
    for piece in pieces:
        if len(piece) >= _WORD:
            spelled = repr(piece)[1:-1]
            yield from (piece, clean(piece), spelled, clean(spelled), spelled.replace("'", "\\'"))
            yield json.dumps(piece)[1:-1]


def _compile(texts: Iterable[str]) -> re.Pattern[str] | None:
    """Compile a pattern of any of the texts; short ones are words of their own."""
    listed = sorted({text for text in texts if text}, key=len, reverse=True)
    return re.compile("|".join(map(_bound, listed))) if listed else None


def _bound(text: str) -> str:
    if len(text) >= _RARE:
        return re.escape(text)
    before, behind = (r"(?<![A-Za-z0-9])" * text[0].isalnum(), r"(?![A-Za-z0-9])" * text[-1].isalnum())
    return f"{before}{re.escape(text)}{behind}"


def _stands_in(text: str, rest: str) -> bool:
    """Whether a value of a query is also given in the open, as "safetensors" may be, and so is no secret."""
    return re.search(_bound(text), rest) is not None


def _is_rare(text: str) -> bool:
    return len(text) > _WORD + 1 and not _COMMON.fullmatch(text)


def _find_overlap(part: str, secret: str) -> int:
    """How many letters at the end of ``part`` are the beginning of a long secret."""
    if len(secret) < _RARE:
        return 0
    for length in range(min(len(part), len(secret)), _WORD - 1, -1):
        if part.endswith(secret[:length]):
            return length
    return 0
