"""Every golden file: good ones decode exactly, bad ones are refused at the stage their reason names."""

import hashlib
import json
import subprocess
import sys

import numpy as np
import pytest

import holdall
from tests.format.aero.corpus import BAD, FOLDER, GOOD, bad_file, expected, name_of, stage


@pytest.mark.shows("A02", "A10", "A15", "A16", "A51")
@pytest.mark.parametrize("path", GOOD, ids=name_of)
def test_good_files_decode_exactly(path):
    want = expected(path)
    with holdall.open(path) as model:
        assert (model.format, model.version, model.native.uuid.hex) == ("aero", (0, 1), want["uuid"])
        chunks = [
            {"fourcc": c.fourcc, "name": c.name, "offset": c.offset, "length": c.length, "ulen": c.ulen,
             "flags": c.flags, "blake3": c.blake3.hex()}
            for c in model.native.chunks
        ]  # fmt: skip
        assert chunks == want["chunks"]
        assert (model.native.manifest or {}).get("model", {}) == want["model"]
        if "mjsn" in want["extra"]:
            assert dict(model.metadata) == want["extra"]["mjsn"]
        assert list(model) == [tensor["name"] for tensor in want["tensors"]]
        for tensor, entry in zip(model.tensors, want["tensors"], strict=True):
            check_tensor(tensor, entry)


def check_tensor(tensor, entry):
    assert (list(tensor.shape), tensor.native.shard) == (entry["shape"], entry["shard_id"])
    assert (tensor.native.hash_b3, tensor.native.quant_id) == (entry["hash_b3"], entry.get("quant_id"))
    assert tensor.native.quant_params == entry.get("quant_params")
    if entry["dtype"] != "packed":
        assert str(tensor.dtype) == entry["dtype"]
    if entry["sha256"] is None:  # the index of a set: its shards are elsewhere
        assert not tensor.has_data
    elif tensor.nbytes == entry["data_len"]:
        assert hashlib.sha256(tensor.raw()).hexdigest() == entry["sha256"]
    else:  # padding that another converter left behind the blocks is not part of the tensor
        assert entry["dtype"] == "packed"
        assert tensor.nbytes == tensor.dtype.nbytes(tensor.shape) < entry["data_len"]
    if "values" in entry:
        values = tensor.numpy().reshape(-1)
        values = (values.astype(np.float32) if entry["dtype"] == "bf16" else values).tolist()
        for found, value in zip(values, entry["values"], strict=True):
            value = float(value) if isinstance(value, str) else value
            assert found == value or (found != found and value != value)


@pytest.mark.parametrize("level", ["structure", "full", "strict"])
@pytest.mark.parametrize("path", GOOD, ids=name_of)
def test_good_files_verify(path, level):
    report = holdall.verify(path, level=level)
    assert report.ok, report.findings


@pytest.mark.shows("A04", "A11", "A12", "A27", "A53")
@pytest.mark.parametrize("kind", BAD)
def test_bad_files_are_refused_by_their_stage(kind):
    reached = refused_at(bad_file(kind))
    order = ["open", "read", "validate", "strict-only", "never"]
    assert order.index(reached) <= order.index(stage(kind)), reached
    if stage(kind) == "strict-only":
        assert holdall.verify(bad_file(kind)).ok


def refused_at(path):
    try:
        model = holdall.open(path)
    except holdall.FormatError:
        assert not holdall.verify(path, level="structure").ok
        return "open"
    with model:
        try:
            for tensor in model.tensors:
                tensor.raw() if str(tensor.dtype).startswith("ggml") else tensor.numpy()
        except holdall.HoldallError:
            return "read"
    if not holdall.verify(path).ok:
        return "validate"
    return "never" if holdall.verify(path, level="strict").ok else "strict-only"


COST = """
import json, sys, time, holdall
def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) >> 10
import numpy, blake3, holdall.format.aero.read, holdall.format.aeroset.read, holdall.binary.compression
holdall.verify(sys.argv[1])  # what is imported once is not the file's cost
costs = []
for path in sys.argv[2:]:
    before, start = peak(), time.process_time()
    try:
        with holdall.open(path) as model:
            for tensor in model.tensors:
                tensor.raw()
            dict(model.metadata)
    except holdall.HoldallError:
        pass
    holdall.verify(path, level="strict")
    costs.append((path, peak() - before, time.process_time() - start))
print(json.dumps(costs))
"""


@pytest.mark.shows("A32", "A53")
def test_bad_files_are_cheap():
    """Each under 200 MB and 2 s, those that would explode under 50 MB."""
    files = [str(bad_file(kind)) for kind in BAD]
    command = [sys.executable, "-c", COST, str(FOLDER / "test_vector.aero"), *files]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    for path, megabytes, seconds in json.loads(done.stdout):
        assert megabytes < (50 if "bomb" in path else 200), (path, megabytes)
        assert seconds < 2, (path, seconds)


def test_messages_name_path_and_byte():
    with pytest.raises(holdall.FormatError, match=r"twice \[byte \d+ of TIDX, \$\.tensors\[0\]\.data_off\]"):
        holdall.open(bad_file("tidx_msgpack_dup_key"))
    with pytest.raises(holdall.FormatError, match=r"negative integer.*\$\.tensors\[0\]\.data_off"):
        holdall.open(bad_file("tidx_data_off_negative"))


@pytest.mark.shows("A36")
def test_absent_hashes_are_notes():
    found = {f.rule: f.severity for f in holdall.verify(FOLDER / "test_vector.aero").findings}
    assert found == {"aero.ihsh.absent": "note", "aero.phsh.absent": "note", "aero.hash_b3.absent": "note"}
