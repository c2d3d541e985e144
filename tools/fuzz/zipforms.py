"""Forms of npz files, and of zip archives, that no writer here writes: see :mod:`tools.fuzz.forms`."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Iterator, Mapping

from holdall.format.zip.layout import CENTRAL_FRONT, END, END64, END64_SIGNATURE, LOCATOR, LOCATOR_SIGNATURE, ZIP64

__all__ = ["make_streamed_zip", "make_zip", "npz", "with_zip64", "with_zip64_entries"]

Forms = Iterator[tuple[str, bytes]]


def npz() -> Forms:
    """Yield deflated entries, every version of npy, Fortran order, types that are carried as bytes."""
    for title, method in (("stored", zipfile.ZIP_STORED), ("deflated", zipfile.ZIP_DEFLATED)):
        arrays = {
            "a.npy": _npy("'<f4'", "False", "(2,)", bytes(8)),
            "b.npy": _npy("'>i2'", "True", "(2, 2)", bytes(8), (2, 0)),
            "c.npy": _npy("'|u1'", "False", "()", b"\1", (3, 0)),
            "d.npy": _npy("'<U2'", "False", "(1,)", bytes(8)),
            "__metadata__.npy": _npy("'|u1'", "False", "(9,)", b'{"a":[1]}'),
        }
        yield title, make_zip(arrays, method)
    yield "structured", make_zip({"s.npy": _npy("[('x', '<f4'), ('y', '|S2', (2,))]", "False", "(1,)", bytes(8))})
    yield (
        "odd",
        make_zip(
            {"v.npy": _npy("'|V3'", "False", "(1,)", bytes(3)), "m.npy": _npy("'<M8[s]'", "False", "(1,)", bytes(8))}
        ),
    )
    one = {"a.npy": _npy("'<f4'", "False", "(2,)", bytes(8))}
    yield "wide", with_zip64(make_zip(one))
    yield "wide-entries", with_zip64_entries(make_zip(one))
    yield "described", make_streamed_zip(one)
    yield "alone", _npy("'<f4'", "False", "(2,)", bytes(8))


def _npy(descr: str, order: str, shape: str, data: bytes, version: tuple[int, int] = (1, 0)) -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n".encode()
    width = 2 if version[0] == 1 else 4
    return b"\x93NUMPY" + bytes(version) + len(text).to_bytes(width, "little") + text + data


def make_zip(entries: Mapping[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    """Return an archive of these entries."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in entries.items():
            archive.writestr(zipfile.ZipInfo(name), data, method)
    return out.getvalue()


def with_zip64(data: bytes) -> bytes:
    """Return the archive with the end records of zip64, and a comment."""
    at = len(data) - END.size
    end = END.read(data, at)
    end64 = END64.pack(
        signature=END64_SIGNATURE, record_size=END64.size - 12, made_by=45, version=45, disk=0, first_disk=0,
        here=end.count, count=end.count, size=end.size, offset=end.offset,
    )  # fmt: skip
    locator = LOCATOR.pack(signature=LOCATOR_SIGNATURE, disk=0, offset=at, disks=1)
    full = {"here": 0xFFFF, "count": 0xFFFF, "size": 0xFFFFFFFF, "offset": 0xFFFFFFFF, "comment_size": 1}
    return data[:at] + end64 + locator + END.pack(**{**vars(end), **full}) + b"x"


def with_zip64_entries(data: bytes) -> bytes:
    """Return the archive with sizes and offsets of its entries in the zip64 field, behind another field."""
    end = END.read(data, len(data) - END.size)
    at, directory = end.offset, b""
    for _ in range(end.count):
        entry = CENTRAL_FRONT.read(data, at)
        name = data[at + CENTRAL_FRONT.size :][: entry.name_size]
        at += CENTRAL_FRONT.size + entry.name_size
        extra = struct.pack("<2H2s", 7, 2, b"..") + struct.pack(
            "<2H3Q", ZIP64, 24, entry.size, entry.stored, entry.offset
        )
        full = dict.fromkeys(("stored", "size", "offset"), 0xFFFFFFFF)
        directory += CENTRAL_FRONT.pack(**{**vars(entry), **full, "extra_size": len(extra)}) + name + extra
    return data[: end.offset] + directory + END.pack(**{**vars(end), "size": len(directory)})


def make_streamed_zip(entries: Mapping[str, bytes]) -> bytes:
    """Return an archive as it is written into a pipe: sizes and CRC follow the data."""

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def tell(self) -> int:
            raise io.UnsupportedOperation

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w") as archive:
        for name, data in entries.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return pipe.getvalue()
