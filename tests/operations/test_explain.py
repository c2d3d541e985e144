from __future__ import annotations

import struct

import numpy as np
import pytest

import holdall
from holdall.binary.layout import U32, Layout, array, elements, text
from holdall.operations.examine import examine
from holdall.operations.explain import Record, expand, list_records, map_file
from holdall.source import BytesSource
from holdall.source.ledger import Ledger
from tests.golden import golden_files

CANONICAL = golden_files("oinf", "*.oinf")


def spans(ledger, data):
    return [(s.start, s.stop, s.kind) for s in map_file(ledger, BytesSource(data))]


@pytest.mark.parametrize("path", CANONICAL, ids=lambda path: path.stem)
def test_every_byte_of_a_canonical_file_has_an_owner(path):
    with examine(path) as seen:
        assert seen.report.ok
        at = 0
        for span in map_file(seen.ledger, seen.source):
            assert span.kind != "unknown", span
            assert span.kind != "zeros" or path.stem == "hand_v1_section_gaps", span  # made to have gaps
            assert span.start == at, span
            assert not span.shared, span
            at = span.stop
        assert at == seen.source.size


@pytest.mark.parametrize("path", CANONICAL, ids=lambda path: path.stem)
def test_fields_cover_their_records(path):
    data = path.read_bytes()
    with examine(path) as seen:
        for owner in seen.ledger.owners:
            for record in list_records(owner):
                at = record.start
                for field in expand(record, seen.source):
                    assert field.offset == at
                    assert data[at : at + field.size].startswith(field.data)
                    at += field.size
                assert at == record.start + record.size


def test_gaps_are_padding_zeros_or_unknown():
    ledger = Ledger()
    ledger.pad_to = 8
    ledger.region("a", 0, 5)
    ledger.region("b", 8, 8)
    ledger.region("c", 32, 4)
    assert spans(ledger, bytes(5) + bytes(3) + bytes(8) + bytes(16) + bytes(4) + b"\0\1") == [
        (0, 5, "region"),
        (5, 8, "padding"),
        (8, 16, "region"),
        (16, 32, "zeros"),  # longer than any padding
        (32, 36, "region"),
        (36, 38, "unknown"),
    ]


def test_short_zeros_that_end_off_the_alignment_are_no_padding():
    ledger = Ledger()
    ledger.pad_to = 8
    ledger.region("a", 0, 3)
    ledger.region("b", 5, 3)
    assert spans(ledger, bytes(8)) == [(0, 3, "region"), (3, 5, "zeros"), (5, 8, "region")]


def test_a_large_gap_with_one_byte_at_its_end_is_unknown():
    ledger = Ledger()
    ledger.region("a", 0, 1)
    assert spans(ledger, bytes(10_000_000) + b"x")[1:] == [(1, 10_000_001, "unknown")]


def test_a_file_without_owners():
    assert spans(Ledger(), b"abc") == [(0, 3, "unknown")]
    assert spans(Ledger(), b"") == []


def test_ranges_that_overlap_are_marked():
    ledger = Ledger()
    ledger.payloads("t", np.array([0, 4, 20], np.uint64), np.array([10, 4, 0], np.uint64), lambda row: f"t{row}")
    ledger.region("r", 10, 10)
    found = list(map_file(ledger, BytesSource(bytes(20))))
    assert [(s.start, s.stop, s.label, s.shared) for s in found] == [
        (0, 10, "t0", False),
        (4, 8, "t1", True),
        (10, 20, "", False),
    ]


def test_entries_that_touch_are_one_range():
    point = Layout("point", x=U32)
    ledger = Ledger()
    ledger.table(point, 0, 4)
    (span,) = map_file(ledger, BytesSource(bytes(16)))
    assert (span.start, span.stop, span.entries, span.label) == (0, 16, 4, "")


def test_a_payload_inside_an_entry_is_not_read():
    entry = Layout("entry", name=text(U32), rank=U32, dims=array(U32, "rank"), data=elements("rank", "dims", 4))
    size = 1 << 40
    head = struct.pack("<I1sIII", 1, b"w", 2, 1 << 19, 1 << 19)

    class Huge(BytesSource):
        def __init__(self):
            super().__init__(head)
            self.size = len(head) + size

        def read(self, offset, size):
            assert size <= 1 << 20
            return (head + bytes(1 << 20))[offset : offset + size]

    source = Huge()
    ledger = Ledger()
    columns = entry.scan(head, 0, len(head), 0)
    ledger.entries(columns)
    owner = type(ledger.owners[0])("table", "entry", np.array([0], np.uint64),
                                   np.array([source.size], np.uint64), entry, None)  # fmt: skip
    rows = expand(Record(owner, 0), source)
    assert [(row.name, row.value) for row in rows] == [
        ("name", "w"),
        ("rank", 2),
        ("dims", (1 << 19, 1 << 19)),
        ("data", None),
    ]
    assert rows[-1].size == size


def test_text_that_is_not_utf8_is_shown_all_the_same(tmp_path):
    path = tmp_path / "x.oinf"
    holdall.save(path, {"weight": np.zeros(2, np.float32)})
    data = path.read_bytes().replace(b"weight", b"wei\xffht")
    with examine(data) as seen:
        assert not seen.report.ok
        assert next(span.kind for span in map_file(seen.ledger, seen.source)) == "record"


def test_damaged_files_are_explained_as_far_as_the_reader_came(golden):
    for path in sorted((golden("oinf") / "bad").glob("*.oinf")):
        with examine(path, level="strict") as seen:
            at = 0
            for span in map_file(seen.ledger, seen.source):
                assert span.start <= at, path
                at = max(at, span.stop)
            assert at >= seen.source.size, path
            for owner in seen.ledger.owners:
                for record in list_records(owner):
                    expand(record, seen.source)
