"""The quick way through a list of maps says what the careful one says, or nothing."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdall.documents import msgpack
from holdall.documents.base import DocumentError
from holdall.documents.msgpack_quick import quick_rows

KEYS = ("name", "n", "shape", "none", "other")
sizes = st.integers(0, 2**64 - 1) | st.sampled_from([127, 128, 255, 256, 65535, 65536, 2**32 - 1, 2**32])
values = {
    "name": st.text(max_size=40) | st.text("x", min_size=30, max_size=300),
    "n": sizes,
    "shape": st.lists(sizes, max_size=20),
    "none": st.none(),
}


def careful(data):
    root = msgpack.rows(data, 0, len(data), 1, ("tensors",))
    if root.stop != len(data):
        raise DocumentError(root.stop, "more")
    at, count = int(root.at("tensors")[0]), int(root.value("tensors")[0])
    head = 1 if count < 16 else 3 if count < 65536 else 5
    return msgpack.rows(data, at + head, int(root.end("tensors")[0]), count, KEYS)


def same(data):
    quick, slow = quick_rows(data, "tensors", KEYS), careful(data)
    assert quick is not None
    present = slow.kinds != 255
    for column in ("kinds", "starts", "extras"):
        np.testing.assert_array_equal(getattr(quick, column), getattr(slow, column))
    counted = present & (slow.kinds != 0)
    np.testing.assert_array_equal(quick.values[counted], slow.values[counted])
    for column in ("ats", "ends"):
        np.testing.assert_array_equal(getattr(quick, column)[present], getattr(slow, column)[present])
    assert quick.stop == slow.stop


@given(st.lists(st.sampled_from(sorted(values)), min_size=1, unique=True), st.integers(1, 20), st.data())
def test_places_and_numbers(keys, count, data):
    rows = [{key: data.draw(values[key]) for key in keys} for _ in range(count)]
    same(msgspec.msgpack.encode({"tensors": rows}))


def test_a_long_list():
    same(msgspec.msgpack.encode({"tensors": [{"name": f"w{n}", "n": n, "shape": [n]} for n in range(70_000)]}))


@pytest.mark.parametrize(
    "document",
    [
        {"tensors": []},
        {"tensors": [{"n": 1}], "more": []},
        {"tensors": [{"n": 1}, {"name": "x"}]},
        {"tensors": [{"n": 1, "unknown": 1}]},
        {"tensors": [{"n": 1}, {"n": "x"}]},
        {"tensors": [{"n": -1}]},
        {"tensors": [{"n": True}]},
        {"tensors": [{"shape": [1, None]}]},
        {"tensors": [{"other": {"a": 1}}]},
        {"tensors": [1]},
        [1],
    ],
)
def test_what_is_left_to_the_careful_way(document):
    assert quick_rows(msgspec.msgpack.encode(document), "tensors", KEYS) is None


@pytest.mark.parametrize(
    "data",
    [
        b"\x81\xa7tensors\x91\x82\xa1n\x01\xa1n\x02",  # a key twice
        b"\x81\xa7tensors\x91\x81\xa1n\xcc\x01",  # a number that is longer than it has to be
        b"\x81\xa7tensors\x91\x81\xa4name\xa1\xff",  # no text
        b"\x81\xa7tensors\x91\x81\x01\x01",  # a key that is no text
        b"\x81\xa7tensors\x91\x81\xa1n\x01\x00",  # more
        b"\x81\xa7tensors\x91\x81\xa1n",  # less
        b"",
    ],
)
def test_any_other_form_too(data):
    assert quick_rows(data, "tensors", KEYS) is None


@given(st.data())
def test_damage_is_never_called_usual(data):
    whole = bytearray(msgspec.msgpack.encode({"tensors": [{"name": "ab", "n": 5, "shape": [2, 300]}] * 2}))
    whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    if quick_rows(bytes(whole), "tensors", KEYS) is not None:
        same(bytes(whole))
