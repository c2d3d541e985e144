"""What needs every byte of an EMBD file: the checksums of the tensor data and of the file, in one pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdall.check import Check
from holdall.checksums import crc32_of
from holdall.format import Tick
from holdall.formats.embd import rules
from holdall.formats.embd.layout import FOOTER, HEADER
from holdall.formats.embd.native import EmbdNative
from holdall.model import Model
from holdall.payload import Span
from holdall.proof import Proof
from holdall.sink.digests import crc32_combine

__all__ = ["audit", "proofs"]


def proofs(model: Model, spans: Iterable[Span]) -> Iterator[Proof]:
    """The checksum of the tensor data, for spans inside it."""
    native = model.native
    proof = native.data_checksum if isinstance(native, EmbdNative) else None
    if proof is not None:
        for source, start, stop in spans:
            if source is proof.source and proof.start <= start and stop <= proof.stop:
                yield proof


def audit(model: Model, check: Check, tick: Tick) -> None:
    """Compare both checksums of the footer, where the file has them."""
    native, source = model.native, model.sources[0]
    if not isinstance(native, EmbdNative) or not native.checksums:
        tick(source.size)
        return
    header = HEADER.read(source.read(0, HEADER.size), 0)
    end = source.size - FOOTER.size
    footer = FOOTER.read(source.read(end, FOOTER.size), 0)
    start = header.tensor_data_offset  # the reader has seen that the data ends at the footer
    before = crc32_of(source, 0, start, tick)
    data = crc32_of(source, start, end, tick)
    tick(FOOTER.size)
    whole = crc32_combine(before, data, end - start)
    for rule, at, name, stored, found in (
        (rules.DATA_CRC, end, "data_checksum", footer.data_checksum, data),
        (rules.FILE_CRC, end + 4, "file_checksum", footer.file_checksum, whole),
    ):
        if stored != found:
            check.note(rule, at, f"embd: {name} is {stored:#010x}; the bytes give {found:#010x}")
