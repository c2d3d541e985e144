"""A file that has everything of the format's document, and what its tests ask of files."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner

import holdall
from holdall.cli import main
from tests.format.aero.build import (
    entry,
    file,
    mjsn,
    mmsg,
    shard,
    tidx,
)

W = np.arange(6, dtype="<f4").reshape(2, 3) / 7
B = np.arange(5, dtype="<i2")
ENTRIES = [entry("w", 1, [2, 3], 0, 24), entry("b", 6, [5], 24, 10)]
SHARD = shard(W.tobytes() + B.tobytes())
EVERYTHING = [
    mjsn({"model_name": "toy", "note": [1]}),
    mmsg({"name": "toy", "architecture": "x"}),
    tidx(ENTRIES),
    SHARD,
]
DATA = file(EVERYTHING)
DTYPE = ["<f2", "<f4", ml_dtypes.bfloat16, "<f8", "i1", "u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "?"]
NAMES = ["f16", "f32", "bf16", "f64", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "bool"]
HASHES = {"tensor_hash": True, "page_hash": 4096, "control_hash": True}


def refused(data, *rules):
    with pytest.raises(holdall.FormatError) as caught:
        holdall.open(data, format="aero")
    assert caught.value.rule in rules, caught.value
    assert not holdall.verify(data, format="aero", level="structure").ok


def rules(data, level="full"):
    return {
        finding.rule
        for finding in holdall.verify(data, level=level).findings
        if finding.severity in ("error", "unread")
    }


def written(path, content, **options):
    holdall.save(path, content, format="aero", fsync=False, **options)
    return path.read_bytes()


def patch(data, at, new):
    return data[:at] + new + data[at + len(new) :]


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])
