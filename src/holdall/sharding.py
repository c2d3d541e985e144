"""Tensors in several files: how large a file may be, and which tensors go into which."""

from __future__ import annotations

import re
from collections.abc import Iterable

from holdall.errors import ContentError
from holdall.tensor import Tensor

__all__ = ["by_size", "parse_size"]

_UNITS = {"": 1, "B": 1}
_UNITS |= {letter: 1000 ** (power + 1) for power, letter in enumerate("KMGT")}
_UNITS |= {f"{letter}B": 1000 ** (power + 1) for power, letter in enumerate("KMGT")}
_UNITS |= {f"{letter}IB": 1024 ** (power + 1) for power, letter in enumerate("KMGT")}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)")


def parse_size(size: str | int, least: int = 1) -> int:
    """Bytes of ``5GB`` (thousands), ``512MiB`` (1024s) or a number.

    >>> parse_size("5GB"), parse_size("1.5 MiB"), parse_size(1000)
    (5000000000, 1572864, 1000)
    """
    match = _SIZE.fullmatch(str(size).strip())
    unit = None if match is None else _UNITS.get(match[2].upper())
    if match is None or unit is None or float(match[1]) * unit < least:
        raise ContentError(f"a size looks like 5GB, 512MiB or 1000, not {str(size)!r}")
    return int(match[1]) * unit if match[1].isdigit() else int(float(match[1]) * unit)


def by_size(tensors: Iterable[Tensor], most: int) -> list[list[Tensor]]:
    """The tensors in their order, in parts of at most ``most`` payload bytes; a larger tensor has one of its own."""
    parts: list[list[Tensor]] = [[]]
    used = 0
    for tensor in tensors:
        if parts[-1] and used + tensor.nbytes > most:
            parts.append([])
            used = 0
        parts[-1].append(tensor)
        used += tensor.nbytes
    return parts
