"""The difficult traits of the toy one by one."""

import hashlib
import struct
import zlib

import numpy as np
import pytest
from blake3 import blake3

import holdall
from holdall.plugin import Model, Tensor
from holdall.sink.plan import Late
from holdall.source import BytesSource
from holdall.testing import RecordingSource, assert_same, register, write_read
from tests.toy.layout import FOOTER, HEADER, INDEX, MAIN, SIDE
from tests.toy.read import ToyNative


@pytest.fixture(autouse=True)
def toy():
    with register("tests.toy:FORMAT") as format:
        yield format


def model():
    shared = Tensor.of("embed", np.arange(12, dtype=np.float32).reshape(3, 4))
    return Model(
        [
            shared,
            shared.replace(name="head"),
            Tensor.of("bits", np.array([-8, 7, 1]), "i4"),
            Tensor.of("equal", np.arange(12, dtype=np.float32).reshape(4, 3)),
            Tensor.of("side.big", np.arange(50, dtype=np.int64)),
            Tensor("declared", shared.dtype, (9, 9), None),
            Tensor.of("nothing", np.zeros((0, 3), np.uint8)),
        ],
        metadata={"author": "nobody", "größe": "重み"},
        native=ToyNative(((b"WHAT", b"ever"), (b"NONE", b""))),
    )


@pytest.fixture
def path(tmp_path):
    holdall.save(tmp_path / "m.toy", model(), fsync=False)
    return tmp_path / "m.toy"


def frame(path):
    data = (path / MAIN).read_bytes()
    return data, HEADER.read(data, 0), FOOTER.read(data, len(data) - FOOTER.size)


def test_everything_survives_and_what_is_not_known_is_carried(path, tmp_path):
    with holdall.open(path) as first:
        assert_same(model(), first)
        assert first.native == ToyNative(((b"WHAT", b"ever"), (b"NONE", b"")))
        assert [source.name.rsplit("/", 1)[-1] for source in first.sources] == [MAIN, SIDE]
        with write_read(tmp_path / "again.toy", first, "toy") as second:
            assert second.native == first.native
    for name in (MAIN, SIDE):
        assert (path / name).read_bytes() == (tmp_path / "again.toy" / name).read_bytes()


def test_the_main_file_stands_for_its_folder(path):
    with holdall.open(path / MAIN) as given:
        assert_same(model(), given)
    assert holdall.verify(path / MAIN, level="strict").ok


def test_digests_are_those_of_the_bytes(path):
    data, header, footer = frame(path)
    assert header.digest == blake3(data[header.data_offset : footer.index_offset]).digest()
    assert header.seal == hashlib.sha256(data[HEADER.offset_of("digest") : footer.index_offset]).digest()
    assert header.side_crc == zlib.crc32((path / SIDE).read_bytes())
    assert footer.crc == zlib.crc32(data[: len(data) - FOOTER.size])


def test_the_index_depends_on_the_payloads(path, tmp_path):
    """Equal payloads share a row, so that its size is known only after they have passed."""
    _, _, footer = frame(path)
    assert footer.index_size == INDEX.size + 4 * (3 + 2)  # embed, bits, equal; embed and equal have equal bytes
    other = tmp_path / "other.toy"
    changed = [Tensor.of("equal", np.ones((4, 3), np.float32)) if t.name == "equal" else t for t in model().tensors]
    holdall.save(other, Model(changed), fsync=False)
    assert frame(other)[2].index_size == INDEX.size + 4 * (3 + 3)


def test_aliases_are_stored_once(path):
    with holdall.open(path) as opened:
        assert opened["embed"].offset == opened["head"].offset
        assert opened["equal"].offset != opened["embed"].offset


def test_plans_have_every_kind_of_piece_and_are_pure(toy):
    content = model()
    plans = [toy.plan(content, toy.settings({})) for _ in range(2)]
    main = plans[0].files[MAIN]
    assert list(plans[0].files) == [SIDE, MAIN]
    assert {type(piece).__name__ for piece in main.pieces} == {"Constant", "Late", "Stream"}
    assert [piece.name for piece in main.pieces if isinstance(piece, Late)] == ["seal", "digest", "side_crc"]
    assert {tap.kind for tap in main.taps} == {"crc32", "blake3", "sha256"}
    assert main.size is None
    assert plans[0].files[MAIN].taps == plans[1].files[MAIN].taps
    assert [(p.offset, p.size) for p in main.pieces] == [(p.offset, p.size) for p in plans[1].files[MAIN].pieces]


def test_options(path, tmp_path):
    holdall.save(tmp_path / "wide.toy", model(), align=64, fsync=False)
    with holdall.open(tmp_path / "wide.toy") as wide:
        assert {tensor.offset % 64 for tensor in wide.tensors if tensor.nbytes} == {0}
    with pytest.raises(holdall.UnsupportedError, match="align is one of 8, 64"):
        holdall.save(tmp_path / "x.toy", model(), align=7)


def test_every_damaged_byte_is_found(path):
    """Four digests cover each other: there is no byte of either file whose change passes verification."""
    for name in (MAIN, SIDE):
        file = path / name
        good = file.read_bytes()
        for at in range(len(good)):
            file.write_bytes(good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :])
            assert not holdall.verify(path).ok, f"{name} byte {at:#x}"
        file.write_bytes(good)
    assert holdall.verify(path, level="strict").ok


@pytest.mark.parametrize(
    ("name", "at", "rules"),
    [
        (MAIN, HEADER.offset_of("seal"), {"toy.seal", "toy.crc"}),
        (MAIN, HEADER.offset_of("digest"), {"toy.seal", "toy.digest", "toy.crc"}),
        (MAIN, HEADER.offset_of("side_crc"), {"toy.seal", "toy.side_crc", "toy.crc"}),
        (SIDE, 20, {"toy.side_crc"}),
    ],
)
def test_each_digest_is_reported_by_itself(path, name, at, rules):
    data = bytearray((path / name).read_bytes())
    data[at] ^= 1
    (path / name).write_bytes(data)
    assert {finding.rule for finding in holdall.verify(path).findings} == rules
    assert holdall.verify(path, level="structure").ok


def test_a_payload_is_found_by_three_digests_and_named_by_the_index(path):
    with holdall.open(path) as opened:
        at = opened["bits"].offset
    data = bytearray((path / MAIN).read_bytes())
    data[at] ^= 0x10
    (path / MAIN).write_bytes(data)
    findings = holdall.verify(path).findings
    assert {finding.rule for finding in findings} == {"toy.seal", "toy.digest", "toy.crc", "toy.index"}
    assert [finding.offset for finding in findings if finding.rule == "toy.index"] == [at]


def test_many_breaches_are_reported_at_once(path):
    """Sections, entries and digests are scopes of their own: one does not hide another."""
    data = bytearray((path / MAIN).read_bytes())
    header = HEADER.read(data, 0)
    section = HEADER.size + header.table_size + 4
    struct.pack_into("<I", data, section, 10**6)  # the length of the first section
    data[HEADER.size + 8] = 99  # the dtype of the first entry: 2 + 5 bytes of name, padded to 8
    (path / MAIN).write_bytes(data)
    found = {finding.rule for finding in holdall.verify(path).findings}
    assert {"toy.table", "toy.dtype", "toy.seal", "toy.crc"} <= found


def test_unowned_bytes_are_found_in_every_file(path):
    (path / SIDE).write_bytes((path / SIDE).read_bytes() + b"stray")
    report = holdall.verify(path, level="strict")
    unowned = [finding for finding in report.findings if finding.rule == "core.unowned"]
    assert [finding.file.rsplit("/", 1)[-1] for finding in unowned] == [SIDE]
    assert "core.unowned" not in {finding.rule for finding in holdall.verify(path, level="full").findings}


@pytest.mark.parametrize("name", [MAIN, SIDE])
def test_a_missing_member_is_said(path, name):
    (path / name).unlink()
    with pytest.raises((holdall.FormatError, holdall.UnsupportedError)):
        holdall.open(path)
    assert not holdall.verify(path, format="toy").ok


def test_a_member_swapped_for_a_link_is_refused(path, tmp_path):
    (path / SIDE).rename(tmp_path / "elsewhere")
    (path / SIDE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(holdall.FormatError, match="symbolic link"):
        holdall.open(path)


def test_bytes_alone_have_no_side_file(path):
    data = (path / MAIN).read_bytes()
    with pytest.raises(holdall.UnsupportedError, match="no folder"):
        holdall.open(data, format="toy")
    assert [finding.rule for finding in holdall.verify(data, format="toy", level="structure").findings] == [
        "core.unsupported"
    ]


def test_opening_reads_no_payload(path):
    from holdall.source import source_of

    source = RecordingSource(source_of(path, map=False))
    with holdall.open(source) as opened:
        listed = [(tensor.name, tensor.shape) for tensor in opened.tensors]
        assert len(listed) == 7
        _, header, _ = frame(path)
        assert source.bytes_read <= 64 + HEADER.size + FOOTER.size + header.data_offset + 16
        source.reads.clear()
        assert opened["side.big"][10:12].tolist() == [10, 11]
        assert source.reads == [(8 + 80, 16)]


def test_a_reader_may_be_given_any_source(tmp_path):
    content = {"a": np.arange(6, dtype=np.float32)}
    holdall.save(tmp_path / "m.toy", content, fsync=False)
    with holdall.open(BytesSource((tmp_path / "m.toy" / MAIN).read_bytes())) as opened:
        assert opened["a"].numpy().tolist() == [0, 1, 2, 3, 4, 5]
