"""explain opens compressed pickles, and protobuf messages of other programs."""

import bz2
import gzip
import json
import lzma
import pickle
import pickletools
import zlib

import joblib
import numpy as np
import pytest

from holdall.format.onnx.wire import field

PACKINGS = {
    "gzip": gzip.compress,
    "zlib": zlib.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "lzma": lambda data: lzma.compress(data, lzma.FORMAT_ALONE),
}
CONTENT = {"a": [1, 2.5, "x"], "b": b"bytes"}


def explain(cli, path, *more):
    shown = cli("explain", path, "--json", "--rows", 1000, *more)
    assert shown.exit_code == 3
    return json.loads(shown.output)


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_the_opcodes_of_a_packed_pickle_are_shown(cli, tmp_path, packing, protocol):
    data = pickle.dumps(CONTENT, protocol)
    stored = PACKINGS[packing](data)
    (tmp_path / "p.pkl").write_bytes(stored)
    facts = explain(cli, tmp_path / "p.pkl")
    (record,) = facts["records"]
    opened = record["opened"]
    assert [(item["name"], item["start"]) for item in opened["items"]] == [
        (opcode.name, at) for opcode, _, at in pickletools.genops(data)
    ]
    assert (opened["syntax"], opened["packing"], opened["offsets_in"]) == ("pickle", packing, "document")
    assert (opened["stored_bytes"], opened["bytes"], opened["whole"]) == (len(stored), len(data), True)
    assert facts["totals"] == {"region": {"ranges": 1, "bytes": len(stored)}}


@pytest.mark.parametrize("packing", PACKINGS)
def test_a_packed_pickle_that_is_cut_is_shown_up_to_there(cli, tmp_path, packing):
    data = pickle.dumps({str(number): number for number in range(20_000)})
    stored = PACKINGS[packing](data)
    (tmp_path / "p.pkl").write_bytes(stored[: len(stored) * 3 // 4])
    opened = cli("explain", tmp_path / "p.pkl", "--rows", 3).output
    if packing != "bzip2":  # of which a block is all or nothing
        assert "EMPTY_DICT" in opened
    assert "Traceback" not in opened


def test_bytes_of_arrays_are_no_opcodes(cli, tmp_path):
    joblib.dump({"a": np.full(500, 7.5)}, tmp_path / "m.joblib", compress=3)
    opened = explain(cli, tmp_path / "m.joblib")["records"][0]["opened"]
    names = [item["name"] for item in opened["items"]]
    assert names[0] == "PROTO" and "BUILD" in names and "STOP" not in names
    assert opened["stopped"]["message"] == "what follows is no pickle"


def test_a_packed_text_is_shown_as_lines(cli, tmp_path):
    (tmp_path / "t.gz").write_bytes(gzip.compress(b"one\ntwo\n"))
    opened = explain(cli, tmp_path / "t.gz")["records"][0]["opened"]
    assert [item["value"] for item in opened["items"]] == ["one\n", "two\n"]


MESSAGE = field(1, 7) + field(2, field(4, b"serve") + field(5, field(3, b"\xff\xfe"))) + b"\x1d\0\0\x80?"


@pytest.mark.parametrize("kind", ["SavedModel", "GraphDef", "Core ML"])
def test_fields_of_messages_without_names(cli, tmp_path, kind):
    data = {
        "SavedModel": field(1, 1) + field(2, MESSAGE),
        "GraphDef": field(1, field(1, b"input") + field(2, b"Placeholder") + field(9, MESSAGE)),
        "Core ML": field(1, 4) + field(2, MESSAGE) + field(500, b"abc"),
    }[kind]
    (tmp_path / "m.pb").write_bytes(data)
    (record,) = explain(cli, tmp_path / "m.pb")["records"]
    opened = record["opened"]
    assert (opened["syntax"], opened["more"], opened["stopped"]) == ("protobuf", False, None)
    items = opened["items"]
    place = next(place for place, item in enumerate(items) if item["value"] == 7)
    depth = items[place]["depth"]
    assert [(item["depth"] - depth, item["name"], item["kind"]) for item in items[place : place + 6]] == [
        (0, "field 1", "varint"),
        (0, "field 2", "message"),
        (1, "field 4", "text"),
        (1, "field 5", "message"),
        (2, "field 3", "bytes"),
        (0, "field 3", "fixed32"),
    ]
    assert data[items[place + 2]["start"] : items[place + 2]["stop"]] == b"serve"
    at = items[place + 4]["start"]
    from_there = explain(cli, tmp_path / "m.pb", "--at", at)["records"][0]["opened"]["items"]
    assert [item["start"] for item in from_there] == [item["start"] for item in items if item["stop"] > at]


def test_a_message_that_breaks_off_is_shown_up_to_there(cli, tmp_path):
    data = field(1, field(1, b"input") + field(2, b"Placeholder")) + field(1, b"x" * 50)
    (tmp_path / "m.pb").write_bytes(data[:-20] + b"")
    opened = explain(cli, tmp_path / "m.pb")["records"][0]["opened"]
    assert [item["value"] for item in opened["items"]][1:] == ["input", "Placeholder"]
    assert opened["stopped"]["message"] == "field 1 has 50 bytes, 30 are left in its message (in the message)"
