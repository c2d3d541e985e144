"""The caps on what a file may ask of a reader. One table, named, overridable."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

__all__ = ["DEFAULT_LIMITS", "UNTRUSTED_LIMITS", "Limits"]

_MIB = 1 << 20


def _cap(default: int, why: str) -> int:
    """A field with its reason, which docs/security.md repeats."""
    cap: int = field(default=default, metadata={"why": why})
    return cap


@dataclass(frozen=True, slots=True)
class Limits:
    """What a reader will go along with before it raises :class:`~holdall.errors.LimitError`.

    Sizes are also always checked against the file itself, so that a small file can never ask for much;
    these caps bound what a large one can.

    >>> Limits(tensors=1000).tensors
    1000
    """

    index_bytes: int = _cap(2048 * _MIB, "header and tables together, as stored: they are held in memory")
    sections: int = _cap(65_536, "of a directory of sections, or files of a set")
    chunks: int = _cap(1_000_000, "of an AERO table of contents")
    string_table_bytes: int = _cap(512 * _MIB, "the names of those chunks")
    tensors: int = _cap(10_000_000, "a row of some 50 bytes each")
    rank: int = _cap(4096, "declared tensors may have silly ranks; numpy itself stops at 64")
    name_bytes: int = _cap(1 * _MIB, "of one name")
    nesting: int = _cap(128, "of JSON, MessagePack, pickles and arrays in arrays: Python recurses over values")
    metadata_entries: int = _cap(10_000_000, "keys, tokens, and values that a pickle remembers")
    metadata_bytes: int = _cap(1024 * _MIB, "all metadata values together, decoded")
    document_bytes: int = _cap(
        2 * _MIB, "a compressed document, or an eighth of its file: a byte can become an object of 64"
    )
    decompressed_bytes: int = _cap(2048 * _MIB, "one decompressed block")
    decompression_floor: int = _cap(64 * _MIB, "a block may always grow to this, whatever the ratio")
    decompression_ratio: int = _cap(64, "above the floor, at most this times the stored bytes")
    passes: int = _cap(16, "over a file while it is verified, where tensors share bytes; 64 MiB may always be passed")
    findings_per_rule: int = _cap(100, "a Report keeps that many of each rule and counts the rest")

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not isinstance(value, int) or value < 0:
                raise ValueError(f"Limits.{each.name} must be a non-negative integer, not {value!r}")


DEFAULT_LIMITS = Limits()

# For the files of strangers: what `--untrusted` uses. No real model comes near these.
UNTRUSTED_LIMITS = Limits(
    index_bytes=256 * _MIB,
    tensors=1_000_000,
    rank=64,
    name_bytes=4096,
    nesting=64,
    metadata_entries=100_000,
    metadata_bytes=64 * _MIB,
    document_bytes=1 * _MIB,
    decompressed_bytes=256 * _MIB,
)
