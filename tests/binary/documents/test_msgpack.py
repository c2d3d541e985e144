"""Strict MessagePack: both walkers agree on everything, and refuse what is not one clean document."""

import random

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdall.binary import kernels
from holdall.binary.documents import msgpack
from holdall.binary.documents.msgpack import DocumentError
from holdall.binary.kernels import msgpack_reference as twin
from holdall.binary.kernels import msgpack_tokens as tokens

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=40)
    | st.binary(max_size=40),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=9), inner, max_size=40),
    max_leaves=60,
)


def both(data, depth=128, most=1 << 30):
    native = kernels.msgpack_walk(data, 0, len(data), depth, most)
    assert native == twin.msgpack_walk(data, 0, len(data), depth, most)
    return native


@settings(max_examples=150, deadline=None)
@given(VALUES)
def test_values_come_back(value):
    data = msgpack.encode(value)
    assert both(data)[:2] == (0, len(data))
    assert repr(msgpack.decode(data)) == repr(msgspec.msgpack.decode(data))
    for cut in range(0, len(data), max(1, len(data) // 7)):
        assert both(data[:cut])[0] == tokens.CUT


def test_walkers_agree_on_damage():
    rng = random.Random(5)
    document = {"tensors": [{"name": f"t{n}", "shape": [n, 300, 70000], "x": {"y": [1.5, -3, None]}} for n in range(9)]}
    original = msgpack.encode(document)
    for _ in range(3000):
        data = bytearray(original)
        for _ in range(rng.choice([1, 2, 5])):
            data[rng.randrange(len(data))] = rng.randrange(256)
        both(bytes(data), rng.choice([1, 2, 4, 128]))


@pytest.mark.parametrize(("data", "offset", "words"), [
    (b"\xc1", 0, "c1"),
    (b"\x81\xa1a\x82\xa1b\x01\xa1b\x02", 8, "'b' twice"),
    (b"\x81\x01\x02", 1, "key is not text"),
    (b"\xa1\xff", 1, "UTF-8"),
    (b"\xdd\xff\xff\xff\xff", 0, "ends before"),
    (b"\x01\x02", 1, "more bytes follow"),
    (b"\x91" * 200 + b"\x01", 128, "deep"),
])  # fmt: skip
def test_what_is_wrong_is_said_with_its_byte(data, offset, words):
    both(data)
    with pytest.raises(DocumentError, match=words) as caught:
        msgpack.decode(data)
    assert caught.value.offset == offset


def test_paths():
    data = msgpack.encode({"a": [0, {"b": [{}, {"c": 1}]}]}).replace(b"\xa1c\x01", b"\xa1\xff\x01")
    with pytest.raises(DocumentError) as caught:
        msgpack.decode(data)
    assert caught.value.path == "$.a[1].b[1]"


def test_many_keys_are_told_apart():
    for count in (15, 16, 17, 1000):
        names = [f"k{n}" for n in range(count)]
        fine = dict.fromkeys(names, 0)
        assert msgpack.decode(msgpack.encode(fine)) == fine
        for place in (0, count // 2, count - 1):
            data = b"\xde" + (count + 1).to_bytes(2, "big")
            data += b"".join(msgpack.encode(name) + b"\0" for name in [*names, names[place]])
            status, _, at, _ = both(data)
            assert (status, at) == (tokens.TWICE, len(data) - 1 - len(names[place]))


def test_padding_only_where_it_is_allowed():
    data = msgpack.encode({"a": 1})
    assert msgpack.decode(data + bytes(5), padded=True) == {"a": 1}
    for more, padded in ((bytes(5), False), (b"\0\1", True)):
        with pytest.raises(DocumentError):
            msgpack.decode(data + more, padded=padded)


def table(module, data, count, depth=16):
    keys = b"name\0size\0more\0"
    columns = [np.zeros(3 * count, np.uint8), *(np.zeros(3 * count, np.uint64) for _ in range(3))]
    columns += [np.zeros(count, np.uint64), np.zeros(count, np.uint8)]
    answer = module.msgpack_table(data, 0, len(data), count, depth, keys, *columns)
    done = answer[0]
    present = columns[0].reshape(3, count)[:, :done] != tokens.ABSENT
    cells = [np.where(present, column.reshape(3, count)[:, :done], 0).tolist() for column in columns[:4]]
    return answer, cells, [column[:done].tolist() for column in columns[4:]]


def test_tables_agree():
    rng = random.Random(6)
    rows = [
        {"name": f"n{n}", "size": n * 1000, **({"other": [n], "more": {"x": 1}} if n % 3 else {})} for n in range(12)
    ]
    data = b"".join(map(msgpack.encode, rows))
    answer, _, (starts, extras) = table(kernels, data, 12)
    assert answer[:3] == (12, 0, len(data))
    assert extras == [int(n % 3 > 0) for n in range(12)]
    assert starts[1] == len(msgpack.encode(rows[0]))
    for _ in range(2000):
        damaged = bytearray(data)
        for _ in range(rng.choice([1, 1, 3])):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        assert table(kernels, bytes(damaged), 12) == table(twin, bytes(damaged), 12)


def test_dims_agree():
    shapes = [[], [1], [2, 300], [70000, 2**40, 2**63 - 1]]
    data = b"".join(map(msgpack.encode, shapes))
    sizes = [len(msgpack.encode(shape)) for shape in shapes]
    positions = np.cumsum([0, *sizes[:-1]]).astype(np.uint64)
    counts = np.array([len(shape) for shape in shapes], np.uint64)
    for module in (kernels, twin):
        out = np.zeros(6, np.uint64)
        assert module.msgpack_dims(data, positions, counts, out)[0] == -1
        assert out.tolist() == [1, 2, 300, 70000, 2**40, 2**63 - 1]
        assert module.msgpack_dims(msgpack.encode([-1]), positions[:1], counts[1:2], out) == (0, 1)
        assert module.msgpack_dims(msgpack.encode([2**63]), positions[:1], counts[1:2], out) == (0, 1)
        assert module.msgpack_dims(data, positions, counts, out[:2])[0] == 2
        with pytest.raises(ValueError, match="as many"):
            module.msgpack_dims(data, positions, counts[:2], out)


def test_values_are_counted_before_they_are_made():
    value = {"a": [1, 2, {}], "b": "text"}  # the map, two keys, the array, its three items, the text
    data = msgpack.encode(value)
    assert both(data, most=8)[:2] == (0, len(data))
    assert both(data, most=7)[0] == tokens.MANY
    assert both(data, most=0)[0] == tokens.MANY
    assert msgpack.decode(data, most=8) == value
    with pytest.raises(msgpack.TooManyValues, match="more than 7 values"):
        msgpack.decode(data, most=7)


@settings(max_examples=60, deadline=None)
@given(VALUES)
def test_the_count_is_what_was_walked(value):
    def count(inner):
        if isinstance(inner, dict):
            return 1 + sum(1 + count(item) for item in inner.values())
        return 1 + sum(map(count, inner)) if isinstance(inner, list) else 1

    data, most = msgpack.encode(value), count(value)
    assert both(data, most=most)[0] == tokens.FINE
    assert both(data, most=most - 1)[0] == tokens.MANY
