"""A weight whose numbers lie in several stored tensors, as one tensor: its parts, and the encoding that joins them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, Protocol

from holdall.base.buffer_sizes import buffer_size
from holdall.base.memory import make_floats
from holdall.base.parallel import map_spans
from holdall.errors import ContentError
from holdall.model.dtypes import DType
from holdall.model.encodings import Encoding
from holdall.model.payload import Joined
from holdall.model.tensor import Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Decoder", "PackedEncoding", "Part", "Weight"]

_LINE = 1 << 12  # bytes
_PIECE, _LEAST = buffer_size(1 << 20), buffer_size(1 << 18)  # values that one job decodes, and at least


@dataclass(frozen=True, slots=True)
class Part:
    """How a stored tensor is read for some rows of its weight: as ``lines`` of ``count`` entries of ``items`` numbers.

    Each entry is for ``unit`` rows of the weight, and with 0 all rows need all of it. There is more than one line where
    the rows of the weight are columns of the tensor.
    """

    dtype: DType
    lines: int
    count: int
    items: int
    unit: int

    @property
    def size(self) -> int:
        """Stored bytes."""
        return self.lines * self.count * self.entry_size

    @property
    def entry_size(self) -> int:
        return self.dtype.nbytes((self.items,))

    def find_entries(self, start: int, stop: int) -> tuple[int, int]:
        """Find the entries for the rows ``start..stop``."""
        return (start // self.unit, -(-stop // self.unit)) if self.unit else (0, self.count)

    def list_ranges(self, start: int, stop: int) -> list[tuple[int, int]]:
        """List the bytes of the part that the rows ``start..stop`` need."""
        low, high = self.find_entries(start, stop)
        if high - low == self.count or not self.size:
            return [(0, self.size)]
        size = self.entry_size
        firsts = range(low * size, self.size, self.count * size)
        return [(first, first + (high - low) * size) for first in firsts]

    def decode(self, pieces: Sequence[memoryview]) -> NDArray[Any]:
        """Return the numbers in the ranges of :meth:`list_ranges` by line, entry and item."""
        import numpy as np

        stored = pieces[0]
        if len(pieces) > 1:
            stored = np.concatenate([np.frombuffer(each, np.uint8) for each in pieces]).data
        values: NDArray[Any] = self.dtype.decode_flat(stored, 0, stored.nbytes * 8 // self.dtype.bits)
        return values.reshape(self.lines, -1, self.items)


class Decoder(Protocol):
    """Makes the numbers of rows out of those of the parts."""

    def decode(self, parts: Sequence[NDArray[Any]], first: int, out: NDArray[Any]) -> None:
        """Fill the float32 matrix ``out`` with the rows from ``first`` on.

        ``parts`` has what :meth:`Part.decode` returned for them.
        """
        ...


@dataclass(frozen=True)
class PackedEncoding(Encoding):
    """How the parts of a weight, one after the other, become its numbers. Equal layouts have equal encodings.

    ``shape`` is that of the weight. Rows are decoded alone unless ``whole``. ``weight`` names it in errors.
    """

    name: str
    shape: tuple[int, ...]
    parts: tuple[Part, ...]
    decoder: Decoder
    plain: str
    whole: bool
    weight: str = field(default="", compare=False)

    def __str__(self) -> str:
        return self.name

    @property
    def plain_type(self) -> str:
        return self.plain

    @property
    def rows_at_once(self) -> int:
        """As many rows as make a line of a part some thousands of bytes long, where there are many lines."""
        lined = [part for part in self.parts if part.lines > 1 and part.unit]
        return max((-(-_LINE // part.entry_size) * part.unit for part in lined if part.entry_size), default=1)

    def nbytes(self, shape: Sequence[int]) -> int:
        return sum(part.size for part in self.parts)

    def rows(self, shape: Sequence[int], start: int, stop: int) -> list[tuple[int, int]] | None:
        return None if self.whole else self._list_ranges(start, stop)

    def _list_ranges(self, start: int, stop: int) -> list[tuple[int, int]]:
        ranges, at = [], 0
        for part in self.parts:
            ranges += [(at + low, at + high) for low, high in part.list_ranges(start, stop)]
            at += part.size
        return ranges

    def decode(self, data: memoryview, shape: Sequence[int]) -> NDArray[Any]:
        out = make_floats(self.shape)

        def decode_span(start: int, stop: int) -> None:
            pieces = [data[low:high] for low, high in self._list_ranges(start, stop)]
            self.decode_rows_into(pieces, out[start:stop], start)

        if out.size:
            step, least = (max(1, values // prod(self.shape[1:])) for values in (_PIECE, _LEAST))
            for _ in map_spans(decode_span, self.shape[0], step, least=least):
                pass
        return out

    def decode_rows(self, ranges: Sequence[memoryview], shape: Sequence[int], first: int = 0) -> NDArray[Any]:
        import numpy as np

        out = np.empty(tuple(shape), np.float32)
        self.decode_rows_into(ranges, out, first)
        return out

    def decode_rows_into(self, ranges: Sequence[memoryview], out: NDArray[Any], first: int = 0) -> None:
        if not out.size:
            return
        rows, at, parts = len(out), 0, []
        for part in self.parts:
            count = len(part.list_ranges(first, first + rows))
            parts.append(part.decode(ranges[at : at + count]))
            at += count
        try:
            self.decoder.decode(parts, first, out)
        except ContentError as error:
            raise ContentError(f"tensor {self.weight!r} {error}") from None


@dataclass(frozen=True, slots=True)
class Weight:
    """A weight that was found: its name, and the stored tensors of which it is made, in the order of its parts.

    ``extra`` are tensors that describe them, and ``unused`` those that belong to the weight and say nothing of it.
    """

    name: str
    encoding: PackedEncoding
    tensors: tuple[Tensor, ...]
    extra: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()

    def tensor(self) -> Tensor:
        """The weight as one tensor, whose bytes are those of its parts."""
        payloads = [_payload_of(tensor) for tensor in self.tensors]
        return Tensor(self.name, self.encoding, self.encoding.shape, Joined(payloads))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all stored tensors that belong to it."""
        return (*(tensor.name for tensor in self.tensors), *self.extra, *self.unused)


def _payload_of(tensor: Tensor) -> Any:
    if tensor.payload is None:
        raise ContentError(f"tensor {tensor.name!r} is declared without data, and a weight needs it")
    return tensor.payload
