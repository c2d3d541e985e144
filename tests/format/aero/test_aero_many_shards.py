"""Files of many shards: the work of planning and saving them grows with their number, not with its square."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import holdall
from holdall.errors import ContentError
from holdall.format.aero import caps, placing, write
from holdall.model.array_table import ArrayTable
from holdall.model.forms import Forms


def count_calls(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, calls: Counter[str]) -> None:
    """Count the calls of a function or class from now on."""
    real: Callable[..., Any] = getattr(owner, name)

    def counted(*args: Any, **named: Any) -> Any:
        calls[name] += 1
        return real(*args, **named)

    monkeypatch.setattr(owner, name, counted)


@pytest.mark.parametrize("format", ["aero", "aeroset"])
def test_what_visits_every_tensor_is_done_once_and_not_for_each_shard(tmp_path, monkeypatch, format):
    calls: Counter[str] = Counter()
    count_calls(monkeypatch, ArrayTable, "_find_sources", calls)
    count_calls(monkeypatch, Forms, "table", calls)
    found = []
    for count in (10, 300):
        path = tmp_path / f"{count}.{format}"
        weights = {f"t{number}": np.full(number + 1, number, np.uint16) for number in range(count)}
        calls.clear()
        options = {"part_shards": 1} if format == "aeroset" else {}
        holdall.save(path, weights, max_shard_bytes=1, align=1, format=format, fsync=False, **options)
        found.append((calls["_find_sources"], calls["table"]))
        with holdall.open(path) as model:
            assert len(model.tensors) == count and model[f"t{count - 1}"].numpy().tolist() == [count - 1] * count
    assert found[0] == found[1] and found[0][0] == 1


def test_tensors_fill_shards_as_one_after_another_would():
    """The rule of the document, a tensor at a time: a new shard begins when the next tensor does not fit."""
    draw = np.random.default_rng(20)
    for _ in range(300):
        sizes = draw.choice([0, 0, 1, 3, 64, 100, 1000], draw.integers(0, 20)).astype(np.uint64)
        align, most = int(draw.choice([1, 4, 64])), int(draw.choice([1, 5, 64, 100, 1000, (1 << 63) - 1]))
        expected, shard, end = [], 0, 0
        for size in sizes.tolist():
            start = -(-end // align) * align
            if start + size > most and end:
                shard, start = shard + 1, 0
            expected.append((shard, start))
            end = start + size
        shards, offsets = placing._fill_shards(sizes, align, most)
        assert list(zip(shards.tolist(), offsets.tolist(), strict=True)) == expected


@pytest.mark.parametrize(
    ("cap", "most", "options", "said"),
    [
        ("MAX_CHUNKS", 500, {"max_shard_bytes": 1}, "1003 chunks are above the 500 of the format"),
        ("MAX_CHUNKS", 1500, {"max_shard_bytes": 1, "page_hash": 16}, "2003 chunks are above the 1500 of the format"),
        ("MAX_STRINGS", 500, {"max_shard_bytes": 1, "chunk": {"XTRA:" + "n" * 600: b""}}, "bytes of names of chunks"),
        ("MAX_METADATA", 50_000, {}, "of TIDX are above the 50000 of the format; write fewer tensors"),
    ],
)
def test_a_cap_is_noticed_before_a_chunk_is_planned_for_each_shard(tmp_path, monkeypatch, cap, most, options, said):
    calls: Counter[str] = Counter()
    count_calls(monkeypatch, write, "PlannedChunk", calls)
    count_calls(monkeypatch, placing.Placements, "encode_index", calls)
    monkeypatch.setattr(caps, cap, most)
    weights = {f"t{number}": np.ones(1, np.uint8) for number in range(1000)}
    with pytest.raises(ContentError, match=said):
        holdall.save(tmp_path / "m.aero", weights, align=1, **options)
    assert list(tmp_path.iterdir()) == []
    assert calls["PlannedChunk"] < 10 and calls["encode_index"] == 0


@pytest.mark.long
def test_a_million_shards_are_refused(tmp_path):
    one = np.ones(1, np.uint8)
    weights = {f"t{number}": one for number in range(1_000_000)}
    with pytest.raises(ContentError, match=r"1000003 chunks are above the 1000000 .* a larger max_shard_bytes"):
        holdall.save(tmp_path / "m.aero", weights, max_shard_bytes=1, align=1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("count", [1500, 70_000])
def test_a_set_of_more_parts_than_open_by_default_is_refused(tmp_path, count):
    weights = {f"t{number}": np.ones(1, np.uint8) for number in range(count)}
    with pytest.raises(
        ContentError, match=f"{count} parts are more than readers open by default; a larger part_shards"
    ):
        holdall.save(tmp_path / "m.aeroset", weights, max_shard_bytes=1, align=1, part_shards=1)
    assert list(tmp_path.iterdir()) == []
