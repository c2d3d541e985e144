from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdall.binary.layout import U8, U32, Layout, text
from holdall.source import BytesSource
from holdall.source.ledger import Ledger

POINT = Layout("point", x=U32, y=U32)
NAMED = Layout("named", name=text(U8))


def test_nothing_owned_and_nothing_there():
    assert list(Ledger().gaps(0)) == []
    assert list(Ledger().gaps(10)) == [(0, 10)]


def test_records_tables_regions_payloads():
    ledger = Ledger()
    ledger.record(POINT, 0)
    ledger.table(POINT, 16, 3)
    ledger.table(POINT, 5, 0)
    ledger.region("text", 44, 6)
    ledger.region("nothing", 90, 0)
    ledger.payloads("data", np.array([60, 0], np.uint64), np.array([4, 0], np.uint64), ["a", "b"].__getitem__)
    assert list(ledger.gaps(70)) == [(8, 16), (40, 44), (50, 60), (64, 70)]
    assert [(owner.kind, len(owner)) for owner in ledger.owners][:2] == [("record", 1), ("table", 3)]


def test_scanned_entries_whole_and_cut():
    data = b"\x01a\x03bcd\x05ef"
    ledger = Ledger()
    ledger.entries(NAMED.scan(data, 0, len(data), 2), str)
    assert ledger.owners[0].sizes.tolist() == [2, 4]
    cut = Ledger()
    columns = NAMED.scan(data, 0, len(data), 3)
    assert columns.failed == "name"
    cut.entries(columns)
    assert list(cut.gaps(len(data))) == [(6, 9)]
    none = Ledger()
    none.entries(NAMED.scan(b"", 0, 0, 0))
    assert list(none.gaps(3)) == [(0, 3)]


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)), max_size=8),
    st.integers(0, 50),
)
def test_gaps_are_the_bytes_without_an_owner(ranges, size):
    ledger = Ledger()
    for start, length in ranges:
        ledger.region("r", start, length)
    owned = {byte for start, length in ranges for byte in range(start, start + length)}
    gaps = list(ledger.gaps(size))
    assert [byte for start, stop in gaps for byte in range(start, stop)] == [n for n in range(size) if n not in owned]
    assert all(stop < start for (_, stop), (start, _) in pairwise(gaps))


@pytest.mark.parametrize("start", [2**64 - 1, 2**64 - 8, 2**63, 100])
def test_claims_beyond_the_end_do_not_wrap(start):
    ledger = Ledger()
    ledger.region("hostile", start, 2**64 - 1)
    ledger.region("fine", 2, 2**64 - 1)
    assert list(ledger.gaps(10)) == [(0, 2)]


def test_members_have_ledgers_of_their_own():
    ledger = Ledger()
    source = BytesSource(b"abc")
    ledger.member(source).region("all", 0, 3)
    assert list(ledger.gaps(1)) == [(0, 1)]
    assert [(s, list(part.gaps(s.size))) for s, part in ledger.members] == [(source, [])]


def test_a_hundred_thousand_entries_are_one_owner():
    ledger = Ledger()
    starts = np.arange(0, 8 * 10**5, 8, dtype=np.uint64)
    ledger.payloads("data", starts[::-1], np.full(10**5, 7, np.uint64))
    gaps = list(ledger.gaps(8 * 10**5))
    assert len(ledger.owners) == 1
    assert len(gaps) == 10**5
    assert gaps[0] == (7, 8)
