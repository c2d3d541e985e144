"""MCF files put together by hand, so that each rule can be broken alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdall.format.mcf.layout import ENTRY, HEADER, INDEX, QUANT, QUANTINFO, SECTION


@dataclass
class Entry:
    name: bytes
    dtype: int
    dims: tuple[int, ...]
    data: bytes
    offset: int | None = None  # absolute; by default behind the entry before it, on a multiple of 64


def mcf(sections: Sequence[tuple[int, bytes]], **header: Any) -> bytes:
    """Sections one after the other on multiples of 8, the directory at the end."""
    body, places = bytearray(HEADER.size), []
    for type, data in sections:
        body += bytes(-len(body) % 8)
        places.append((type, len(body), len(data)))
        body += data
    body += bytes(-len(body) % 8)
    directory = len(body)
    body += b"".join(SECTION.pack(type=t, version=1, offset=at, size=n) for t, at, n in places)
    fields = {"magic": b"MCF\0", "major": 1, "minor": 1, "header_size": 40, "section_count": len(places),
              "section_dir_offset": directory, "file_size": len(body), "flags": 1}  # fmt: skip
    body[: HEADER.size] = HEADER.pack(**{**fields, **header})
    return bytes(body)


def with_tensors(
    entries: Sequence[Entry], extra: Sequence[tuple[int, bytes]] = (), *, index_flags: int = 3, **header: Any
) -> bytes:
    """A file of these tensors: TensorData first, at byte 40, then TensorIndex, then ``extra``."""
    data = bytearray(24)  # up to byte 64
    table, dims, names = bytearray(), bytearray(), bytearray()
    for entry in entries:
        at = entry.offset
        if at is None:
            data += bytes(-(len(data) + 40) % 64)
            at = len(data) + 40
            data += entry.data
        table += ENTRY.pack(
            name_off=len(names), name_len=len(entry.name), dtype=entry.dtype, rank=len(entry.dims),
            dim_off=len(dims) // 8, reserved=0, data_off=at, data_size=len(entry.data),
        )  # fmt: skip
        dims += b"".join(dim.to_bytes(8, "little") for dim in entry.dims)
        names += entry.name
    index = INDEX.pack(
        version=1, flags=index_flags, tensor_count=len(entries), dims_count=len(dims) // 8, entries_off=48,
        dims_off=48 + len(table), strings_off=48 + len(table) + len(dims), strings_size=len(names),
    )  # fmt: skip
    return mcf([(4, bytes(data)), (3, bytes(index + table + dims + names)), *extra], **header)


def quant_info(*records: tuple[int, int, int, int, int]) -> tuple[int, bytes]:
    """A QuantInfo section from (tensor, method, domain, block, super) rows."""
    rows = [
        QUANT.pack(
            tensor_index=t, method=m, domain=d, block_size=b, super_size=s, reserved=bytes(6), min_clip=-1, max_clip=1
        )
        for t, m, d, b, s in records
    ]
    return 2, QUANTINFO.pack(version=1, record_count=len(rows)) + b"".join(rows)
