"""Plans carried out: every kind of piece, in every order that the pieces allow."""

import hashlib
import struct
import zlib

import numpy as np
import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from holdall.errors import ContentError
from holdall.model.dtypes import find_dtype
from holdall.model.payload import Computed, InMemory, Payload, SourceRange
from holdall.model.table import ListTable
from holdall.model.tensor import Tensor
from holdall.sink import write_file, write_folder
from holdall.sink.plan import FolderPlan, Plan
from holdall.source import CHUNK, BytesSource, FileSource
from holdall.source.buffers import Buffers
from holdall.source.digests import Parts

LARGE = CHUNK + 12345  # beyond what is gathered, and not a whole number of chunks


def written(tmp_path, plan, **options):
    write_file(tmp_path / "out", plan, fsync=False, **options)
    return (tmp_path / "out").read_bytes()


def payloads(tmp_path, size):
    """The same bytes from every kind of place."""
    data = (bytes(range(251)) * (size // 251 + 1))[:size]
    (tmp_path / "in").write_bytes(b"skip" + data)
    yield data, InMemory(data)
    yield data, SourceRange(FileSource(tmp_path / "in"), 4, size)
    yield data, SourceRange(FileSource(tmp_path / "in", map=False), 4, size)
    yield data, SourceRange(BytesSource(b"skip" + data), 4, size)
    yield data, Computed(size, lambda: (data[start : start + 70001] for start in range(0, size, 70001)))
    yield data, Computed(size, lambda: (data[start : start + CHUNK] for start in range(0, size, CHUNK)))


@pytest.mark.parametrize("size", [0, 1, 1000, 256 << 10, (256 << 10) + 1, LARGE])
@pytest.mark.parametrize("tapped", [False, True])
def test_payloads_from_everywhere(tmp_path, size, tapped):
    for data, payload in payloads(tmp_path, size):
        plan = Plan()
        plan.put(b"head")
        plan.align(64)
        at = plan.stream(payload)
        plan.align(64)
        plan.put(b"end")
        if tapped:
            plan.tap("sum", "crc32", 2, at + size // 2)
            plan.tail("sums", ("sum",), lambda results: struct.pack("<I", results["sum"]))
        out = written(tmp_path, plan)
        expected = b"head".ljust(64, b"\0") + data
        expected = expected.ljust(-(-len(expected) // 64) * 64, b"\0") + b"end"
        if tapped:
            expected += struct.pack("<I", zlib.crc32(expected[2 : at + size // 2]))
        assert out == expected


class Numbered(Payload):
    """Each piece has its number in every byte, and memory that is used again when the piece has been let go of."""

    def __init__(self, size):
        self.size = size

    def slice(self, start, stop):
        return memoryview(self.read())[start:stop]

    def chunks(self, piece=CHUNK):
        buffers = Buffers(piece)
        for number, start in enumerate(range(0, self.size, piece)):
            taken = buffers.take(min(piece, self.size - start))
            taken[:] = bytes([number + 1]) * len(taken)
            yield taken
            del taken


def test_a_payload_whose_memory_is_used_again(tmp_path):
    plan = Plan()
    plan.stream(Numbered(9 * CHUNK + 5))
    plan.tap("sum", "sha256", 0, 9 * CHUNK + 5)  # digests lag behind the writing
    plan.tail("sums", ("sum",), lambda results: results["sum"])
    expected = b"".join(bytes([number]) * CHUNK for number in range(1, 10)) + b"\n" * 5
    assert written(tmp_path, plan) == expected + hashlib.sha256(expected).digest()


@pytest.mark.parametrize("given_size", [10, 14, LARGE - 1, LARGE + 1])
def test_payloads_that_lie_about_their_size(tmp_path, given_size):
    class Liar(InMemory):
        def __init__(self):
            super().__init__(bytes(12 if given_size < 100 else LARGE))
            self.size = given_size

        def chunks(self, piece=CHUNK):
            yield self.data

    plan = Plan()
    plan.stream(Liar())
    plan.put(b"after")
    with pytest.raises(ContentError):
        written(tmp_path, plan)
    assert list(tmp_path.iterdir()) == []


def test_made_payloads_that_stop_early(tmp_path):
    plan = Plan()
    plan.stream(Computed(100, lambda: [b"x" * 99]))
    with pytest.raises(ContentError, match="99 were made"):
        written(tmp_path, plan)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_tap_over_every_mix_of_pieces(tmp_path_factory, data):
    """crc32 taps are combined around late bytes, hashes read them back; any range, cut anywhere."""
    tmp_path = tmp_path_factory.mktemp("mix")
    kinds = data.draw(st.lists(st.sampled_from(["put", "late", "stream", "gap"]), min_size=1, max_size=7))
    plan, lates = Plan(), []
    for number, kind in enumerate(kinds):
        size = data.draw(st.integers(0, 40))
        content = bytes([number + 1]) * size
        if kind == "put":
            plan.put(content)
        elif kind == "stream":
            plan.stream(InMemory(content))
        elif kind == "gap":
            plan.align(data.draw(st.sampled_from([4, 16])))
        else:
            plan.late(f"late{number}", size, (), lambda results, content=content: content)
            lates.append(number)
    ranges = []
    for number in range(3):
        start = data.draw(st.integers(0, plan.cursor))
        stop = data.draw(st.one_of(st.none(), st.just("tail"), st.integers(start, plan.cursor)))
        for kind in ("crc32", "sha256", "blake3"):
            plan.tap(f"{kind}{number}", kind, start, stop, reread=True)
        ranges.append((start, stop))
    plan.tail("tail", (), lambda results: b"tail", align=8)
    found = {}
    # Late pieces whose needs are the taps come too late for taps that cover them: ask through a second tail.
    ended = [n for n, (_, stop) in enumerate(ranges) if stop is not None]
    needs = tuple(f"{kind}{n}" for n in ended for kind in ("crc32", "sha256", "blake3"))
    plan.tail("seen", needs, lambda results: found.update(results) or b"")
    out = written(tmp_path, plan)
    tail_at = -(-plan.cursor // 8) * 8
    assert out[tail_at:] == b"tail"
    for number in ended:
        start, stop = ranges[number]
        part = out[start : tail_at if stop == "tail" else stop]
        assert found[f"crc32{number}"] == zlib.crc32(part)
        assert found[f"sha256{number}"] == hashlib.sha256(part).digest()
        assert found[f"blake3{number}"] == blake3(part).digest()


def test_late_pieces_wait_for_each_other(tmp_path):
    plan = Plan()
    plan.late("outer", 4, ("sum",), lambda results: struct.pack("<I", results["sum"]))
    plan.late("inner", 32, ("hash",), lambda results: results["hash"])
    body = plan.put(b"body" * 9)
    plan.tap("hash", "sha256", body, plan.cursor)
    plan.tap("sum", "crc32", 4, None)
    out = written(tmp_path, plan)
    assert out[4:36] == hashlib.sha256(b"body" * 9).digest()
    assert out[:4] == struct.pack("<I", zlib.crc32(out[4:]))


def test_circles_and_late_bytes_without_reread_are_bugs(tmp_path):
    circle = Plan()
    circle.late("a", 4, ("b",), lambda results: bytes(4))
    circle.late("b", 4, ("a",), lambda results: bytes(4))
    with pytest.raises(AssertionError, match="needs"):
        written(tmp_path, circle)
    unsaid = Plan()
    unsaid.late("a", 4, (), lambda results: bytes(4))
    unsaid.tap("hash", "sha256", 0, None)
    with pytest.raises(AssertionError, match="late bytes"):
        written(tmp_path, unsaid)
    early = Plan()
    early.tap("all", "crc32", 0, None)
    early.tail("t", ("all",), lambda results: bytes(4))
    with pytest.raises(AssertionError, match="needs"):
        written(tmp_path, early)
    wrong = Plan()
    wrong.late("a", 4, (), lambda results: bytes(5))
    with pytest.raises(AssertionError, match="planned 4"):
        written(tmp_path, wrong)
    assert list(tmp_path.iterdir()) == []


def test_tails_know_where_earlier_tails_are(tmp_path):
    plan = Plan()
    plan.put(b"abc")
    plan.tail("one", (), lambda results: b"x" * 5, align=16)
    plan.tail("two", ("one",), lambda results: struct.pack("<QQ", results["one"].offset, len(results["one"].data)))
    out = written(tmp_path, plan)
    assert out[16:21] == b"xxxxx"
    assert struct.unpack("<QQ", out[21:]) == (16, 5)


def test_the_size_of_a_plan():
    plan = Plan()
    plan.put(b"abc")
    assert plan.size == 3
    plan.tail("t", (), lambda results: b"")
    assert plan.size is None


def test_folders_of_many_files_share_results_in_order(tmp_path):
    """Each file has the checksums of all before it; forty of them must not cost more than forty."""
    plan = FolderPlan()
    for number in range(40):
        file = Plan()
        file.put(b"%02d" % number)
        before = tuple(f"part{n}/sum" for n in range(number))
        file.late(
            "sums", 4 * number, before, lambda r, before=before: struct.pack(f"<{len(before)}I", *map(r.get, before))
        )
        file.tap("sum", "crc32", 0, None)
        plan.files[f"part{number}"] = file
    write_folder(tmp_path / "set", plan, fsync=False)
    data = [(tmp_path / "set" / f"part{n}").read_bytes() for n in range(40)]
    assert data[39][2:] == struct.pack("<39I", *map(zlib.crc32, data[:39]))


def test_folders_with_folders_inside_and_names_that_leave(tmp_path):
    file = Plan()
    file.put(b"x")
    write_folder(tmp_path / "set", FolderPlan({"a/b/c": file, "d": file}))
    assert (tmp_path / "set/a/b/c").read_bytes() == b"x"
    for name in ("../d", "/d", "a\\b", ""):
        with pytest.raises(ValueError):
            write_folder(tmp_path / "other", FolderPlan({"fine": file, name: file}), fsync=False)
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


class Payloads(ListTable):
    """A table that makes every payload anew, as an index of columns does."""

    def payload(self, row):
        found = super().payload(row)
        return InMemory(found.read()) if isinstance(found, InMemory) else found


def run_of(payloads, align=64, order=None):
    dtype = find_dtype("u8")
    table = Payloads(Tensor(f"t{n}", dtype, (payload.size,), payload) for n, payload in enumerate(payloads))
    rows = np.array(range(len(payloads)) if order is None else order, np.intp)
    plan = Plan()
    plan.put(b"head")
    starts, at = [], plan.align(align)
    for row in rows:
        starts.append(at)
        at += payloads[row].size + -payloads[row].size % align
    plan.run(table, rows, np.array(starts, np.uint64))
    return plan, starts


def test_a_run_is_what_its_streams_are(tmp_path):
    found = []
    for size in (0, 1, 70, 4096, (256 << 10) + 1, LARGE, 3):
        (tmp_path / str(size)).mkdir()
        found += [payload for _, payload in payloads(tmp_path / str(size), size)]
    for order in (None, range(len(found))[::-1]):
        plan, starts = run_of(found, order=order)
        plan.put(b"end")
        expected = bytearray(plan.cursor)
        expected[:4], expected[-3:] = b"head", b"end"
        for at, row in zip(starts, order or range(len(found)), strict=True):
            expected[at : at + found[row].size] = found[row].read()
        assert written(tmp_path, plan) == expected
        assert [at for at, _ in plan.payloads()] == starts


def test_parts_of_a_run_are_hashed_alone(tmp_path):
    datas = [bytes([n % 251]) * n for n in range(300)] + [b"a" * LARGE, b"", b"b" * 7, b"c" * LARGE, b"", b""]
    plan, starts = run_of([InMemory(data) for data in datas])
    stops = [at + len(data) for at, data in zip(starts, datas, strict=True)]
    parts = Parts(np.array(starts, np.uint64), np.array(stops, np.uint64))
    plan.tap("parts", "blake3", starts[0], stops[-1], parts=parts)
    found = []
    write_file(tmp_path / "out", plan, fsync=False, approve=lambda path, results: found.append(results["parts"]))
    assert found == [b"".join(blake3(data).digest() for data in datas)]


def test_a_run_whose_payload_has_another_size_is_refused(tmp_path):
    plan, _ = run_of([InMemory(b"1234"), InMemory(b"5678")], align=4)
    plan.pieces[-1].starts[1] -= 1
    with pytest.raises(ContentError, match="the plan does not hold"):
        written(tmp_path, plan)
