"""File names that mean a plain file on every system."""

from __future__ import annotations

import re

__all__ = ["is_device", "is_portable"]

# Windows opens a device for these names, whatever suffix follows.
_DEVICE = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9¹²³]) *(\..*)?", re.I | re.S)
# ':' leads to a stream inside a file; the others are refused by Windows, or stand for several names.
_SPECIAL = re.compile(r'[\x00-\x1f<>:"/\\|?*]')


def is_device(name: str) -> bool:
    """Whether Windows takes this name for a device.

    >>> is_device("con.npy"), is_device("console.npy")
    (True, False)
    """
    return _DEVICE.fullmatch(name) is not None


def is_portable(name: str) -> bool:
    r"""Whether a file of this name is a plain file on Windows too.

    >>> [name for name in ("w.npy", "con.npy", "COM1", "w.", "w ", "w:x", "console") if is_portable(name)]
    ['w.npy', 'console']
    """
    return bool(name) and name[-1] not in ". " and not is_device(name) and not _SPECIAL.search(name)
