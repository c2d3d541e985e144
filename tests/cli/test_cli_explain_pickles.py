"""explain shows the opcodes of pickles of other programs, which are those that pickletools lists."""

import json
import pickle
import pickletools

import joblib
import numpy as np
import pytest


class Estimator:
    """Pickled by its name, as models of scikit-learn are."""

    def __init__(self):
        self.coefficients = np.arange(3.0)
        self.label = b"seven by"


def explain(cli, path, *more):
    shown = cli("explain", path, "--json", "--rows", 1000, *more)
    assert shown.exit_code == 3
    return json.loads(shown.output)


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("name", ["m.pdparams", "m.pkl"])
def test_all_opcodes_are_shown(cli, tmp_path, protocol, name):
    data = pickle.dumps({"w": np.arange(4, dtype=np.float32), "model": Estimator()}, protocol)
    data += pickle.dumps([1, 2], protocol) if protocol > 1 else b""  # what a second call of dump writes
    (tmp_path / name).write_bytes(data)
    expected, base = [], 0
    while base < len(data):
        found = [(opcode.name, base + at) for opcode, _, at in pickletools.genops(data[base:])]
        expected, base = expected + found, found[-1][1] + 1
    facts = explain(cli, tmp_path / name)
    (record,) = facts["records"]
    assert [(item["name"], item["start"]) for item in record["opened"]["items"]] == expected
    assert facts["totals"] == {"region": {"ranges": 1, "bytes": len(data)}}
    assert facts["findings"][0]["rule"] == "core.format"


def test_lines_show_arguments(cli, tmp_path):
    (tmp_path / "m.pkl").write_bytes(pickle.dumps(Estimator(), 4))
    shown = cli("explain", tmp_path / "m.pkl").output
    assert "pickles region (" in shown and "STACK_GLOBAL" in shown and "'Estimator'" in shown
    assert "8 bytes: 736576656e206279" in shown


def test_bytes_of_arrays_are_no_opcodes(cli, tmp_path):
    joblib.dump({"a": np.full(500, 7.5)}, tmp_path / "m.joblib")
    facts = explain(cli, tmp_path / "m.joblib")
    assert facts["totals"]["unknown"]["bytes"] >= 4000
    names = [item["name"] for item in facts["records"][0]["opened"]["items"]]
    assert names[0] == "PROTO" and "BUILD" in names and "STOP" not in names


def test_a_cut_pickle_is_shown_up_to_its_end(cli, tmp_path):
    (tmp_path / "m.pkl").write_bytes(pickle.dumps(Estimator(), 4)[:-9])
    facts = explain(cli, tmp_path / "m.pkl")
    assert facts["records"][0]["opened"]["items"][0]["name"] == "PROTO"
    assert "then it is damaged" in facts["findings"][0]["message"]
