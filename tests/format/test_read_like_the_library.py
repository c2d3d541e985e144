"""What holdall read differently from the format's own library, found by ``tools.differential``."""

from __future__ import annotations

import io

import numpy as np
import pytest

import holdall


def npy(descr: str, count: int, data: bytes) -> bytes:
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': ({count},), }}\n".encode()
    return b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text + data


@pytest.mark.parametrize("descr", ["u4", "f8", "i2", "b1", "c16", "=u4", "|f4"])
def test_npz_a_type_whose_byte_order_is_left_out(descr: str) -> None:
    data = npy(descr, 2, bytes(range(2 * np.dtype(descr).itemsize)))
    expected = np.load(io.BytesIO(data))
    with holdall.open(data) as model:
        assert model["array"].dtype.name == {"u": "u32", "f": "f64", "i": "i16", "b": "bool", "c": "c128"}.get(
            descr[0], model["array"].dtype.name
        )
        assert (model["array"].numpy() == expected).all()


@pytest.mark.parametrize("descr", ["f", "<f", "i", "b"])
def test_npz_a_number_without_a_size_is_refused(descr: str) -> None:
    """numpy chooses a size: of an empty array both would accept it, as two types."""
    data = npy(descr, 0, b"")
    assert np.load(io.BytesIO(data)).size == 0
    with pytest.raises(holdall.FormatError, match="is not a type"):
        holdall.open(data)
