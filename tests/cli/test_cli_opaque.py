"""Files with objects on the command line."""

from __future__ import annotations

import json

import pytest

from tests.format.torch.framework import make_net

torch = pytest.importorskip("torch")


def test_info_lists_what_stays_opaque(tmp_path, cli):
    path = tmp_path / "m.pt"
    torch.save(make_net(), path)
    shown = cli("info", path)
    assert shown.exit_code == 0, shown.output
    assert "a pickled module of class tests.format.torch.framework.Net" in shown.output
    assert "torch.nn.modules.linear.Linear" in shown.output
    facts = json.loads(cli("info", path, "--json").stdout)
    rows = {row["opaque class"]: row["objects"] for row in facts["native"]["opaque class"]}
    assert rows["tests.format.torch.framework.Net"] == 1
    for line in (["info", path], ["ls", path], ["verify", path], ["convert", path, tmp_path / "x.safetensors"]):
        assert cli(*line).exit_code == 0, line
        shown = cli(*line, "--untrusted")
        assert shown.exit_code in (1, 3) and "tests.format.torch.framework.Net" in shown.output + shown.stderr, line
        assert cli(*line, "--untrusted", "--limit", "opaque_objects=100").exit_code == 0, line
