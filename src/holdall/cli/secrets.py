"""The secrets of the URLs that a command was given: no message of the command shows them, whatever became of the URL.

The group remembers them before a command parses its arguments. Everything on standard error goes through
:func:`hide`, and so do the sentences of reports on standard output, in JSON too. The rest of standard output is data
of files, in which only what is surely a secret is blanked. What is written into files is never changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from holdall.base.url_secrets import Secrets

__all__ = ["hide", "hide_all", "hide_in_data", "hide_in_error", "remember_secrets"]

T = TypeVar("T")

_REMEMBERED: ContextVar[Secrets | None] = ContextVar("secrets", default=None)


def remember_secrets(arguments: Sequence[str]) -> None:
    """Find the secrets among the arguments of a command; those of a command before are forgotten."""
    if not any(":" in given for given in arguments):
        _REMEMBERED.set(None)
        return
    from holdall.base.url_secrets import Secrets

    _REMEMBERED.set(Secrets(arguments))


def hide(text: str) -> str:
    """Return a message without the secrets among the arguments, and without those of URLs in it."""
    secrets = _REMEMBERED.get()
    if secrets is not None:
        return secrets.hide(text)
    if "://" not in text:
        return text
    from holdall.base.urls import hide_secrets_in

    return hide_secrets_in(text)


def hide_all(texts: Iterable[str]) -> list[str]:
    """The same for several messages."""
    return list(map(hide, texts))


def hide_in_data(value: T) -> T:
    """Return a text or a JSON value that a command prints of a file, without what is surely a secret."""
    secrets = _REMEMBERED.get()
    if secrets is None:
        return value
    hidden: T = secrets.hide_in_data(value)
    return hidden


def hide_in_error(error: BaseException) -> None:
    """Take the secrets out of an error, whose traceback will be shown, and out of those that led to it."""
    secrets, met, waiting = _REMEMBERED.get(), set[int](), [error]
    while secrets is not None and waiting:
        each = waiting.pop()
        if id(each) in met:
            continue
        met.add(id(each))
        each.args = tuple(hide(part) if isinstance(part, str) else part for part in each.args)
        for name in ("filename", "filename2", "message", "__notes__", "_word"):
            value = getattr(each, name, None)
            if isinstance(value, str):
                setattr(each, name, hide(value))
            elif isinstance(value, list):
                setattr(each, name, hide_all(value))
        waiting += [led for led in (each.__cause__, each.__context__) if led is not None]
