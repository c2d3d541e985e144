"""A folder that must not replace anything takes its name in one step, or leaves nothing behind."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

import holdall
from holdall.base import platform

SYSTEM = sys.modules[platform.rename_new.__module__]


@pytest.fixture
def source(tmp_path):
    holdall.save(tmp_path / "s.safetensors", {"w": np.ones(3, np.float32)})
    return tmp_path / "s.safetensors"


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), KeyboardInterrupt()])
def test_a_failed_rename_leaves_no_empty_folder(source, monkeypatch, error):
    def fail(*arguments):
        raise error

    monkeypatch.setattr(SYSTEM, "rename_exclusively", lambda *paths: False, raising=False)  # as on older systems
    for name in ("replace", "rename"):
        monkeypatch.setattr(os, name, fail)
    with pytest.raises(type(error)):
        holdall.convert(source, source.parent / "out", format="hf", clobber=False)
    assert os.listdir(source.parent) == ["s.safetensors"]


def test_no_empty_folder_stands_in_for_the_new_one(source, monkeypatch):
    """A process that is killed between making a folder and renaming over it would leave it empty."""
    made = []
    mkdir = Path.mkdir
    monkeypatch.setattr(
        Path, "mkdir", lambda path, *more, **options: (made.append(path), mkdir(path, *more, **options))
    )
    holdall.convert(source, source.parent / "out", format="hf", clobber=False)
    assert (source.parent / "out" / "model.safetensors").is_file()
    assert source.parent / "out" not in made


@pytest.mark.parametrize("there", ["empty", "full"])
def test_a_folder_that_is_there_stays(source, there):
    target = source.parent / "out"
    target.mkdir()
    if there == "full":
        (target / "mine").write_bytes(b"mine")
    with pytest.raises(FileExistsError, match="out"):
        holdall.convert(source, target, format="hf", clobber=False)
    assert sorted(path.name for path in target.iterdir()) == (["mine"] if there == "full" else [])
    assert sorted(os.listdir(source.parent)) == ["out", "s.safetensors"]
