"""Splits the tensors of a model into files of limited size."""

from __future__ import annotations

import re
from collections.abc import Iterable

from holdall.errors import ContentError

__all__ = ["DIGITS", "parse_size", "split_by_size"]

_UNITS = {"": 1, "B": 1}
_UNITS |= {letter: 1000 ** (power + 1) for power, letter in enumerate("KMGT")}
_UNITS |= {f"{letter}B": 1000 ** (power + 1) for power, letter in enumerate("KMGT")}
_UNITS |= {f"{letter}IB": 1024 ** (power + 1) for power, letter in enumerate("KMGT")}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)")


DIGITS = 1000  # of a number that a user gives: Python reads at most 4,300


def parse_size(size: str | int, least: int = 1) -> int:
    """Parse a number of bytes such as ``5GB`` (thousands), ``512MiB`` (1024s) or a number.

    >>> parse_size("5GB"), parse_size("1.5 MiB"), parse_size(1000)
    (5000000000, 1572864, 1000)
    """
    match = _SIZE.fullmatch(str(size).strip())
    unit = None if match is None else _UNITS.get(match[2].upper())
    if match is None or unit is None or len(match[1]) > DIGITS or float(match[1]) * unit < least:
        raise ContentError(f"a size looks like 5GB, 512MiB or 1000, not {str(size)!r}")
    return int(match[1]) * unit if match[1].isdigit() else int(float(match[1]) * unit)


def split_by_size(sizes: Iterable[int], most: int) -> list[int]:
    """The first row of every part but the first, if parts have at most ``most`` bytes; a larger row is a part alone.

    >>> split_by_size([3, 3, 3, 9, 1], 6)
    [2, 3, 4]
    """
    starts: list[int] = []
    used, filled = 0, False
    for row, size in enumerate(sizes):
        if filled and used + size > most:
            starts.append(row)
            used = 0
        used, filled = used + size, True
    return starts
