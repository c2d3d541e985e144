"""Zip archives read as columns: numbers of 64 bits, names of every kind, entries close together and far apart."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest

from holdall.base.check import Check
from holdall.errors import FormatError
from holdall.format.zip.archive import Archive, read_archive
from holdall.format.zip.layout import CENTRAL, CENTRAL_SIGNATURE, END, END_SIGNATURE, LOCAL, LOCAL_SIGNATURE
from holdall.source import BytesSource
from holdall.source.ledger import Ledger

FULL = 0xFFFFFFFF
OTHER = b"\x99\x99\x02\0ab"


def archive(data: bytes, **options: object) -> Archive:
    return read_archive(BytesSource(data), Check(), Ledger(), "zip", **options)  # type: ignore[arg-type]


def wide(extra: bytes, content: bytes = b"content") -> bytes:
    """A zip of one entry all of whose numbers are in the field ``extra``."""
    common = {
        "version": 45, "flags": 0, "method": 0, "time": 0, "date": 0, "crc": 0, "stored": FULL, "size": FULL,
        "name_size": 1, "name": b"x",
    }  # fmt: skip
    local = LOCAL.pack(signature=LOCAL_SIGNATURE, extra_size=0, extra=b"", **common) + content
    central = CENTRAL.pack(
        signature=CENTRAL_SIGNATURE, made_by=45, extra_size=len(extra), comment_size=0, disk=0, internal=0, external=0,
        offset=FULL, extra=extra, comment=b"", **common,
    )  # fmt: skip
    end = END.pack(
        signature=END_SIGNATURE, disk=0, first_disk=0, here=1, count=1, size=len(central), offset=len(local),
        comment_size=0,
    )  # fmt: skip
    return local + central + end


def field(*numbers: int) -> bytes:
    return b"\1\0" + (8 * len(numbers)).to_bytes(2, "little") + b"".join(n.to_bytes(8, "little") for n in numbers)


@pytest.mark.parametrize("extra", [field(7, 7, 0), OTHER + field(7, 7, 0), field(7, 7, 0) + OTHER])
def test_numbers_of_64_bits(extra: bytes) -> None:
    found = archive(wide(extra))
    assert (found.starts.tolist(), found.stored.tolist(), found.sizes.tolist()) == ([31], [7], [7])
    assert bytes(found.payload(0).view()) == b"content"


@pytest.mark.parametrize("extra", [b"", OTHER, field(7, 7), b"\1\0", b"\1\0\x18\0", field(7, 7, 0)[:-1], OTHER + b"\1"])
def test_numbers_of_64_bits_that_are_not_there(extra: bytes) -> None:
    with pytest.raises(FormatError) as caught:
        archive(wide(extra))
    assert caught.value.rule == "zip.entry.extra"


@pytest.mark.parametrize("numbers", [(7, 7, 1 << 63), (7, 7, 2**64 - 1), (2**64 - 1, 2**64 - 1, 0), (8, 8, 0)])
def test_numbers_that_lead_outside(numbers: tuple[int, ...]) -> None:
    with pytest.raises(FormatError) as caught:
        archive(wide(field(*numbers)))
    assert caught.value.rule in ("zip.entry.range", "zip.entry.overlap")


@pytest.mark.parametrize(
    "name", ["a", ".data/id", "a b/e.npy", "dense/kernel:0", "x\ny", "x\n../y", "a/", "-", "...", "a\x7f"]
)
def test_names_that_are_paths(name: str) -> None:
    assert archive(zipped(name, "other")).names == [name, "other"]


@pytest.mark.parametrize("name", ["/a", "a//b", "./a", "a/..", "..", "C:x", "a\\b", "s3://x", "a/./b", "//"])
def test_names_that_are_not_paths(name: str) -> None:
    with pytest.raises(FormatError) as caught:
        archive(zipped("other", name))
    assert caught.value.rule == "zip.name.path"


def zipped(*names: str) -> bytes:
    """A zip with exactly these names: zipfile would put some of them right."""
    stand_ins = {chr(ord("S") + number) * len(name.encode()): name for number, name in enumerate(names)}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        for stand_in in stand_ins:
            made.writestr(stand_in, b"")
    data = out.getvalue()
    for stand_in, name in stand_ins.items():
        data = data.replace(stand_in.encode(), name.encode())
    return data


def test_entries_near_and_far() -> None:
    """Headers are read in batches: some of many, some of one, with data between them that is not read."""
    sizes = [3, 5000, 2_000_000, 10, 700_000, 0, *[40] * 30_000, 4096, 1]
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        for number, size in enumerate(sizes):
            made.writestr(f"{number}", bytes([number % 251]) * size)
    shown: dict[int, bytes] = {}

    def read_heads(rows: object, data: bytes, at: object, room: object) -> None:
        for row, start, size in zip(*(np.asarray(column).tolist() for column in (rows, at, room)), strict=True):
            shown[row] = data[start : start + min(size, 16)]

    found = archive(out.getvalue(), heads=16, read_heads=read_heads)
    assert found.sizes.tolist() == sizes
    assert shown == {number: bytes([number % 251]) * min(size, 16) for number, size in enumerate(sizes)}
    for row in (0, 2, 5, 6, 20_000, len(sizes) - 1):
        assert bytes(found.payload(row).view()) == bytes([row % 251]) * sizes[row]
