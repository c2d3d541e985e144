"""The records of a protobuf message as rows: what they say, and that the careful reader says the same of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdall
from holdall.base.check import Check
from holdall.binary import kernels
from holdall.binary.kernels.protobuf_tokens import DEEP, END, FIRST, FRAME, LEVEL, RECORD, ROOM, WINDOW, WIRE
from holdall.errors import FormatError
from holdall.format.onnx.wire import BYTES, VARINT, Walker, field, varint
from holdall.source import BytesSource

SINGLES = bytes((8 << 3 | BYTES, 2 << 3))  # a text, a number
ODD = bytes((13,))
FLAT = bytes((0, 5, RECORD))
NESTED = FLAT + bytes((0, 1, 1, 1, 5, 0, 1, 6, RECORD))  # in kind 0 messages of kind 1, and back again in field 5


@pytest.fixture(scope="module")
def records():
    native = pytest.importorskip("holdall.binary.kernels._native", reason="the C kernels are not compiled")
    return native.protobuf_records


def make_stack(start, stop, levels=4):
    stack = np.zeros(2 + LEVEL * levels, np.uint64)
    stack[:9] = 1, 1, start, start, stop, 0, 0, 0, 1
    return stack


def read(records, message, *, base=0, stop=None, rows=8, values=8, window=None):
    """The rows of a flat message, without the columns that say in which message they are."""
    table, numbers = np.zeros((rows, FIRST + 4), np.uint64), np.zeros(values, np.uint64)
    stack = make_stack(base, base + len(message) if stop is None else stop)
    frames = np.zeros((0, FRAME), np.uint64)
    data = message[:window]
    count, framed, used, at, why = records(data, base, base, FLAT, 1, SINGLES, ODD, stack, frames, table, numbers)
    found = table[:count].tolist()
    assert [row[3:6] for row in found] == [[0, 5, number] for number in range(count)]
    assert framed == 0
    return [row[:3] + row[6:] for row in found], numbers[:used].tolist(), at, why


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
    "wrong",
    [
        {"at": 0},
        {"singles": b"\x80"},
        {"rows": bytearray(8)},
        {"frames": bytearray(8)},
        {"stack": bytearray(8)},
        {"stack": bytearray(24)},
        {"stack": bytearray(b"\2" + bytes(7 + 8 + 8 * LEVEL))},
        {"grammar": b"\0\1"},
        {"grammar": b"\0\1\2" * 9},
    ],
)
def test_arguments_are_checked(records, wrong):
    sound = {"data": b"", "base": 5, "at": 5, "grammar": FLAT, "repeated": 1, "singles": b"\x10", "odd": b"",
             "stack": make_stack(5, 9), "frames": bytearray(8 * FRAME), "rows": bytearray(8 * (FIRST + 2)),
             "values": bytearray(8)}  # fmt: skip
    assert records(*sound.values()) == (0, 0, 0, 5, WINDOW)
    with pytest.raises(ValueError):
        records(*(sound | wrong).values())


def test_records_inside_of_messages(records):
    inner = field(5, field(5, field(2, 7)))  # a message of kind 1, in it one of kind 0, in it a record
    message = field(1, b"") + field(5, field(2, 1)) + field(1, inner + field(6, field(2, 2))) + field(1, field(6, b""))
    for window in range(1, len(message) + 1):
        rows, frames = walk_in_windows(records, message, window)
        assert [row[3:6] for row in rows] == [[0, 5, 0], [2, 5, 0], [1, 6, 0], [3, 6, 0]]
        assert [frame[3:] for frame in frames] == [[0, 1, 1], [1, 5, 0], [0, 1, 2]]  # the empty first one has none
        places = [(row[1], row[2]) for row in rows]
        assert [message[start:stop] for start, stop in places] == [field(2, 1), field(2, 7), field(2, 2), b""]
        assert [message[frame[0] : frame[2]] for frame in frames][1] == inner
    stack, table = make_stack(0, len(message), levels=2), np.zeros((8, FIRST + 4), np.uint64)
    frames, values = np.zeros((8, FRAME), np.uint64), np.zeros(8, np.uint64)
    assert records(message, 0, 0, NESTED, 1, SINGLES, ODD, stack, frames, table, values)[4] == DEEP


def walk_in_windows(records, message, size):
    """All rows and frames of a message, of which ``size`` bytes are seen at a time."""
    stack, at, rows, frames = make_stack(0, len(message)), 0, [], []
    while stack[0]:
        table, around = np.zeros((2, FIRST + 4), np.uint64), np.zeros((4, FRAME), np.uint64)
        data = message[at : at + max(size, 2)]
        count, framed, _, at, why = records(
            data, at, at, NESTED, 1, SINGLES, ODD, stack, around, table, np.zeros(8, np.uint64)
        )
        rows += table[:count].tolist()
        frames += around[:framed].tolist()
        assert why in (END, WINDOW, ROOM)
    return rows, frames


numbers = st.sampled_from([0, 1, 127, 128, 300, 1 << 63, (1 << 64) - 1])
fields = st.builds(field, st.sampled_from([0, 1, 2, 8, 13, 99]), numbers | st.binary(max_size=5)) | st.binary(
    min_size=1, max_size=12
)
messages = st.lists(
    st.builds(field, st.sampled_from([5, 5, 2]), st.lists(fields, max_size=6).map(b"".join)), max_size=5
)


@given(messages.map(b"".join), st.data())
def test_rows_are_what_the_careful_reader_finds(records, message, data):
    damaged = bytearray(message)
    for place in data.draw(st.lists(st.integers(0, max(0, len(message) - 1)), max_size=3)) if message else ():
        damaged[place] = data.draw(st.integers(0, 255))
    rows, values, at, why = read(records, bytes(damaged), values=64)
    walker = Walker(BytesSource(bytes(damaged)), Check())
    places, begun = [], 0
    try:
        for number, kind, start, stop in walker.fields(0, len(damaged)):
            places += [[begun, start, stop]] if number == 5 and kind == BYTES else []
            begun = stop
        assert (at, why) == (len(damaged), END)
    except FormatError:
        assert (at, why) == (begun, WIRE)
    assert [row[:3] for row in rows] == places
    for _, start, stop, odd, count, *singles in rows:
        expected = look_at(walker, start, stop)
        assert (expected is None) == odd
        if expected is not None:
            assert (values[:count], singles) == expected
            values = values[count:]


def look_at(walker, start, stop):
    """The values and the single fields of one record by the careful reader; None where the record is odd."""
    numbers, singles = [], {8: [0, 0], 2: [0, 0]}
    try:
        for number, kind, first, last in walker.fields(start, stop):
            if number == 1 and kind == BYTES:
                while first < last:
                    value, first = walker.varint(first, last)
                    numbers.append(value)
            elif number == 1 and kind == VARINT:
                numbers.append(first)
            elif number in (1, *ODD):
                return None
            elif number in singles:
                if singles[number][1] or kind != (BYTES if number == 8 else VARINT):
                    return None
                singles[number] = [first, last]
    except FormatError:
        return None
    return numbers, [*singles[8], *singles[2]]


def judge(data):
    try:
        with holdall.open(data, format="onnx") as model:
            return [(t.name, str(t.dtype), t.shape, t.offset, bytes(t.raw())) for t in model.tensors]
    except holdall.FormatError:
        return "refused"


@settings(deadline=None)
@given(st.data())
def test_files_are_judged_alike_without_the_kernel(records, data):
    tensors = [
        field(1, 2) + field(1, 3) + field(2, 1) + field(8, b"w%d" % number) + field(9, bytes(24)) for number in range(3)
    ]
    tensors.append(field(2, 1) + field(4, bytes(4)) + field(8, b"one") + field(1, 1))
    graph = field(2, b"graph") + b"".join(field(5, tensor) for tensor in tensors)
    constant = field(1, field(5, field(1, b"value") + field(5, tensors[0])))
    branch = field(1, field(5, field(1, b"body") + field(6, graph + constant)))
    sparse = field(15, field(1, tensors[1]) + field(2, tensors[2]) + field(3, 9))
    function = field(25, field(7, field(5, field(10, tensors[0]) + field(10, tensors[3]))))
    file = bytearray(field(1, 8) + field(7, constant + branch + graph + sparse) + function)
    assert len(judge(bytes(file))) == 14
    for _ in range(data.draw(st.integers(0, 3))):
        file[data.draw(st.integers(0, len(file) - 1))] = data.draw(st.integers(0, 255))
    found = judge(bytes(file))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "NATIVE", False)
        assert judge(bytes(file)) == found
