"""Digests taken while a file is written: pages, thousands of ranges, chunks that lag, approval, and files at once."""

import numpy as np
import pytest
from blake3 import blake3

from holdall.errors import ContentError
from holdall.model.payload import Computed, InMemory, SourceRange
from holdall.sink import write_file, write_folder
from holdall.sink.plan import FolderPlan, Plan
from holdall.source import BytesSource, FileSource
from holdall.source.digests import Parts, Tap
from holdall.source.range_hashing import digest_ranges

DATA = np.random.default_rng(3).bytes(9 << 20)


def payloads(tmp_path):
    (tmp_path / "source").write_bytes(DATA)
    yield InMemory(DATA)
    yield SourceRange(FileSource(tmp_path / "source"), 0, len(DATA))
    yield SourceRange(BytesSource(DATA), 0, len(DATA))
    yield Computed(len(DATA), lambda: [DATA[:100], DATA[100:]])


@pytest.mark.parametrize("page", [1 << 14, 3_000_001, 1 << 26])
def test_pages_of_every_kind_of_payload(tmp_path, page):
    want = b"".join(blake3(DATA[at : at + page]).digest() for at in range(0, len(DATA), page))
    for payload in payloads(tmp_path):
        plan = Plan()
        plan.put(b"head")
        start = plan.stream(payload)
        plan.tap("pages", "blake3", start, plan.cursor, every=page)
        plan.tap("all", "blake3", start, plan.cursor)
        plan.late("digests", len(want) + 32, ("pages", "all"), lambda results: results["pages"] + results["all"])
        write_file(tmp_path / "out", plan, fsync=False)
        assert (tmp_path / "out").read_bytes() == b"head" + DATA + want + blake3(DATA).digest()
    found = digest_ranges(BytesSource(DATA), [Tap("pages", "blake3", 0, len(DATA), every=page)])
    assert found["pages"] == want


def test_many_ranges_inside_a_long_one(tmp_path):
    """Each byte is looked at twice, not once for every range: quadratic work would take minutes here."""
    plan = Plan()
    count = 50_000
    for number in range(count):
        at = plan.stream(InMemory(number.to_bytes(8, "little") * 8))
        plan.tap(f"t.{number}", "blake3", at, plan.cursor)
    plan.tap("all", "blake3", 0, plan.cursor)
    seen = {}
    plan.tail("end", ("all", *(f"t.{n}" for n in range(count))), lambda results: seen.update(results) or b"end")
    write_file(tmp_path / "out", plan, fsync=False)
    written = (tmp_path / "out").read_bytes()
    assert seen["all"] == blake3(written[:-3]).digest()
    for number in (0, 1, 777, count - 1):
        assert seen[f"t.{number}"] == blake3(written[64 * number : 64 * number + 64]).digest()


def test_approval_comes_before_the_name(tmp_path):
    (tmp_path / "out").write_bytes(b"old")
    plan = Plan()
    plan.put(b"new")

    def refuse(path, results):
        assert path.read_bytes() == b"new"
        raise ContentError("no")

    with pytest.raises(ContentError):
        write_file(tmp_path / "out", plan, approve=refuse)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out").read_bytes() == b"old"


def test_files_of_a_folder_know_those_before_them(tmp_path):
    folder = FolderPlan()
    for name in "abc":
        plan = Plan()
        plan.stream(InMemory(name.encode() * 1_000_000))
        plan.tap("hash", "blake3", 0, None)
        folder.files[f"sub/{name}"] = plan
    last = Plan()
    needs = tuple(f"sub/{name}/{what}" for name in "abc" for what in ("hash", "size"))
    last.tail("list", needs, lambda results: b"".join(str(results[need]).encode() for need in needs))
    folder.files["last"] = last
    told = []
    write_folder(tmp_path / "out", folder, fsync=False, progress=lambda done, total: told.append(done))
    hashes = [(str(blake3(name.encode() * 1_000_000).digest()), "1000000") for name in "abc"]
    assert (tmp_path / "out" / "last").read_text() == "".join(text for pair in hashes for text in pair)
    assert told == sorted(told)
    assert told[-1] >= 3_000_000


def test_a_failure_in_one_file_leaves_nothing(tmp_path):
    folder = FolderPlan()
    for number in range(6):
        plan = Plan()
        broken = Computed(1 << 20, lambda: [b"too short"]) if number == 3 else InMemory(bytes(1 << 20))
        plan.stream(broken)
        folder.files[f"{number}"] = plan
    with pytest.raises(ContentError):
        write_folder(tmp_path / "out", folder, fsync=False)
    assert list(tmp_path.iterdir()) == []


def test_parts_on_both_sides_of_a_late_piece(tmp_path):
    """Late bytes between the parts are none of theirs; inside a part they would have to be read back."""
    plan = Plan()
    first = plan.stream(InMemory(DATA[:1000]))
    late = plan.late("sum", 32, ("parts",), lambda results: results["parts"][:32])
    second = plan.stream(InMemory(DATA[1000:]))
    starts, stops = np.array([[first, first + 1000], [second, plan.cursor]], np.uint64).T
    plan.tap("parts", "blake3", first, plan.cursor, parts=Parts(starts, stops))
    found = []
    write_file(tmp_path / "out", plan, fsync=False, approve=lambda path, results: found.append(results["parts"]))
    assert found == [blake3(DATA[:1000]).digest() + blake3(DATA[1000:]).digest()]
    assert (tmp_path / "out").read_bytes()[late : late + 32] == blake3(DATA[:1000]).digest()
    plan.tap("over", "blake3", first, plan.cursor, parts=Parts(starts[:1], stops[:1] + np.uint64(1)))
    with pytest.raises(AssertionError, match="covers late bytes"):
        write_file(tmp_path / "out", plan, fsync=False)
