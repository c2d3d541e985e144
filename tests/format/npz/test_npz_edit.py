"""Edits of npz and npy files: a change beyond the edit is reported, or the edit refused."""

import io

import numpy as np
import pytest

import holdall
from holdall.errors import ContentError

W = np.arange(6, dtype=np.float32)


def test_a_single_array_is_refused(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, W)
    before = path.read_bytes()
    for changes in ({"rename": {"array": "x"}}, {"set": {"note": "x"}}):
        with pytest.raises(ContentError, match="npy"):
            holdall.edit(path, **changes)
    assert path.read_bytes() == before


def test_compressed_entries_are_stored_which_is_reported(tmp_path):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, a=W, b=W)
    assert holdall.edit(path, rename={"a": "x"}).changes == [
        "tensor 'a' is called 'x'",
        "2 entries were compressed: written uncompressed",
    ]
    assert np.array_equal(np.load(io.BytesIO(path.read_bytes()))["x"], W)
    assert holdall.edit(path, rename={"x": "a"}).changes == ["tensor 'x' is called 'a'"]


def test_a_conversion_reports_it_too(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", a=W)
    report = holdall.convert(tmp_path / "a.npz", tmp_path / "b.npz", cast="f16")
    assert "1 entry was compressed: written uncompressed" in report.changes
