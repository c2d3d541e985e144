"""Small payloads that are read together are the same bytes as those that are read alone, with fewer reads."""

from __future__ import annotations

import random

from holdall.model.gather import read_together
from holdall.model.payload import Computed, InMemory, Payload, SourceRange
from holdall.source import BytesSource

DATA = random.Random(0).randbytes(6_000_000)


class Counting(BytesSource):
    """Counts reads."""

    reads = 0

    def read_into(self, offset: int, buffer: memoryview) -> None:
        self.reads += 1
        super().read_into(offset, buffer)


def test_ranges_in_any_order_that_overlap_and_are_empty() -> None:
    chance, source = random.Random(1), Counting(DATA)
    ranges = [(chance.randrange(len(DATA) - 70_000), chance.choice((0, 1, 64, 70_000))) for _ in range(300)]
    payloads: list[Payload] = [SourceRange(source, at, size) for at, size in ranges]
    payloads += [InMemory(b"held"), Computed(4, lambda: [b"ma", b"de"])]
    found = list(map(bytes, read_together(payloads)))
    assert found == [DATA[at : at + size] for at, size in ranges] + [b"held", b"made"]


def test_neighbours_are_one_read_up_to_a_megabyte() -> None:
    source = Counting(DATA)
    payloads = [SourceRange(source, at, 100) for at in range(0, 2_000_000, 1000)]
    assert [bytes(piece) for piece in read_together(payloads)] == [
        DATA[at : at + 100] for at in range(0, 2_000_000, 1000)
    ]
    assert source.reads <= 3
    far = Counting(DATA)
    read_together([SourceRange(far, 0, 10), SourceRange(far, 5_000_000, 10)])
    assert far.reads == 2


def test_nothing_is_read_of_nothing() -> None:
    assert read_together([]) == []
