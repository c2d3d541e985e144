"""The opcodes that explain shows beside those of pickletools, over files that torch wrote."""

from __future__ import annotations

import io
import pickle
import pickletools
import zipfile
from collections import OrderedDict

import pytest

from holdall.errors import FormatError
from holdall.format.pickle_opcodes import walk_opcodes
from holdall.operations.examine import examine
from holdall.operations.explain import list_records
from holdall.operations.outline import Opener
from holdall.source import BytesSource

torch = pytest.importorskip("torch")

STATE = {
    "w": torch.ones(2, 3),
    "nested": OrderedDict(a=[1, -2, 2**70, 2.5, "é", b"bytes", None, True], b=("x" * 300, {1, 2})),
    "long": "y" * 3000,
}


def save(**options) -> bytes:
    out = io.BytesIO()
    torch.save(STATE, out, **options)
    return out.getvalue()


def list_expected(data: bytes, base: int) -> list[tuple[int, str, object]]:
    return [(base + at, op.name, argument) for op, argument, at in pickletools.genops(data)]


def open_all(data: bytes, name: str) -> list:
    with examine(data) as seen:
        (owner,) = (owner for owner in seen.ledger.owners if owner.name == name)
        opener = Opener(seen, 100_000)
        return [(record, opener.open(record)) for record in list_records(owner)]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_checkpoint_has_the_opcodes_that_pickletools_finds(protocol):
    data = save(pickle_protocol=protocol)
    found = {record.label.partition("/")[2]: (record, opened) for record, opened in open_all(data, "entry")}
    record, opened = found["data.pkl"]
    stored = zipfile.ZipFile(io.BytesIO(data)).read(record.label)
    assert data[record.start : record.start + record.size] == stored
    assert [(item.start, item.name, item.value) for item in opened.items] == list_expected(stored, record.start)
    assert [item.stop for item in opened.items[:-1]] == [item.start for item in opened.items[1:]]
    assert all(data[item.start : item.stop].startswith(item.data) for item in opened.items)
    assert (opened.outline.syntax, opened.more, opened.stopped) == ("pickle", False, None)
    assert [item.value for item in found["byteorder"][1].items] == ["little"]


def test_a_legacy_file_has_the_opcodes_of_its_five_pickles():
    data = save(_use_new_zipfile_serialization=False)
    ((_, opened),) = open_all(data, "pickles")
    stream, expected = io.BytesIO(data), []
    for _ in range(5):
        expected += [(at, op.name, argument) for op, argument, at in pickletools.genops(stream)]
    assert [(item.start, item.name, item.value) for item in opened.items] == expected


@pytest.mark.parametrize("protocol", range(6))
def test_every_protocol_is_read_as_pickletools_reads_it(protocol):
    value = {"a": [1, 2**40, -3.5, "text", b"raw", 2**200, None, True], "b": (complex(1, 2), {3}, bytearray(b"x"))}
    data = pickle.dumps(value, protocol)
    items = list(walk_opcodes(BytesSource(b"__" + data), 2, 2 + len(data)))
    assert [(item.start, item.name, item.value) for item in items] == list_expected(data, 2)


def test_an_argument_beyond_every_buffer_is_skipped_and_shown_by_its_beginning():
    data = pickle.dumps(["z" * 5_000_000, "end"], 4)
    items = list(walk_opcodes(BytesSource(data), 0, len(data)))
    assert [(item.start, item.name) for item in items] == [(at, op.name) for op, _, at in pickletools.genops(data)]
    (long,) = (item for item in items if not item.whole)
    assert (long.name, long.value) == ("BINUNICODE8" if "8" in long.name else "BINUNICODE", "z" * 4096)
    assert long.stop - long.start >= 5_000_000


def test_a_cut_pickle_shows_all_opcodes_before_the_cut_and_says_where_it_ends():
    data = pickle.dumps(STATE["nested"], 2)
    expected = list_expected(data, 0)
    for cut in range(len(data)):
        found = []
        with pytest.raises(FormatError) as raised:
            for item in walk_opcodes(BytesSource(data), 0, cut):
                found.append((item.start, item.name, item.value))  # noqa: PERF401 - what came before the error counts
        ends = [at for at, _, _ in expected[1:]] + [len(data)]
        assert found == [row for row, end in zip(expected, ends, strict=True) if end <= cut]
        assert raised.value.offset == (ends[len(found) - 1] if found else 0)


@pytest.mark.parametrize(
    ("data", "at", "why"),
    [
        (b"\x80\x02\xff.", 2, "0xff is no opcode"),
        (b"\x80\x02}.more", 4, "4 more bytes follow the pickle"),
        (b"\x80\x02T\xff\xff\xff\xff.", 2, "the argument of BINSTRING has -1 bytes"),
        (b"\x80\x02X\xff\xff\xff\xff.", 2, "BINUNICODE has an argument of 4294967299 bytes, 5 are left"),
        (b"Inope\n.", 0, "the argument of INT is broken"),
        (b"cno newline", 0, "the argument of GLOBAL does not end"),
    ],
)
def test_a_broken_pickle_says_at_which_byte_and_why(data, at, why):
    with pytest.raises(FormatError, match=why) as raised:
        list(walk_opcodes(BytesSource(data), 0, len(data)))
    assert raised.value.offset == at


@pytest.mark.parametrize("protocol", [0, 1, 2, 4])
def test_from_a_byte_on_the_opcodes_before_it_are_passed_over(protocol):
    value = {f"k{n}": [n, (n, "é" * (n % 50), -n), {"x": 2**n}, b"y" * n] for n in range(400)}
    data = pickle.dumps(value, protocol)
    items = list(walk_opcodes(BytesSource(data), 0, len(data)))
    assert len(items) > 2000
    for since in (1, 40, 5000, len(data) // 2, len(data) - 300, len(data) - 1):
        later = list(walk_opcodes(BytesSource(data), 0, len(data), since))
        assert later == [item for item in items if item.stop > since]


def test_a_pickle_that_would_run_a_program_is_shown_and_not_run(tmp_path):
    mark = tmp_path / "ran"

    class Bad:
        def __reduce__(self):
            return exec, (f"open({str(mark)!r}, 'w')",)

    out = io.BytesIO()
    torch.save({"w": Bad()}, out)
    ((_, opened), *_) = open_all(out.getvalue(), "entry")
    shown = [(item.name, item.value) for item in opened.items]
    assert ("GLOBAL", "builtins exec") in shown or ("GLOBAL", "__builtin__ exec") in shown
    assert ("BINUNICODE", f"open({str(mark)!r}, 'w')") in shown
    assert not mark.exists()
