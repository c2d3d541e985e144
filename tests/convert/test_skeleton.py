"""Skeletons: the original from its pieces, and hostile ones refused."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from pathlib import Path

import msgspec
import numpy as np
import pytest
from blake3 import blake3

import holdall
from holdall import oinf
from holdall.binary.compression import import_zstd
from holdall.errors import FormatError, LimitError
from holdall.limits import Limits
from holdall.model.table import ListTable
from holdall.model.tensor import Tensor
from holdall.operations.convert.carried_source import SkeletonSource, fill_skeleton
from holdall.operations.convert.skeleton import Bond, Skeleton, SkeletonFile, make_skeleton


@pytest.fixture
def original(tmp_path: Path) -> Path:
    path = tmp_path / "original.oinf"
    model = oinf.model(
        {"a": np.arange(100, dtype=np.int16), "b": Tensor.of("b", np.arange(9) - 4, "i4")},
        sizevars={"B": 7},
        metadata={"mode": "fast", "n": 300},
    )
    holdall.save(path, model)
    return path


def _carried(path: Path) -> tuple[holdall.Model, Skeleton]:
    model = holdall.open(path, mmap=False)
    return model, make_skeleton(model, model.tensors, {name: row for row, name in enumerate(model)})


def test_the_pieces_are_the_original(original: Path) -> None:
    model, bones = _carried(original)
    assert sum(len(member.kept) for member in bones.files) == original.stat().st_size - 200 - 5
    reopen = Skeleton.from_text(bones.to_text())
    assert reopen == bones
    filled = fill_skeleton(reopen, model.tensors, "x")
    assert filled.mismatches == {}
    assert filled.source.read(0, filled.source.size) == original.read_bytes()
    assert holdall.open(filled.source).sizevars == {"B": 7}


def test_the_text_fits_every_free_form_place(original: Path) -> None:
    _, bones = _carried(original)
    assert set(bones.to_text()) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")


def test_a_payload_that_is_gone_reads_as_zeros(original: Path) -> None:
    model, bones = _carried(original)
    filled = fill_skeleton(bones, ListTable([model["a"]]), "x")
    assert filled.mismatches == {"b": "is gone"}
    restored = holdall.open(filled.source)
    assert restored["b"].numpy().tolist() == [0] * 9
    assert np.array_equal(restored["a"].numpy(), model["a"].numpy())


def _text(value: object) -> str:
    data = msgspec.msgpack.encode(value)
    return _packed(data, len(data))


def _packed(data: bytes, size: int) -> str:
    letters = urlsafe_b64encode(import_zstd().compress(data)).decode().rstrip("=")
    return f"2.{size}.{blake3(data).hexdigest()}.{letters}"


def _bones(*members: SkeletonFile) -> Skeleton:
    return Skeleton("oinf", (Bond("a", "u8", (4,), 4, "a", "u8", (4,)),), members, False)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "!!!",
        "AAAA",
        _text({"format": 1}),
        _text([1, 2, 3, 4]),
        _bones(SkeletonFile("", 10, ((0, 4, 9),), bytes(6))).to_text(),
        _bones(SkeletonFile("", 10, ((8, 4, 0),), bytes(6))).to_text(),
        _bones(SkeletonFile("", 10, ((4, 4, 0), (2, 4, 0)), bytes(2))).to_text(),
        _bones(SkeletonFile("", 1 << 62, ((0, 4, 0),), bytes(6))).to_text(),
        _bones(SkeletonFile("", 10, ((0, -4, 0),), bytes(14))).to_text(),
        _bones(SkeletonFile("", 10, ((0, 4, 0), (4, 4, 0)), bytes(2))).to_text(),  # one tensor in two places
        "1." + _bones(SkeletonFile("", 10, ((0, 4, 0),), bytes(6))).to_text().partition(".")[2],
        _bones(SkeletonFile("", 10, ((0, 4, 0),), bytes(6))).to_text().replace(".", ".0", 2),
    ],
)
def test_a_hostile_skeleton_is_refused(text: str) -> None:
    with pytest.raises(FormatError, match="skeleton"):
        Skeleton.from_text(text)


def test_a_bomb_is_refused() -> None:
    with pytest.raises(LimitError, match="inflates"):
        Skeleton.from_text(_packed(bytes(64 << 20), 64 << 20), Limits(document_bytes=1 << 20))


def test_a_skeleton_with_no_file_or_two_is_refused() -> None:
    with pytest.raises(FormatError, match="0 files"):
        fill_skeleton(_bones(), ListTable([]), "x")


def test_reads_across_pieces() -> None:
    member = SkeletonFile("", 10, ((3, 4, 0),), b"abchij")
    held = Tensor.of("a", np.frombuffer(b"DEFG", np.uint8)).payload
    source = SkeletonSource("x", member, [held])
    assert [source.read(at, 10 - at) for at in (0, 2, 5, 9, 10)] == [b"abcDEFGhij", b"cDEFGhij", b"FGhij", b"j", b""]
