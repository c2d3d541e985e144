"""Files of PyTorch without PyTorch: arrays of numpy, of which those that share memory share a storage."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.format.torch.files import call, checkpoint, legacy, number, row, table, text

__all__ = ["make_legacy", "make_zip", "save_zip"]

_STORAGES = {"<f4": "FloatStorage", "<f8": "DoubleStorage", "|u1": "ByteStorage", "|i1": "CharStorage"}
_STORAGES |= {"|b1": "BoolStorage", "<i8": "LongStorage", "<i4": "IntStorage", "<f2": "HalfStorage"}

Arrays = Mapping[str, NDArray[np.generic]]


def make_zip(arrays: Arrays) -> bytes:
    """What torch.save would write of the arrays, up to the padding between entries."""
    content, storages = _pickle(arrays, legacy=False)
    return checkpoint(content, {key: storage.tobytes() for key, storage in storages.items()})


def save_zip(path: Path, arrays: Arrays) -> Path:
    """Write that to ``path``, and return it."""
    path.write_bytes(make_zip(arrays))
    return path


def make_legacy(arrays: Arrays) -> bytes:
    """The same in the older form, without a zip."""
    content, storages = _pickle(arrays, legacy=True)
    tail = b"".join(struct.pack("<q", storage.size) + storage.tobytes() for storage in storages.values())
    return legacy(content, list(storages), tail)


def _pickle(arrays: Arrays, legacy: bool) -> tuple[bytes, dict[str, NDArray[np.generic]]]:
    """Return a pickle of protocol 2 with persistent ids, and the storages that they name."""
    keys, storages, items = dict[int, str](), dict[str, NDArray[np.generic]](), list[bytes]()
    for name, array in arrays.items():
        storage = _find_storage(array)
        key = keys.setdefault(id(storage), str(len(keys)))
        storages[key] = storage
        kind = f"ctorch\n{_STORAGES[storage.dtype.str]}\n".encode()
        more = (b"N",) if legacy else ()  # the storage is no view of another one
        place = row(text("storage"), kind, text(key), text("cpu"), number(storage.size), *more) + b"Q"
        first = (array.__array_interface__["data"][0] - storage.__array_interface__["data"][0]) // array.itemsize
        strides = (stride // array.itemsize for stride in array.strides)
        shape = (row(*map(number, array.shape)), row(*map(number, strides)))
        hooks = call("collections", "OrderedDict")
        items += [text(name), call("torch._utils", "_rebuild_tensor_v2", place, number(first), *shape, b"\x89", hooks)]
    return b"\x80\x02" + table(*items) + b".", storages


def _find_storage(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return the array that has the memory of ``array``."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
