"""Checks the CRC-32s of the tensor data and of the file, in one pass."""

from __future__ import annotations

from holdall.base.check import Check
from holdall.binary.crc32 import crc32_combine
from holdall.format.base import OnProgress
from holdall.format.embd import rules
from holdall.format.embd.layout import FOOTER, HEADER
from holdall.format.embd.native import EmbdNative
from holdall.model.model import Model
from holdall.source.range_crc32 import crc32_of

__all__ = ["audit"]


def audit(model: Model, check: Check, on_progress: OnProgress) -> None:
    """Compare both checksums of the footer with the bytes, if the file has checksums."""
    native, source = model.native, model.sources[0]
    if not isinstance(native, EmbdNative) or not native.checksums:
        on_progress(source.size)
        return
    header = HEADER.read(source.read(0, HEADER.size), 0)
    end = source.size - FOOTER.size
    footer = FOOTER.read(source.read(end, FOOTER.size), 0)
    start = header.tensor_data_offset  # the reader has seen that the data ends at the footer
    before = crc32_of(source, 0, start, on_progress)
    data = crc32_of(source, start, end, on_progress)
    on_progress(FOOTER.size)
    whole = crc32_combine(before, data, end - start)
    for rule, at, name, stored, found in (
        (rules.DATA_CRC, end, "data_checksum", footer.data_checksum, data),
        (rules.FILE_CRC, end + 4, "file_checksum", footer.file_checksum, whole),
    ):
        if stored != found:
            check.note(rule, at, f"embd: {name} is {stored:#010x}; the bytes give {found:#010x}")
