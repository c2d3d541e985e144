import dataclasses

import numpy as np
import pytest

import holdall
from holdall.errors import FormatError, LimitError
from holdall.limits import DEFAULT_LIMITS, Limits


def test_limits_are_named_frozen_and_not_negative():
    assert Limits(tensors=3).tensors == 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        DEFAULT_LIMITS.tensors = 1
    for wrong in (-1, 1.5, "3", None):
        with pytest.raises(ValueError, match=r"Limits\.rank"):
            Limits(rank=wrong)
    with pytest.raises(TypeError):
        Limits(nothing=1)


@pytest.mark.parametrize("limits", [{"tensors": 1}, {"index_bytes": 100}, {"name_bytes": 3}, {"rank": 1}])
def test_a_limit_is_an_error_that_names_it(tmp_path, limits):
    path = tmp_path / "m.oinf"
    holdall.save(path, {"first": np.ones((2, 2), np.float32), "second": np.ones(3, np.int8)})
    with pytest.raises(LimitError) as caught:
        holdall.open(path, limits=Limits(**limits))
    assert isinstance(caught.value, FormatError)
    assert caught.value.rule == "core.limit"
    report = holdall.verify(path, limits=Limits(**limits))
    assert [finding.rule for finding in report.findings] == ["core.limit"]
    assert next(iter(limits)) in report.findings[0].hint
    with holdall.open(path, limits=Limits(tensors=2, name_bytes=6, rank=2)) as model:
        assert len(model) == 2


def test_ranks_and_dims_that_cannot_be_multiplied_out():
    """The product of 300 dims of 2^64 - 1 has more digits than Python prints."""
    from holdall.formats.oinf.layout import HEADER, MAGIC, TENSOR

    for rank, dim in ((300, 2**64 - 1), (4000, 2**63)):
        entry = {"name": b"w", "dtype": 10, "ndim": rank, "flags": 1, "dims": [dim] * rank, "data_nbytes": 8}
        data_at = HEADER.size + len(TENSOR[1].pack(data_offset=0, **entry))
        data_at += -data_at % 8
        table = TENSOR[1].pack(data_offset=data_at, **entry)
        header = HEADER.pack(
            magic=MAGIC, version=1, flags=0, n_sizevars=0, n_metadata=0, n_tensors=1, reserved=0,
            offset_sizevars=72, offset_metadata=72, offset_tensors=72, offset_data=data_at, file_size=data_at + 8,
            padding=bytes(3),
        )  # fmt: skip
        data = (header + table).ljust(data_at + 8, b"\0")
        with pytest.raises(FormatError, match="about"):
            holdall.open(data)
        assert not holdall.verify(data, level="strict").ok
