"""The errors that leave the library.

Readers raise :class:`FormatError` for malformed files; writers raise :class:`ContentError` for a value that the target
cannot hold. Each class also inherits from the builtin error that callers who do not know holdall would catch.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["ClosedError", "ContentError", "ForeignError", "FormatError", "HashError", "HoldallError", "LimitError"]
__all__ += ["MissingError", "UnsupportedError"]


class HoldallError(Exception):
    """Base of all errors of holdall. ``file`` is the file that the error is about, if it is known.

    ``unread`` is True if a file, or a part of it, may be intact, and is only beyond what holdall reads.
    """

    file: str | None = None
    unread: bool = False


class FormatError(HoldallError, ValueError):
    """A file breaks a rule of its format.

    ``rule`` is a stable id, ``offset`` the byte in the file (None if no single byte is wrong), ``message`` the
    sentence with the numbers.

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
    """A file needs more than :class:`holdall.Limits` allows; a caller who trusts the file can raise the limit."""

    unread = True


class ForeignError(FormatError):
    """A file is of no format that holdall reads; it may be intact. The message names the kind, if it is known."""

    unread = True


class HashError(FormatError):
    """Stored bytes do not have the hash or checksum that their file states; the sentence names the rule."""

    def __str__(self) -> str:
        place = "" if self.offset is None else f"at byte {self.offset:#x}, "
        return f"{self.message} ({place}rule {self.rule})"


class UnsupportedError(HoldallError, NotImplementedError):
    """The file or the caller asks for an unsupported feature."""


class ContentError(HoldallError, ValueError):
    """A value cannot be stored in the format that is written."""


class ClosedError(HoldallError, ValueError):
    """The model was closed; arrays taken from it before stay valid."""


class MissingError(HoldallError, KeyError):
    """A name that the model does not have was asked for.

    ``word`` is that name and ``known`` are the names that exist: the sentence suggests a similar one. It is looked for
    only when the error is shown, since ``model.get(name)`` and the like never show it.

    >>> str(MissingError("there is no tensor 'wieght'", "wieght", ["weight", "bias"]))
    "there is no tensor 'wieght'. Did you mean 'weight'?"
    """

    def __init__(self, message: str, word: str = "", known: Iterable[str] = ()) -> None:
        super().__init__(message)
        self._word = word
        self._known = known

    def __str__(self) -> str:
        from holdall.base.suggest import did_you_mean

        return f"{self.args[0]}{did_you_mean(self._word, self._known)}"  # KeyError would show the repr

    def __reduce__(self) -> tuple[type[MissingError], tuple[str]]:
        return type(self), (str(self),)
