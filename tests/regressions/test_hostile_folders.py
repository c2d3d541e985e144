"""Hugging Face folders made by hand that took more than they should: built in code, named for what was wrong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import holdall
from holdall import Limits
from holdall.errors import FormatError, LimitError
from holdall.source import file as files
from holdall.testing.isolation import cost_of
from tests.attacks.files import hf_index
from tests.format.safetensors.files import build, entry


def test_missing_files_are_looked_for_once_for_each_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index of 50,000 files that are not there had verify try them all: 1.9 seconds."""
    hf_index(tmp_path, {f"t{n}": f"{n}.safetensors" for n in range(3000)})
    tried = []
    first = files.FileSource.__init__
    monkeypatch.setattr(
        files.FileSource, "__init__", lambda self, path, **more: tried.append(path) or first(self, path, **more)
    )
    report = holdall.verify(tmp_path)
    assert len(tried) < 110
    assert {finding.rule for finding in report.findings} == {"core.member"}
    assert len(report.findings) + report.suppressed["core.member"] == 3000


def test_names_that_leave_the_folder_are_not_taken_for_missing(tmp_path: Path) -> None:
    """They are refused for what they are, however many are missing."""
    names = [f"{n}.safetensors" for n in range(300)]
    hf_index(tmp_path, {f"t{n}": name for n, name in enumerate([*names, "../up", "zz/.."])})
    assert {finding.rule for finding in holdall.verify(tmp_path).findings} == {"core.member", "core.path"}


def test_one_file_under_many_names_is_read_once(tmp_path: Path) -> None:
    """Forty hard links to one header of 0.9 MB took eleven seconds to open."""
    names = [f"{n}.safetensors" for n in range(40)]
    hf_index(tmp_path, {f"t{n}": name for n, name in enumerate(names)})
    entries = {f"t{n}": entry(shape=[0], data_offsets=[0, 0]) for n in range(3000)}
    (tmp_path / names[0]).write_bytes(build(entries, b""))
    for name in names[1:]:
        os.link(tmp_path / names[0], tmp_path / name)
    with pytest.raises(FormatError, match=r"hf: 0.safetensors and 1.safetensors are the same file"):
        holdall.open(tmp_path)
    rules = [finding.rule for finding in holdall.verify(tmp_path).findings]
    assert rules.count("hf.shard.duplicate") == 39
    assert cost_of(lambda: holdall.verify(tmp_path)).seconds < 1


def test_the_files_of_an_index_are_limited(tmp_path: Path) -> None:
    """As those of other sets are."""
    hf_index(tmp_path, {f"t{n}": f"{n}.safetensors" for n in range(20)})
    with pytest.raises(LimitError, match="files of the index"):
        holdall.open(tmp_path, limits=Limits(sections=19))


def test_thousands_of_tiny_files_are_refused(tmp_path: Path) -> None:
    """9,000 files of 68 bytes took three seconds to open; here 640 files stand for 65,536."""
    hf_index(tmp_path, {f"t{n}": f"{n}.safetensors" for n in range(20)})
    for n in range(20):
        (tmp_path / f"{n}.safetensors").write_bytes(build({f"t{n}": entry()}, bytes(8)))
    with holdall.open(tmp_path) as model:
        assert len(model.tensors) == 20
    with pytest.raises(LimitError, match="must have 1024 each on average"):
        holdall.open(tmp_path, limits=Limits(sections=640))
    assert {finding.rule for finding in holdall.verify(tmp_path, limits=Limits(sections=640)).findings} == {
        "core.limit"
    }
