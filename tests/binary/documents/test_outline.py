"""Outlines of JSON and MessagePack: every range is parsed by json and msgspec, which know nothing of them."""

from __future__ import annotations

import json
import random

import msgspec
import pytest

from holdall.binary.documents.base import DocumentError
from holdall.binary.documents.json_outline import outline_json
from holdall.binary.documents.msgpack_outline import outline_msgpack

SCALARS = [1, -5, 2.5, None, True, False, 'é\n"x', "a" * 90, 2**60, -(2**40), ""]


def make_value(chance: random.Random, depth: int = 0):
    kind = chance.random()
    if depth > 4 or kind < 0.4:
        return chance.choice(SCALARS)
    if kind < 0.7:
        return [make_value(chance, depth + 1) for _ in range(chance.randrange(5))]
    return {f"k{n}é": make_value(chance, depth + 1) for n in range(chance.randrange(5))}


def dump_json(value, seed):
    return json.dumps(value, ensure_ascii=bool(seed % 2), indent=seed % 3 or None).encode()


def dump_msgpack(value, seed):
    return msgspec.msgpack.encode(value)


SYNTAXES = [
    pytest.param(dump_json, json.loads, outline_json, id="json"),
    pytest.param(dump_msgpack, msgspec.msgpack.decode, outline_msgpack, id="msgpack"),
]


@pytest.mark.parametrize(("dump", "load", "outline"), SYNTAXES)
def test_the_bytes_of_every_item_are_its_value(dump, load, outline):
    for seed in range(300):
        chance = random.Random(seed)
        value = {"a": make_value(chance), "b": [make_value(chance)]}
        data, base = dump(value, seed), chance.randrange(100)
        items = list(outline(data, base))
        assert (items[0].start, items[0].stop) == (base, base + len(data))
        for item in items:
            parsed = load(data[item.start - base : item.stop - base])
            if item.count is None:
                assert (parsed, type(parsed)) == (item.value, type(item.value))
            else:
                assert item.count == len(parsed)
            assert data[item.start - base :].startswith(item.data)
            if item.key is not None:
                stored = data[item.key - base : item.start - base]
                assert load(stored.decode().rpartition(":")[0] if outline is outline_json else stored) == item.name


@pytest.mark.parametrize(("dump", "load", "outline"), SYNTAXES)
def test_from_a_byte_on_the_items_that_end_before_it_are_left_out(dump, load, outline):
    for seed in range(100):
        chance = random.Random(seed)
        data = dump({"a": make_value(chance), "b": make_value(chance)}, seed)
        since = 7 + chance.randrange(len(data))
        assert list(outline(data, 7, since)) == [item for item in outline(data, 7) if item.stop > since]


@pytest.mark.parametrize(("dump", "load", "outline"), SYNTAXES)
def test_a_document_that_is_cut_shows_what_comes_before(dump, load, outline):
    names = [f"layer.{n}" for n in range(50)]
    data = dump({name: {"dtype": "F32", "shape": [4, n], "more": [[n]]} for n, name in enumerate(names)}, 0)
    for cut in range(1, len(data), 97):
        with pytest.raises(DocumentError) as raised:
            list(outline(data[:cut]))
        for item in outline_until_it_ends(outline, data[:cut]):
            assert item.stop <= cut
            if item.value is not None and item.stop < cut:  # a number may go on
                assert load(data[item.start : item.stop]) == item.value
        assert raised.value.offset <= cut


def outline_until_it_ends(outline, data):
    found = []
    try:
        for item in outline(data):
            found.append(item)  # noqa: PERF402 - what came before the error counts
    except DocumentError:
        return found
    raise AssertionError("the document was whole")


def test_long_texts_are_cut_and_long_numbers_stay_text():
    data = json.dumps({"text": "x" * 10_000, "number": 5}).encode().replace(b"5", b"1" * 5000)
    text, number = list(outline_json(data))[1:]
    assert (text.whole, len(text.value)) == (False, 4096)
    assert (number.whole, number.value[:3]) == (False, "111")


def test_a_message_that_nests_too_deep_ends_there():
    with pytest.raises(DocumentError, match="nested deeper than 128"):
        list(outline_msgpack(b"\x91" * 500 + b"\x90" + b"x" * 100))
    with pytest.raises(DocumentError, match="nested deeper than 128"):
        list(outline_json(b"[" * 500 + b"]" * 500))


def test_bytes_after_the_document_are_named_unless_they_are_zeros():
    assert [item.value for item in outline_msgpack(b"\x05\0\0\0")] == [5]
    with pytest.raises(DocumentError, match="2 more bytes follow the document"):
        list(outline_msgpack(b"\x05\0\1"))
