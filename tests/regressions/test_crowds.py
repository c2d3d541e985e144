"""Files of very many tensors: those that a writer makes open under the default limits, those that would cost too much
are refused, and a file of up to a megabyte stays within two seconds and 200 MB either way."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

import holdall
from holdall import Limits
from holdall.cli import main
from holdall.errors import LimitError
from holdall.model.dtypes import find_dtype
from holdall.model.table import ColumnTable
from holdall.model.totals import Totals
from holdall.source import BytesSource
from holdall.testing.isolation import cost_of
from tests.attacks.files import aero
from tests.regressions.test_hostile_aero import compressed

MB = 1_000_000
SECONDS, BYTES = 2, 200 * MB
pack = msgspec.msgpack.encode


def plain_entry(number: int, size: int, **changes: Any) -> bytes:
    """An entry as the reference writer makes it: f32, back to back, without the keys that may be absent."""
    entry = {"name": f"layers.{number}.weight", "dtype": 1, "shape": [size // 4], "shard_id": 0}
    return pack({**entry, "data_off": number * size, "data_len": size, **changes})


def crowd(count: int, size: int, *more: tuple[Any, ...], **changes: Any) -> bytes:
    """A file of ``count`` tensors of ``size`` bytes, with a compressed index."""
    head = b"\x81\xa7tensors\xdd" + struct.pack(">I", count)
    index = head + b"".join(plain_entry(number, size, **changes) for number in range(count))
    return aero(shard=np.arange(count * size // 4, dtype="<f4").tobytes(), chunks=[
        compressed(b"TIDX", b"tensors", index), *more])  # fmt: skip


def handle(data: bytes) -> None:
    """Open and verify, whatever comes of it."""
    try:
        with holdall.open(data) as model:
            _ = [*model.tensors.names[:1], *model.metadata.entries]
    except LimitError:
        pass
    holdall.verify(data, level="strict")


@pytest.mark.parametrize("count", [100_000, 150_000])
def test_small_tensors_in_a_small_file_open(count: int) -> None:
    """The index is eleven times as large as the whole file."""
    data = crowd(count, 4)
    with holdall.open(data) as model:
        assert len(model.tensors) == count
        for number in (0, 1, 32_767, 32_768, 65_536, count - 1):  # on both sides of the blocks that are read
            tensor = model.tensors[number]
            assert (tensor.name, tensor.shape) == (f"layers.{number}.weight", (1,))
            assert tensor.numpy().tolist() == [number]
            assert tensor.native.flags == 0
    assert holdall.verify(data).ok


@pytest.mark.parametrize(
    "change",
    [{"dtype": "f32"}, {"shape": [1, -1]}, {"name": ""}, {"data_len": 3}, {"hash_b3": "zz"}, {"shape": [1] * 40}],
)
def test_a_fault_far_inside_is_named_by_its_place(change: dict[str, Any]) -> None:
    """Entries are read in blocks; messages count through."""
    entries = [plain_entry(number, 4) for number in range(70_000)]
    entries[66_000] = pack({**msgspec.msgpack.decode(entries[66_000]), **change})
    index = b"\x81\xa7tensors\xdd" + struct.pack(">I", len(entries)) + b"".join(entries)
    data = aero(shard=bytes(4 * len(entries)), chunks=[compressed(b"TIDX", b"tensors", index)])
    with pytest.raises(holdall.FormatError, match="66000"):
        holdall.open(data)
    report = holdall.verify(data)
    assert "66000" in report.findings[0].message + (report.findings[0].inner or "")


def test_a_name_that_comes_twice_in_two_blocks_is_found() -> None:
    entries = [plain_entry(number, 4) for number in range(70_000)]
    entries[66_000] = plain_entry(5, 4)
    index = b"\x81\xa7tensors\xdd" + struct.pack(">I", len(entries)) + b"".join(entries)
    with pytest.raises(holdall.FormatError, match=r"two tensors are called 'layers.5.weight'.*\$\.tensors\[66000\]"):
        holdall.open(aero(shard=bytes(4 * len(entries)), chunks=[compressed(b"TIDX", b"tensors", index)]))


def document(value: Any) -> tuple[Any, ...]:
    return compressed(b"MMSG", b"manifest", pack(value))


MANY_KEYS = {f"{number:06x}": None for number in range(1_500_000)}
COSTLY = {
    "as many empty tensors as open": lambda: crowd(220_000, 0),
    "a million empty tensors": lambda: crowd(MB, 0),
    "empty tensors of unknown types": lambda: unknown_types(250_000),
    "empty lists": lambda: crowd(1, 4, document({"model": [[]] * 1_400_000})),
    "more empty lists": lambda: crowd(1, 4, document({"model": [[]] * 20_000_000})),
    "keys": lambda: crowd(1, 4, document(MANY_KEYS)),
    "a text": lambda: crowd(1, 4, document({"model": "a" * 30 * MB})),
    "JSON": lambda: crowd(1, 4, compressed(b"MJSN", b"meta.json", b'{"a":[' + b"[]," * 600_000 + b"1]}")),
    "an index and documents": lambda: crowd(
        120_000, 0, document([[]] * 700_000), compressed(b"MJSN", b"meta.json", b'{"a":[' + b"[]," * 300_000 + b"1]}")
    ),
}  # fmt: skip


def unknown_types(count: int) -> bytes:
    entries = b"".join(plain_entry(number, 0, dtype=1000 + number) for number in range(count))
    index = b"\x81\xa7tensors\xdd" + struct.pack(">I", count) + entries
    return aero(shard=b"", chunks=[compressed(b"TIDX", b"tensors", index)])


@pytest.mark.parametrize("name", COSTLY)
def test_a_megabyte_costs_two_seconds_and_200_megabytes_at_most(name: str) -> None:
    data = COSTLY[name]()
    assert len(data) <= MB
    cost = cost_of(lambda: handle(data))
    assert cost.seconds < SECONDS
    assert cost.peak_bytes < BYTES


def test_what_opens_and_what_does_not() -> None:
    with holdall.open(COSTLY["as many empty tensors as open"]()) as model:
        assert len(model.tensors) == 220_000
    with pytest.raises(LimitError, match=r"TIDX: expanded, it would take \d+ bytes.*--limit expanded_bytes="):
        holdall.open(crowd(500_000, 0))
    crowded = crowd(MB, 0)  # 72 times as large when it is expanded
    tight = Limits(expanded_bytes=1 << 30, decompression_ratio=2, decompression_floor=0)
    with holdall.open(crowded, limits=tight) as model:
        assert len(model.tensors) == MB


def test_a_document_is_weighed_by_its_values() -> None:
    """Two megabytes of text are no more than two megabytes; as many empty lists take a hundred."""
    text = compressed(b"MJSN", b"meta.json", b'{"a":"' + b"x" * 9 * MB + b'"}')
    with holdall.open(crowd(1, 4, text)) as model:
        assert len(model.metadata["a"]) == 9 * MB
    lists = compressed(b"MJSN", b"meta.json", b'{"a":[' + b"[]," * 3 * MB + b"1]}")
    with (
        holdall.open(crowd(1, 4, lists)) as model,
        pytest.raises(LimitError, match=r"MJSN, expanded, has \d+ values"),
    ):
        _ = model.metadata["a"]
    assert not holdall.verify(crowd(1, 4, document({"model": [[]] * 20 * MB}))).ok


@pytest.mark.parametrize("count", [300, 50_000])
def test_types_are_added_up_in_one_pass(count: int, tmp_path: Path) -> None:
    path = tmp_path / "types.aero"
    path.write_bytes(unknown_types(count))
    assert path.stat().st_size <= MB
    cost = cost_of(lambda: CliRunner().invoke(main, ["info", str(path)]))
    assert cost.seconds < SECONDS
    shown = CliRunner().invoke(main, ["info", str(path)])
    assert " errors, 1 note; `holdall verify` lists them" in shown.output
    assert f"… and {count - 20:,} more (--json shows all)" in shown.output
    assert len(shown.output.splitlines()) < 60
    with holdall.open(path) as model:
        totals = model.tensors.totals()
    assert len(totals) == count and all(total == Totals(1, 0, 0) for total in totals.values())


def test_sums_of_declared_elements_are_exact() -> None:
    """Numbers of elements beyond 64 bits, of two types in turn."""
    dims = [3, (1 << 62) - 1, (1 << 61) + 5, 1 << 62, (1 << 63) - 1] * 1000
    table = ColumnTable(
        BytesSource(b""), [f"t{row}" for row in range(len(dims))], [find_dtype("f32"), find_dtype("f16")],
        np.arange(len(dims)) % 2, [(dim,) for dim in dims], *np.zeros((2, len(dims)), np.uint64),
    )  # fmt: skip
    found = {name: (total.tensors, total.elements) for name, total in table.totals().items()}
    assert found == {"f32": (2500, sum(dims[::2])), "f16": (2500, sum(dims[1::2]))}
