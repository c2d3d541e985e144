"""Files that no tool writes: layouts that look like each other, numbers that lie, bytes that were hit."""

import random
import struct

import numpy as np
import pytest

import holdall
from holdall.model.vocab import Vocab
from holdall.source import interleaved


def write_indexed(**tensors):
    content = tensors or {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.arange(3, dtype=np.int8)}
    return write_bytes(content, metadata={"model_name": "toy"}, vocab=Vocab(["[PAD]", "x"]))


def write_bytes(content, **options):
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.weights"
        holdall.save(path, content, fsync=False, **options)
        return path.read_bytes()


def build_tensor(name=b"w", dims=(2,), data=None):
    size = int(np.prod(dims, dtype=object)) * 4
    head = struct.pack("<I", len(name)) + name + struct.pack(f"<I{len(dims)}I", len(dims), *dims)
    return head + (bytes(size) if data is None else data)


def build_sequential(*tensors, tokens=(), count=None, tail=b""):
    vocab = struct.pack("<I", len(tokens)) + b"".join(struct.pack("<I", len(t)) + t for t in tokens)
    return b"EMBD" + struct.pack("<II", 1, len(tensors) if count is None else count) + b"".join(tensors) + vocab + tail


@pytest.mark.parametrize(
    "data", [write_indexed(), build_sequential(build_tensor(), tokens=[b"a", b""])], ids=["spec", "sequential"]
)
def test_every_flip_and_every_cut_is_an_error_or_a_model(data):
    generator = random.Random(1)
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1 << generator.randrange(8)
        for hostile in (bytes(changed), data[:at], data[:at] + b"\xff" * 4 + data[at + 4 :]):
            try:
                with holdall.open(hostile, format="embd") as model:
                    for tensor in model.tensors:
                        tensor.raw()
            except holdall.HoldallError:
                pass
            holdall.verify(hostile, format="embd", level="strict")


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (b"EMBD\x01\0\0\0", "embd.sequential.header"),
        (b"EMBD" + struct.pack("<II", 2, 0) + bytes(4), "embd.sequential.header"),
        (build_sequential(build_tensor(dims=())), "embd.sequential.rank"),
        (build_sequential(build_tensor(), build_tensor()), "embd.sequential.duplicate"),
        (build_sequential(build_tensor(name=b"\xff")), "embd.sequential.string"),
        (build_sequential(build_tensor(), tokens=[b"\xff"]), "embd.sequential.string"),
        (build_sequential(build_tensor(), count=2**32 - 1), "core.limit"),
        (build_sequential(build_tensor(), count=9_000_000), "embd.sequential.tensor"),
        (build_sequential(build_tensor(dims=(2**32 - 1,) * 4, data=b"")), "embd.sequential.tensor"),
        (build_sequential(tail=b"\0"), "embd.sequential.trailing"),
        (build_sequential(build_tensor(), build_tensor(name=b"n" * (2**20 + 1))), "embd.sequential.string"),
        (build_sequential(build_tensor(), tokens=[b"t" * (2**20 + 1)]), "embd.sequential.string"),
    ],
)  # fmt: skip
def test_sequential_breaches(data, rule):
    with pytest.raises(holdall.FormatError) as caught:
        holdall.open(data)
    assert caught.value.rule == rule
    assert rule in [finding.rule for finding in holdall.verify(data).findings]


def test_bytes_after_a_sequential_vocabulary_are_seen_by_strict():
    data = build_sequential(build_tensor(), tail=b"more")
    assert list(holdall.open(data)) == ["w"]
    assert holdall.verify(data).ok
    assert [f.rule for f in holdall.verify(data, level="strict").findings] == ["embd.sequential.ignored"]


def test_a_hundred_thousand_and_one_tokens():
    data = build_sequential(build_tensor(), tokens=[b"t"] * 100_001)
    assert len(holdall.open(data).vocab) == 100_001
    report = holdall.verify(data, level="strict")
    assert report.ok
    assert [f.rule for f in report.findings] == ["embd.sequential.loader"]
    assert report.findings[0].message == "embd: 100001 tokens: the C++ loader refuses more than 100000"


def test_a_dim_of_zero_in_a_sequential_file_is_seen_by_strict():
    empty = build_tensor(name=b"none", dims=(2, 0), data=b"")
    data = build_sequential(build_tensor(), empty)
    assert holdall.open(data)["none"].shape == (2, 0)
    assert holdall.verify(data).findings == []
    report = holdall.verify(data, level="strict")
    assert report.ok
    (finding,) = report.findings
    assert (finding.rule, finding.severity) == ("embd.sequential.loader", "warning")
    assert finding.message == "embd: tensor 'none' f32[2, 0] has a dim of 0, which the C++ loader refuses"
    assert finding.offset == 12 + len(build_tensor())


@pytest.mark.parametrize("first", [64, 200, 16 << 10])
def test_walks_do_not_depend_on_their_windows(monkeypatch, first):
    """Small and large tensors in turn, and windows in which a name, the dims or a payload is cut."""
    monkeypatch.setattr(interleaved, "_FIRST", first)
    rng = np.random.default_rng(0)
    content = {}
    for row in range(60):
        shape = [(3,), (2, 2), (0, 5), (5000,), (1, 2, 3, 4)][row % 5]
        content["n" * (row % 7) + str(row)] = rng.random(shape, np.float32)
    tensors = [build_tensor(name.encode(), values.shape, values.tobytes()) for name, values in content.items()]
    model = holdall.open(build_sequential(*tensors, tokens=[b"t%d" % n for n in range(500)]))
    assert list(model) == list(content)
    for name, values in content.items():
        np.testing.assert_array_equal(model[name].numpy(), values)
    assert model.vocab[499] == "t499"


def test_reserved_words_and_minor_versions():
    data = bytearray(write_indexed())
    data[60] = 1
    assert "embd.header.reserved" in [f.rule for f in holdall.verify(bytes(data), level="structure").findings]
    packed = bytearray(write_bytes({"a": np.zeros(2, np.float32)}, checksums=False))
    packed[6] = 7
    assert holdall.open(bytes(packed)).version == (1, 7)


def test_overlapping_sections_are_refused():
    data = bytearray(write_bytes({"a": np.zeros(2, np.float32)}, metadata={"k": "v" * 40}, checksums=False))
    index = struct.unpack_from("<I", data, 28)[0]
    shift = index - 16
    data[shift : shift + 33] = data[index : index + 33]
    struct.pack_into("<I", data, 28, shift)
    with pytest.raises(holdall.FormatError) as caught:
        holdall.open(bytes(data))
    assert caught.value.rule in ("embd.header.overlap", "embd.metadata.utf8")
