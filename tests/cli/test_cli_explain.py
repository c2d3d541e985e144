from __future__ import annotations

import json

import numpy as np
import pytest

import holdall


def test_header_fields_have_offset_bytes_name_and_value(cli, model_path):
    shown = cli("explain", "--hex", model_path).output
    assert "00000000  4f 49 4e 46 00           magic               OINF." in shown
    assert "00000015  05 00 00 00              n_tensors           5" in shown
    assert "tensor 0 layers.0.b" in shown
    assert "Map" not in shown


def test_the_map_covers_the_file(cli, model_path):
    facts = json.loads(cli("explain", "--map", "--json", model_path).output)
    at = 0
    for span in facts["map"]:
        assert span["start"] == at
        at = span["stop"]
    assert at == facts["size"] == model_path.stat().st_size
    assert "unknown" not in facts["totals"]
    assert facts["records"] == []


def test_one_table_alone(cli, model_path):
    shown = cli("explain", "--table", "metadata", model_path).output
    assert "metadata 0 arch" in shown
    assert "header" not in shown
    assert "payload  metadata arch" in shown
    missing = cli("explain", "--table", "nothing", model_path)
    assert missing.exit_code == 2
    assert "has no table 'nothing'; it has: header, sizevar, metadata, tensor" in missing.stderr


@pytest.mark.parametrize("more", [(), ("--hex",), ("--map",), ("--json",)])
def test_output_stays_bounded(cli, tmp_path, more):
    path = tmp_path / "many.oinf"
    holdall.save(path, {f"t{n}": np.zeros(1, np.int8) for n in range(5000)}, fsync=False)
    shown = cli("explain", "--rows", "3", path, *more)
    assert shown.exit_code == 0
    assert len(shown.output) < 20_000
    if not more:
        assert "… and 4,997 more; --rows N shows more" in shown.output
        assert "more ranges (payload, padding)" in shown.output


def test_a_damaged_file_is_explained_as_far_as_it_goes(cli, broken_path):
    shown = cli("explain", broken_path)
    assert shown.exit_code == 1
    assert "magic               OINF." in shown.output
    assert "UNKNOWN" in shown.output
    assert "oinf.header.file_size" in shown.output


def test_a_file_of_no_known_format_is_all_unknown(cli, tmp_path):
    path = tmp_path / "x.dat"
    path.write_bytes(b"hello")
    facts = json.loads(cli("explain", "--json", path).output)
    assert facts["totals"] == {"unknown": {"ranges": 1, "bytes": 5}}
    assert facts["findings"][0]["rule"] == "core.format"


def test_bytes_without_fields_are_dumped(cli, model_path):
    shown = cli("explain", "--hex", "--table", "tensor", model_path).output
    assert "02 00 00 00 00 00 00 00 03 00 00 00 00 00 00 00  ................" in shown


@pytest.fixture
def header_path(tmp_path):
    path = tmp_path / "x.safetensors"
    holdall.save(path, {"first": np.ones((2, 3), np.float32), "second": np.ones(4, np.float32)}, metadata={"a": "b"})
    return path


def test_documents_are_opened_in_lines(cli, header_path):
    shown = cli("explain", "--hex", header_path).output
    at = header_path.read_bytes().index(b"[2,3]")
    assert f"  {at:08x}  5b 32 2c 33 5d               shape                   [2, 3]" in shown
    assert "  json: JSON, " in shown


def test_documents_are_opened_for_programs(cli, header_path):
    data = header_path.read_bytes()
    facts = json.loads(cli("explain", "--json", header_path).output)
    (opened,) = (record["opened"] for record in facts["records"] if record["opened"] is not None)
    assert (opened["syntax"], opened["packing"], opened["offsets_in"]) == ("JSON", None, "file")
    assert (opened["more"], opened["stopped"]) == (False, None)
    for item in opened["items"]:
        parsed = json.loads(data[item["start"] : item["stop"]])
        assert parsed == item["value"] if "count" not in item else len(parsed) == item["count"]
    assert facts["carried"] is None


def test_one_byte_shows_what_owns_it(cli, header_path):
    at = header_path.read_bytes().index(b"second") + 1
    shown = cli("explain", "--at", hex(at), header_path).output
    lines = [line[36:].split()[0] for line in shown.split("Map")[0].splitlines() if line.startswith("  0000")]
    assert lines == ["object", "second", "dtype", "shape", "data_offsets"]
    assert "first" not in shown
    facts = json.loads(cli("explain", "--json", "--at", at, header_path).output)
    assert [record["table"] for record in facts["records"]] == ["json"]
    assert [span["name"] for span in facts["map"]] == ["json"]


def test_one_byte_of_a_payload(cli, header_path):
    size = header_path.stat().st_size
    shown = cli("explain", "--at", size - 1, header_path).output
    assert "tensor 1 second" in shown
    assert "3f" in shown


@pytest.mark.parametrize(("at", "why"), [("10000", "has 2"), ("x", "'x' is no offset"), ("-1", "is no offset")])
def test_a_byte_that_the_file_does_not_have(cli, header_path, at, why):
    shown = cli("explain", f"--at={at}", header_path)
    assert shown.exit_code == 2
    assert why in shown.stderr


def test_a_broken_document_is_shown_up_to_its_fault(cli, header_path):
    data = header_path.read_bytes()
    at = data.index(b"[2,3]") + 2
    header_path.write_bytes(data[:at] + b"?" + data[at + 1 :])
    shown = cli("explain", header_path)
    assert shown.exit_code == 1
    assert f"stopped at {at:#x}: a comma or ] is expected, not '?' (in $.first.shape[1])" in shown.output
    assert "dtype                   'F32'" in shown.output
