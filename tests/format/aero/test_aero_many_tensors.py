"""Files of many small tensors, as the reference writer makes them."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import holdall
from holdall.base.check import Check
from holdall.base.expansion import Expansion
from tests.format.aero.build import INDEX, ZSTD, Chunk, entry, file, mjsn, mmsg, pack, shard, tidx


@pytest.mark.shows("A34", "A56")
@pytest.mark.parametrize("count", [100_000, 150_000])
def test_a_file_of_the_reference_writer_opens(count):
    """f32[1] each: the index, expanded, is many times the file."""
    rows = [entry(f"layer.{n}.weight", 1, [1], 4 * n, 4) for n in range(count)]
    values = np.arange(count, dtype="<f4")
    data = file([mjsn({"model_name": "many"}), mmsg({"name": "many"}), tidx(rows), shard(values.tobytes())])
    with holdall.open(data) as model:
        assert len(model) == count
        for number in (0, count // 2, count - 1):
            assert model[f"layer.{number}.weight"].numpy().tolist() == [number]
    assert holdall.verify(data).ok


@pytest.mark.shows("A34")
def test_ten_million_tensors_are_the_default_and_forty_are_a_matter_of_limits():
    assert holdall.Limits().tensors == 10_000_000
    assert holdall.Limits(tensors=40_000_000).tensors == 40_000_000
    rows = [entry(f"t{n}", 5, [1], 0, 1) for n in range(11)]
    data = file([tidx(rows), shard(b"x")])
    with pytest.raises(holdall.LimitError, match="tensors"):
        holdall.open(data, limits=holdall.Limits(tensors=10))
    assert len(holdall.open(data, limits=holdall.Limits(tensors=11))) == 11


def test_as_many_packed_tensors_open(tmp_path):
    """Q4_0 each, with quant_params, which are decoded besides."""
    count = 100_000
    quant = {"quant_id": 0, "quant_params": {"ggml_type": 2}}
    rows = [entry(f"layer.{n}.weight", 0x8000, [32], 18 * n, 18, **quant) for n in range(count)]
    data = file([tidx(rows), shard(bytes(18 * count))])
    with holdall.open(data) as model:
        assert str(model[f"layer.{count - 1}.weight"].dtype) == "ggml.q4_0"
    assert holdall.verify(data).ok


_MEASURE = r"""
import re, sys, time, holdall
before = time.process_time()
report = holdall.verify(sys.argv[1], level="strict")
used = time.process_time() - before
peak = re.search(r"VmHWM:\s*(\d+) kB", open("/proc/self/status").read())
print(used, int(peak[1]) >> 10, *{finding.rule for finding in report.findings})
"""
_COSTLY = {
    "quant_params": {"dtype": 0x8000, "shape": [0], "quant_id": 1, "quant_params": {"ggml_type": 2}},
    "dims": {"dtype": 1, "shape": [0] * 32},
    "unknown keys": {"dtype": 1, "shape": [0], "z": {"a": [], "b": [], "c": []}},
    "many values": {"dtype": 1, "shape": [0], "z": [{}] * 1000},
}


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is measured as Linux states it")
@pytest.mark.parametrize(
    ("kind", "count", "opens"),
    [
        ("quant_params", 450_000, False), ("quant_params", 170_000, True), ("dims", 300_000, False),
        ("dims", 150_000, True), ("unknown keys", 450_000, False), ("unknown keys", 170_000, True),
        ("many values", 60_000, False), ("many values", 20_000, True),
    ],
)  # fmt: skip
def test_what_entries_cost_is_counted(kind, count, opens, tmp_path):
    """Whatever compresses into a file of 1 MB takes at most 2 s and 200 MB."""
    place = {"shard_id": 0, "data_off": 0, "data_len": 0, "flags": 0}
    first = pack({"name": "0000000", **place, **_COSTLY[kind]})
    entries = b"".join(first.replace(b"0000000", b"%07d" % n) for n in range(count))
    content = pack({"tensors": []})[:-1] + b"\xdd" + count.to_bytes(4, "big") + entries
    index = Chunk(b"TIDX", "tensors", content, ZSTD | INDEX)
    fill = np.random.default_rng(1).bytes(max(0, 990_000 - len(index.payload())))
    path = tmp_path / "x.aero"
    path.write_bytes(file([index, shard(bytes(16)), Chunk(b"ABCD", "fill", fill)]))
    done = subprocess.run([sys.executable, "-c", _MEASURE, path], capture_output=True, text=True, check=True)
    seconds, megabytes, *rules = done.stdout.split()
    assert ("core.limit" not in rules) == opens
    assert float(seconds) < 3  # 2 on a quiet machine
    assert int(megabytes) < 200


def test_a_refused_index_is_named_and_the_manifest_beside_it_is_read():
    """The manifest was refused for the memory of the index, which had not been taken."""
    data = file([mmsg({"name": "many"}), tidx([entry(f"t{n}", 1, [0], 0, 0) for n in range(400_000)]), shard(b"")])
    found = [each for each in holdall.verify(data).findings if each.rule == "core.limit"]
    assert len(found) == 1
    assert found[0].message.startswith("aero: TIDX: expanded, it would take ") and "of which" not in found[0].message


def test_the_message_names_all_that_is_counted():
    """The last straw is 150 bytes; the index before it takes the room."""
    check = Check(limits=holdall.Limits(expanded_bytes=1000))
    first, second = Expansion(check, 100), Expansion(check, 10)
    first.add("TIDX", 13_700, check, 0, "aero: TIDX")
    with pytest.raises(holdall.LimitError) as caught:
        first.add("MMSG", 150, check, 0, "aero: MMSG")
    said = "aero: MMSG: expanded, it would take 150 bytes of memory; a file of 100 bytes may take 13800, of which "
    assert caught.value.message.startswith(f"{said}TIDX takes 13700;")
    first.add("MJSN", 100, check, 0, "aero: MJSN")
    second.add("TIDX", 1280, check, 0, "aero: TIDX")
    with pytest.raises(holdall.LimitError, match="may take 2280, of which TIDX takes 1280 and other files take 1000;"):
        second.add("MMSG", 1, check, 0, "aero: MMSG")
