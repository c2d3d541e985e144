"""The zeros that follow names: reported at level strict wherever they are not zero."""

import struct

import numpy as np
import pytest

import holdall
from holdall import oinf


@pytest.fixture
def data(tmp_path):
    model = oinf.model(
        {name: np.zeros(2, np.float32) for name in ("w", "zero", "layer.10.w")},
        sizevars={"D": 2, "width": 3},
        metadata={"mode": "fast", "limits": [1, 2]},
    )
    holdall.save(tmp_path / "m.oinf", model)
    return (tmp_path / "m.oinf").read_bytes()


def padding_of_names(data):
    """(what, byte) for each padding byte, read with struct from the tables as the format's document draws them."""
    counts, starts = struct.unpack_from("<3I", data, 13), struct.unpack_from("<3Q", data, 29)
    for what, count, at in zip(("sizevar", "metadata entry", "tensor"), counts, starts, strict=True):
        for _ in range(count):
            (length,) = struct.unpack_from("<I", data, at)
            name, end = data[at + 4 : at + 4 + length].decode(), at + 4 + length
            at += (4 + length + 7) // 8 * 8
            yield from ((f"{what} {name!r}", end, byte) for byte in range(end, at))
            rank = struct.unpack_from("<I", data, at + 4)[0] if what == "tensor" else 0
            at += {"sizevar": 8, "metadata entry": 24, "tensor": 28 + 8 * rank}[what]


def test_padding_after_a_name_that_is_not_zero_is_a_strict_finding(data):
    places = list(padding_of_names(data))
    # D 3 bytes, width 7, mode 0, limits 6, w 3, zero 0, layer.10.w 2
    assert len(places) == 3 + 7 + 0 + 6 + 3 + 0 + 2
    for what, end, byte in places:
        damaged = bytearray(data)
        damaged[byte] = 1
        assert holdall.verify(bytes(damaged)).findings == []
        (finding,) = holdall.verify(bytes(damaged), level="strict").findings
        assert (finding.rule, finding.severity, finding.offset) == ("oinf.name.padding", "error", end)
        assert finding.message == f"oinf: {what}: padding is not 0"
        with holdall.open(bytes(damaged)) as model:
            assert list(model) == ["layer.10.w", "w", "zero"]


def test_every_name_whose_padding_is_not_zero_is_named(data):
    damaged = bytearray(data)
    for _, _, byte in padding_of_names(data):
        damaged[byte] = 0xFF
    report = holdall.verify(bytes(damaged), level="strict")
    assert [f.message.split("'")[1] for f in report.findings] == ["D", "width", "limits", "layer.10.w", "w"]


def test_the_golden_files_have_zeros_there():
    from tests.format.oinf import corpus

    for name in corpus.GOOD:
        rules = {finding.rule for finding in holdall.verify(corpus.file(name), level="strict").findings}
        assert "oinf.name.padding" not in rules, name
