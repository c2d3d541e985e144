"""The records of a protobuf message as rows: what they say, and that C and Python say the same of damaged ones."""

import importlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdall.formats.onnx.wire import BYTES, field, varint
from holdall.kernels.protobuf_reference import END, ROOM, WINDOW, WIRE

SINGLES = bytes((8 << 3 | BYTES, 2 << 3))  # a text, a number
ODD = bytes((13,))


@pytest.fixture(scope="module", params=["protobuf_reference", "_native"])
def records(request):
    return importlib.import_module(f"holdall.kernels.{request.param}").protobuf_records


def read(records, message, *, base=0, stop=None, rows=8, values=8, window=None):
    table, numbers = np.zeros((rows, 9), np.uint64), np.zeros(values, np.uint64)
    stop = base + len(message) if stop is None else stop
    data = message[:window]
    count, used, at, why = records(data, base, base, stop, 5, 1, SINGLES, ODD, table, numbers)
    return table[:count].tolist(), numbers[:used].tolist(), at, why


def test_rows(records):
    first = field(1, 7) + field(1, varint(300) + varint(1)) + field(2, 9) + field(8, b"ab") + field(99, b"skipped")
    message = field(2, b"graph") + field(5, first) + field(5, 1) + field(5, b"")
    start = len(field(2, b"graph"))
    stop = start + 2 + len(first)
    rows, values, at, why = read(records, message, base=100)
    name = 100 + start + 2 + first.index(b"ab")
    assert rows[0] == [100 + start, 102 + start, 100 + stop, 0, 3, name, name + 2, 9, name - 2]
    assert rows[1] == [104 - 2 + stop, 104 + stop, 104 + stop, 0, 0, 0, 0, 0, 0]
    assert (values, at, why) == ([7, 300, 1], 100 + len(message), END)


@pytest.mark.parametrize(
    "record",
    [
        field(2, 1) + field(2, 1),
        field(2, b"x"),
        field(8, 1),
        field(13, b""),
        field(1, 5) + b"\x0f",
        field(1, 5) + b"\x42\x05a",
        b"\x10" + b"\xff" * 10,
        varint(1 << 3 | 5) + bytes(4),
        b"\x02\x00",
    ],
)
def test_odd_records(records, record):
    message = field(5, record) + field(5, field(1, 3))
    rows, values, at, why = read(records, message)
    assert [row[3] for row in rows] == [1, 0]
    assert rows[0][4:] == [0] * 5
    assert (values, at, why) == ([3], len(message), END)


def test_a_walk_stops_where_something_is_missing(records):
    message = field(5, field(1, 1)) + field(5, field(1, 2) + field(8, bytes(40))) + field(5, field(1, 3))
    assert read(records, message, window=1)[1:] == ([], 0, WINDOW)
    assert read(records, message, window=6)[1:] == ([1], 4, WINDOW)
    assert read(records, message, window=10)[1:] == ([1, 2], 50, WINDOW)  # what lies outside is stepped over
    assert read(records, message, rows=1)[1:] == ([1], 4, ROOM)
    assert read(records, message, values=1)[1:] == ([1], 4, ROOM)
    assert read(records, message + b"\x07")[1:] == ([1, 2, 3], len(message), WIRE)
    assert read(records, message, stop=len(message) - 1)[1:] == ([1, 2], 50, WIRE)


def test_what_does_not_fit_at_all_is_odd(records):
    message = field(5, field(8, bytes(40)) + field(1, 1))
    rows, _, at, why = read(records, message, window=20)
    assert (rows[0][3], at, why) == (1, len(message), END)
    rows, _, at, why = read(records, message, values=0)
    assert (rows[0][3], at, why) == (1, len(message), END)


@pytest.mark.parametrize(
    ("at", "stop", "singles", "rows"), [(0, 9, b"\x10", 56), (9, 8, b"\x10", 56), (5, 9, b"\x80", 56), (5, 9, b"", 8)]
)
def test_arguments_are_checked(records, at, stop, singles, rows):
    with pytest.raises(ValueError):
        records(b"", 5, at, stop, 5, 1, singles, b"", bytearray(rows), bytearray(8))


numbers = st.sampled_from([0, 1, 127, 128, 300, 1 << 63, (1 << 64) - 1])
fields = st.builds(field, st.sampled_from([0, 1, 2, 8, 13, 99]), numbers | st.binary(max_size=5)) | st.binary(
    min_size=1, max_size=12
)
messages = st.lists(
    st.builds(field, st.sampled_from([5, 5, 2]), st.lists(fields, max_size=6).map(b"".join)), max_size=5
)


@given(messages.map(b"".join), st.data())
def test_twins_agree_on_damaged_messages(twins, message, data):
    twin = importlib.import_module("holdall.kernels.protobuf_reference")
    damaged = bytearray(message)
    for place in data.draw(st.lists(st.integers(0, max(0, len(message) - 1)), max_size=3)) if message else ():
        damaged[place] = data.draw(st.integers(0, 255))
    options = {
        "base": data.draw(st.sampled_from([0, 1000])),
        "rows": data.draw(st.integers(0, 6)),
        "values": data.draw(st.integers(0, 6)),
        "window": data.draw(st.integers(0, len(message))),
    }
    options["stop"] = options["base"] + data.draw(st.integers(0, len(message) + 3))
    first, second = (read(kernels.protobuf_records, bytes(damaged), **options) for kernels in (twin, twins[1]))
    assert first == second
