"""JSON made by hand that took more than it should: built in code, named for what was wrong."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import holdall
from holdall.binary.documents import json
from holdall.cli import main
from holdall.limits import MAX_NESTING
from holdall.testing.isolation import cost_of
from tests.attacks.files import aero, tidx_entry

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


def deep_gguf(depth: int) -> bytes:
    """Metadata of arrays in arrays, ``depth`` of them."""
    value = struct.pack("<IQ", 9, 1) * (depth - 1) + struct.pack("<IQI", 4, 1, 5)
    return b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q1sI", 1, b"a", 9) + value


def deep_aero(depth: int) -> bytes:
    lists = depth - 1  # the object around them is one level
    return aero(tidx_entry(), chunks=[(b"MJSN", b"meta.json", 0, b'{"a":' + b"[" * lists + b"]" * lists + b"}")])


@pytest.mark.parametrize("make", [deep_gguf, deep_aero])
def test_nesting_ends_where_python_would(make: Callable[[int], bytes], tmp_path: Path) -> None:
    """Documents of the highest limit are read, shown and compared; a higher limit is refused."""
    highest = holdall.Limits(nesting=MAX_NESTING)
    path = tmp_path / "deep"
    path.write_bytes(make(MAX_NESTING - 1))
    with holdall.open(path, limits=highest) as model:
        value, depth = model.metadata["a"], 0
        while isinstance(value, list):
            value, depth = value[0] if value else None, depth + 1
        assert depth >= MAX_NESTING - 3
    for command in (["info"], ["info", "--json"], ["verify", "--stats"], ["diff", str(path)]):
        ran = CliRunner().invoke(main, [command[0], str(path), *command[1:], "--limit", f"nesting={MAX_NESTING}"])
        assert ran.exit_code == 0, ran.output
    path.write_bytes(make(90_000))
    assert not holdall.verify(path, limits=highest).ok
    with pytest.raises(ValueError, match=r"Limits.nesting is at most 256"):
        holdall.Limits(nesting=MAX_NESTING + 1)
