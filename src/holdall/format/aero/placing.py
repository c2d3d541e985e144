"""The places of tensors in shards, and their entries in TIDX, as columns: a file may hold millions of tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from holdall.base.buffer_sizes import buffer_size
from holdall.binary.columns import place, sort_names
from holdall.binary.documents import msgpack
from holdall.errors import ContentError
from holdall.format.aero.content import make_entry, name_breach
from holdall.format.aero.layout import MAX_NAME
from holdall.format.aero.read import TensorNative
from holdall.format.aero.settings import Settings
from holdall.format.refusals import refuse_names, refuse_repeats
from holdall.model.dtypes import DType
from holdall.model.model import Model

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.model.table import TensorTable

__all__ = ["Placements", "place_tensors"]

_BLOCK = buffer_size(1 << 13)  # entries that are encoded at a time
_DIGEST = 32  # bytes of a hash
_PLACE_BYTES = 128  # more than the place and the hash of a tensor add to its entry


class _Entry(msgspec.Struct, gc=False):
    """The entry of a tensor of a plain type."""

    name: str
    dtype: int
    shape: list[int]
    shard_id: int
    data_off: int
    data_len: int
    flags: int


class _HashedEntry(_Entry, gc=False):
    """The same with the hash of the tensor."""

    hash_b3: str


@dataclass(frozen=True, slots=True, eq=False)
class Placements:
    """The tensors of a file in order: their rows in the table of the model, their shards, their offsets there.

    ``entries`` are entries of TIDX by the number of the form, without place; None for forms whose tensors need an entry
    each. ``odd`` are the rows of other tensors that need one. ``form_sizes`` are the bytes of a tensor of each form.
    """

    table: TensorTable
    rows: NDArray[np.intp]
    shards: NDArray[np.uint32]
    offsets: NDArray[np.uint64]
    entries: Sequence[dict[str, Any] | None]
    odd: frozenset[int]
    quants: Mapping[int, int]
    root: Mapping[str, Any]  # keys of TIDX that the format does not define
    form_sizes: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.rows)

    def cut(self, start: int, stop: int) -> Placements:
        """The placements ``start..stop``, with shards counted from that of the first."""
        shards = self.shards[start:stop] - self.shards[start] if stop > start else self.shards[:0]
        return replace(self, rows=self.rows[start:stop], shards=shards, offsets=self.offsets[start:stop])

    def names(self) -> Sequence[str]:
        """The names of the tensors, in no particular order."""
        names = self.table.names
        return names if len(self) == len(names) else [names[row] for row in self.rows.tolist()]

    def bounds(self, per_group: int = 1) -> list[tuple[int, int]]:
        """The first tensor, and the one after the last, of each group of ``per_group`` shards."""
        groups = self.shards // np.uint32(per_group)
        starts = [0, *((groups[1:] != groups[:-1]).nonzero()[0] + 1).tolist()] if len(groups) else []
        return list(zip(starts, [*starts[1:], len(groups)], strict=True)) if starts else []

    def sizes(self, start: int = 0, stop: int | None = None) -> NDArray[np.uint64]:
        """The bytes of the tensors ``start..stop``."""
        sizes: NDArray[np.uint64] = self.form_sizes[self.table.forms().codes[self.rows[start:stop]]]
        return sizes

    def ends(self) -> list[int]:
        """The bytes of each shard."""
        last = np.array([stop - 1 for _, stop in self.bounds()], np.intp)
        ends: list[int] = (self.offsets[last] + self.form_sizes[self.table.forms().codes[self.rows[last]]]).tolist()
        return ends

    def encode_index(self, digests: bytes = b"") -> Iterator[bytes]:
        """Encode the content of TIDX piece by piece; ``digests`` are the hashes of all tensors, joined."""
        yield msgpack.encode({**self.root, "tensors": []})[:-1] + msgpack.encode_array_head(len(self))
        for start in range(0, len(self), _BLOCK):
            hashes = digests[start * _DIGEST : (start + _BLOCK) * _DIGEST]
            yield msgpack.encode_items(list(self._make_entries(start, start + _BLOCK, hashes)))

    def measure_valued(self) -> tuple[int, int]:
        """The bytes of all entries that have values of their own, and of the longest, places and hashes included."""
        sizes = [0]
        if self.odd or None in self.entries:
            own = np.array([entry is None for entry in self.entries], np.bool_)[self.table.forms().codes[self.rows]]
            for row, chosen in zip(self.rows.tolist(), own.tolist(), strict=True):
                if chosen or row in self.odd:
                    entry = make_entry(self.table.tensor(row), self.quants)
                    sizes.append(len(msgpack.encode(entry)) + _PLACE_BYTES)
        return sum(sizes), max(sizes)

    def _make_entries(self, start: int, stop: int, digests: bytes) -> Iterator[_Entry | dict[str, Any]]:
        rows, names, odd, entries = self.rows[start:stop].tolist(), self.table.names, self.odd, self.entries
        codes = self.table.forms().codes[self.rows[start:stop]].tolist()
        places = zip(
            self.shards[start:stop].tolist(),
            self.offsets[start:stop].tolist(),
            self.sizes(start, stop).tolist(),
            strict=True,
        )
        hashes = (digests[at : at + _DIGEST].hex() for at in range(0, len(digests), _DIGEST)) if digests else repeat("")
        for row, code, (shard, offset, size), digest in zip(rows, codes, places, hashes, strict=False):
            entry = None if row in odd else entries[code]
            if entry is None:
                own = make_entry(self.table.tensor(row), self.quants)
                own |= {"shard_id": shard, "data_off": offset, "data_len": size}
                yield own | {"hash_b3": digest} if digest else own
            elif digest:
                yield _HashedEntry(names[row], entry["dtype"], entry["shape"], shard, offset, size, 0, digest)
            else:
                yield _Entry(names[row], entry["dtype"], entry["shape"], shard, offset, size, 0)


def place_tensors(model: Model, settings: Settings, quants: Mapping[int, int], root: Mapping[str, Any]) -> Placements:
    """Place tensors in shards in order; a shard is full when the next tensor does not fit.

    ``root`` are keys of TIDX that the format does not define.
    """
    table = model.tensors
    refuse_repeats("aero", table.names)
    refuse_names("aero", table.names, _describe_breach, MAX_NAME)
    rows = sort_names(table.names) if settings.sort else np.arange(len(table), dtype=np.intp)
    entries = _check_forms(table, quants)
    form_sizes = table.forms().table(lambda form: form.size or 0, np.uint64)
    sizes = form_sizes[table.forms().codes[rows]]
    shards, offsets = _fill_shards(sizes, settings.align, settings.max_shard_bytes)
    odd = frozenset(row for row, native in table.natives(TensorNative) if _is_odd(native))
    return Placements(table, rows, shards, offsets, entries, odd, quants, root, form_sizes)


def _is_odd(native: TensorNative) -> bool:
    """Whether the entry of a plain tensor has more than the place of the tensor."""
    stated = native.quant_id is not None or native.quant_params is not None
    return bool(native.flags or native.extra or (stated and not native.packed))


def _describe_breach(name: str) -> str | None:
    wrong = name_breach(name)
    return wrong and f"tensor {name!r}: {wrong}"


def _check_forms(table: TensorTable, quants: Mapping[int, int]) -> list[dict[str, Any] | None]:
    """The entries of all forms of plain types. ContentError for a tensor that AERO cannot hold."""
    entries: list[dict[str, Any] | None] = []
    forms = table.forms()
    for code, (form, first) in enumerate(zip(forms.kinds, forms.firsts, strict=True)):
        plain = isinstance(form.dtype, DType)
        for row in [first] if plain else (forms.codes == code).nonzero()[0].tolist():
            tensor = table.tensor(row)
            entry = make_entry(tensor, quants)
            if tensor.payload is None:
                raise ContentError(f"aero: tensor {tensor.name!r} has no data, and AERO cannot declare one without")
        entries.append(entry if plain else None)
    return entries


def _fill_shards(sizes: NDArray[np.uint64], align: int, most: int) -> tuple[NDArray[np.uint32], NDArray[np.uint64]]:
    """The shard of each tensor, and its offset there, a multiple of ``align``."""
    starts, _ = place(sizes, align)  # in one shard without end
    ends = starts + sizes
    full = starts + np.minimum(np.uint64(most), ~starts)  # the sum does not wrap
    # For each tensor, the one after the last of a shard that begins with it: at least one that is not empty is in it.
    following = np.searchsorted(ends, full, side="right")
    np.maximum(following, np.searchsorted(starts, starts, side="right"), out=following)
    firsts, first = [], 0
    while first < len(sizes):
        firsts.append(first)
        first = int(following[first])
    begins = np.zeros(len(sizes), np.bool_)
    begins[firsts] = True
    shards = np.cumsum(begins, dtype=np.uint32) - np.uint32(1)
    return shards, starts - starts[firsts][shards]
