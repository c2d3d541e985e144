"""Hashes, caps and damage as the format's document has them, on files that struct, msgspec and blake3 alone make."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from blake3 import blake3

import holdall
from holdall.model.dtypes import DTYPES
from holdall.model.payload import Computed
from holdall.source import BytesSource
from holdall.testing import RecordingSource, cost_of, run_isolated
from tests.format.aero.build import (
    ZSTD,
    Chunk,
    check_control,
    check_pages,
    entry,
    file,
    mjsn,
    parse,
    shard,
    tidx,
    zstd,
)
from tests.format.aero.document import (
    ENTRIES,
    EVERYTHING,
    SHARD,
    B,
    W,
    patch,
    refused,
    rules,
    run,
    written,
)


def hashed(digest):
    return file([tidx([entry("w", 1, [2, 3], 0, 24, hash_b3=digest)]), shard(W.tobytes())])


@pytest.mark.shows("A21")
def test_the_hash_of_a_tensor_is_compared_when_it_is_read():
    right = blake3(W.tobytes()).hexdigest()
    for digest in (right, right.upper(), "", None):
        with holdall.open(hashed(digest)) as model:
            assert model["w"].numpy().tolist() == W.tolist()
    wrong = hashed(blake3(b"").hexdigest())
    with holdall.open(wrong) as model:
        for read in (model["w"].numpy, model["w"].raw):
            with pytest.raises(holdall.FormatError) as caught:
                read()
            assert caught.value.rule == "aero.tensor.blake3"
    assert rules(wrong) == {"aero.tensor.blake3"}
    for digest in ("abc", "g" * 64, 5, right + "0"):
        refused(hashed(digest), "aero.tidx.hash_b3", "aero.tidx.field")


@pytest.mark.shows("A22")
def test_a_slice_of_a_local_tensor_proves_nothing_unless_asked(tmp_path):
    (tmp_path / "a.aero").write_bytes(hashed(blake3(b"").hexdigest()))
    with holdall.open(tmp_path / "a.aero") as model:
        assert model["w"][1].tolist() == W[1].tolist()
    with holdall.open(tmp_path / "a.aero", check=True) as model, pytest.raises(holdall.FormatError):
        model["w"][1]


@pytest.mark.shows("A23")
def test_hashes_of_tensors_are_an_option(tmp_path):
    assert "hash_b3" not in parse(written(tmp_path / "a", {"w": W})).tensors()[0]
    parsed = parse(written(tmp_path / "a", {"w": W, "b": B}, tensor_hash=True))
    assert [row["hash_b3"] for row in parsed.tensors()] == [blake3(v.tobytes()).hexdigest() for v in (W, B)]


@pytest.mark.shows("A25")
def test_unknown_keys_are_kept_and_missing_ones_refused(tmp_path):
    more = entry("w", 1, [2, 3], 0, 24, color="blue", nested={"a": [1]})
    with holdall.open(file([tidx([more], version=9), shard(W.tobytes())])) as model:
        (row,) = parse(written(tmp_path / "a", model)).tensors()
        assert (row["color"], row["nested"]) == ("blue", {"a": [1]})
    for key in ("name", "dtype", "shape", "shard_id", "data_off", "data_len"):
        less = {name: value for name, value in ENTRIES[0].items() if name != key}
        refused(file([tidx([less]), SHARD]), "aero.tidx.field")
    without = {name: value for name, value in ENTRIES[0].items() if name != "flags"}
    assert list(holdall.open(file([tidx([without]), SHARD]))) == ["w"]


@pytest.mark.shows("A27")
@pytest.mark.parametrize(
    ("change", "rule"),
    [({"data_off": 11}, "range"), ({"data_off": 2**64 - 1}, "range"), ({"data_len": 35}, "range"),
     ({"data_len": 23}, "short"), ({"shape": [2**62, 4]}, "short"), ({"shape": [7, 1]}, "short"),
     ({"data_off": -1}, "field"), ({"data_len": -1}, "field"), ({"shape": [-2, -3]}, "field"),
     ({"name": "b"}, "name"), ({"name": ""}, "name")],
    ids=str,
)  # fmt: skip
def test_tensors_that_do_not_fit_are_refused(change, rule):
    refused(file([tidx([{**ENTRIES[0], **change}, ENTRIES[1]]), SHARD]), f"aero.tidx.{rule}", "core.limit")


@pytest.mark.shows("A28")
def test_a_tensor_whose_shard_is_missing_has_no_data():
    data = file([tidx([ENTRIES[0], entry("far", 1, [1], 0, 4, shard=5)]), SHARD])
    with holdall.open(data) as model:
        assert (model["w"].has_data, model["far"].has_data) == (True, False)
        with pytest.raises(holdall.HoldallError):
            model["far"].numpy()
    assert rules(data) == {"aero.tidx.shard"}


@pytest.mark.shows("A29")
@pytest.mark.parametrize("fourcc", [b"TIDX", b"MJSN", b"MMSG", b"WTSH"])
def test_hashes_of_chunks_are_compared(fourcc):
    wrong = [Chunk(**{**vars(chunk), "digest": bytes(32)}) if chunk.fourcc == fourcc else chunk for chunk in EVERYTHING]
    data = file(wrong)
    if fourcc == b"TIDX":
        refused(data, "aero.chunk.blake3")
        return
    with holdall.open(data) as model:
        assert model["w"].numpy().tolist() == W.tolist()
        if fourcc == b"MJSN":
            with pytest.raises(holdall.FormatError) as caught:
                dict(model.metadata)
            assert caught.value.rule == "aero.chunk.blake3"
    assert rules(data, "structure") == (set() if fourcc == b"WTSH" else {"aero.chunk.blake3"})
    assert rules(data) == ({"aero.shard.blake3"} if fourcc == b"WTSH" else {"aero.chunk.blake3"})


@pytest.mark.shows("A30")
def test_a_million_and_one_chunks_are_refused(tmp_path):
    entries = 16 + 80 * 1_000_001
    head = file([], toc_length=entries, strings=96 + entries, strings_length=0, count=1_000_001)[:112]
    with (tmp_path / "many.aero").open("wb") as out:
        out.write(head)
        out.truncate(96 + entries)

    def open_it():
        with pytest.raises(holdall.LimitError, match="1000001"):
            holdall.open(tmp_path / "many.aero")

    assert run_isolated(lambda: cost_of(open_it)).peak_bytes < 20 << 20


@pytest.mark.shows("A31")
def test_names_of_more_than_512_megabytes_are_refused(tmp_path):
    size = (512 << 20) + 8
    with (tmp_path / "names.aero").open("wb") as out:
        out.write(file([], strings_length=size)[:112])
        out.truncate(112 + size)

    def open_it():
        with pytest.raises(holdall.LimitError, match=str(size)):
            holdall.open(tmp_path / "names.aero")

    assert run_isolated(lambda: cost_of(open_it)).peak_bytes < 20 << 20


@pytest.mark.shows("A32")
@pytest.mark.parametrize("fourcc", [b"TIDX", b"MMSG", b"MJSN"])
@pytest.mark.parametrize("ulen", [(2 << 30) + 1, 2**63, 2**64 - 1])
def test_documents_of_more_than_two_gigabytes_are_refused(fourcc, ulen):
    lying = [
        Chunk(**{**vars(c), "ulen": ulen, "flags": c.flags | ZSTD}) if c.fourcc == fourcc else c for c in EVERYTHING
    ]

    data = file(lying)

    def look():
        assert rules(data) & {"aero.chunk.ulen", "core.limit"}
        with pytest.raises(holdall.FormatError), holdall.open(data) as model:
            _ = dict(model.metadata), model.native.manifest

    assert run_isolated(lambda: cost_of(look)).peak_bytes < 50 << 20


@pytest.mark.shows("A32")
def test_a_stored_index_of_more_than_two_gigabytes_is_refused(tmp_path):
    """A sparse file that really holds one byte too many."""
    others = [chunk for chunk in EVERYTHING if chunk.fourcc != b"TIDX"]
    size = (2 << 30) + 1
    data = file([*others, Chunk(b"TIDX", "tensors", b"", ulen=size)])
    at = 112 + 80 * len(others)
    (place,) = struct.unpack_from("<Q", data, at + 8)
    with (tmp_path / "large.aero").open("wb") as out:
        out.write(patch(data, at + 16, struct.pack("<Q", size)))
        out.truncate(place + size)

    def look():
        assert "aero.chunk.ulen" in rules(tmp_path / "large.aero", "structure")
        with pytest.raises(holdall.FormatError) as caught:
            holdall.open(tmp_path / "large.aero")
        assert caught.value.rule == "aero.chunk.ulen"

    assert run_isolated(lambda: cost_of(look)).peak_bytes < 50 << 20


@pytest.mark.shows("A35")
def test_damage_to_the_control_region_is_found_without_reading_weights(tmp_path):
    data = written(tmp_path / "a", {"w": np.zeros(100_000, np.float32), "b": B}, control_hash=True)
    parsed = parse(data)
    check_control(parsed)
    names = parsed.header["strings"]
    for at in (52, 60, 112 + 4, 112 + 80 + 4, names, names + 3):  # uuid, flags of entries, names
        damaged = patch(data, at, bytes([data[at] ^ 0x40]))
        source = RecordingSource(BytesSource(damaged))
        report = holdall.verify(source, level="structure")
        assert "aero.ihsh" in {finding.rule for finding in report.findings}, at
        assert source.bytes_read < 100_000


@pytest.mark.shows("A36")
def test_the_control_hash_from_the_command_line(tmp_path):
    written(tmp_path / "with.aero", {"w": W}, control_hash=True)
    written(tmp_path / "without.aero", {"w": W})
    shown = run("verify", "--level", "structure", tmp_path / "with.aero")
    assert (shown.exit_code, "aero.ihsh" in shown.output) == (0, False)
    shown = run("verify", "--level", "structure", tmp_path / "without.aero")
    assert shown.exit_code == 0
    assert "aero.ihsh.absent" in shown.output
    data = (tmp_path / "with.aero").read_bytes()
    (tmp_path / "with.aero").write_bytes(patch(data, 60, bytes([data[60] ^ 1])))
    shown = run("verify", "--level", "structure", tmp_path / "with.aero")
    assert (shown.exit_code, "aero.ihsh" in shown.output) == (1, True)


@pytest.mark.shows("A37", "A38")
def test_a_damaged_page_is_named_and_a_slice_of_it_refused(tmp_path):
    values = np.arange(100_000, dtype="<f4").reshape(100, 1000)
    data = written(tmp_path / "a.aero", {"w": values}, page_hash=4096)
    assert check_pages(parse(data), 4096) == -(-values.nbytes // 4096)
    at = data.index(values[50].tobytes())
    (tmp_path / "a.aero").write_bytes(patch(data, at, b"\xff"))
    report = holdall.verify(tmp_path / "a.aero")
    (page,) = [finding for finding in report.findings if finding.rule == "aero.page.blake3"]
    assert page.offset <= at < page.offset + 4096
    assert "'w'" in page.message
    with holdall.open(tmp_path / "a.aero", check=True) as model:
        with pytest.raises(holdall.FormatError) as caught:
            model["w"][50]
        assert caught.value.rule == "aero.page.blake3"
        assert model["w"][10].tolist() == values[10].tolist()


@pytest.mark.shows("A38")
def test_a_checked_slice_reads_its_pages_and_no_more(tmp_path):
    values = np.arange(64 << 10, dtype="<f4").reshape(64, 1024)
    data = written(tmp_path / "a.aero", {"w": values}, page_hash=4096)
    source = RecordingSource(BytesSource(data))
    with holdall.open(source, check=True) as model:
        model["w"][0]
        source.reads.clear()
        assert model["w"][40].tolist() == values[40].tolist()
        assert source.bytes_read <= 4 * 4096


@pytest.mark.shows("A47")
def test_one_tensor_at_a_time_is_in_memory_while_writing(tmp_path):
    """400 MB of tensors that are made when they are asked for."""
    size, count = 10_000_000, 40

    def make(number):
        piece = bytes([number]) * 1_000_000
        return Computed(size, lambda: (piece for _ in range(10)))

    tensors = [holdall.Tensor(f"t{n}", DTYPES["u8"], (size,), make(n)) for n in range(count)]
    path = tmp_path / "large.aero"
    cost = run_isolated(lambda: cost_of(lambda: holdall.save(path, tensors, fsync=False, tensor_hash=True)))
    assert path.stat().st_size > size * count
    assert cost.peak_bytes < 120 << 20
    with holdall.open(path) as model:
        assert model["t7"][-3:].tolist() == [7, 7, 7]
    path.unlink()


@pytest.mark.shows("A51")
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2)])
def test_scalars_and_empty_tensors(shape, tmp_path):
    values = np.full(shape, 2.5, np.float32)
    data = written(tmp_path / "a", {"w": values, "b": B})
    row = parse(data).tensors()[0]
    assert (row["shape"], row["data_len"]) == (list(shape), values.nbytes)
    with holdall.open(data) as model:
        assert model["w"].numpy().tolist() == values.tolist()
    rows = [entry("w", 1, shape, 0, values.nbytes), entry("b", 6, [5], values.nbytes, 10)]
    with holdall.open(file([tidx(rows), shard(values.tobytes() + B.tobytes())])) as model:
        assert (model["w"].numpy().tolist(), model["b"].numpy().tolist()) == (values.tolist(), B.tolist())


@pytest.mark.shows("A52")
def test_a_model_without_tensors(tmp_path):
    parsed = parse(written(tmp_path / "a", {}, metadata={"note": "x"}))
    assert parsed.tensors() == []
    for data in (parsed.data, file([tidx([])]), file([mjsn({}), tidx([]), shard(b"")])):
        with holdall.open(data) as model:
            assert len(model) == 0
        assert holdall.verify(data).ok


@pytest.mark.shows("A53")
@pytest.mark.parametrize(
    "change",
    [
        lambda c: {"ulen": len(c.content) + 1},
        lambda c: {"ulen": len(c.content) - 1},
        lambda c: {"ulen": 100},
        lambda c: {"stored": zstd.compress(c.content) + b"\0"},
        lambda c: {"stored": zstd.compress(c.content) + zstd.compress(b"more")},
        lambda c: {"stored": zstd.compress(c.content)[:-1]},
        lambda c: {"stored": b"no zstd at all"},
        lambda c: {"stored": zstd.compress(bytes(64 << 20))},
    ],
)  # fmt: skip
def test_compressed_chunks_that_lie_are_refused(change):
    index = tidx(ENTRIES)
    data = file([Chunk(**{**vars(index), **change(index)}), SHARD])

    def look():
        with pytest.raises(holdall.FormatError) as caught:
            holdall.open(data)
        assert caught.value.rule in ("aero.chunk.zstd", "aero.chunk.blake3")

    assert run_isolated(lambda: cost_of(look)).peak_bytes < 30 << 20
