"""Zips that two readers read differently are refused at open."""

from __future__ import annotations

import io
import struct
import sys
import zipfile
import zlib

import numpy as np
import pytest

import holdall
from tests.format.torch.by_hand import make_zip


def npz(**arrays: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.savez(out, **arrays)  # type: ignore[arg-type]
    return out.getvalue()


def refused(data: bytes, rule: str, format: str = "npz") -> str:
    with pytest.raises(holdall.FormatError) as caught:
        holdall.open(data, format=format)
    assert caught.value.rule == rule
    assert caught.value.offset is not None
    assert not holdall.verify(data, format=format, level="structure").ok
    return str(caught.value)


def test_a_second_archive_in_the_comment() -> None:
    """numpy takes the last end record, although a byte follows it: that of an archive inside the comment."""
    first, second = npz(w=np.zeros(3)), npz(w=np.full(3, 666.0))
    end = len(first) - 22
    moved = bytearray(second)
    for at in range(len(second) - 22):  # offsets count from the front of the file
        if second[at : at + 4] == b"PK\1\2":
            struct.pack_into("<I", moved, at + 42, struct.unpack_from("<I", second, at + 42)[0] + len(first))
    struct.pack_into("<I", moved, len(second) - 6, struct.unpack_from("<I", second, len(second) - 6)[0] + len(first))
    data = first[: end + 20] + struct.pack("<H", len(second) + 1) + bytes(moved) + b"!"
    with np.load(io.BytesIO(data)) as other:
        assert other["w"].tolist() == [666.0] * 3
    assert "in the comment" in refused(data, "zip.end.twice")


def test_a_comment_of_text_is_no_archive() -> None:
    first = npz(w=np.arange(3.0))
    data = first[:-2] + struct.pack("<H", 5) + b"hello"
    with holdall.open(data) as model:
        assert model["w"].numpy().tolist() == [0, 1, 2]


def with_end64(extensible: bytes) -> bytes:
    data = npz(w=np.arange(3.0))
    count, size, offset = struct.unpack_from("<HII", data, len(data) - 12)
    wide = struct.pack("<IQHHIIQQQQ", 0x06064B50, 44 + len(extensible), 45, 45, 0, 0, count, count, size, offset)
    locator = struct.pack("<IIQI", 0x07064B50, 0, len(data) - 22, 1)
    return data[:-22] + wide + extensible + locator + data[-22:]


def test_a_zip64_end_record_with_more_than_its_fields() -> None:
    with holdall.open(with_end64(b"")) as model:
        assert model["w"].numpy().tolist() == [0, 1, 2]
    refused(with_end64(b"PK\6\6" + bytes(52)), "zip.end.wide")


@pytest.mark.parametrize("shadow", ["archive/DATA/0", "archive/dAtA.pkL", "archive/ByteOrder"])
def test_names_of_a_torch_file_that_differ_only_in_case(shadow: str) -> None:
    out = io.BytesIO(make_zip({"w": np.zeros(4, np.float32)}))
    with zipfile.ZipFile(out, "a") as archive:
        archive.writestr(shadow, np.full(4, 666, "<f4").tobytes())
    assert "differ only in case" in refused(out.getvalue(), "zip.name.case", "torch")


def test_numpys_own_names_may_differ_in_case() -> None:
    with holdall.open(npz(a=np.zeros(1), A=np.ones(1))) as model:
        assert (model["a"].numpy()[0], model["A"].numpy()[0]) == (0, 1)


def array(value: float) -> bytes:
    out = io.BytesIO()
    np.save(out, np.full(3, value))
    return out.getvalue()


def test_an_array_with_the_name_of_another_entry() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("w.npy.npy", array(0))
        archive.writestr("w.npy", array(666))
    with np.load(io.BytesIO(out.getvalue())) as other:
        assert other["w.npy"][0] == other["w"][0] == 666
    assert "the name of another entry" in refused(out.getvalue(), "npz.entry.shadow")


def test_an_array_whose_name_ends_like_an_entry() -> None:
    with holdall.open(npz(**{"w.npy": np.zeros(1), "v": np.ones(1)})) as model:
        assert list(model) == ["w.npy", "v"]


def with_extra_name(name: str, stated: str, crc: int | None = None, before: bytes = b"") -> bytes:
    """An npz with one entry, and a field of Info-ZIP that calls it ``stated``."""
    field = struct.pack("<BI", 1, zlib.crc32(name.encode()) if crc is None else crc) + stated.encode()
    entry = zipfile.ZipInfo(name)
    entry.extra = before + struct.pack("<HH", 0x7075, len(field)) + field
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(entry, array(1))
    return out.getvalue()


@pytest.mark.parametrize("before", [b"", struct.pack("<HH", 0x5455, 5) + bytes(5)])
def test_an_extra_field_with_another_name(before: bytes) -> None:
    data = with_extra_name("a.npy", "b.npy", before=before)
    if sys.version_info >= (3, 12):
        assert zipfile.ZipFile(io.BytesIO(data)).namelist() == ["b.npy"]
    assert "is called b'b.npy' by an extra field" in refused(data, "zip.name.twice")


@pytest.mark.parametrize("data", [with_extra_name("a.npy", "a.npy"), with_extra_name("a.npy", "b.npy", crc=1)])
def test_an_extra_field_with_the_same_name_or_that_of_an_entry_that_was_renamed(data: bytes) -> None:
    with holdall.open(data) as model:
        assert list(model) == ["a"]


@pytest.mark.parametrize("kind", ["npz", "torch"])
def test_a_folder_with_content(kind: str) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        head = io.BytesIO()
        np.save(head, np.arange(2.0))
        entry = zipfile.ZipInfo("w.npy")
        entry.external_attr = 0x10
        archive.writestr(entry, head.getvalue())
    assert "called a folder" in refused(out.getvalue(), "zip.entry.folder", kind)


def test_a_name_that_is_not_marked_as_utf8() -> None:
    """zipfile reads it in the code page of MS-DOS: the two readers disagree on the name."""
    data = bytearray(npz(é=np.zeros(1)))
    marked = bytes(data)
    local, central = data.index(b"PK\3\4") + 6, data.index(b"PK\1\2") + 8
    for at in (local, central):
        flags = struct.unpack_from("<H", data, at)[0]
        assert flags & 0x800
        struct.pack_into("<H", data, at, flags & ~0x800)
    assert zipfile.ZipFile(io.BytesIO(data)).namelist() != ["é.npy"]
    refused(bytes(data), "zip.name.text")
    with holdall.open(marked) as model:
        assert list(model) == ["é"]
