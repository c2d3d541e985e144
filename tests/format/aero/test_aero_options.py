"""Documents stored or compressed, and chunks of kinds that the format does not define: read back by plain parsing."""

from __future__ import annotations

import hashlib
import itertools
import json
import struct

import numpy as np
import pytest
from blake3 import blake3
from click.testing import CliRunner

import holdall
from holdall.base.buffer_sizes import buffer_size
from holdall.cli import main
from tests.format.aero.build import Chunk, pack, unpack, zstd
from tests.format.aero.build import file as make_file

VALUES = {f"t{number}": np.full((7, number), number, np.float32) for number in range(1, 40)}
LARGE = np.random.default_rng(1).bytes(buffer_size(9 << 20) + 5)  # beyond every buffer


def read_chunks(data):
    """The chunks of a file by fourcc and name, read with nothing but struct: their flags and uncompressed bytes."""
    toc, _, strings, _ = struct.unpack_from("<4Q", data, 12)
    (count,) = struct.unpack_from("<I", data, toc)
    found = {}
    for row in range(count):
        entry = struct.unpack_from("<4sIQQQIIQ32s", data, toc + 16 + 80 * row)
        fourcc, flags, offset, length, ulen, name_off, name_len, reserved, digest = entry
        stored = data[offset : offset + length]
        content = zstd.decompress(stored) if flags & 1 else stored
        assert (len(content), blake3(content).digest(), reserved, offset % 16) == (ulen, digest, 0, 0)
        found[fourcc.decode(), data[strings + name_off : strings + name_off + name_len].decode()] = flags, content
    return found


def assert_sound(path):
    assert holdall.verify(path, level="strict").ok
    with holdall.open(path, check=True) as model:
        assert model.metadata["model_name"] == "demo"
        for name, array in VALUES.items():
            np.testing.assert_array_equal(model[name].numpy(), array)


@pytest.mark.parametrize("hashes", [{}, {"tensor_hash": True, "page_hash": 512, "control_hash": True}])
def test_each_document_is_stored_as_asked(hashes, tmp_path):
    contents = set()
    for choices in itertools.product(("compressed", "stored"), repeat=3):
        options = dict(zip(("tidx", "mmsg", "mjsn"), choices, strict=True))
        path = tmp_path / "x.aero"
        holdall.save(path, VALUES, metadata={"model_name": "demo"}, max_shard_bytes=4096, **options, **hashes)
        chunks = read_chunks(path.read_bytes())
        names = {"tidx": ("TIDX", "tensors"), "mmsg": ("MMSG", "manifest"), "mjsn": ("MJSN", "meta.json")}
        assert {name: chunks[names[name]][0] & 1 for name in names} == {
            name: int(choice == "compressed") for name, choice in options.items()
        }
        contents.add(tuple(chunks[names[name]][1] for name in names))
        assert_sound(path)
    assert len(contents) == 1  # what is in them does not depend on how they are stored


def test_the_defaults_are_those_of_the_reference_writer(tmp_path):
    holdall.save(tmp_path / "x.aero", VALUES)
    flags = {fourcc: flags for (fourcc, _), (flags, _) in read_chunks((tmp_path / "x.aero").read_bytes()).items()}
    assert flags == {"MJSN": 0, "MMSG": 1, "TIDX": 5, "WTSH": 2}


def test_a_set_stores_its_documents_as_asked(tmp_path):
    holdall.save(tmp_path / "x", VALUES, metadata={"model_name": "demo"}, format="aeroset", max_shard_bytes=4096,
                 part_shards=1, tidx="stored", mmsg="stored", mjsn="compressed", tensor_hash=True)  # fmt: skip
    assert_sound(tmp_path / "x")
    files = sorted((tmp_path / "x").glob("*.aero"))
    assert len(files) > 2
    for file in files:
        for (fourcc, _), (flags, _) in read_chunks(file.read_bytes()).items():
            assert flags & 1 == (fourcc == "MJSN")


def test_compressed_json_cannot_be_completed_late(tmp_path):
    holdall.save(tmp_path / "x.oinf", VALUES)
    with pytest.raises(holdall.ContentError, match=r"mjsn=compressed is not possible.*--carry"):
        holdall.convert(tmp_path / "x.oinf", tmp_path / "x.aero", carry=True, options={"mjsn": "compressed"})
    with pytest.raises(holdall.UnsupportedError, match="mjsn is one of compressed, stored, not 'zip'"):
        holdall.save(tmp_path / "x.aero", VALUES, mjsn="zip")


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_chunks_come_from_files_and_stay(tmp_path):
    """From the command line, through a rewrite, into a set and on to another set."""
    holdall.save(tmp_path / "x.safetensors", VALUES, metadata={"model_name": "demo"})
    (tmp_path / "notes@home.txt").write_bytes(b"kept")
    (tmp_path / "large.bin").write_bytes(LARGE)
    (tmp_path / "empty").write_bytes(b"")
    files = {"NOTE:a note": "notes@home.txt", "XBIN:wei\xdf": "large.bin", "XBIN:nothing": "empty"}
    given = [part for label, file in files.items() for part in ("-o", f"chunk={label}@{tmp_path / file}")]
    more = {"max_shard_bytes": 4096, "part_shards": 1}
    as_set = ["--format", "aeroset", "-o", "max-shard-bytes=4096", "-o", "part-shards=1"]
    for target, options in (("a.aero", ["-o", "tensor_hash=yes"]), ("c", as_set)):
        done = run("convert", tmp_path / "x.safetensors", tmp_path / target, *given, *options)
        assert done.exit_code == 0, done.output
    expected = {("NOTE", "a note"): (8, b"kept"), ("XBIN", "wei\xdf"): (8, LARGE), ("XBIN", "nothing"): (8, b"")}
    assert expected.items() <= read_chunks((tmp_path / "a.aero").read_bytes()).items()
    holdall.convert(tmp_path / "a.aero", tmp_path / "b.aero", options={"page_hash": True})
    assert expected.items() <= read_chunks((tmp_path / "b.aero").read_bytes()).items()
    holdall.convert(tmp_path / "c", tmp_path / "d", format="aeroset", options={**more, "part_shards": 2})
    for folder in ("c", "d"):
        assert expected.items() <= read_chunks((tmp_path / folder / "part-000.aero").read_bytes()).items()
    for path in ("a.aero", "b.aero", "c", "d"):
        assert_sound(tmp_path / path)
        lost = holdall.convert(tmp_path / path, tmp_path / "y.safetensors").losses
        assert [f"a chunk of {len(LARGE)} bytes" in loss.reason for loss in lost if "XBIN 'wei\xdf'" in loss.name] == [
            True
        ]


def test_chunks_cross_between_files_and_sets(tmp_path):
    """A file into a set of many parts, that into a renamed file; nothing is reported as lost, and strict agrees."""
    holdall.save(tmp_path / "a.aero", VALUES, metadata={"model_name": "demo"},
                 chunk={"NOTE:a note": b"kept", "XBIN:large": LARGE, "XBIN:nothing": b""})  # fmt: skip
    expected = {("NOTE", "a note"): (8, b"kept"), ("XBIN", "large"): (8, LARGE), ("XBIN", "nothing"): (8, b"")}
    cut = ["-o", "max_shard_bytes=4096", "-o", "part_shards=1"]
    ways = [("a.aero", "s.aeroset", "part-000.aero", cut), ("s.aeroset", "b.aero", "", ["--rename", "s/t1$/t1/"])]
    for source, target, part, options in ways:
        done = run("convert", tmp_path / source, tmp_path / target, "--strict", *options)
        assert done.exit_code == 0, done.output
        assert "left out" not in done.output and "place for it" not in done.output
        assert expected.items() <= read_chunks((tmp_path / target / part).read_bytes()).items()
        assert_sound(tmp_path / target)
    report = holdall.convert(tmp_path / "a.aero", tmp_path / "t.aeroset")
    assert (report.losses, report.lossless) == ([], True)
    report = holdall.convert(tmp_path / "t.aeroset", tmp_path / "c.aero", options={"chunk": {"NOTE:a note": b"new"}})
    assert (report.losses, report.lossless) == ([], True)
    found = read_chunks((tmp_path / "c.aero").read_bytes())
    assert (found["NOTE", "a note"][1], found["XBIN", "large"][1]) == (b"new", LARGE)
    with holdall.open(tmp_path / "t.aeroset") as model:
        holdall.numpy.save_file(model, tmp_path / "d.aero")
    assert expected.items() <= read_chunks((tmp_path / "d.aero").read_bytes()).items()
    losses = holdall.convert(tmp_path / "a.aero", tmp_path / "x.safetensors").losses
    assert {loss.reason.partition(": ")[2] for loss in losses if loss.part == "native"} == {
        "safetensors has no place for it"
    }


def unknown_keys(data, **keys):
    """A file whose MMSG has ``keys`` as well, and ``license`` in its model map."""
    chunks = read_chunks(data)
    manifest = unpack(chunks["MMSG", "manifest"][1])
    manifest["model"]["license"] = "MIT"
    chunks["MMSG", "manifest"] = 0, pack(manifest | keys)
    rows = chunks.items()
    return make_file([Chunk(fourcc.encode(), name, content, flags & ~1) for (fourcc, name), (flags, content) in rows])


def test_unknown_keys_of_the_manifest_go_from_file_to_set_and_back(tmp_path):
    holdall.save(tmp_path / "plain.aero", VALUES, metadata={"model_name": "demo"})
    (tmp_path / "a.aero").write_bytes(unknown_keys((tmp_path / "plain.aero").read_bytes(), origin={"by": ["x", 1]}))
    for source, target in (("a.aero", "s.aeroset"), ("s.aeroset", "b.aero"), ("a.aero", "c.aero")):
        report = holdall.convert(tmp_path / source, tmp_path / target, strict=True, rename=["s/^t/t/"])
        assert (report.lost, report.lossless) == ([], True)
        inside = "part-000.aero" if target.endswith("set") else ""
        stored = read_chunks((tmp_path / target / inside).read_bytes())["MMSG", "manifest"][1]
        manifest = unpack(stored)
        assert (manifest["origin"], manifest["model"]["license"]) == ({"by": ["x", 1]}, "MIT")
        assert_sound(tmp_path / target)
    lost = holdall.convert(tmp_path / "a.aero", tmp_path / "x.safetensors").lost
    assert [text for text in lost if "MMSG" in text] == [
        f"native 'MMSG {key}': a key that the format does not define: safetensors has no place for it (left out)"
        for key in ("model license", "origin")
    ]
    with holdall.open(tmp_path / "a.aero") as model, pytest.raises(holdall.ContentError, match="no place for a key"):
        holdall.save(tmp_path / "y.safetensors", model)


def write_set(folder, *parts):
    """A set of parts that were made one by one; it has no global index."""
    folder.mkdir()
    listed = []
    for number, data in enumerate(parts):
        (folder / f"part-{number:03}.aero").write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        listed.append({"path": f"part-{number:03}.aero", "sha256": digest, "size_bytes": len(data), "shards": [number]})
    document = {"format": {"name": "AEROSET", "version": [0, 1]}, "model": {}, "parts": listed}
    (folder / "model.aeroset.json").write_text(json.dumps(document))


def test_chunks_of_one_name_in_two_parts_are_named_where_they_differ(tmp_path):
    parts = []
    for number in range(2):
        own = {"NOTE:same": b"same", "NOTE:other": b"other %d" % number, f"NOTE:{number}": b""}
        holdall.save(tmp_path / "x.aero", {f"t{number}": VALUES["t1"]}, chunk=own)
        parts.append((tmp_path / "x.aero").read_bytes())
    write_set(tmp_path / "s.aeroset", unknown_keys(parts[0], run=1), unknown_keys(parts[1], run=2))
    report = holdall.convert(tmp_path / "s.aeroset", tmp_path / "b.aero")
    assert report.lost == [
        "native \"part-001.aero: chunk 3 NOTE 'other'\": a chunk of 7 bytes, and another of its name is kept: "
        "aero has no place for it (left out)",
        "native 'part-001.aero: MMSG run': another value, and the first is kept: aero has no place for it (left out)",
    ]
    chunks = read_chunks((tmp_path / "b.aero").read_bytes())
    assert {name: content for (fourcc, name), (_, content) in chunks.items() if fourcc == "NOTE"} == {
        "same": b"same", "other": b"other 0", "0": b"", "1": b""
    }  # fmt: skip
    again = holdall.convert(tmp_path / "s.aeroset", tmp_path / "t.aeroset", rename=["s/t0/u/"])
    assert len(again.lost) == 2
    for target in ("c.aero", "c.aeroset"):
        with pytest.raises(holdall.ContentError, match=r"strict was asked for.*NOTE 'other'"):
            holdall.convert(tmp_path / "s.aeroset", tmp_path / target, strict=True, rename=["s/t0/u/"])
        with holdall.open(tmp_path / "s.aeroset") as model, pytest.raises(holdall.ContentError, match="another of its"):
            holdall.save(tmp_path / target, model)
        assert not (tmp_path / target).exists()


def test_files_that_become_one_keep_their_chunks_and_hashes(tmp_path):
    hashes = {"tensor_hash": True, "page_hash": 512, "control_hash": True}
    large = {"XBIN:large": LARGE, "NOTE:same": b"same", "NOTE:other": b"first"}
    holdall.save(tmp_path / "a.aero", {"a": VALUES["t1"]}, chunk=large)
    holdall.save(tmp_path / "b.aeroset", {"b": VALUES["t39"]}, chunk={"NOTE:b": b"b", "NOTE:same": b"same"}, **hashes)
    holdall.save(tmp_path / "c.safetensors", {"c": VALUES["t3"]})
    sources = [tmp_path / "a.aero", tmp_path / "b.aeroset", tmp_path / "c.safetensors"]
    for target, part in (("ab.aero", ""), ("ab.aeroset", "part-000.aero")):
        report = holdall.convert(sources, tmp_path / target, strict=True)
        assert (report.lost, report.lossless) == ([], True)
        chunks = read_chunks((tmp_path / target / part).read_bytes())
        assert {name: content for (fourcc, name), (_, content) in chunks.items() if fourcc in ("NOTE", "XBIN")} == {
            "large": LARGE, "same": b"same", "other": b"first", "b": b"b"
        }  # fmt: skip
        assert {"IHSH", "PHSH"} <= {fourcc for fourcc, _ in chunks}
        entries = unpack(chunks["TIDX", "tensors"][1])["tensors"]
        assert {entry["name"]: entry["hash_b3"] for entry in entries} == {
            name: blake3(VALUES[row].tobytes()).hexdigest() for name, row in (("a", "t1"), ("b", "t39"), ("c", "t3"))
        }
        assert holdall.verify(tmp_path / target, level="strict").ok
    holdall.save(tmp_path / "d.aero", {"d": VALUES["t2"]}, chunk={"NOTE:other": b"second"})
    report = holdall.convert([tmp_path / "a.aero", tmp_path / "d.aero"], tmp_path / "ad.aero")
    assert len(report.lost) == 1 and "NOTE 'other': a chunk of 6 bytes, and another of its name is" in report.lost[0]
    with pytest.raises(holdall.ContentError, match="another of its name"):
        holdall.convert([tmp_path / "a.aero", tmp_path / "d.aero"], tmp_path / "x.aero", strict=True)


def test_a_chunk_that_is_given_replaces_the_one_in_the_file(tmp_path):
    holdall.save(tmp_path / "a.aero", VALUES, chunk={"NOTE:a": b"first", "NOTE:b": b"other"})
    with holdall.open(tmp_path / "a.aero") as model:
        holdall.save(tmp_path / "b.aero", model, chunk={"NOTE:a": bytearray(b"second")})
        assert model.native.content(model.native.extras[0]) == b"first"
    chunks = read_chunks((tmp_path / "b.aero").read_bytes())
    assert (chunks["NOTE", "a"][1], chunks["NOTE", "b"][1]) == (b"second", b"other")


def test_chunks_that_cannot_be_written_are_refused(tmp_path):
    refused = {
        "TIDX:x": "'TIDX:x': the format itself uses TIDX", "IHSH:x": "the format itself uses IHSH",
        "ABC:x": "four ASCII characters and a colon", "ABCDE": "four ASCII", "\xe4BCD:x": "four ASCII",
        "AB\nD:x": "four ASCII", "ABCD:": "'ABCD:' has no name", "ABCD:a\0b": "has a NUL in its name",
    }  # fmt: skip
    for label, message in refused.items():
        with pytest.raises(holdall.ContentError, match=message):
            holdall.save(tmp_path / "x.aero", VALUES, chunk={label: b""})
    with pytest.raises(holdall.ContentError, match="a mapping from FOURCC:name to bytes, not str"):
        holdall.save(tmp_path / "x.aero", VALUES, chunk="NOTE:a@file")
    holdall.save(tmp_path / "x.oinf", VALUES)
    for values, message in {
        ("NOTE:a",): "-o chunk takes LABEL@FILE, not 'NOTE:a'",
        (f"NOTE:a@{tmp_path}/none",): "No such file",
        (f"NOTE:a@{tmp_path}/x.oinf", f"NOTE:a@{tmp_path}/x.oinf"): "'NOTE:a' is given twice",
    }.items():
        options = [part for value in values for part in ("-o", f"chunk={value}")]
        done = run("convert", tmp_path / "x.oinf", tmp_path / "x.aero", *options)
        assert done.exit_code == 2 and message in done.stderr, done.stderr
    done = run("convert", tmp_path / "x.oinf", tmp_path / "x.aero", "-o", f"chunk=WTSH:a@{tmp_path}/x.oinf")
    assert done.exit_code == 1 and "the format itself uses WTSH" in done.stderr
    assert not (tmp_path / "x.aero").exists()
