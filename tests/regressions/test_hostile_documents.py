"""JSON made by hand that took more than it should: built in code, named for what was wrong."""

from __future__ import annotations

from holdall.documents import json
from holdall.testing.isolation import cost_of

MIB = 1 << 20


def repeated(key: bytes, times: int) -> bytes:
    """An object under ``key`` that has the same key over and over."""
    return b'{"' + key + b'":{' + b",".join([b'"a":1'] * times) + b"}}"


def test_keys_that_come_twice_below_a_long_key_do_not_repeat_it() -> None:
    """The whole path of each was kept: 423 MB of a document of 140 kB."""
    document = repeated(b"k" * 20_000, 20_000)
    assert cost_of(lambda: json.decode(document)).peak_bytes < 30 * MIB
    found = json.decode(document).duplicates
    assert len(found) == 19_999
    assert {len(each.path) for each in found} == {203}
    assert [document[each.offset : each.offset + 3] for each in (found[0], found[-1])] == [b'"a"'] * 2


def test_the_path_of_a_key_that_comes_twice_is_whole_where_it_is_short() -> None:
    """In objects, lists, and keys that need quotes."""
    paths = [each.path for each in json.decode(b'[{"a":1,"a":2},{"x":{"a b":[{"c":1,"c":2}]}}]').duplicates]
    assert paths == ["$[0].a", '$[1].x["a b"][0].c']
