"""The errors that leave the library.

Readers raise :class:`FormatError` and nothing else for what is wrong with a file; writers raise
:class:`ContentError` for a value that the target cannot hold. Each class also inherits the builtin
that callers would catch without knowing holdall.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = [
    "ClosedError",
    "ContentError",
    "FormatError",
    "HashError",
    "HoldallError",
    "LimitError",
    "MissingError",
    "UnsupportedError",
]


class HoldallError(Exception):
    """Base of everything that holdall raises on purpose. ``file`` is the file it is about, where that is known."""

    file: str | None = None


class FormatError(HoldallError, ValueError):
    """A file breaks a rule of its format.

    ``rule`` is a stable id, ``offset`` the byte in the file (``None`` where no single byte is at
    fault), ``message`` the sentence with the numbers.

    >>> error = FormatError("oinf.header.magic", 0, "oinf: bad magic")
    >>> error.rule, error.offset, str(error)
    ('oinf.header.magic', 0, 'oinf: bad magic (at byte 0x0)')
    """

    def __init__(self, rule: str, offset: int | None, message: str) -> None:
        super().__init__(rule, offset, message)
        self.rule = rule
        self.offset = offset
        self.message = message

    def __str__(self) -> str:
        return self.message if self.offset is None else f"{self.message} (at byte {self.offset:#x})"


class LimitError(FormatError):
    """A file asks for more than :class:`holdall.Limits` allows; a caller who trusts it can raise the limit."""


class HashError(FormatError):
    """Stored bytes do not have the hash or checksum that their file states for them; the sentence names the rule."""

    def __str__(self) -> str:
        place = "" if self.offset is None else f"at byte {self.offset:#x}, "
        return f"{self.message} ({place}rule {self.rule})"


class UnsupportedError(HoldallError, NotImplementedError):
    """The file is well-formed, but uses something holdall does not do."""


class ContentError(HoldallError, ValueError):
    """A writer refuses a value that its format cannot hold."""


class ClosedError(HoldallError, ValueError):
    """The model was closed; arrays taken from it before stay valid."""


class MissingError(HoldallError, KeyError):
    """A name that the model does not have was asked for.

    ``word`` is that name and ``known`` those that there are: the sentence asks whether a similar one was meant. It is
    looked for when the error is shown, since ``model.get(name)`` and the like never show it.

    >>> str(MissingError("there is no tensor 'wieght'", "wieght", ["weight", "bias"]))
    "there is no tensor 'wieght'. Did you mean 'weight'?"
    """

    def __init__(self, message: str, word: str = "", known: Iterable[str] = ()) -> None:
        super().__init__(message)
        self._word = word
        self._known = known

    def __str__(self) -> str:
        from holdall.suggest import did_you_mean

        return f"{self.args[0]}{did_you_mean(self._word, self._known)}"  # KeyError would show the repr

    def __reduce__(self) -> tuple[type[MissingError], tuple[str]]:
        return type(self), (str(self),)
