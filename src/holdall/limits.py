"""The caps on what a file may ask of a reader. One table, named, overridable."""

from __future__ import annotations

from dataclasses import dataclass, fields

__all__ = ["DEFAULT_LIMITS", "Limits"]

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """What a reader will go along with before it raises :class:`~holdall.errors.LimitError`.

    Sizes are also always checked against the file itself, so that a small file can never ask for much;
    these caps bound what a large one can.

    >>> Limits(tensors=1000).tensors
    1000
    """

    index_bytes: int = 2048 * _MIB  # header and tables together, as stored
    sections: int = 65_536  # of a directory of sections or chunks
    chunks: int = 1_000_000  # of an AERO table of contents
    string_table_bytes: int = 512 * _MIB  # the names of those chunks
    tensors: int = 10_000_000
    rank: int = 4096  # declared tensors may have silly ranks; numpy itself stops at 64
    name_bytes: int = 1 * _MIB
    nesting: int = 128  # JSON, msgpack, pickle
    metadata_entries: int = 10_000_000
    metadata_bytes: int = 1024 * _MIB  # all metadata values together, decoded
    decompressed_bytes: int = 2048 * _MIB  # one decompressed block
    decompression_floor: int = 64 * _MIB  # always allowed, whatever the ratio
    decompression_ratio: int = 64  # above the floor, at most this times the stored bytes
    findings_per_rule: int = 100  # a Report keeps that many of each rule and counts the rest

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, int) or value < 0:
                raise ValueError(f"Limits.{field.name} must be a non-negative integer, not {value!r}")


DEFAULT_LIMITS = Limits()
