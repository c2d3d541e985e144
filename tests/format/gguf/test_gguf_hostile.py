"""Files that are wrong in one place: each is refused by the rule that it breaks, quickly, by open and by verify."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable

import pytest

import holdall
from holdall.errors import FormatError, LimitError
from holdall.limits import Limits
from tests.format.gguf.build import ARRAY, GOOD, STRING, array, entry, file, info, text, u16, u32

HUGE = 1 << 63


def nested(depth: int) -> bytes:
    return array(ARRAY, 1, b"") * (depth - 1) + array(0, 0, b"")


BAD: dict[str, tuple[str, bytes]] = {
    "short": ("gguf.header.size", GOOD[:20]),
    "magic-only": ("gguf.header.size", b"GGUF"),
    "version-0": ("gguf.header.version", file(version=0)),
    "version-1": ("gguf.header.version_1", file(version=1)),
    "version-4": ("gguf.header.version", file(version=4)),
    "big-endian": ("gguf.header.endian", b"GGUF" + struct.pack(">IQQ", 3, 0, 0)),
    "many-tensors": ("gguf.header.counts", file(n_tensors=1000)),
    "many-entries": ("gguf.header.counts", file(n_kv=1000)),
    "tensors-2^63": ("core.limit", file(n_tensors=HUGE)),
    "entries-2^64": ("core.limit", file(n_kv=(1 << 64) - 1)),
    "entries-end": ("gguf.table.end", file((u32("a", 1),), n_kv=2) + struct.pack("<Q", 20) + bytes(6)),
    "key-length": ("gguf.table.end", file((struct.pack("<QI", 1 << 40, 4) + bytes(8),))),
    "key-length-2^64": ("gguf.table.end", file((struct.pack("<QI", (1 << 64) - 1, 4) + bytes(8),))),
    "key-utf8": ("gguf.key.utf8", file((entry(b"\xff\xfe", 0, b"\0"),))),
    "key-empty": ("gguf.key.empty", file((entry("", 0, b"\0\0\0\0"),))),
    "key-twice": ("gguf.key.duplicate", file((u32("a", 1), u32("a", 1)))),
    "value-type": ("gguf.metadata.type", file((entry("a", 13, bytes(8)),))),
    "value-type-2^32": ("gguf.metadata.type", file((entry("a", (1 << 32) - 1, bytes(8)),))),
    "value-end": ("gguf.table.end", file((entry("a", 12, bytes(4)),))),
    "string-end": ("gguf.table.end", file((entry("a", STRING, struct.pack("<Q", 100) + b"short"),))),
    "string-2^64": ("gguf.table.end", file((entry("a", STRING, b"\xff" * 8),))),
    "string-utf8": ("gguf.metadata.utf8", file((entry("a", STRING, text(b"ab\xc0\x80")),))),
    "string-surrogate": ("gguf.metadata.utf8", file((entry("a", STRING, text(b"\xed\xa0\x80")),))),
    "bool-2": ("gguf.metadata.bool", file((entry("a", 7, b"\2"),))),
    "bools-2": ("gguf.metadata.bool", file((entry("a", ARRAY, array(7, 3, b"\0\1\2")),))),
    "array-type": ("gguf.array.type", file((entry("a", ARRAY, array(99, 1, bytes(8))),))),
    "array-head": ("gguf.table.end", file((entry("abcd", ARRAY, bytes(3)),))),
    "array-2^63-bytes": ("gguf.array.count", file((entry("a", ARRAY, array(0, HUGE, b"")),))),
    "array-2^63-u64": ("gguf.array.count", file((entry("a", ARRAY, array(10, HUGE, bytes(8))),))),
    "array-2^63-strings": ("gguf.array.count", file((entry("a", ARRAY, array(STRING, HUGE, bytes(8))),))),
    "array-2^63-arrays": ("gguf.array.count", file((entry("a", ARRAY, array(ARRAY, HUGE, bytes(12))),))),
    "array-count": ("gguf.array.count", file((entry("a", ARRAY, array(5, 10, bytes(36))),))),
    "array-string-end": ("gguf.table.end", file((entry("a", ARRAY, array(STRING, 2, text("ab") + b"\xff" * 8)),))),
    "strings-utf8": ("gguf.metadata.utf8", file((entry("a", ARRAY, array(STRING, 2, text("a") + text(b"\x80"))),))),
    "array-depth": ("core.limit", file((entry("a", ARRAY, nested(200)),))),
    "array-inner-type": ("gguf.array.type", file((entry("a", ARRAY, array(ARRAY, 1, array(77, 0, b""))),))),
    "array-inner-count": ("gguf.array.count", file((entry("a", ARRAY, array(ARRAY, 1, array(0, HUGE, b""))),))),
    "alignment-type": ("gguf.alignment.type", file((u16("general.alignment", 32),))),
    "alignment-0": ("gguf.alignment.power", file((u32("general.alignment", 0),))),
    "alignment-48": ("gguf.alignment.power", file((u32("general.alignment", 48),))),
    "name-end": ("gguf.table.end", file(infos=(struct.pack("<Q", 500) + bytes(40),))),
    "name-2^64": ("gguf.table.end", file(infos=(b"\xff" * 8 + bytes(40),))),
    "name-utf8": ("gguf.tensor.utf8", file(infos=(info(b"\xff"),), data=bytes(32))),
    "name-twice": ("gguf.tensor.duplicate", file(infos=(info("a"), info("a", offset=32)), data=bytes(64))),
    "rank-5": ("gguf.tensor.rank", file(infos=(info(dims=(1,) * 5),), data=bytes(32))),
    "rank-2^32": ("gguf.tensor.rank", file(infos=(info(n_dims=(1 << 32) - 1),), data=bytes(32))),
    "type-unknown-empty": ("gguf.tensor.place", file(infos=(info(type=200, offset=32),), data=bytes(32))),
    "type-unknown-beyond": ("gguf.tensor.place", file(infos=(info(type=200, offset=64),), data=bytes(32))),
    "type-unknown-dims": ("gguf.tensor.size", file(infos=(info(type=200, dims=(1 << 40,)),), data=bytes(32))),
    "type-removed": ("gguf.tensor.removed", file(infos=(info(type=4),), data=bytes(32))),
    "dims-product": ("gguf.tensor.size", file(infos=(info(dims=(1 << 33, 1 << 33)),), data=bytes(32))),
    "dims-wrap": ("gguf.tensor.size", file(infos=(info(dims=(1 << 32, 1 << 32, 2)),), data=bytes(32))),
    "dims-negative": ("gguf.tensor.dims", file(infos=(info(dims=(0, HUGE)),), data=bytes(32))),
    "block-row": ("gguf.tensor.block", file(infos=(info(dims=(16, 2), type=2),), data=bytes(64))),
    "block-scalar": ("gguf.tensor.block", file(infos=(info(dims=(), type=8),), data=bytes(64))),
    "offset-align": ("gguf.tensor.align", file(infos=(info(offset=8),), data=bytes(64))),
    "offset-outside": ("gguf.tensor.place", file(infos=(info(offset=320),), data=bytes(64))),
    "offset-2^64": ("gguf.tensor.place", file(infos=(info(offset=(1 << 64) - 32),), data=bytes(64))),
    "payload-outside": ("gguf.tensor.place", file(infos=(info(dims=(40, 2)),), data=bytes(64))),
    "data-missing": ("gguf.tensor.place", file(infos=(info(),))),
    "alignment-far": ("gguf.tensor.place", file((u32("general.alignment", 1 << 31),), (info(),), bytes(64))),
    "split-keys": ("gguf.split.keys", file((u16("split.no", 3), u16("split.count", 2)))),
    "split-type": ("gguf.split.keys", file((u16("split.no", 0), entry("split.count", STRING, text("2"))))),
    "split-name": ("gguf.split.name", file((u16("split.no", 0), u16("split.count", 2)))),
}  # fmt: skip

STRICT: dict[str, tuple[str, str, bytes]] = {
    "key-charset": ("gguf.key.charset", "warning", file((u32("Ä b", 1),))),
    "key-length": ("gguf.key.length", "error", file((u32("k" * 70_000, 1),))),
    "nested": ("gguf.array.nested", "warning", file((entry("a", ARRAY, nested(2)),))),
    "alignment-4": ("gguf.alignment.eight", "warning", file((u32("general.alignment", 4),))),
    "name-64": ("gguf.tensor.name", "warning", file(infos=(info("n" * 64),), data=bytes(32))),
    "name-empty": ("gguf.tensor.name", "warning", file(infos=(info(""),), data=bytes(32))),
    "name-nul": ("gguf.tensor.name", "warning", file(infos=(info("a\0b"),), data=bytes(32))),
    "overlap": ("gguf.data.overlap", "error", file(infos=(info("a"), info("b")), data=bytes(64))),
    "order": ("gguf.data.order", "warning", file(infos=(info("a", offset=32), info("b")), data=bytes(64))),
    "end": ("gguf.data.end", "warning", file(infos=(info(dims=(3, 2)),), data=bytes(24))),
    "padding": ("core.unowned", "error", file(infos=(info(),), data=bytes(32) + b"junk")),
}  # fmt: skip


def test_the_good_file_is_good() -> None:
    assert holdall.verify(GOOD, level="strict").findings == []


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused_by_its_rule(name: str) -> None:
    rule, data = BAD[name]
    began = time.process_time()
    with pytest.raises(FormatError) as caught:
        holdall.open(data)
    report = holdall.verify(data, level="structure")
    assert time.process_time() - began < 1
    assert caught.value.rule == rule
    assert "gguf" in caught.value.message
    assert rule in [finding.rule for finding in report.findings], report.findings
    assert isinstance(caught.value, LimitError) == (rule == "core.limit")


@pytest.mark.parametrize("name", STRICT)
def test_what_only_the_strict_level_minds(name: str) -> None:
    rule, severity, data = STRICT[name]
    with holdall.open(data) as model:
        dict(model.metadata)
    assert holdall.verify(data, level="full").findings == []
    found = {finding.rule: finding.severity for finding in holdall.verify(data, level="strict").findings}
    assert found.get(rule) == severity


@pytest.mark.parametrize("tag", [0, 12, STRING, ARRAY])
def test_a_file_of_49_bytes_that_announces_an_endless_array(tag: int) -> None:
    data = file((entry("a", ARRAY, array(tag, HUGE, b"")),))
    assert len(data) == 49
    began = time.process_time()
    with pytest.raises(FormatError) as caught:
        holdall.open(data)
    assert time.process_time() - began < 1
    assert caught.value.rule == "gguf.array.count"


def test_every_breach_of_a_table_is_found_at_once() -> None:
    rows = (info("a", type=200), info("b", dims=(1,) * 5), info("c", type=5))
    found = {finding.rule for finding in holdall.verify(file(infos=rows, data=bytes(96))).findings}
    assert {"gguf.tensor.removed", "gguf.tensor.rank"} <= found


def test_breaches_after_one_at_the_end_of_a_read_are_found_too() -> None:
    name = "n" * ((256 << 10) - 24 - 8 - 4 - 8)  # the first read ends inside the dims
    rows = (info(name, dims=(1,) * 5), info("c", type=5))
    found = {finding.rule for finding in holdall.verify(file(infos=rows, data=bytes(96))).findings}
    assert {"gguf.tensor.removed", "gguf.tensor.rank"} <= found


def test_a_large_vocabulary_that_is_not_utf8_leaves_the_tensors() -> None:
    tokens = text("t") * 5000 + text(b"\xff")
    data = file((entry("tokens", ARRAY, array(STRING, 5001, tokens)),), (info(),), bytes(32))
    with holdall.open(data) as model:
        assert model["w"].shape == (2, 4)
        with pytest.raises(FormatError, match="string 5000 of 5001 is not UTF-8"):
            dict(model.metadata)
    assert [finding.rule for finding in holdall.verify(data, level="structure").findings] == ["gguf.metadata.utf8"]


@pytest.mark.parametrize(
    ("limits", "make"),
    [
        (Limits(tensors=1), lambda: file(infos=(info("a"), info("b", offset=32)), data=bytes(64))),
        (Limits(metadata_entries=1), lambda: file((u32("a", 1), u32("b", 1)))),
        (Limits(name_bytes=10), lambda: file(infos=(info("n" * 11),), data=bytes(32))),
        (Limits(name_bytes=10), lambda: file((u32("k" * 11, 1),))),
        (Limits(nesting=3), lambda: file((entry("a", ARRAY, nested(5)),))),
        (Limits(metadata_bytes=10), lambda: file((entry("a", STRING, text("x" * 11)),))),
        (Limits(index_bytes=1000), lambda: file((entry("a", STRING, text("x" * 2000)),))),
    ],
)
def test_limits_are_kept(limits: Limits, make: Callable[[], bytes]) -> None:
    with pytest.raises(LimitError):
        holdall.open(make(), limits=limits)
