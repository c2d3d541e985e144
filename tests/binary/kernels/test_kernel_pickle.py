"""The kernel that finds tensors in pickles: what it finds, and where it stops."""

import collections
import io
import pickle

import numpy as np
import pytest

from holdall.binary.kernels.pickle_tokens import Column, Kind
from holdall.format.torch.encode import Pickler
from holdall.format.torch.pickle_objects import KNOWN

WORDS = (
    b"collections\nOrderedDict\n",
    b"torch._utils\n_rebuild_tensor_v2\n",
    b"torch\nFloatStorage\n",
    b"torch\nIntStorage\n",
)
MOST = 1 << 20


@pytest.fixture
def kernel():
    return pytest.importorskip("holdall.binary.kernels._native", reason="the C kernels are not compiled")


def find(kernel, data, *, most=MOST, memo=64, rows=16, values=64):
    """The result, what is remembered, and the rows; whole dims and strides instead of their places."""
    buffers = np.zeros(memo, np.uint64), np.zeros((rows, len(Column)), np.uint64), np.zeros(values, np.uint64)
    result = kernel.pickle_tensors(data, WORDS, most, *buffers)
    found = []
    for row in buffers[1][: result[1]].tolist():
        at, rank = row[Column.DIMS], row[Column.RANK]
        numbers = buffers[2][at : at + 2 * rank].tolist()
        texts = [
            bytes(data[row[at] : row[at] + row[size]])
            for at, size in ((Column.NAME_AT, Column.NAME_SIZE), (Column.KEY_AT, Column.KEY_SIZE))
        ]
        found.append((*texts, row[Column.STORAGE], row[Column.ELEMENTS], row[Column.FIRST], numbers, row[Column.PLACE]))
    return result, buffers[0][: result[2]].tolist(), found


def written(count, *, shape=(2, 3), strides=(3, 1), dtype="f32", end=b"."):
    """A state dict as holdall writes it."""
    pickler = Pickler()

    def put(number):
        pickler.put_tensor(str(number), dtype, shape, strides, 6)

    pickler.put_container(collections.OrderedDict, ((f"w{number}", number) for number in range(count)), put)
    return b"".join(pickler.finish())[:-1] + end


class _Call:
    """Pickles as a call of a global that need not exist here."""

    def __init__(self, word, *arguments):
        self.word, self.arguments = word, arguments


class _Word:
    def __init__(self, text):
        self.module, self.name = text


class _Pickler(pickle._Pickler):
    """The pickler of the standard library, with torch's globals and storages."""

    def persistent_id(self, value):
        return value.arguments if isinstance(value, _Call) and value.word == "storage" else None

    def save(self, value, save_persistent_id=True):
        if id(value) in self.memo or not isinstance(value, (_Word, _Call)) or getattr(value, "word", "") == "storage":
            return super().save(value, save_persistent_id)
        if isinstance(value, _Word):
            self.write(f"c{value.module}\n{value.name}\n".encode())
        else:
            self.save(value.word)
            self.save(value.arguments)
            self.write(b"R")
        return self.memoize(value)


REBUILD, FLOATS, ORDERED = (
    _Word(pair)
    for pair in (("torch._utils", "_rebuild_tensor_v2"), ("torch", "FloatStorage"), ("collections", "OrderedDict"))
)


def tensor(key, shape, strides, first=0, elements=6):
    storage = _Call("storage", "storage", FLOATS, key, "cpu", elements)
    return _Call(REBUILD, storage, first, shape, strides, False, _Call(ORDERED))


def dumped(value):
    out = io.BytesIO()
    _Pickler(out, 2).dump(value)
    return out.getvalue()


def test_what_holdall_writes(kernel):
    data = written(3)
    result, memo, rows = find(kernel, data)
    assert result[:2] == (1, 3)
    assert data[result[-1] :] == b"."
    assert [value & 7 for value in memo] == [Kind.WORD, Kind.WORD, Kind.TEXT, Kind.WORD, Kind.TEXT]
    assert [row[:-1] for row in rows] == [(b"w%d" % n, b"%d" % n, 2, 6, 0, [2, 3, 3, 1]) for n in range(3)]
    assert all(data[row[-1] : row[-1] + 1] == b"R" for row in rows)


def test_what_the_standard_pickler_writes(kernel):
    shapes = [(), (6,), (2, 3), (1, 2, 3), (1, 1, 2, 3), (0, 70000), (1 << 31, 1 << 40)]
    value = {f"w{n}": tensor(str(n), shape, (*shape[:1], *shape[1:]), first=n) for n, shape in enumerate(shapes)}
    data = dumped(value)
    result, memo, rows = find(kernel, data)
    assert result[:2] == (0, len(shapes))
    assert data[result[-1] :] == b"."
    assert memo[0] & 7 == Kind.ROOT
    assert len(memo) == result[2] > 8 * len(shapes)
    assert [row[5] for row in rows] == [[*shape, *shape] for shape in shapes]
    assert [row[4] for row in rows] == list(range(len(shapes)))


def test_a_tensor_with_two_names_and_a_single_item(kernel):
    one = tensor("7", (6,), (1,))
    _, _, rows = find(kernel, dumped({"a": one, "b": one}))
    assert rows[0][1:] == rows[1][1:]
    assert [row[0] for row in rows] == [b"a", b"b"]
    assert find(kernel, dumped({"only": one}))[0][1] == 1


def test_it_stops_before_the_batch_with_something_else(kernel):
    data = written(3, end=b"(X\x01\0\0\0nK\x05u.")
    result, _, rows = find(kernel, data)
    assert len(rows) == 3
    assert data[result[-1] :] == b"(X\x01\0\0\0nK\x05u."


@pytest.mark.parametrize(
    "room", [{"memo": 4}, {"rows": 2}, {"values": 11}, {"most": 40}], ids=lambda room: next(iter(room))
)
def test_it_stops_where_there_is_no_room(kernel, room):
    data = written(3)
    result, _, rows = find(kernel, data, **room)
    assert not rows
    assert result[-1] < len(data) - 1


def test_nothing_that_it_knows(kernel):
    for data in (
        b"",
        b"\x80",
        b"\x80\x02",
        b"\x80\x02]",
        b"\x80\x02ccollections\nOrderedDict\n)",
        b"\x80\x02cos\nsystem\n",
    ):
        assert find(kernel, data)[0][:2] == (-1, 0)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"FloatStorage", b"FloatStorags"), (b"storage", b"storagf"), (b"cpu", b"c\x80u"), (b"tQ", b"tR"),
        (b"K\x06", b"G\x06"), (b"\x89", b"N"), (b"q\x01", b"q\x07"), (b"tR", b"tb"),
    ],
)  # fmt: skip
def test_anything_else_is_left_to_the_machine(kernel, old, new):
    data = written(1).replace(old, new, 1)
    assert find(kernel, data)[0][1] == 0


def test_negative_sizes_are_left_to_the_machine(kernel):
    for size in (b"J\xff\xff\xff\xff", b"\x8a\x01\x80", b"\x8a\x09" + bytes(9)):
        assert find(kernel, written(1).replace(b"K\x06", size, 1))[0][1] == 0
    assert find(kernel, written(1).replace(b"K\x06", b"\x8a\0", 1))[2][0][3] == 0


def test_wrong_arguments(kernel):
    good = np.zeros(1, np.uint64)
    for words in ((), (b"x",), (b"x",) * 65):
        with pytest.raises(ValueError):
            kernel.pickle_tensors(b"", words, 1, good, np.zeros((0, 10), np.uint64), good)
    with pytest.raises(ValueError):
        kernel.pickle_tensors(b"", WORDS, 1, good, good, good)
    with pytest.raises(ValueError):
        kernel.pickle_tensors(b"", WORDS, -1, good, np.zeros((0, 10), np.uint64), good)
    with pytest.raises(TypeError):
        kernel.pickle_tensors(b"", (*WORDS, "text"), 1, good, np.zeros((0, 10), np.uint64), good)


def test_every_word_is_known_to_the_machine():
    assert all(tuple(word.decode().split()) in KNOWN for word in WORDS)
