"""AERO files and sets, made by hand, that took more than they should: built in code, named for what was wrong."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from blake3 import blake3

import holdall
from holdall import Limits
from holdall.binary.compression import compress
from holdall.errors import FormatError, LimitError
from holdall.format.aero.integrity import digest_control
from holdall.format.aero.layout import HEADER, PAGES
from holdall.format.aeroset import part as set_part
from holdall.format.aeroset import read as set_reader
from holdall.source import BytesSource
from holdall.source.digests import Tap
from holdall.source.range_hashing import digest_ranges
from holdall.testing.isolation import cost_of
from tests.attacks.files import aero, aeroset, member, tidx_entry

MIB = 1 << 20
SECONDS = 2

pack = msgspec.msgpack.encode
NO_TIME = b"\xc7\x0c\xff" + struct.pack(">Iq", 0xFFFFFFFF, 0)  # a timestamp with more nanoseconds than a second has


def compressed(fourcc: bytes, name: bytes, content: bytes) -> tuple[Any, ...]:
    """A chunk for :func:`aero`."""
    return fourcc, name, 1, compress(content), len(content), blake3(content).digest()


def indexed(entries: list[bytes], shard: bytes = bytes(64), *more: tuple[Any, ...]) -> bytes:
    """A file with these entries in a compressed index."""
    count = len(entries)
    head = b"\xdd" + struct.pack(">I", count) if count > 0xFFFF else b"\xdc" + struct.pack(">H", count)
    index = b"\x81\xa7tensors" + head + b"".join(entries)
    return aero(shard=shard, chunks=[compressed(b"TIDX", b"tensors", index), *more])


def rules_of(what: Any, **options: Any) -> set[str]:
    return {finding.rule for finding in holdall.verify(what, level="strict", **options).findings}


# -- values -----------------------------------------------------------------------------------------------------------


def with_value(key: str, value: bytes, **changes: Any) -> bytes:
    """A file whose one entry has one more key, in bytes as they are."""
    entry = pack(tidx_entry(**changes))
    return aero(b"\x81\xa7tensors\x91" + bytes([entry[0] + 1]) + entry[1:] + pack(key) + b"\x81\xa1t" + value)


def test_a_timestamp_of_no_time_in_quant_params_is_refused() -> None:
    """Opening, verifying and explaining raised ValueError."""
    data = with_value("quant_params", NO_TIME, dtype=0x8000)
    with pytest.raises(FormatError, match=r"\$\.tensors\[0\]\.quant_params"):
        holdall.open(data)
    assert "aero.tidx.msgpack" in rules_of(data)


@pytest.mark.parametrize("key", ["quant_params", "extra"])
def test_a_timestamp_of_no_time_that_is_decoded_late_is_a_finding(key: str) -> None:
    """The file opened and was called fine, and listing it raised ValueError."""
    data = with_value(key, NO_TIME)
    with holdall.open(data) as model, pytest.raises(FormatError, match="timestamp"):
        _ = model["w"].native
    assert "aero.tidx.msgpack" in rules_of(data)


# -- the index --------------------------------------------------------------------------------------------------------


def test_a_compressed_index_is_in_proportion_to_its_file() -> None:
    """Six kilobytes of the same entry became a table of 297 MB before the names were looked at."""
    data = indexed([pack(tidx_entry())] * 800_000)
    cost = cost_of(lambda: holdall.verify(data, level="strict"))
    with pytest.raises(LimitError, match="TIDX: expanded"):
        holdall.open(data)
    assert cost.peak_bytes < 20 * MIB


def test_the_index_of_a_set_is_in_proportion_to_the_set(tmp_path: Path) -> None:
    """It has no weights beside it, and compresses to a hundredth."""
    weights = {f"model.layers.{n}.weight": np.zeros(0, np.float32) for n in range(4999)}
    weights["model.head"] = np.zeros(100_000, np.float32)
    holdall.save(tmp_path / "m.aeroset", weights, format="aeroset")
    tight = Limits(expanded_bytes=2000)
    with holdall.open(tmp_path / "m.aeroset", limits=tight) as model:
        assert len(model.tensors) == 5000
    with pytest.raises(LimitError, match="TIDX: expanded"):
        holdall.open(tmp_path / "m.aeroset" / "index.aero", limits=tight)
    (tmp_path / "m.aeroset" / "part-000.aero").unlink()  # its size is no longer true
    with pytest.raises(LimitError, match="TIDX: expanded"):
        holdall.open(tmp_path / "m.aeroset", limits=tight)


def test_the_parts_of_a_set_share_what_their_indexes_may_become(tmp_path: Path) -> None:
    """Each of a hundred small parts could have become what one file may."""
    part = indexed([pack(tidx_entry(name=f"{n:05}")) for n in range(2500)])
    for number in range(4):
        (tmp_path / f"{number}.aero").write_bytes(part)
    aeroset(tmp_path, part, *(member(f"{number}.aero", part, shards=[number]) for number in range(4)))
    limits = Limits(expanded_bytes=50_000)  # two of the four indexes
    assert "core.limit" in rules_of(tmp_path, limits=limits)
    with pytest.raises(LimitError, match="TIDX: expanded"):
        holdall.open(tmp_path, limits=limits)


def test_a_value_in_a_compressed_index_is_a_document() -> None:
    """Bytes become objects of 64, here as in MMSG."""
    data = indexed([pack(tidx_entry(more=[[]] * 5000))])
    assert "core.limit" in rules_of(data, limits=Limits(expanded_bytes=500_000))
    assert "core.limit" not in rules_of(data)


def test_sixty_thousand_types_take_one_pass() -> None:
    """There was one over all tensors for each type."""
    data = indexed([pack(tidx_entry(name=f"{n:05}", dtype=100_000 + n)) for n in range(60_000)])
    assert cost_of(lambda: holdall.open(data).close()).seconds < SECONDS


def test_overlapping_tensors_that_are_kept_are_described() -> None:
    """Messages were made for all of them."""
    data = indexed([pack(tidx_entry(name=f"{n:05}")) for n in range(80_000)])
    report = holdall.verify(data, level="strict")
    assert report.suppressed["aero.tidx.overlap"] == 79_999 - 100
    assert cost_of(lambda: holdall.verify(data, level="strict")).seconds < SECONDS


# -- hashes -----------------------------------------------------------------------------------------------------------


def with_control(chunks: int, digest: bytes, step: int) -> bytes:
    """A file of empty chunks whose IHSH covers the control region in ranges of ``step`` bytes."""
    more = [(b"XTRA", b"%x" % number, 0, b"") for number in range(chunks)]
    header = HEADER.read(aero(chunks=[*more, (b"IHSH", b"control", 0, b"")]), 0)
    end = header.string_table_offset + header.string_table_length
    ranges = [[at, min(end, at + step)] for at in range(0, end, step)]
    document = pack({"algo": "blake3-256", "covered_ranges": ranges, "digest": digest})
    return aero(chunks=[*more, (b"IHSH", b"control", 0, document)])


def test_control_ranges_do_not_look_at_every_chunk() -> None:
    """Ranges of one byte times chunks: 15 seconds in a file of 747 kB."""
    data = with_control(600, bytes(32), 1)
    cost = cost_of(lambda: holdall.verify(data, level="strict"))
    assert "aero.ihsh" in rules_of(data)
    assert cost.seconds < SECONDS


@pytest.mark.parametrize("step", [1, 7, 33, 81, 10_000])
def test_control_ranges_of_any_size_have_the_same_digest(step: int) -> None:
    """Hash fields are zeros wherever a range begins or ends in one."""
    rough = with_control(3, bytes(32), step)
    message = next(f.message for f in holdall.verify(rough).findings if f.rule == "aero.ihsh")
    digest = bytes.fromhex(message.split("BLAKE3 is ")[1][:64])
    header = HEADER.read(rough, 0)
    assert digest_control(rough[: header.string_table_offset + header.string_table_length], 6) == digest


def test_control_ranges_that_cover_a_chunk_are_refused() -> None:
    """By any range; the chunks are in the order of their bytes, the ranges in any."""
    header = HEADER.read(aero(tidx_entry(), chunks=[(b"IHSH", b"control", 0, b"")]), 0)
    end = header.string_table_offset + header.string_table_length
    inside = -(-end // 16) * 16 + 10
    ranges = [[inside, inside + 1], [0, end]]
    document = pack({"algo": "blake3-256", "covered_ranges": ranges, "digest": bytes(32)})
    findings = holdall.verify(aero(tidx_entry(), chunks=[(b"IHSH", b"control", 0, document)])).findings
    found = next(f.message for f in findings if f.rule == "aero.ihsh")
    assert found.endswith(f"{inside}..{inside + 1} covers bytes of chunk 0 TIDX 'tensors'")


def test_chunks_of_unknown_kinds_share_what_they_may_grow_to() -> None:
    """450 chunks of two kilobytes grew to 64 MiB each, one after the other."""
    chunks = [compressed(b"XTRA", b"%d" % number, bytes(600_000)) for number in range(3)]
    data = aero(tidx_entry(), chunks=chunks)
    assert "core.limit" in rules_of(data, limits=Limits(decompression_floor=MIB))
    assert "core.limit" not in rules_of(data)


def test_tensors_of_the_same_bytes_are_hashed_once() -> None:
    """40,000 hashed tensors over 450 kB took four seconds."""
    shard = bytes(400_000)
    digest = blake3(shard).hexdigest()
    entry = {"dtype": 5, "shape": [400_000], "data_len": 400_000, "hash_b3": digest}
    data = indexed([pack(tidx_entry(name=f"{n:05}", **entry)) for n in range(20_000)], shard)
    limits = Limits(decompression_ratio=1 << 20)  # without it, 8 GB of 450 kB are not even opened
    cost = cost_of(lambda: holdall.verify(data, level="full", limits=limits))
    assert holdall.verify(data, level="full", limits=limits).ok
    assert cost.seconds < SECONDS


def test_hashed_tensors_may_share_bytes_only_so_often() -> None:
    """The same with ranges that all differ."""
    entry = {"dtype": 5, "shape": [400_000], "data_len": 400_000, "hash_b3": "ab" * 32}
    entries = [pack(tidx_entry(name=f"{n:05}", data_off=n, **entry)) for n in range(10_000)]
    data = indexed(entries, bytes(410_000))
    limits = Limits(decompression_ratio=1 << 20)
    cost = cost_of(lambda: holdall.verify(data, level="full", limits=limits))
    assert "core.limit" in rules_of(data, limits=limits)
    assert cost.seconds < SECONDS


def test_a_hash_takes_memory_only_while_its_bytes_pass() -> None:
    """Two kilobytes for each tensor were there from the beginning to the end."""
    source = BytesSource(bytes(MIB))
    taps = [Tap(f"{at}", "blake3", at, at + 10) for at in range(0, 500_000, 10)]
    assert cost_of(lambda: digest_ranges(source, taps)).peak_bytes < 60 * MIB


def test_damaged_pages_name_few_of_the_tensors_in_them() -> None:
    """A list of all of them was made for each page."""
    pages = 10_000
    entries = [pack(tidx_entry(name=f"{n:05}", dtype=5, shape=[pages], data_len=pages)) for n in range(40_000)]
    document = pack({"shard_name": "weights.shard0", "page_size": 1, "digests": [bytes(32)] * pages})
    data = indexed(entries, bytes(pages), (b"PHSH", f"weights.shard0{PAGES}".encode(), 0, document))
    cost = cost_of(lambda: holdall.verify(data, level="full"))
    found = next(f.message for f in holdall.verify(data).findings if f.rule == "aero.page.blake3")
    assert found.endswith("'00007' and 39992 more tensors")
    assert cost.seconds < SECONDS


# -- sets -------------------------------------------------------------------------------------------------------------


def test_a_bad_part_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was read again for every tensor that the index says is in it."""
    entries = [tidx_entry(name=f"{n:03}") for n in range(50)]
    part, index = b"AERO" + bytes(200), aero(*entries)
    (tmp_path / "g.aero").write_bytes(index)
    aeroset(tmp_path, part, global_tidx=member("g.aero", index))
    reads = []
    read = set_reader.read_aero
    for module in (set_reader, set_part):
        monkeypatch.setattr(module, "read_aero", lambda *a, **k: reads.append(1) or read(*a, **k))
    report = holdall.verify(tmp_path, level="full")
    assert not report.ok
    assert len(reads) == 3  # the index, the part while verifying, the part for the first tensor


def test_shards_are_found_without_going_through_all_of_them(tmp_path: Path) -> None:
    """The place of a shard among those of its part was looked for anew for every tensor."""
    count = 50_000
    entries = [tidx_entry(name=f"{n:04}", shard_id=count - 1) for n in range(3000)]
    part, index = aero(*entries), aero(*entries)
    (tmp_path / "g.aero").write_bytes(index)
    shards = member("part-000.aero", part, shards=list(range(count)))
    aeroset(tmp_path, part, shards, global_tidx=member("g.aero", index))
    assert cost_of(lambda: holdall.verify(tmp_path, level="strict")).seconds < SECONDS


def test_shard_numbers_are_below_two_to_the_32(tmp_path: Path) -> None:
    """25,000 multiples of 2^61-1, which all have the hash 0, took 7.5 seconds."""
    part = aero(tidx_entry())
    numbers = [number * ((1 << 61) - 1) for number in range(8000)]
    aeroset(tmp_path, part, member("part-000.aero", part, shards=numbers))
    cost = cost_of(lambda: holdall.verify(tmp_path))
    with pytest.raises(FormatError, match="not a list of numbers from 0 to 4294967295"):
        holdall.open(tmp_path)
    assert cost.seconds < SECONDS / 4


def test_many_tiny_parts_are_refused(tmp_path: Path) -> None:
    """A millisecond each; here 640 files stand for 65,536."""
    part = aero(tidx_entry())
    for number in range(20):
        (tmp_path / f"{number}.aero").write_bytes(part)
    aeroset(tmp_path, part, *(member(f"{number}.aero", part, shards=[number]) for number in range(20)))
    with pytest.raises(LimitError, match="more than 10 must have 1024 each on average"):
        holdall.open(tmp_path, limits=Limits(sections=640))
    holdall.open(tmp_path).close()
