"""What fuzzing has found, one test a case: built in code, and named for what was wrong."""

from __future__ import annotations

import struct
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from tools.fuzz.forms import FORMS
from tools.fuzz.framing import frame, unframe
from tools.fuzz.subjects import SUBJECTS

import holdall
from holdall.format.hf_assets import vocab_of
from holdall.format.onnx.wire import field
from holdall.operations.examine import examine
from holdall.operations.explain import expand, list_records
from holdall.source import BytesFolder
from holdall.testing.isolation import cost_of


def split_gguf() -> dict[str, bytes]:
    return unframe(dict(FORMS["gguf"]())["split"])


def test_a_gguf_part_that_was_given_up_is_not_in_the_ledger() -> None:
    """Its source was closed, its ledger stayed: explaining what was left raised ClosedError."""
    files = split_gguf()
    second = list(files)[1]
    files[second] = files[second].replace(b"split.no\2\0\0\0\1\0", b"split.no\2\0\0\0\0\0")
    with examine(BytesFolder(files).sibling(next(iter(files))), format="gguf") as seen:
        assert seen.report.findings[0].rule == "gguf.split.agree"
        for source, ledger in seen.ledger.members:
            for owner in ledger.owners:
                for record in list_records(owner):
                    expand(record, source)
    assert not SUBJECTS["gguf"].probe(frame(files))


def test_a_slice_of_f8_e5m2_that_is_no_view_can_be_read(tmp_path: Path) -> None:
    """Its type calls itself '<f1', which numpy's as_strided did not understand: TypeError, in every format."""
    values = np.arange(8, dtype=np.float32).astype(ml_dtypes.float8_e5m2)
    holdall.save(tmp_path / "m.safetensors", {"w": values})
    with holdall.open(tmp_path / "m.safetensors", mmap=False) as model:
        assert model["w"][-1:].tobytes() == values[-1:].tobytes()


def test_a_count_of_tensors_that_is_an_array_is_no_integer() -> None:
    """It was compared as it is: ValueError of numpy."""
    files = split_gguf()
    first = next(iter(files))
    count = b"split.tensors.count" + struct.pack("<Ii", 5, 2)
    assert count in files[first]
    array = b"split.tensors.count" + struct.pack("<IIQ", 9, 2, 0)
    files[first] = files[first].replace(count, array)
    with pytest.raises(holdall.FormatError, match=r"split\.tensors\.count is not an integer"):
        holdall.open(BytesFolder(files).sibling(first), format="gguf")
    assert not SUBJECTS["gguf"].probe(frame(files))


def test_half_a_million_empty_onnx_initializers_are_one_finding_a_rule() -> None:
    """Two bytes each: they were looked at and reported one by one, which took 2.4 seconds of a file of a megabyte."""
    data = field(1, 8) + field(7, field(5, b"") * 500_000)
    cost = cost_of(lambda: holdall.verify(data, format="onnx", level="strict"))
    report = holdall.verify(data, format="onnx")
    assert {finding.rule for finding in report.findings} == {"onnx.tensor.dtype"}
    assert cost.seconds < 2


@pytest.mark.parametrize("added", [b"NaN", b"3", b"true", b'"a"', b"null", b"{}", b"[3]"])
def test_added_tokens_that_are_no_list_are_none(added: bytes) -> None:
    """Those of a tokenizer.json that an MCF file carries were gone through whatever they were: TypeError."""
    assert vocab_of({"tokenizer.json": b'{"added_tokens": ' + added + b"}"}) is None
