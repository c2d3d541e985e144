"""Which documents of a new file may be compressed: those that a reader takes for a file of its size.

A reader estimates the memory that compressed documents take and refuses what is too much for the size of the file. The
writer asks by the same estimates, under the default limits, and stores uncompressed what would be refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from holdall.base.check import Check
from holdall.base.expansion import Expansion
from holdall.binary.compression import compress_pieces
from holdall.binary.documents.base import TooManyValues
from holdall.errors import LimitError
from holdall.format.aero import caps
from holdall.format.aero.layout import MJSN, TIDX
from holdall.format.aero.manifest import cost_of_document
from holdall.format.aero.placing import Placements
from holdall.format.aero.tidx import cost_of_index
from holdall.limits import DEFAULT_LIMITS, Limits
from holdall.sink.plan import Results

__all__ = ["Compressed", "NewIndex", "find_refused", "weigh_document"]


@dataclass(frozen=True, slots=True)
class Compressed:
    """A compressed document: what it takes in memory, and ``holds``, whether it has at most a number of values."""

    fourcc: bytes
    cost: int
    holds: Callable[[int], bool]


def find_refused(documents: Sequence[Compressed], file_size: int, limits: Limits = DEFAULT_LIMITS) -> bytes | None:
    """Find the costliest of ``documents`` if a reader would refuse a file of ``file_size`` bytes with them, else None.

    >>> small, large = (Compressed(name, cost, lambda most: True) for name, cost in ((b"MMSG", 300), (b"TIDX", 10**9)))
    >>> find_refused([small, large], 1000), find_refused([small, large], 10_000_000)
    (b'TIDX', None)
    """
    check = Check(limits=limits)
    expansion = Expansion(check, file_size)
    try:
        for each in documents:
            expansion.add(each.fourcc.decode(), each.cost, check, None, "aero")
    except LimitError:
        return max(documents, key=lambda each: each.cost).fourcc
    most = expansion.values_left(check)
    return next((each.fourcc for each in documents if not each.holds(most)), None)


def weigh_document(fourcc: bytes, content: bytes) -> Compressed:
    """Weigh MJSN or MMSG."""

    def holds(most: int) -> bool:
        if len(content) <= most:  # no value takes less than a byte
            return True
        from holdall.binary.documents import json, msgpack

        try:
            (json if fourcc == MJSN else msgpack).decode(content, depth=DEFAULT_LIMITS.nesting, most=most)
        except TooManyValues:
            return False
        return True

    return Compressed(fourcc, cost_of_document(len(content)), holds)


def _weigh_index(placed: Placements, size: int) -> Compressed:
    """Weigh a TIDX of ``size`` bytes."""
    valued, longest = placed.measure_valued()
    forms = placed.table.forms()
    codes, counts = np.unique(forms.codes[placed.rows], return_counts=True)  # of a part, which has few of all forms
    used = [forms.kinds[code] for code in codes.tolist()]
    dims = sum(len(form.shape) * count for form, count in zip(used, counts.tolist(), strict=True))
    types = len({(str(form.dtype), form.size) for form in used})
    cost = cost_of_index(size, len(placed), types=types, dims=dims, valued=valued)
    return Compressed(TIDX, cost, lambda most: longest <= most)


@dataclass(slots=True)
class NewIndex:
    """The content of TIDX: its size and hash are known once it is made. ``hashes`` name the taps over tensors.

    ``weighed`` are the compressed documents of the file, ``beside`` its bytes without an index that has hashes.
    """

    placed: Placements
    hashes: Sequence[str]
    compressed: bool
    size: int = 0
    digest: bytes = b""
    weighed: list[Compressed] = field(default_factory=list)
    beside: int = 0
    limits: Limits = DEFAULT_LIMITS

    def __post_init__(self) -> None:
        caps.check_index(self.placed.names(), bool(self.hashes), self._measure)

    def _measure(self) -> int:
        """The bytes without hashes of tensors."""
        return sum(map(len, self.placed.encode_index()))

    def make(self, results: Results) -> bytes:
        """Make the stored bytes."""
        pieces = partial(self.placed.encode_index, b"".join([results[name] for name in self.hashes]))
        if self.compressed:
            stored, self.size, self.digest = compress_pieces(pieces)
            caps.check_metadata(TIDX, self.size)
            weighed = _weigh_index(self.placed, self.size)
            if not self.hashes:  # the caller plans again if that is too much
                self.weighed.append(weighed)
                return stored
            if find_refused([*self.weighed, weighed], self.beside + len(stored), self.limits) is None:
                return stored
            self.compressed = False
        return self._store(pieces())

    def _store(self, pieces: Iterable[bytes]) -> bytes:
        from blake3 import blake3

        stored = b"".join(pieces)
        self.size, self.digest = len(stored), blake3(stored).digest()
        caps.check_metadata(TIDX, self.size)
        return stored
