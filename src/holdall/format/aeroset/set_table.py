"""The tensors of a set: described by the global index, with their payloads in the parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from holdall.base.once import computed_once
from holdall.errors import FormatError, HoldallError
from holdall.format.aeroset import rules
from holdall.format.aeroset.part import SetPart, UnreadablePayload
from holdall.model.gather import read_rows
from holdall.model.ranges import Ranges
from holdall.model.table import TensorTable, form_of
from holdall.model.totals import Totals, Work

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdall.format.aero.read import AeroTable
    from holdall.model.forms import Forms
    from holdall.model.payload import Payload
    from holdall.model.tensor import Tensor
    from holdall.source import Source

__all__ = ["SetTable"]

T = TypeVar("T")


class SetTable(TensorTable):
    """The tensors of the global index. The first payload of a part opens it and compares it with the index."""

    def __init__(self, index: AeroTable, parts: Sequence[SetPart]) -> None:
        self.columns = index
        self.names = index.names
        self._parts = parts
        owners = {shard: number for number, part in enumerate(parts) for shard in part.file.shards}
        shards, inverse = np.unique(index.tidx.shards, return_inverse=True)
        self._owners = np.array([owners.get(shard, -1) for shard in shards.tolist()], np.intp)[inverse]
        self._places = np.full(len(index), -1, np.intp)  # the row of each tensor in its part
        self._tables: dict[int, AeroTable | None] = {}  # of the parts whose rows are in _places

    def tensor(self, row: int) -> Tensor:
        tensor = self.columns.tensor(row)
        tensor.payload = self.payload(row)
        return tensor

    def payload(self, row: int) -> Payload | None:
        try:
            return self.find_payload(row)
        except HoldallError as error:
            return UnreadablePayload(int(self.columns.tidx.sizes[row]), error)

    def read(self, rows: NDArray[np.intp]) -> Sequence[bytes | memoryview]:
        return read_rows(self, self._known_ranges, rows)

    @computed_once
    def _known_ranges(self) -> Ranges:
        return self.ranges()

    def find_payload(self, row: int) -> Payload | None:
        """Find the payload of ``row`` in its part; raises FormatError if there is no tensor that matches."""
        number = int(self._owners[row])
        if number < 0:
            message = f"aeroset: tensor {self.names[row]!r}: its shard {self.columns.tidx.shards[row]} is in no part"
            raise FormatError(rules.NO_PART.id, None, message)
        table, place = self._match(number), int(self._places[row])
        if table is None or place < 0:
            self._parts[number].refuse(self.columns, row)
        return table.payload(place)

    def _match(self, number: int) -> AeroTable | None:
        """Compare the part ``number`` with the index, once; raises FormatError if it cannot be read."""
        if number not in self._tables:
            rows, part = (self._owners == number).nonzero()[0], self._parts[number]
            self._places[rows] = part.match(self.columns, rows)
            self._tables[number] = part.table
        return self._tables[number]

    def _match_all(self) -> None:
        """Compare all parts that can be read."""
        for number in np.unique(self._owners[self._owners >= 0]).tolist():
            with suppress(HoldallError):
                self._match(number)

    def find_unreadable(self) -> list[int]:
        """Find the rows whose payloads cannot be read: :meth:`find_payload` raises the reason."""
        self._match_all()
        rows: list[int] = (self._places < 0).nonzero()[0].tolist()
        return rows

    def totals(self) -> dict[str, Totals]:
        return self.columns.totals()

    def work(self) -> Work:
        size = sum(total.nbytes for total in self.totals().values())  # the file of the index itself has none of them
        return Work(size, size)

    def _collect_forms(self) -> Forms:
        from holdall.model.forms import collect_forms

        self._match_all()
        keys = zip(self.columns.forms().codes.tolist(), self._find_absent().tolist(), strict=True)
        return collect_forms(keys, len(self), lambda row: form_of(self.tensor(row)))

    def _find_absent(self) -> NDArray[np.bool_]:
        """Which tensors have no data: their parts describe them without having their shards."""
        absent = np.zeros(len(self), np.bool_)
        for number, table in self._tables.items():
            if table is not None:
                rows = ((self._owners == number) & (self._places >= 0)).nonzero()[0]
                absent[rows] = ~table.present[self._places[rows]]
        return absent

    def ranges(self) -> Ranges:
        self._match_all()
        found = np.where(self._places >= 0, self._owners, -1)
        found[self._find_absent()] = -1
        starts = np.zeros(len(self), np.uint64)
        for number, table in self._tables.items():
            if table is not None:
                rows = (found == number).nonzero()[0]
                starts[rows] = table.offsets[self._places[rows]]
        return Ranges([part.source for part in self._parts], found, starts, self.columns.tidx.sizes)

    def natives(self, kind: type[T]) -> Iterator[tuple[int, T]]:
        return self.columns.natives(kind)

    def find_trained(self) -> NDArray[np.bool_]:
        return self.columns.find_trained()

    def list_computed(self) -> Iterator[Payload]:
        payloads = map(self.payload, self.find_unreadable())
        return (payload for payload in payloads if payload is not None)

    def _find_sources(self) -> Iterator[Source]:
        self._match_all()
        return (self._parts[number].source for number in np.unique(self._owners[self._places >= 0]).tolist())
