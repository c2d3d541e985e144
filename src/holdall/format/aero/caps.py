"""The caps of the format, held by the writer before a byte is written. Each refusal names the option that helps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdall.errors import ContentError
from holdall.format.aero.layout import MAX_METADATA, MJSN, MMSG, PHSH, TIDX, WTSH
from holdall.format.aero.tidx import LEAST_ENTRY

__all__ = ["check_index", "check_metadata", "check_pages", "check_table"]

MAX_CHUNKS = 1_000_000
MAX_STRINGS = 512 << 20  # bytes of the names of chunks

_PAGE_BYTES = 34  # of a hash in PHSH
_HASH_BYTES = 74  # of a hash in TIDX, with its key
_ENTRY_BYTES = 600  # more than an entry takes beside its name and its quant_params

_WAYS_OUT = {
    TIDX: "write fewer tensors into one file (include, exclude)",
    MMSG: "a larger max_shard_bytes makes fewer shards",
    MJSN: "leave out metadata (holdall edit --unset)",
    PHSH: "a larger page_hash makes fewer pages",
}


def check_table(chunks: int, strings: int) -> None:
    """Refuse a table of contents of too many chunks, or with too many bytes of names."""
    if chunks > MAX_CHUNKS:
        way_out = "a larger max_shard_bytes makes fewer shards, and without page_hash each takes one chunk, not two"
        raise ContentError(f"aero: {chunks} chunks are above the {MAX_CHUNKS} of the format; {way_out}")
    if strings > MAX_STRINGS:
        way_out = "give chunks of other kinds shorter names"
        raise ContentError(
            f"aero: {strings} bytes of names of chunks are above the {MAX_STRINGS} of the format; {way_out}"
        )


def check_metadata(fourcc: bytes, size: int, about: str = "") -> None:
    """Refuse a metadata chunk of too many bytes, which are counted before they are compressed.

    ``about`` stands before the number in the message.

    >>> check_metadata(MMSG, 1 << 20)
    """
    if size > MAX_METADATA and fourcc != WTSH:
        way_out = _WAYS_OUT.get(fourcc, "leave out the chunk")
        message = f"{about}{size} bytes of {fourcc.decode('latin-1')} are above the {MAX_METADATA} of the format"
        raise ContentError(f"aero: {message}; {way_out}")


def check_pages(pages: int) -> None:
    """Refuse so many pages that the hashes of a shard take too many bytes."""
    check_metadata(PHSH, _PAGE_BYTES * pages)


def check_index(names: Sequence[str], hashed: bool, measure: Callable[[], int]) -> None:
    """Refuse an index that is sure to have too many bytes, before it is made.

    If it is ``hashed``, its hashes are known only after the weights are written. Then ``measure`` counts its bytes
    without hashes, if the number of tensors makes that necessary.
    """
    characters = sum(map(len, names))
    if not hashed:
        check_metadata(TIDX, LEAST_ENTRY * len(names) + characters - len(names), "at least ")
        return
    if _ENTRY_BYTES * len(names) + 4 * characters <= MAX_METADATA // 4:
        return
    plain = measure()
    size = plain + _HASH_BYTES * len(names)
    if plain <= MAX_METADATA < size:
        message = f"{size} bytes of TIDX are above the {MAX_METADATA} of the format"
        raise ContentError(f"aero: {message}; without tensor_hash it takes {plain}")
    check_metadata(TIDX, size)
