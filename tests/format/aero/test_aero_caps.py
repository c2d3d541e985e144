"""The writer keeps to the caps of the document: 1,000,000 chunks, 512 MB of names, 2 GB of a metadata chunk."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import holdall
from holdall.errors import ContentError
from holdall.format.aero import caps
from holdall.format.aero.layout import MJSN, MMSG, PHSH, TIDX

WEIGHTS = {f"layer.{number}": np.full(4, number, np.float32) for number in range(6)}
CHUNKS, NAMES, METADATA = 1_000_000, 512 << 20, 2 << 30  # of the document


def test_the_caps_are_those_of_the_document() -> None:
    caps.check_table(CHUNKS, NAMES)
    with pytest.raises(
        ContentError, match="1000001 chunks are above the 1000000 of the format; a larger max_shard_bytes"
    ):
        caps.check_table(CHUNKS + 1, 100)
    with pytest.raises(ContentError, match="536870913 bytes of names of chunks are above the 536870912 of the format"):
        caps.check_table(10, NAMES + 1)
    for fourcc, option in ((TIDX, "exclude"), (MMSG, "max_shard_bytes"), (MJSN, "--unset"), (PHSH, "page_hash")):
        caps.check_metadata(fourcc, METADATA)
        with pytest.raises(ContentError, match=f"2147483649 bytes of {fourcc.decode()} are above .*{option}"):
            caps.check_metadata(fourcc, METADATA + 1)
    caps.check_pages(METADATA // 34)
    with pytest.raises(ContentError, match="of PHSH are above"):
        caps.check_pages(METADATA // 34 + 1)


def test_an_index_is_measured_with_the_hashes_to_come() -> None:
    few, many = ["layers.0.weight"] * 800_000, ["layers.0.weight"] * 5_000_000
    caps.check_index(few, True, lambda: pytest.fail("nothing to measure"))
    caps.check_index(many, True, lambda: METADATA - 74 * len(many))
    with pytest.raises(ContentError, match=r"2147483649 bytes of TIDX .* without tensor_hash it takes 1777483649"):
        caps.check_index(many, True, lambda: METADATA - 74 * len(many) + 1)
    with pytest.raises(ContentError, match="exclude"):
        caps.check_index(many, True, lambda: METADATA + 1)


def test_an_index_that_is_sure_to_be_too_large_is_not_made() -> None:
    names = ["n" * 4000] * 500_000
    caps.check_index(names, False, lambda: pytest.fail("nothing to measure"))
    with pytest.raises(ContentError, match=r"at least 2\d{9} bytes of TIDX are above the 2147483648 .* write fewer"):
        caps.check_index(names + names[:40_000], False, lambda: pytest.fail("nothing to measure"))


def test_the_index_of_a_part_is_measured_by_its_own_tensors(tmp_path: Any, monkeypatch: Any) -> None:
    """Each of two parts has half of the tensors, and the hashes of these alone."""
    measured = []
    monkeypatch.setattr(caps, "check_index", lambda names, hashed, measure: measured.append(sorted(names)))
    options: dict[str, Any] = {"max_shard_bytes": 192, "part_shards": 1, "tensor_hash": True}
    holdall.save(tmp_path / "m.aeroset", WEIGHTS, format="aeroset", **options)
    assert measured == [list(WEIGHTS)[:3], list(WEIGHTS)[3:], list(WEIGHTS)]


@pytest.mark.parametrize(
    ("cap", "most", "options", "said"),
    [
        ("MAX_CHUNKS", 8, {"max_shard_bytes": 16}, "9 chunks are above the 8 of the format; a larger max_shard_bytes"),
        ("MAX_CHUNKS", 4, {"page_hash": 64}, "5 chunks are above the 4 .* without page_hash"),
        ("MAX_STRINGS", 39, {}, "48 bytes of names of chunks are above the 39"),
        ("MAX_METADATA", 400, {}, "bytes of TIDX are above the 400 of the format; write fewer tensors"),
        ("MAX_METADATA", 560, {"tensor_hash": True}, "bytes of TIDX are above the 560 of .* without tensor_hash"),
        ("MAX_METADATA", 700, {"max_shard_bytes": 16}, "bytes of MMSG are above the 700 .* a larger max_shard_bytes"),
        ("MAX_METADATA", 600, {"page_hash": 1}, "bytes of PHSH are above the 600 of the format; a larger page_hash"),
        ("MAX_METADATA", 500, {"metadata": {"note": "a" * 500}}, "bytes of MJSN are above the 500"),
    ],
)
@pytest.mark.parametrize("format", ["aero", "aeroset"])
def test_what_is_above_a_cap_is_refused_before_anything_is_written(
    tmp_path: Any, monkeypatch: Any, format: str, cap: str, most: int, options: dict[str, Any], said: str
) -> None:
    monkeypatch.setattr(caps, cap, most)
    if options.get("page_hash") == 1:
        options = options | {"align": 1}
    if format == "aeroset":
        options = options | {"part_shards": 100}
    path = tmp_path / "out" / f"model.{format}"
    path.parent.mkdir()
    with pytest.raises(ContentError, match=said):
        holdall.save(path, WEIGHTS, format=format, **options)
    assert list(path.parent.iterdir()) == []


def test_a_carried_chunk_is_held_to_the_cap(tmp_path: Any, monkeypatch: Any) -> None:
    from tests.attacks.files import aero

    source = tmp_path / "a.aero"
    source.write_bytes(aero(chunks=[(b"XTRA", b"more", 0, bytes(5000))]))
    monkeypatch.setattr(caps, "MAX_METADATA", 4000)
    with pytest.raises(ContentError, match="5000 bytes of XTRA are above the 4000 of the format; leave out the chunk"):
        holdall.save(tmp_path / "b.aero", holdall.open(source))


@pytest.mark.parametrize("format", ["aero", "aeroset"])
def test_what_is_just_within_the_caps_is_written(tmp_path: Any, monkeypatch: Any, format: str) -> None:
    monkeypatch.setattr(caps, "MAX_CHUNKS", 15)
    path = tmp_path / f"model.{format}"
    holdall.save(path, WEIGHTS, format=format, max_shard_bytes=16, page_hash=True)
    with holdall.open(path) as model:
        assert {name: tensor.numpy().tolist() for name, tensor in model.items()} == {
            name: array.tolist() for name, array in WEIGHTS.items()
        }
