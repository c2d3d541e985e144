"""Files of PyTorch that are no checkpoints are named for what they are, and never called damaged."""

from __future__ import annotations

import zipfile

import pytest

import holdall
from holdall.errors import ForeignError

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore")


def named(path, message: str) -> None:
    with pytest.raises(ForeignError, match=message):
        holdall.open(path)
    report = holdall.verify(path)
    assert report.verdict == "not read" and message in report.findings[0].message


def test_an_exported_program(tmp_path):
    path = tmp_path / "m.pt2"
    torch.export.save(torch.export.export(torch.nn.Linear(2, 3), (torch.ones(1, 2),)), path)
    message = "is a program of torch.export (.pt2): load it with torch.export.load"
    named(path, message.split(" (")[0])
    assert message in holdall.verify(path).findings[0].message
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(tmp_path / "bare.pt2", "w") as target:
        for name in source.namelist():
            if "sample_inputs" not in name:  # without a checkpoint inside, it looks like no file of PyTorch
                target.writestr(name, source.read(name))
    named(tmp_path / "bare.pt2", "is a program of torch.export")
    with zipfile.ZipFile(tmp_path / "old.pt2", "w") as target:
        target.writestr("serialized_exported_program.json", b"{}")
        target.writestr("version", b"7")
    named(tmp_path / "old.pt2", "is a program of torch.export")


def test_a_model_for_mobile_devices(tmp_path):
    path = tmp_path / "m.ptl"
    torch.jit.script(torch.nn.Linear(2, 3))._save_for_lite_interpreter(str(path), _use_flatbuffer=True)
    named(path, "is a PyTorch model for mobile devices")
