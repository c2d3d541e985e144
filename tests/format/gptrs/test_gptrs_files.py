"""What the writer refuses, what hostile files meet, and names of files."""

import random
import struct

import numpy as np
import pytest

import holdall

W = np.arange(4, dtype=np.float32)


def write_bytes(tmp_path, content, **options):
    holdall.save(tmp_path / "x", content, fsync=False, **{"format": "gptrs-checkpoint", **options})
    return (tmp_path / "x").read_bytes()


@pytest.mark.parametrize("format", ["gptrs-checkpoint", "gptrs-archive"])
@pytest.mark.parametrize(
    ("content", "says"),
    [({"": W}, "empty"), ({"w": np.zeros(2, np.int64)}, "i64"), ({"\ud800": W}, "ASCII|UTF-8")],
)
def test_refusals(content, says, format, tmp_path):
    with pytest.raises(holdall.ContentError, match=says):
        write_bytes(tmp_path, content, format=format)


def test_only_archives_take_other_names(tmp_path):
    with pytest.raises(holdall.ContentError, match="ASCII"):
        write_bytes(tmp_path, {"größe": W})
    assert list(holdall.open(write_bytes(tmp_path, {"größe": W}, format="gptrs-archive"))) == ["größe"]


def test_bin_is_refused_naming_the_choices(tmp_path):
    with pytest.raises(holdall.UnsupportedError, match="gptrs-checkpoint or torch"):
        holdall.save(tmp_path / "x.bin", {"w": W})


@pytest.mark.parametrize("align", [64, 1])
def test_forms(tmp_path, align):
    content = {"b": W, "a": np.int32(7), "c": np.zeros((0, 3), np.float16)}
    model = holdall.open(write_bytes(tmp_path, content, align=align))
    assert list(model) == ["a", "b", "c"]
    assert model.config == {"kind": "unknown", "config": None}
    assert model["a"].numpy() == 7
    offsets = [tensor.offset for tensor in model.tensors]
    assert [offset % align for offset in offsets] == [0, 0, 0]
    if align == 1:
        assert offsets == [offsets[0], offsets[0] + 4, offsets[0] + 20]


@pytest.mark.parametrize("format", ["gptrs-checkpoint", "gptrs-archive"])
def test_every_flip_and_every_cut_is_an_error_or_a_model(tmp_path, format):
    data = write_bytes(tmp_path, {"a": W, "b.c": np.zeros((2, 2), np.int32)}, format=format, align=1)
    generator = random.Random(1)
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1 << generator.randrange(8)
        for hostile in (bytes(changed), data[:at], data[:at] + b"\xff" * 4 + data[at + 4 :]):
            try:
                with holdall.open(hostile, format=format) as model:
                    for tensor in model.tensors:
                        tensor.raw()
            except holdall.HoldallError:
                pass
            holdall.verify(hostile, format=format, level="strict")


def build_archive(version, *entries, count=None):
    return (
        b"GPTRSTEN"
        + struct.pack("<I", version)
        + struct.pack("<I", len(entries) if count is None else count)
        + b"".join(entries)
    )


def build_inline(name=b"w", dims=(1,), tag=0, size=None, data=b"\0\0\0\0"):
    head = struct.pack("<I", len(name)) + name + struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
    return head + struct.pack("<IBQ", tag, 0, len(data) if size is None else size) + data


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (build_archive(1, build_inline(), build_inline()), "gptrs.index.duplicate"),
        (build_archive(1, build_inline(name=b"\xff")), "gptrs.index.utf8"),
        (build_archive(1, build_inline(size=2**64 - 1)), "gptrs.index.entry"),
        (build_archive(1, build_inline(dims=(2**63, 2))), "gptrs.tensor.size"),
        (build_archive(1, build_inline(dims=(2**32,) * 5000, data=b"")), "core.limit"),
        (build_archive(1, count=2**32 - 1), "core.limit"),
        (build_archive(1, build_inline(), count=9_000_000), "gptrs.index.entry"),
        (build_archive(2, count=2**32 - 1), "gptrs.header.short"),
    ],
)
def test_version_1_breaches(data, rule):
    with pytest.raises(holdall.FormatError) as caught:
        holdall.open(data)
    assert caught.value.rule == rule


def test_bytes_after_version_1_are_seen_by_strict():
    data = build_archive(1, build_inline()) + b"more"
    assert holdall.verify(data).ok
    assert [f.rule for f in holdall.verify(data, level="strict").findings] == ["gptrs.file.trailing"]
