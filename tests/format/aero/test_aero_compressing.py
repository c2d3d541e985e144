"""The writer compresses only what a reader takes under default limits: whatever it writes opens and verifies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdall
from holdall.format.aero import compressing, write
from holdall.limits import Limits

NOTHING = np.zeros(0, np.float32)


def is_compressed(path: Path) -> dict[str, bool]:
    """Whether each document of a file is compressed."""
    with holdall.open(path) as model:
        found = {chunk.fourcc: chunk.compressed for chunk in model.native.chunks}
    return {fourcc: found[fourcc] for fourcc in ("MJSN", "MMSG", "TIDX") if fourcc in found}


def check_opens(path: Path, count: int, limits: Limits | None = None) -> None:
    """Open and verify, by default under default limits."""
    options: dict[str, Any] = {} if limits is None else {"limits": limits}
    with holdall.open(path, **options) as model:
        assert len(model.tensors) == count
        list(model.metadata)
    report = holdall.verify(path, level="strict", **options)
    assert report.ok, report.findings[:3]


@pytest.mark.parametrize(
    ("format", "count", "options"),
    [
        ("aero", 400_000, {}),
        ("aeroset", 250_000, {}),
        ("aero", 250_000, {"tensor_hash": True}),
        pytest.param("aeroset", 400_000, {"tensor_hash": True}, marks=pytest.mark.long),
        pytest.param("aero", 1_000_000, {}, marks=pytest.mark.long),
        pytest.param("aeroset", 1_000_000, {}, marks=pytest.mark.long),
    ],
)
def test_very_many_empty_tensors_open_and_verify(tmp_path, format, count, options):
    """Compressed, their entries take less than a byte each."""
    path = tmp_path / f"z.{format}"
    holdall.save(path, {f"t{number}": NOTHING for number in range(count)}, fsync=False, **options)
    check_opens(path, count)
    part = path / "part-000.aero" if format == "aeroset" else path
    assert is_compressed(part) == {"MJSN": False, "MMSG": True, "TIDX": False}


def test_metadata_that_shrinks_too_much_is_stored_and_the_report_says_so(tmp_path):
    text = "the same words again " * 2_000_000
    holdall.save(tmp_path / "m.aero", {"w": NOTHING}, metadata={"text": text}, mjsn="compressed", fsync=False)
    assert is_compressed(tmp_path / "m.aero") == {"MJSN": False, "MMSG": True, "TIDX": True}
    with holdall.open(tmp_path / "m.aero") as model:
        assert model.metadata["text"] == text
    assert holdall.verify(tmp_path / "m.aero").ok
    report = holdall.convert(tmp_path / "m.aero", tmp_path / "n.aero", mjsn="compressed", fsync=False)
    assert any("MJSN is not compressed" in change for change in report.changes)
    assert (tmp_path / "n.aero").read_bytes() == (tmp_path / "m.aero").read_bytes()


def test_what_a_reader_takes_stays_compressed(tmp_path):
    ones = {f"t{number}": np.ones(1, np.float32) for number in range(100_000)}
    for format in ("aero", "aeroset"):
        holdall.save(tmp_path / f"m.{format}", ones, format=format, fsync=False)
    few = {f"t{number}": NOTHING for number in range(10)}
    holdall.save(tmp_path / "few.aero", few, mjsn="compressed", metadata={"text": "a" * 10_000})
    files = ("m.aero", "m.aeroset/part-000.aero", "m.aeroset/index.aero", "few.aero")
    for found in [is_compressed(tmp_path / name) for name in files]:
        assert found["TIDX"] and found["MMSG"]
    assert found["MJSN"]


@pytest.mark.parametrize("options", [{}, {"tensor_hash": True}, {"mjsn": "compressed"}])
@pytest.mark.parametrize("source", ["empty", "shapes", "values"])
def test_the_writer_compresses_only_what_the_reader_takes_whatever_the_limit(tmp_path, monkeypatch, source, options):
    """Under ever larger limits, so that each document meets the one at which it is just taken."""
    real = compressing.find_refused
    shapes = [(0,) * (20 if source == "shapes" else 1)] * 4000
    weights = {f"t{number}": np.zeros(shape, np.float32) for number, shape in enumerate(shapes)}
    metadata = {"list": [0] * 5000 if source == "values" else "a" * 5000} if "mjsn" in options else {}
    seen = set()
    for allowed in range(0, 4_000_000, 130_000):
        limits = Limits(expanded_bytes=allowed)
        for module in (write, compressing):
            monkeypatch.setattr(module, "find_refused", lambda found, size, _, tight=limits: real(found, size, tight))
        path = tmp_path / f"{allowed}.aero"
        holdall.save(path, weights, metadata=metadata, fsync=False, **options)
        check_opens(path, len(weights), limits)
        seen.add(tuple(is_compressed(path).items()))
    assert len(seen) > 1
