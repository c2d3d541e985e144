"""Limits on what a file may make a reader do."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace

__all__ = ["DEFAULT_LIMITS", "MAX_NESTING", "UNTRUSTED_LIMITS", "Limits", "choose_limits"]

_MIB = 1 << 20
_MOST = 1 << 56
MAX_NESTING = 256  # Python ends at a thousand calls inside each other, and a level takes up to three


def _cap(default: int, why: str) -> int:
    """A field with its reason, which docs/security.md states too."""
    cap: int = field(default=default, metadata={"why": why})
    return cap


@dataclass(frozen=True, slots=True)
class Limits:
    """What a reader accepts before it raises :class:`~holdall.errors.LimitError`.

    Sizes are also always checked against the file itself, so that a small file can never demand much; these limits
    are for large files. A limit beyond 2^56, which no file reaches, counts as 2^56: kernels count in 64 bits.

    >>> Limits(tensors=1000).tensors
    1000
    """

    index_bytes: int = _cap(2048 * _MIB, "header and tables together, as stored: they are held in memory")
    sections: int = _cap(65_536, "of a directory of sections, or files of a set")
    chunks: int = _cap(1_000_000, "of an AERO table of contents")
    string_table_bytes: int = _cap(512 * _MIB, "the names of those chunks")
    tensors: int = _cap(10_000_000, "a row of some 200 bytes each")
    rank: int = _cap(4096, "declared tensors may have silly ranks; numpy itself stops at 64")
    name_bytes: int = _cap(2048 * _MIB, "of one name, which the format or the index bounds anyway")
    nesting: int = _cap(128, "of JSON, MessagePack, pickles and arrays in arrays: Python recurses, 256 at most")
    metadata_entries: int = _cap(10_000_000, "keys, tokens, and values that a pickle remembers")
    metadata_bytes: int = _cap(1024 * _MIB, "all metadata values together, decoded")
    opaque_objects: int = _cap(50_000, "of classes that only the pickle knows, kept as data; 0 refuses them")
    document_bytes: int = _cap(
        2 * _MIB, "a compressed document, or an eighth of its file: a byte can become an object of 64"
    )
    expanded_bytes: int = _cap(
        64 * _MIB, "memory of compressed indexes and documents, rows and values counted, beyond 128 times their files"
    )
    decompressed_bytes: int = _cap(
        2048 * _MIB, "one decompressed block; of a zip, one that grows to more than 8 times its size"
    )
    decompression_floor: int = _cap(
        64 * _MIB, "a block may always grow to this, and all tensors of a model to four times as much"
    )
    decompression_ratio: int = _cap(
        64,
        "above the floor, at most this times the stored bytes, of all tensors times the files",
    )
    passes: int = _cap(
        16, "over the files by whatever reads all tensors, where they share ranges; 1 GiB may always be read so"
    )
    findings_per_rule: int = _cap(100, "a Report keeps that many of each rule and counts the rest")

    @property
    def model_floor(self) -> int:
        """Bytes that all tensors of a model together may always grow to."""
        return 4 * self.decompression_floor

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not isinstance(value, int) or value < 0:
                raise ValueError(f"Limits.{each.name} must be a non-negative integer, not {value!r}")
            object.__setattr__(self, each.name, min(value, _MOST))
        if self.nesting > MAX_NESTING:
            most = f"at most {MAX_NESTING}, since Python recurses over values"
            raise ValueError(f"Limits.nesting is {most}, not {self.nesting}")


DEFAULT_LIMITS = Limits()

# For untrusted files: `--untrusted` uses these. No real model comes near them.
UNTRUSTED_LIMITS = Limits(
    index_bytes=256 * _MIB,
    tensors=1_000_000,
    rank=64,
    name_bytes=4096,
    nesting=64,
    metadata_entries=100_000,
    metadata_bytes=64 * _MIB,
    opaque_objects=0,
    document_bytes=1 * _MIB,
    expanded_bytes=32 * _MIB,
    decompressed_bytes=256 * _MIB,
)


def choose_limits(limits: Limits | None, allow_opaque: bool) -> Limits | None:
    """The limits that a caller gave, without opaque objects unless these are allowed.

    >>> choose_limits(None, True), choose_limits(None, False).opaque_objects
    (None, 0)
    """
    return limits if allow_opaque else replace(limits or DEFAULT_LIMITS, opaque_objects=0)
