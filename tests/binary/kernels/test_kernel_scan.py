import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

INT, RAW, TEXT, ARRAY, BLOB, ELEMENTS, SKIP = range(7)
COLUMNS = {INT: 1, RAW: 1, TEXT: 2, ARRAY: 1, BLOB: 1, ELEMENTS: 1, SKIP: 0}
UNTOUCHED = 0xDEAD


def words(*steps):
    return np.array([(*step, 0, 0, 0, 0)[:5] for step in steps], np.int64).reshape(-1, 5)


def run(kernels, data, count, *steps, start=0, stop=None):
    """The result, and the columns and starts as lists."""
    columns = np.full((sum(COLUMNS[step[0]] for step in steps), count), UNTOUCHED, np.uint64)
    starts = np.full(count, UNTOUCHED, np.uint64)
    result = kernels.scan(data, start, len(data) if stop is None else stop, count, words(*steps), columns, starts)
    return result, columns.tolist(), starts.tolist()


def entry(name, dims):
    return struct.pack(f"<Q{len(name)}sI{len(dims)}Q", len(name), name, len(dims), *dims)


def test_a_table_of_names_and_dims(kernels):
    data = b"head" + entry(b"w1", [3, 4]) + entry(b"", []) + entry(b"bias", [7])
    result, columns, starts = run(kernels, data, 3, (TEXT, 8, 1), (INT, 4), (ARRAY, 8, 2), start=4)
    assert result == (3, -1, len(data))
    assert starts == [4, 34, 46]
    assert columns == [[12, 42, 54], [2, 0, 4], [2, 0, 1], [18, 46, 62]]


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_int_is_unsigned_little_endian(kernels, width):
    assert run(kernels, b"\xfe" + b"\xff" * (width - 1), 1, (INT, width))[1] == [[256**width - 2]]


def test_raw_and_skip(kernels):
    result, columns, _ = run(kernels, bytes(10), 2, (SKIP, 1), (RAW, 3), (SKIP, 1))
    assert result == (2, -1, 10)
    assert columns == [[1, 6]]


@pytest.mark.parametrize(("length", "field"), [(0, 4), (2, 4), (3, 8), (6, 8), (7, 12)])
def test_text_is_padded_from_its_prefix_on(kernels, length, field):
    data = struct.pack("<H", length) + bytes(field - 2)
    assert run(kernels, data, 1, (TEXT, 2, 4))[0] == (1, -1, field)
    assert run(kernels, data[:-1], 1, (TEXT, 2, 4))[0] == (0, 0, 0)


def test_blob_takes_its_length_from_a_column(kernels):
    result, columns, _ = run(kernels, b"\x03abc\x00\x01z", 3, (INT, 1), (BLOB, 0))
    assert result == (3, -1, 7)
    assert columns == [[3, 0, 1], [1, 5, 6]]


def elements(dims, width=8, item=2, payload=b""):
    data = struct.pack(f"<B{len(dims)}{'Q' if width == 8 else 'I'}", len(dims), *dims) + payload
    return data, (INT, 1), (ARRAY, width, 0), (ELEMENTS, 0, 1, width, item)


@pytest.mark.parametrize("width", [4, 8])
def test_elements_are_the_product_of_the_dims(kernels, width):
    data, *steps = elements([2, 3], width, 2, bytes(12))
    result, columns, _ = run(kernels, data, 1, *steps)
    assert result == (1, -1, len(data))
    assert columns[2] == [1 + 2 * width]


def test_elements_of_a_scalar_are_one_item(kernels):
    data, *steps = elements([], payload=bytes(2))
    assert run(kernels, data, 1, *steps)[0] == (1, -1, 3)


@pytest.mark.parametrize("dims", [[2**32, 2**32], [2**63, 2], [2**64 - 1] * 200, [2**62, 2], [13]])
def test_elements_that_overflow_or_do_not_fit_fail_their_step(kernels, dims):
    data, *steps = elements(dims, payload=bytes(25))
    assert run(kernels, data, 1, *steps)[0] == (0, 2, 1 + 8 * len(dims))


@pytest.mark.parametrize("dims", [[2**64 - 1, 2**64 - 1, 0], [0, 2**64 - 1]])
def test_a_zero_dim_makes_elements_empty(kernels, dims):
    data, *steps = elements(dims)
    assert run(kernels, data, 1, *steps)[0] == (1, -1, len(data))


@pytest.mark.parametrize("count", [2**64 - 1, 2**63, 2**61, 2**61 + 1, 2**32, 2])
def test_hostile_counts_fail_their_step(kernels, count):
    data = struct.pack("<Q", count) + bytes(8)
    assert run(kernels, data, 1, (INT, 8), (ARRAY, 8, 0))[0] == (0, 1, 8)
    assert run(kernels, data, 1, (TEXT, 8, 8))[0] == ((0, 0, 0) if count > 8 else (1, -1, 16))
    assert run(kernels, data, 1, (TEXT, 8, 2**62))[0] == (0, 0, 0)
    assert run(kernels, data, 1, (INT, 8), (ARRAY, 2**62, 0))[0] == (0, 1, 8)


def test_a_failing_entry_has_a_start_but_no_row(kernels):
    result, columns, starts = run(kernels, b"\x01\x02\x03", 4, (INT, 1), (INT, 1))
    assert result == (1, 1, 3)
    assert columns == [[1] + [UNTOUCHED] * 3, [2] + [UNTOUCHED] * 3]
    assert starts == [0, 2, UNTOUCHED, UNTOUCHED]


def test_nothing_past_stop_is_read(kernels):
    assert run(kernels, bytes(100), 3, (INT, 4), start=1, stop=8)[0] == (1, 0, 5)


def test_an_empty_program_and_an_empty_table(kernels):
    assert run(kernels, b"abc", 2, start=1) == ((2, -1, 1), [], [1, 1])
    assert run(kernels, b"abc", 0, (INT, 4)) == ((0, -1, 0), [[]], [])


@pytest.mark.parametrize(
    "steps",
    [
        [(7,)],
        [(-1,)],
        [(INT, 3)],
        [(INT, 0)],
        [(RAW, -1)],
        [(SKIP, -1)],
        [(TEXT, 3, 1)],
        [(TEXT, 4, 0)],
        [(TEXT, 4, -8)],
        [(INT, 1), (ARRAY, 0, 0)],
        [(INT, 1), (ARRAY, 4, 1)],  # its own column
        [(INT, 1), (ARRAY, 4, -1)],
        [(INT, 1), (ARRAY, 4, 2**62)],
        [(RAW, 1), (ARRAY, 4, 0)],  # a position is no count
        [(TEXT, 1, 1), (BLOB, 0)],
        [(BLOB, 0)],
        [(INT, 1), (ELEMENTS, 0, 0, 4, 1)],  # dims that are no array
        [(INT, 1), (ARRAY, 4, 0), (ELEMENTS, 0, 1, 8, 1)],  # dims of another width
        [(INT, 1), (INT, 1), (ARRAY, 4, 0), (ELEMENTS, 1, 2, 4, 1)],  # dims of another count
        [(INT, 1), (ARRAY, 2, 0), (ELEMENTS, 0, 1, 2, 1)],
        [(INT, 1), (ARRAY, 4, 0), (ELEMENTS, 0, 1, 4, 0)],
        [(INT, 1)] * 65,
    ],
)
def test_bad_programs_are_refused(kernels, steps):
    with pytest.raises(ValueError, match="program"):
        kernels.scan(bytes(100), 0, 100, 0, words(*steps), bytearray(), bytearray())


def test_the_longest_program(kernels):
    steps = [(TEXT, 1, 1)] * 63 + [(SKIP, 1)]
    assert run(kernels, bytes(64), 1, *steps)[0] == (1, -1, 64)


@pytest.mark.parametrize(
    ("start", "stop", "count", "program", "columns", "starts"),
    [
        (3, 2, 1, 40, 8, 8),
        (0, 11, 1, 40, 8, 8),
        (-1, 10, 1, 40, 8, 8),
        (0, 2**64, 1, 40, 8, 8),
        (0, 10, -1, 40, 8, 8),
        (0, 10, 2**61, 40, 0, 0),
        (0, 10, 2**64, 40, 0, 0),
        (0, 10, 1, 39, 8, 8),
        (0, 10, 1, 40, 7, 8),
        (0, 10, 1, 40, 16, 8),
        (0, 10, 1, 40, 8, 9),
    ],
)
def test_sizes_that_do_not_fit_are_refused(kernels, start, stop, count, program, columns, starts):
    step = words((INT, 1)).tobytes()[:program]
    with pytest.raises(ValueError):
        kernels.scan(bytes(10), start, stop, count, step, bytearray(columns), bytearray(starts))


def test_read_only_columns_are_refused(kernels):
    with pytest.raises(TypeError):
        kernels.scan(bytes(10), 0, 10, 1, words((INT, 1)), bytes(8), bytearray(8))


def test_buffers_at_odd_addresses(kernels):
    columns, starts = bytearray(17), bytearray(9)
    program = memoryview(b"x" + words((INT, 2), (RAW, 1)).tobytes())[1:]
    data = memoryview(b"x\x05\x01\x00")[1:]
    assert kernels.scan(data, 0, 3, 1, program, memoryview(columns)[1:], memoryview(starts)[1:]) == (1, -1, 3)
    assert struct.unpack("<QQ", columns[1:]) == (0x105, 2)


small = st.integers(-1, 9)
steps_like = st.lists(st.tuples(st.integers(0, 6), small, small, st.sampled_from([4, 8]), small), max_size=8)


@settings(max_examples=400)
@given(data=st.binary(max_size=120), steps=steps_like, count=st.integers(0, 6), start=st.integers(0, 20))
def test_twins_agree_on_any_program(twins, data, steps, count, start):
    def outcome(kernels):
        try:
            return run(kernels, data, count, *steps, start=start)
        except ValueError as error:
            return str(error)

    reference, native = map(outcome, twins)
    assert reference == native


valid = [(TEXT, 1, 4), (INT, 1), (ARRAY, 4, 2), (ELEMENTS, 2, 3, 4, 2), (INT, 2), (BLOB, 5), (RAW, 2), (SKIP, 1)]


@settings(max_examples=400)
@given(data=st.lists(st.sampled_from([0, 0, 0, 1, 2, 3, 255]), max_size=200).map(bytes), length=st.integers(1, 8))
def test_twins_agree_on_a_valid_program(twins, data, length):
    reference, native = (run(kernels, data, 8, *valid[:length]) for kernels in twins)
    assert reference == native
