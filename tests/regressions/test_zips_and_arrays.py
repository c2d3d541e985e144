"""What hand-made attacks on zips and npy headers have found, one test a case: built in code, and small."""

from __future__ import annotations

import re
import struct
from contextlib import suppress

import numpy as np
import pytest

import holdall
from holdall.errors import FormatError, LimitError, UnsupportedError
from holdall.model.payload import SourceRange
from holdall.model.strided import Arrangement
from holdall.source import BytesSource
from holdall.testing.isolation import Cost, cost_of
from tests.attacks.files import npy, npz
from tests.format.torch.files import checkpoint, named, tensor

F32 = np.arange(1, 5, dtype="<f4")


def cost(data: bytes) -> Cost:
    """What opening and verifying take together."""

    def look() -> None:
        holdall.verify(data, level="strict")
        with suppress(FormatError, UnsupportedError):
            holdall.open(data).close()

    holdall.verify(npz(("w.npy", npy())), level="strict")  # so that imports are not counted
    return cost_of(look)


def test_keys_of_an_npy_header_are_looked_up_and_not_counted_anew() -> None:
    """The dict was built again for each key: 9 seconds for 20,000 of them."""
    keys = ",".join(f"'{number:x}':1" for number in range(6000))
    data = b"\x93NUMPY\2\0" + struct.pack("<I", len(keys) + 2) + b"{" + keys.encode() + b"}"
    assert cost(data).seconds < 0.5


def test_dims_of_a_record_are_not_multiplied_out() -> None:
    """33,000 dims of thirty digits had a product of a million digits, which took 6 seconds."""
    many = npy("()", "[('a','<f4',(" + ("9" * 30 + ",") * 2000 + "))]", b"")
    assert re.search(r"needs about 2\^\d{3} bytes", holdall.verify(many).findings[0].message)


def test_a_long_npy_header_is_not_read() -> None:
    """A megabyte of literals took 130 MB; numpy itself stops at 10,000 bytes."""
    with pytest.raises(UnsupportedError, match="above the 65536"):
        holdall.open(npy("(" + "1," * 40_000 + ")"))
    assert holdall.open(npy("(2," + "1," * 4000 + ")"))["array"].nbytes == 8


def test_deflated_npy_headers_stay_in_proportion_to_the_file() -> None:
    """Each could inflate to a megabyte, however many there were: 225 seconds for 331 KB."""
    long = npy("(1,)", "[('a','<f4',(" + "1," * 30_000 + "))]", bytes(4))
    data = npz(*((f"{number}.npy", long) for number in range(50)), deflate=True)
    assert {finding.rule for finding in holdall.verify(data).findings} == {"npz.npy.headers"}
    assert cost(data).seconds < 0.5


def test_entries_together_inflate_to_no_more_than_the_file_might() -> None:
    """Each could inflate to 64 MiB, however many there were: a gigabyte from 965 KB."""
    zeros = npy(f"({30 << 20},)", "'|u1'", bytes(30 << 20))
    fine = npz(*((f"{number}.npy", zeros) for number in range(2)), deflate=True)
    assert holdall.verify(fine).ok
    many = npz(*((f"{number}.npy", zeros) for number in range(12)), deflate=True)
    with pytest.raises(LimitError, match="always allowed, the ratio"):
        holdall.open(many)
    assert holdall.open(many, limits=holdall.Limits(decompression_ratio=1100))["2"].nbytes == 30 << 20


def test_empty_arrays_of_many_large_dims_cost_nothing() -> None:
    """Strides of an array without elements were multiplied out: 700 MB."""
    array = npy("(" + "9223372036854775807," * 3000 + "0,)", "'>f4'", b"", "True")
    large = "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"
    empty = named(tensor("(" + large * 4000 + "K\0t", "(" + "K\0" * 4001 + "t"))
    for data in (array, checkpoint(empty, {"0": bytes(16)}, byteorder=b"big")):
        assert cost(data).peak_bytes < 10 << 20


@pytest.mark.parametrize("rank", [63, 64, 65, 100])
def test_elements_in_another_order_have_any_number_of_axes_of_one(rank: int) -> None:
    """as_strided has no more than 64 axes, and one is for the bytes of an element: ValueError from 64 on."""
    turned = F32.reshape(2, 2).T.tobytes()
    ones = "1," * (rank - 2)
    fortran = npy(f"(2,2,{ones})", data=F32.tobytes(), order="True")
    swapped = npy(f"(2,2,{ones})", "'>f4'", F32.astype(">f4").tobytes())
    strided = checkpoint(
        named(tensor("(K\2K\2" + "K\1" * (rank - 2) + "t", "(K\1K\2" + "K\1" * (rank - 2) + "t")), {"0": F32.tobytes()}
    )
    for data, expected in ((fortran, turned), (swapped, F32.tobytes()), (strided, turned)):
        with holdall.open(data) as model:
            assert bytes(next(iter(model.tensors)).raw()) == expected


def test_more_axes_than_numpy_has_are_unsupported() -> None:
    """Axes that cannot be merged, of more elements than the limits let through."""
    spread = Arrangement(SourceRange(BytesSource(bytes(64)), 0, 64), 1, (2,) * 64, (1, 0) * 32)
    with pytest.raises(UnsupportedError, match="64 axes"):
        next(iter(spread.payload().chunks()))
