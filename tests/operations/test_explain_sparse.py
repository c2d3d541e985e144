"""``explain`` of a file of a terabyte, nearly all of it a hole: gaps are not read to their end."""

from __future__ import annotations

import os

import numpy as np
import pytest
from click.testing import CliRunner

import holdall
from holdall.cli import main
from holdall.operations import explain
from holdall.source.ledger import Ledger
from holdall.source.memory import BytesSource
from tests.attacks.kit import MIB, cost_of

TERA = 1 << 40
SINGLE = [name for name, format in holdall.formats().items() if not format.folder and name != "aeroset"]


def explain_sparse(path, head):
    path.write_bytes(head)
    os.truncate(path, TERA)
    outputs = []
    cost = cost_of(lambda: outputs.append(CliRunner().invoke(main, ["explain", str(path)]).output))
    assert "should not happen" not in outputs[0]
    assert cost.seconds < 2 and cost.peak_bytes < 200 * MIB, cost
    return outputs[0]


@pytest.mark.parametrize("name", SINGLE)
def test_a_file_of_a_format_with_a_terabyte_behind_it(name, tmp_path):
    path = tmp_path / "model"
    holdall.save(path, {"w": np.ones((64, 64), np.float32)}, format=name, fsync=False)
    data = path.read_bytes()
    shown = explain_sparse(path, data)
    assert f"{TERA:,} bytes" in shown
    explain_sparse(path, data[:64])


@pytest.mark.parametrize("head", [b"", b"\x01" * 100], ids=["nothing", "junk"])
def test_a_terabyte_of_no_format(head, tmp_path):
    shown = explain_sparse(tmp_path / "model", head)
    assert ("UNKNOWN" if head else "unread") in shown


def test_a_gap_is_read_as_far_as_there_is_time(monkeypatch):
    monkeypatch.setattr(explain, "_LOOKED", 100)
    monkeypatch.setattr(explain, "_PADDING", 10)
    ledger = Ledger()
    ledger.region("a", 40, 10)
    data = bytes(50) + bytes(200)

    def kinds(data):
        return [(span.start, span.stop, span.kind) for span in explain.map_file(ledger, BytesSource(data))]

    assert kinds(data) == [(0, 40, "zeros"), (40, 50, "region"), (50, 250, "unread")]
    assert kinds(data[:110]) == [(0, 40, "zeros"), (40, 50, "region"), (50, 110, "zeros")]
    assert kinds(data[:105] + b"x" + data[106:])[-1] == (50, 250, "unknown")
