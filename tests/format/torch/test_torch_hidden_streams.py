"""Pickles that the fast path of a state dict must not read otherwise than Python's unpickler does."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile

import numpy as np
import pytest

VALUES = np.arange(6, dtype="<f4")


def text(value):
    return b"X" + len(value).to_bytes(4, "little") + value


HEAD = (
    b"\x80\x02ccollections\nOrderedDict\nq\x00)Rq\x01(" + text(b"a") + b"q\x02"
    b"ctorch._utils\n_rebuild_tensor_v2\nq\x03(("
    + text(b"storage") + b"q\x04ctorch\nFloatStorage\nq\x05" + text(b"0") + b"q\x06" + text(b"cpu")
    + b"q\x07K\x06tq\x08QK\x00"
)  # fmt: skip
END = b"q\x0a\x89h\x00)Rq\x0btq\x0cRq\x0du."


def save(path, pickle):
    entries = {"data.pkl": pickle, "byteorder": b"little", "data/0": VALUES.tobytes(), "version": b"3\n"}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in entries.items():
            archive.writestr(f"m/{name}", data)
    return path


SHOW = """
import sys, holdall
report = holdall.verify(sys.argv[1], level="strict")
print(holdall.open(sys.argv[1])["a"].numpy().tolist() if report.ok else report.findings[0].rule)
"""


def read(path, native):
    """What is read in a process with the chosen engine: the values, or the rule that is broken."""
    environment = {**os.environ, "HOLDALL_NATIVE": native}
    done = subprocess.run(
        [sys.executable, "-c", SHOW, path], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("native", "01")
def test_a_stream_inside_a_long_number_is_a_number(tmp_path, native):
    """Python's unpickler takes the strides (3, 1); the strides (1, 2) stand inside a number that it pops again."""
    end = END[:-1]
    seen = b"0tq\x09K\x03K\x01\x86" + end + b"N"
    hidden = b"tq\x09K\x01K\x02\x86" + end + b"B" + len(seen).to_bytes(4, "little")
    pickle = HEAD + b"(K\x02K\x03\x8a" + bytes([len(hidden)]) + hidden + seen + b"0."
    assert read(save(tmp_path / "m.pt", pickle), native) == str(VALUES.reshape(2, 3).tolist())


@pytest.mark.parametrize("native", "01")
@pytest.mark.parametrize("number", [b"J\xff\xff\xff\xff", b"\x8a\x01\xff", b"\x8a\x09" + bytes(8) + b"\x01"])
def test_a_size_that_is_negative_or_huge_is_refused(tmp_path, native, number):
    pickle = HEAD + b"(K\x02K\x03" + number + b"tq\x09K\x03K\x01\x86" + END
    assert read(save(tmp_path / "m.pt", pickle), native) == "torch.pickle.call"
