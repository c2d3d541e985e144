"""Tensors whose ggml type is unknown: opaque bytes, whose size follows from where the next payload begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from holdall.errors import ContentError
from holdall.model.encodings import Opaque
from holdall.model.ggml import PREFIX, REMOVED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.model.encodings import Stored
    from holdall.model.table import TensorTable

__all__ = ["Q2_0", "check_ids", "check_padding", "extend_palette", "find_unknown_id", "measure_gaps"]


Q2_0 = 42  # the one id that is opaque in files of a fork, and known in all others


def measure_gaps(offsets: NDArray[np.uint64], end: int) -> NDArray[np.uint64]:
    """Measure the bytes from each offset to the next larger one, or to ``end``; 0 for an offset beyond it.

    >>> measure_gaps(np.array([64, 0, 0, 32], np.uint64), 100).tolist()
    [36, 32, 32, 32]
    """
    last = np.uint64(end)
    ordered = np.sort(np.append(np.minimum(offsets, last), last))
    following = ordered[np.minimum(np.searchsorted(ordered, offsets, side="right"), len(offsets))]
    gaps: NDArray[np.uint64] = following - np.minimum(offsets, following)
    return gaps


def extend_palette(
    palette: Sequence[Stored],
    codes: NDArray[np.uint8],
    types: NDArray[np.uint64],
    sizes: NDArray[np.uint64],
    rows: NDArray[np.intp],
) -> tuple[list[Stored], NDArray[np.uint32]]:
    """Return ``palette`` with an opaque type for each type and size among ``rows``, and the codes that refer to it."""
    extended, places = list(palette), dict[tuple[int, int], int]()
    wide = codes.astype(np.uint32)
    for row, key in zip(rows.tolist(), zip(types[rows].tolist(), sizes[rows].tolist(), strict=True), strict=True):
        if key not in places:
            places[key] = len(extended)
            extended.append(Opaque(f"{PREFIX}{key[0]}", key[1]))
        wide[row] = places[key]
    return extended, wide


def find_unknown_id(dtype: Stored) -> int | None:
    """Find the ggml id of an opaque type such as ``ggml.99``; None for all others.

    >>> find_unknown_id(Opaque("ggml.99", 64)), find_unknown_id(Opaque("npy.object", 64))
    (99, None)
    """
    digits = dtype.name.removeprefix(PREFIX)
    if not isinstance(dtype, Opaque) or digits == dtype.name or not (digits.isascii() and digits.isdecimal()):
        return None
    return int(digits) if len(digits) < 11 and int(digits) < 1 << 32 and int(digits) not in REMOVED else None


def check_ids(table: TensorTable, known: Mapping[int, Stored]) -> None:
    """Raise ContentError if a tensor that is opaque here would be read as one of the ``known`` types, by its id.

    A reader takes the id of Q2_0 for unknown if one tensor has fewer bytes than its shape needs: all, or none.
    """
    forms = table.forms()
    ids = [find_unknown_id(form.dtype) for form in forms.kinds]
    taken = {code: known[id] for code, id in enumerate(ids) if id is not None and id in known}
    if not taken:
        return
    others = [code for code in taken if ids[code] != Q2_0]
    forked = [code for code in taken if ids[code] == Q2_0]
    if not any(known[Q2_0].nbytes(forms.kinds[code].shape) > (forms.kinds[code].size or 0) for code in forked):
        others += forked
    for code in others:
        name = table.names[forms.firsts[code]]
        raise ContentError(
            f"gguf: tensor {name!r}: its type is unknown and has the id {ids[code]}, under which its bytes would be "
            f"read as {taken[code]}"
        )
    for code, form in enumerate(forms.kinds):
        if form.dtype is known[Q2_0]:
            opaque = table.names[forms.firsts[forked[0]]]
            raise ContentError(
                f"gguf: tensor {table.names[forms.firsts[code]]!r} is {form.dtype}, which would become unknown beside "
                f"{opaque!r}, whose blocks under the id {Q2_0} have another size"
            )


def check_padding(table: TensorTable, alignment: int) -> None:
    """Raise ContentError if padding would become part of a tensor of an unknown type, because another follows."""
    forms = table.forms()
    unpadded = [
        code
        for code, form in enumerate(forms.kinds)
        if (form.size or 0) % alignment and find_unknown_id(form.dtype) is not None
    ]
    if not unpadded:
        return
    for row in np.isin(forms.codes[:-1], unpadded).nonzero()[0][:1].tolist():
        tensor = table.tensor(row)
        raise ContentError(
            f"gguf: tensor {tensor.name!r}: {tensor.nbytes} bytes of the unknown type {tensor.dtype} end at the "
            f"next tensor, so they have to be a multiple of the alignment {alignment} unless the tensor is the last"
        )
