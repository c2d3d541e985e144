import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdall.binary import kernels
from holdall.binary.kernels import reference
from holdall.binary.layout import F32, F64, I32, I64, U8, U16, U32, U64, Layout, array, blob, elements, raw, text
from holdall.binary.tables import build

FIXED = Layout("fixed", a=U8, b=U16, c=U32, d=U64, e=I32, f=I64, g=F32, h=F64, i=raw(5))
ENTRY = Layout(
    "entry", name=text(U16, pad=4), kind=U8, signed=I32, rank=U8, dims=array(U32, "rank"), size=U16, body=blob("size"),
    tag=raw(3), value=F64,
)  # fmt: skip

integers = {
    "a": st.integers(0, 2**8 - 1),
    "b": st.integers(0, 2**16 - 1),
    "c": st.integers(0, 2**32 - 1),
    "d": st.integers(0, 2**64 - 1),
    "e": st.integers(-(2**31), 2**31 - 1),
    "f": st.integers(-(2**63), 2**63 - 1),
}
records = st.fixed_dictionaries(
    integers
    | {
        "g": st.floats(width=32, allow_nan=False),
        "h": st.floats(allow_nan=False),
        "i": st.binary(min_size=5, max_size=5),
    }
)
entries = st.fixed_dictionaries(
    {
        "name": st.text(st.characters(codec="utf-8"), max_size=9).map(str.encode),
        "kind": st.integers(0, 255),
        "signed": st.integers(-(2**31), 2**31 - 1),
        "dims": st.lists(st.integers(0, 2**32 - 1), max_size=3).map(tuple),
        "body": st.binary(max_size=5),
        "tag": st.binary(min_size=3, max_size=3),
        "value": st.floats(allow_nan=False),
    }
)


def packed(entry):
    return ENTRY.pack(rank=len(entry["dims"]), size=len(entry["body"]), **entry)


@pytest.fixture(params=["native", "reference"])
def engine(request, monkeypatch):
    if request.param == "reference":
        monkeypatch.setattr(kernels, "scan", reference.scan)
    elif not kernels.NATIVE:
        pytest.skip("the C kernels are not compiled")


@given(st.lists(records, max_size=5), st.integers(0, 7))
def test_records_tables_and_scans_agree(rows, shift):
    data = bytes(shift) + b"".join(FIXED.pack(**row) for row in rows)
    table = FIXED.table(data, shift, len(rows))
    scanned = FIXED.scan(data, shift, len(data), len(rows))
    assert (scanned.failed, scanned.end, len(scanned)) == (None, len(data), len(rows))
    for number, row in enumerate(rows):
        at = shift + number * FIXED.size
        record = FIXED.read(data, at)
        assert vars(record) == row
        assert {field.name: field.value for field in FIXED.expand(data, at)} == row
        for name, value in row.items():
            if name == "i":
                assert table[name][number].tobytes() == value
                assert scanned["i@"][number] == at + FIXED.offset_of("i")
            else:
                assert table[name][number] == value
                assert scanned[name][number] == value


@settings(max_examples=60)
@given(st.lists(entries, max_size=6), st.integers(0, 9))
def test_scans_find_what_was_packed(rows, shift):
    data = bytes(shift) + b"".join(map(packed, rows))
    for scan in (kernels.scan, reference.scan):
        kept, kernels.scan = kernels.scan, scan
        try:
            columns = ENTRY.scan(data, shift, len(data), len(rows))
        finally:
            kernels.scan = kept
        assert (columns.failed, columns.end, len(columns)) == (None, len(data), len(rows))
        for number, row in enumerate(rows):
            at = int(columns["name@"][number])
            assert data[at : at + int(columns["name#"][number])] == row["name"]
            assert (columns["kind"][number], columns["signed"][number]) == (row["kind"], row["signed"])
            assert columns["value"][number] == row["value"]
            rank = int(columns["rank"][number])
            assert struct.unpack_from(f"<{rank}I", data, int(columns["dims@"][number])) == row["dims"]
            fields = {field.name: field for field in ENTRY.expand(data, int(columns.starts[number]))}
            assert fields["dims"].value == row["dims"]
            assert fields["name"].value == row["name"]
            last = fields["value"]
            end = columns.starts[number + 1] if number + 1 < len(rows) else len(data)
            assert last.offset + last.size == end


@settings(max_examples=60)
@given(st.lists(entries, min_size=1, max_size=4), st.data())
def test_a_cut_table_keeps_its_whole_entries(rows, draw):
    starts = np.cumsum([0, *(len(packed(row)) for row in rows)])
    data = b"".join(map(packed, rows))
    cut = draw.draw(st.integers(0, len(data) - 1))
    columns = ENTRY.scan(data, 0, cut, len(rows))
    whole = int((starts[1:] <= cut).sum())
    assert len(columns) == whole
    assert columns.failed in ENTRY.fields
    assert columns.whole == starts[whole]
    assert starts[whole] <= columns.end <= cut
    assert columns.starts.tolist() == starts[:whole].tolist()


def test_counts_of_any_size_allocate_nothing(engine):
    for count in (2**32, 2**63, 2**64 - 1, 2**70):
        columns = ENTRY.scan(bytes(100), 0, 100, count)
        assert len(columns) <= 100
        assert columns.failed is not None
        empty = ENTRY.scan(b"", 0, 0, count)
        assert (len(empty), empty.failed, empty.end, empty.whole) == (0, "name", 0, 0)


def test_no_entries(engine):
    columns = ENTRY.scan(b"abc", 1, 3, 0)
    assert (len(columns), columns.failed, columns.end, columns.whole) == (0, None, 1, 1)


def test_elements_in_the_middle(engine):
    inline = Layout("inline", rank=U32, dims=array(U64, "rank"), data=elements("rank", "dims", 4), after=U8)
    one = inline.pack(rank=2, dims=(2, 3), data=bytes(24), after=7)
    columns = inline.scan(one * 2, 0, len(one) * 2, 2)
    assert columns["after"].tolist() == [7, 7]
    assert columns["data@"].tolist() == [20, 20 + len(one)]
    hostile = struct.pack("<IQQ", 2, 2**33, 2**33)
    columns = inline.scan(hostile + bytes(50), 0, len(hostile) + 50, 1)
    assert (columns.failed, columns.end) == ("data", len(hostile))


def test_numbers_and_bytes_that_do_not_fit_are_refused():
    with pytest.raises(struct.error):
        Layout("x", a=U8).pack(a=256)
    with pytest.raises(struct.error):
        Layout("x", name=text(U8)).pack(name=bytes(256))
    for layout in (Layout("x", a=raw(4)), Layout("x", a=raw(4), name=text(U8))):
        for wrong in (b"abc", b"abcde"):
            with pytest.raises(AssertionError):
                layout.pack(a=wrong, name=b"")


def test_places_inside_a_record():
    assert FIXED.size == 1 + 2 + 4 + 8 + 4 + 8 + 4 + 8 + 5
    assert [FIXED.offset_of(name) for name in "abcdefghi"] == [0, 1, 3, 7, 15, 19, 27, 31, 39]
    with pytest.raises(AttributeError):
        FIXED.offset_of("nothing")
    with pytest.raises(AssertionError):
        _ = ENTRY.size


BUILT = Layout("built", name=text(U8, pad=4), kind=U16, rank=U8, dims=array(U32, "rank"))


@given(
    st.lists(
        st.tuples(st.binary(max_size=9), st.integers(0, 65535), st.lists(st.integers(0, 2**32 - 1), max_size=3)),
        max_size=6,
    )
)
def test_tables_built_from_columns_are_those_packed_row_by_row(rows):
    if rows:
        names, kinds, dims = zip(*rows, strict=True)
        expected = b"".join(BUILT.pack(name=n, kind=k, rank=len(d), dims=d) for n, k, d in rows)
        assert build(BUILT, name=names, kind=kinds, rank=[len(d) for d in dims], dims=dims) == expected


@pytest.mark.parametrize(
    "wrong",
    [{"name": [bytes(256)]}, {"kind": [65536]}, {"kind": [-1]}, {"kind": np.array([70000])}, {"dims": [[2**32]]}],
)
def test_tables_are_not_built_from_what_does_not_fit(wrong):
    columns = {"name": [b"a"], "kind": [1], "rank": [1], "dims": [[1]], **wrong}
    with pytest.raises((struct.error, OverflowError, ValueError)):
        build(BUILT, **columns)
