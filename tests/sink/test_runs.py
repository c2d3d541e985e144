"""Runs of many tiny payloads are read together, and give the bytes that each payload alone has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from holdall.model.dtypes import find_dtype
from holdall.model.payload import Computed, InMemory, Payload, SourceRange
from holdall.model.table import ListTable
from holdall.model.tensor import Tensor
from holdall.sink import write_file
from holdall.sink.plan import Plan
from holdall.source import BytesSource, Source

DATA = np.random.default_rng(1).bytes(1 << 20)
SIZES = [0, 1, 7, 64, 4096, 4097, 5000, 3, 3, 300_000, 2] + [size % 90 for size in range(3000)]


class CountedSource(BytesSource):
    """Counts the reads."""

    reads = 0

    def read_into(self, offset: int, buffer: memoryview) -> None:
        self.reads += 1
        super().read_into(offset, buffer)


class RemoteSource(CountedSource):
    """Says that its bytes come over a network, and remembers what it was asked for."""

    is_remote = True


def payloads(source: Source) -> list[Payload | None]:
    """Ranges, bytes in memory, computed bytes and tensors without data, in turn."""
    found: list[Payload | None] = []
    for number, size in enumerate(SIZES):
        data = DATA[number : number + size]
        kinds = [SourceRange(source, number, size), InMemory(data), Computed(size, lambda data=data: [data]), None]
        found.append(kinds[0] if number % 10 else kinds[number // 10 % 4])
    return found


def write(path: Path, given: list[Payload | None], align: int) -> bytes:
    sizes = [0 if payload is None else payload.size for payload in given]
    table = ListTable(
        Tensor(f"t{row}", find_dtype("u8"), (size,), payload)
        for row, (size, payload) in enumerate(zip(sizes, given, strict=True))
    )
    padded = [size + -size % align for size in sizes]
    starts = 8 + np.cumsum([0, *padded[:-1]])
    plan = Plan()
    plan.put(b"12345678")
    plan.run(table, np.arange(len(given)), starts.astype(np.uint64))
    plan.put(b"end")
    write_file(path, plan, fsync=False)
    return path.read_bytes()


@pytest.mark.parametrize("align", [1, 8, 4096])
@pytest.mark.parametrize("kind", [CountedSource, RemoteSource])
def test_tiny_payloads_are_written_as_each_alone(tmp_path: Path, kind: type[CountedSource], align: int) -> None:
    given = payloads(kind(DATA))
    expected = bytearray(b"12345678")
    for payload in given:
        expected += bytes(-(len(expected) - 8) % align)
        expected += b"" if payload is None else payload.read()
    assert write(tmp_path / "out", given, align) == expected + b"end"


def test_tiny_payloads_are_read_together(tmp_path: Path) -> None:
    source = CountedSource(DATA)
    given: list[Payload | None] = [SourceRange(source, 100 * row, 50) for row in range(5000)]
    assert write(tmp_path / "out", given, 1) == b"12345678%bend" % b"".join(
        DATA[100 * row : 100 * row + 50] for row in range(5000)
    )
    assert source.reads <= 5000 // 100
