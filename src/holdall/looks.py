"""What a file that is of none of the formats looks like: an answer for people who expected weights."""

from __future__ import annotations

import re

__all__ = ["looks_like"]

_BEGINNINGS = (
    (b"version https://git-lfs.github.com/spec/", "is a Git LFS pointer: the file itself was not downloaded"),
    (b"\x1f\x8b", "is compressed with gzip"),
    (b"\x28\xb5\x2f\xfd", "is compressed with zstd"),
    (b"\xfd7zXZ\0", "is compressed with xz"),
    (b"BZh", "is compressed with bzip2"),
    (b"7z\xbc\xaf\x27\x1c", "is a 7z archive"),
    (b"\x89PNG", "is a picture"),
    (b"\xff\xd8\xff", "is a picture"),
    (b"%PDF", "is a PDF document"),
    (b"\x7fELF", "is a program"),
    (b"\x89HDF\r\n", "is an HDF5 file"),
    (b"\x93NUMPY", "is a single array (.npy)"),
)
_TEXT = 8  # bytes that have to look like text; a few letters may be the beginning of anything
_PAGE = re.compile(rb"\s*<(!doctype html|html|head|\?xml|!--)", re.IGNORECASE)


def looks_like(head: bytes, size: int) -> str | None:
    """In words, what a file that begins with ``head`` is; None when nobody can tell.

    >>> looks_like(b"<!DOCTYPE html>", 4000)
    'is an HTML page: the download may have failed'
    >>> looks_like(b"hello world, this is a text", 27)
    "is text, which begins with 'hello world, this is a text'"
    """
    if not size:
        return "is an empty file"
    for beginning, words in _BEGINNINGS:
        if head.startswith(beginning):
            return words
    if _PAGE.match(head):
        return "is an HTML page: the download may have failed"
    if not head.strip(b"\0"):
        return "begins with zeros only: the download may have failed"
    text = head.decode("utf-8", "ignore")
    if (
        len(head) >= _TEXT
        and len(text.encode()) >= len(head) - 3
        and all(letter.isprintable() or letter in "\t\r\n" for letter in text)
    ):
        return f"is text, which begins with {text[:40]!r}"
    return None
