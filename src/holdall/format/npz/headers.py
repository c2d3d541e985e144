"""The headers of all arrays of a zip: few of them differ, so that each text is parsed once."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from holdall.base.buffer_sizes import buffer_size
from holdall.base.check import Check
from holdall.binary.columns import product
from holdall.errors import FormatError
from holdall.format.npz.header import Array, parse
from holdall.format.npz.layout import FRONT, MAGIC
from holdall.format.zip.archive import STORED, Archive
from holdall.format.zip.directory import gather
from holdall.model.dtypes import DType

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["HEAD", "Headers"]

# Bytes of each entry that are read along with its zip header: nearly always the whole npy header.
HEAD = buffer_size(320)


class Headers:
    """Collects the headers of entries while the archive is read; :meth:`resolve` then finds the plain arrays."""

    def __init__(self) -> None:
        self._known: dict[bytes, int] = {}
        self._found: list[tuple[NDArray[np.intp], list[int]]] = []

    def read_heads(self, rows: NDArray[np.intp], data: bytes, at: NDArray[np.uint64], room: NDArray[np.uint64]) -> None:
        """Keep the headers of version 1.0 that lie wholly in ``data``."""
        here = (room >= FRONT.size).nonzero()[0]
        front = gather(data, FRONT.dtype, at[here])
        size = front["size"].astype(np.uint64) + np.uint64(FRONT.size)
        whole = (front["magic"] == np.void(MAGIC)) & (front["major"] == 1) & (front["minor"] == 0)
        whole &= size <= room[here]
        here, size = here[whole], size[whole]
        spans = zip(at[here].tolist(), (at[here] + size).tolist(), strict=True)
        texts = [data[start:stop] for start, stop in spans]
        for text in dict.fromkeys(texts):
            self._known.setdefault(text, len(self._known))
        self._found.append((rows[here], list(map(self._known.__getitem__, texts))))

    def resolve(self, archive: Archive, check: Check) -> tuple[list[Array], NDArray[np.intp]]:
        """Return the distinct arrays, and which of them each entry has; -1 for entries that have to be read one by one.

        Such an entry is deflated, or has a long or broken header, or its elements are not simply a range of the file:
        another byte order, another order of elements, a type that holdall does not decode.
        """
        arrays: list[Array] = []
        place = np.full(len(self._known) + 1, -1, np.intp)  # the array of each header; the last is for none
        needs = [0] * (len(self._known) + 1)
        quiet = Check(limits=check.limits)
        for number, front in enumerate(self._known):
            with suppress(FormatError):
                quiet.limit("name_bytes", len(front), 0, "npz: bytes of header")
                array = parse(front[FRONT.size :], len(front), 0, quiet, "npz")
                needs[number] = min(len(front) + product(array.shape) * array.width, (1 << 64) - 1)
                if isinstance(array.dtype, DType) and not array.swap and not array.is_fortran:
                    place[number] = len(arrays)
                    arrays.append(array)
        codes = np.full(len(archive.names), -1, np.intp)
        for rows, found in self._found:
            codes[rows] = found
        fits = (np.array(needs, np.uint64)[codes] == archive.sizes) & (archive.methods == STORED)
        return arrays, np.where(fits, place[codes], -1)
