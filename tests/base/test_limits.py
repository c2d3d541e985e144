import dataclasses
from pathlib import Path

import numpy as np
import pytest

import holdall
from holdall.errors import FormatError, LimitError
from holdall.limits import DEFAULT_LIMITS, UNTRUSTED_LIMITS, Limits


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
    from holdall.format.oinf.layout import HEADER, MAGIC, TENSOR

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


def shown(name, value):
    """A number as a page has it: sizes in the largest unit that divides them."""
    if not name.endswith(("_bytes", "_floor")):
        return f"{value:,}"
    unit = next(power for power in (30, 20, 10, 0) if value % (1 << power) == 0)
    return f"{value >> unit} {({30: 'GiB', 20: 'MiB', 10: 'KiB', 0: 'bytes'})[unit]}"


def test_the_page_has_every_limit_with_its_values_and_its_reason():
    rows = [("limit", "default", "untrusted", "what it caps, and why"), ("---",) * 4]
    for field in dataclasses.fields(Limits):
        usual, tight = (shown(field.name, getattr(limits, field.name)) for limits in (DEFAULT_LIMITS, UNTRUSTED_LIMITS))
        rows.append((f"`{field.name}`", usual, tight if tight != usual else "the same", field.metadata["why"]))
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    page = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
    assert table in page, f"docs/security.md should have:\n{table}"


def test_untrusted_limits_are_nowhere_wider():
    for field in dataclasses.fields(Limits):
        assert getattr(UNTRUSTED_LIMITS, field.name) <= getattr(DEFAULT_LIMITS, field.name)
