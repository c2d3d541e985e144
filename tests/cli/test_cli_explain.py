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
    shown = cli("explain", "--limit", "3", path, *more)
    assert shown.exit_code == 0
    assert len(shown.output) < 20_000
    if not more:
        assert "… and 4,997 more; --limit N shows more" in shown.output
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
    shown = cli("explain", "--hex", "--table", "metadata", model_path).output
    assert "04 00 00 00 6d 6c 70" not in shown
    assert "03 00 00 00 6d 6c 70 00                          ....mlp." in shown
