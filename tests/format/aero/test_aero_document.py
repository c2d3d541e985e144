"""What the format's document asks for, sentence by sentence, on files that struct, msgspec and blake3 alone make."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
from blake3 import blake3

import holdall
from holdall.source import BytesSource
from holdall.testing import RecordingSource
from tests.format.aero.build import (
    INDEX,
    MMAP,
    OPTIONAL,
    UUID,
    ZSTD,
    Chunk,
    check_control,
    check_pages,
    entry,
    file,
    mjsn,
    pack,
    parse,
    shard,
    tidx,
    unpack,
)
from tests.format.aero.document import (
    DATA,
    DTYPE,
    ENTRIES,
    EVERYTHING,
    HASHES,
    NAMES,
    SHARD,
    B,
    W,
    patch,
    refused,
    rules,
    written,
)


@pytest.mark.shows("A01", "A09", "A24", "A26", "A54")
@pytest.mark.parametrize("options", [{}, {"align": 1}, HASHES, {**HASHES, "max_shard_bytes": 100_000}], ids=str)
def test_a_saved_file_is_read_by_the_document_alone(options, tmp_path):
    rng = np.random.default_rng(0)
    content = {f"layer.{n}": rng.standard_normal((50, 100)).astype("<f4") for n in range(9)} | {"b": B}
    parsed = parse(written(tmp_path / "a", content, metadata={"model_name": "toy", "architecture": "x"}, **options))
    assert parsed.header["toc"] == 96
    flags = {b"MJSN": 0, b"MMSG": ZSTD, b"TIDX": ZSTD | INDEX, b"WTSH": MMAP, b"IHSH": OPTIONAL, b"PHSH": OPTIONAL}
    assert all(row["flags"] == flags[row["fourcc"]] for row in parsed.chunks)
    assert json.loads(parsed.content(b"MJSN")) == {"model_name": "toy", "architecture": "x"}
    manifest = unpack(parsed.content(b"MMSG"))
    assert list(manifest) == ["format", "model", "chunks", "shards"]
    assert manifest["format"] == {"name": "AERO", "version": [0, 1]}
    assert manifest["model"] == {"name": "toy", "architecture": "x"}
    roles = {"IHSH": "control_integrity", "MJSN": "json", "MMSG": "manifest", "TIDX": "tensors", "WTSH": "weights",
             "PHSH": "page_hashes"}  # fmt: skip
    assert [(row["role"], row["toc_index"]) for row in manifest["chunks"]] == [
        (roles[row["fourcc"].decode()], number) for number, row in enumerate(parsed.chunks)
    ]
    shards = [(number, row) for number, row in enumerate(parsed.chunks) if row["fourcc"] == b"WTSH"]
    assert [
        (row["shard_id"], row["toc_index"], row["size_bytes"], row["mmap_critical"]) for row in manifest["shards"]
    ] == [(n, number, row["length"], True) for n, (number, row) in enumerate(shards)]
    assert sum(row["tensor_count"] for row in manifest["shards"]) == len(content)
    keys = ["name", "dtype", "shape", "shard_id", "data_off", "data_len", "flags"]
    for row, (name, values) in zip(parsed.tensors(), content.items(), strict=True):
        assert list(row) == keys + (["hash_b3"] if "tensor_hash" in options else [])
        assert (row["name"], row["dtype"], row["shape"]) == (name, 6 if name == "b" else 1, list(values.shape))
        assert parsed.raw(name) == values.tobytes()
        if "tensor_hash" in options:
            assert row["hash_b3"] == blake3(values.tobytes()).hexdigest()
    if "control_hash" in options:
        check_control(parsed)
        assert check_pages(parsed, 4096) > 40


@pytest.mark.shows("A02", "A08")
def test_the_file_of_the_document_is_read():
    with holdall.open(DATA) as model:
        assert (model.format, model.version, model.native.uuid.bytes) == ("aero", (0, 1), UUID)
        assert dict(model.metadata) == {"model_name": "toy", "note": [1]}
        assert model.native.manifest["model"] == {"name": "toy", "architecture": "x"}
        assert {name: model[name].numpy().tolist() for name in model} == {"w": W.tolist(), "b": B.tolist()}
    assert holdall.verify(DATA, level="strict").ok


@pytest.mark.shows("A03", "A50")
def test_weights_are_views_of_the_map_and_opening_reads_no_shard(tmp_path):
    large = np.arange(3 << 20, dtype="<f4")
    rows = [entry("w", 1, [3 << 20], 0, large.nbytes), entry("v", 1, [100], 400, 400)]
    data = file([tidx(rows), shard(large.tobytes())])
    (tmp_path / "a.aero").write_bytes(data)
    with holdall.open(tmp_path / "a.aero") as model:
        assert np.shares_memory(model["w"].numpy(), model["w"].numpy())
        assert model["w"].numpy().tobytes() == large.tobytes()
        assert model["w"].numpy().ctypes.data % 16 == 0
    source = RecordingSource(BytesSource(data))
    with holdall.open(source) as model:
        assert list(model) == ["w", "v"]
        weights = next(row for row in parse(data).chunks if row["fourcc"] == b"WTSH")
        assert source.bytes_read < 1 << 17
        # The end of the file is looked at for a second format.
        assert all(at + size <= max(weights["offset"], 4096) or at >= weights["offset"] + weights["length"]
                   for at, size in source.reads if at + size < len(data))  # fmt: skip


@pytest.mark.shows("A04")
@pytest.mark.parametrize(
    ("fields", "rule"),
    [({"magic": b"AERX"}, "magic"), ({"minor": 2}, "version"), ({"minor": 0}, "version"), ({"major": 1}, "version"),
     ({"size": 95}, "size"), ({"size": 128}, "size")],
)  # fmt: skip
def test_other_headers_are_refused(fields, rule):
    refused(file(EVERYTHING, **fields), f"aero.header.{rule}")


@pytest.mark.shows("A05")
@pytest.mark.parametrize("flags", [1, 2**63])
def test_flags_of_the_file_are_zero(flags):
    refused(file(EVERYTHING, flags=flags), "aero.header.flags")


@pytest.mark.shows("A06")
@pytest.mark.parametrize("at", [68, 95, 100, 104, 111, 112 + 40, 112 + 80 + 47])
def test_reserved_fields_are_zero_at_strict(at):
    assert DATA[at] == 0
    assert rules(patch(DATA, at, b"\1")) == set()
    assert rules(patch(DATA, at, b"\1"), "strict") == {"aero.reserved"}


@pytest.mark.shows("A07")
def test_the_uuid_is_random_or_fixed(tmp_path):
    fixed = parse(written(tmp_path / "a", {"w": W}, uuid=UUID.hex())).header["uuid"]
    assert fixed == UUID
    found = {parse(written(tmp_path / "a", {"w": W}, uuid="random")).header["uuid"] for _ in range(3)}
    assert len(found) == 3


@pytest.mark.shows("A08", "A13")
@pytest.mark.parametrize("flags", [0, ZSTD, 0x80000000, ZSTD | 0x7FFFFFF0])
def test_chunks_may_be_compressed_and_have_unknown_flags(flags):
    chunks = [mjsn({"a": "b" * 1000}, flags), Chunk(b"MMSG", "manifest", pack({"model": {"name": "n"}}), flags),
              tidx(ENTRIES, flags | INDEX), SHARD]  # fmt: skip
    with holdall.open(file(chunks)) as model:
        assert dict(model.metadata) == {"a": "b" * 1000}
        assert model.native.manifest["model"] == {"name": "n"}
        assert model["b"].numpy().tolist() == B.tolist()


@pytest.mark.shows("A10")
def test_other_chunks_are_kept(tmp_path):
    other = [Chunk(b"XTRA", "one", b"abc", OPTIONAL), Chunk(b"XTRA", "two", b"d" * 1000, OPTIONAL | ZSTD)]
    with holdall.open(file([*EVERYTHING, *other])) as model:
        assert list(model) == ["w", "b"]
        again = parse(written(tmp_path / "a", model))
    assert [again.content(b"XTRA", name) for name in ("one", "two")] == [b"abc", b"d" * 1000]
    assert [row["flags"] for row in again.chunks if row["fourcc"] == b"XTRA"] == [OPTIONAL, OPTIONAL | ZSTD]


@pytest.mark.shows("A11")
def test_names_of_chunks():
    good = [*EVERYTHING, Chunk(b"XTRA", "größe", b"")]
    with holdall.open(file(good)) as model:
        assert [chunk.name for chunk in model.native.chunks] == [
            "meta.json",
            "manifest",
            "tensors",
            "weights.shard0",
            "größe",
        ]
    refused(file([*EVERYTHING, Chunk(b"XTRA", b"\xff\xfe", b"")]), "aero.chunk.name")
    at = 112 + 32  # name_off of the first entry
    for off, length in ((10_000, 1), (2**32 - 1, 1), (0, 10_000), (2**32 - 8, 16)):
        refused(patch(DATA, at, struct.pack("<II", off, length)), "aero.chunk.name")


@pytest.mark.shows("A12")
@pytest.mark.parametrize(
    "chunk", [shard(SHARD.content, flags=MMAP | ZSTD), Chunk(b"IHSH", "control.integrity", bytes(256), ZSTD),
              Chunk(b"PHSH", "weights.shard0.phsh", b"x", ZSTD)], ids=lambda chunk: chunk.fourcc.decode(),
)  # fmt: skip
def test_some_chunks_are_never_compressed(chunk):
    kept = [other for other in EVERYTHING if other.fourcc != chunk.fourcc]
    refused(file([*kept, chunk]), "aero.chunk.compressed")


@pytest.mark.shows("A14")
@pytest.mark.parametrize("missing", [b"MJSN", b"MMSG", b"MJSN MMSG"])
def test_documents_may_be_missing(missing):
    data = file([chunk for chunk in EVERYTHING if chunk.fourcc not in missing])
    with holdall.open(data) as model:
        assert model["w"].numpy().tolist() == W.tolist()
        if missing == b"MJSN MMSG":
            assert dict(model.metadata) == {}
    assert holdall.verify(data).ok


@pytest.mark.shows("A15")
def test_shards(tmp_path):
    entries = [entry("a", 5, [3], 0, 3, shard=0), entry("b", 5, [3], 1, 3, shard=7), entry("c", 5, [2], 4, 2, shard=7)]
    with holdall.open(file([tidx(entries), shard(b"abc", 0), shard(b"-defgh", 7)])) as model:
        assert {name: bytes(model[name].raw()) for name in model} == {"a": b"abc", "b": b"def", "c": b"gh"}
    content = {f"t{n}": np.full(100, n, np.uint8) for n in range(7)}
    parsed = parse(written(tmp_path / "a", content, max_shard_bytes=250, align=1))
    found = [(row["name"], row["length"]) for row in parsed.chunks if row["fourcc"] == b"WTSH"]
    assert found == [("weights.shard0", 200), ("weights.shard1", 200), ("weights.shard2", 200), ("weights.shard3", 100)]
    assert [row["shard_id"] for row in parsed.tensors()] == [0, 0, 1, 1, 2, 2, 3]
    assert all(parsed.raw(name) == values.tobytes() for name, values in content.items())


@pytest.mark.shows("A16")
@pytest.mark.parametrize("code", range(13))
def test_every_type(code, tmp_path):
    values = np.array([[0, 1, 2], [3, 100, 7]]).astype(DTYPE[code])
    data = file([tidx([entry("w", code, [2, 3], 0, values.nbytes)]), shard(values.tobytes())])
    with holdall.open(data) as model:
        assert str(model["w"].dtype) == NAMES[code]
        assert model["w"].numpy().tolist() == values.tolist()
    (row,) = parse(written(tmp_path / "a", {"w": values})).tensors()
    assert (row["dtype"], row["data_len"]) == (code, values.nbytes)


@pytest.mark.shows("A16")
@pytest.mark.parametrize("code", [13, 255, 0x7FFF, 0x8001])
def test_other_types_are_bytes_and_no_numbers(code):
    data = file([tidx([entry("w", code, [4], 0, 16)]), shard(bytes(range(16)))])
    with holdall.open(data) as model:
        assert bytes(model["w"].raw()) == bytes(range(16))
        with pytest.raises(holdall.HoldallError):
            model["w"].numpy()
    assert rules(data) == {"aero.tidx.dtype"}


def q4_0(values):
    """The block of 32 that ggml makes: f16 scale, then 16 bytes of two codes each."""
    scale, codes = values
    low, high = np.array(codes[:16]) + 8, np.array(codes[16:]) + 8
    return struct.pack("<e", scale) + (low | high << 4).astype(np.uint8).tobytes()


@pytest.mark.shows("A17", "A20")
def test_packed_tensors_are_decoded_by_their_parameters():
    codes = [list(range(-8, 8)) * 2, [7, -8] * 16]
    payload = q4_0((0.5, codes[0])) + q4_0((2.0, codes[1]))
    row = entry("w", 0x8000, [2, 32], 0, 36, quant_id=0, quant_params={"ggml_type": 2})
    with holdall.open(file([tidx([row]), shard(payload)])) as model:
        assert (str(model["w"].dtype), model["w"].native.quant_id) == ("ggml.q4_0", 0)
        assert model["w"].numpy().tolist() == [[0.5 * c for c in codes[0]], [2.0 * c for c in codes[1]]]


GGML = {3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K"}


@pytest.mark.shows("A18")
@pytest.mark.parametrize("kind", GGML)
def test_other_packed_types_are_decoded_as_ggml_does(kind):
    gguf = pytest.importorskip("gguf")
    type = gguf.GGMLQuantizationType[GGML[kind]]
    elements, size = gguf.GGML_QUANT_SIZES[type]
    blocks = np.random.default_rng(kind).integers(0, 256, (4, size), np.uint8)
    for scale in {10: (80, 82), 11: (108,), 12: (0, 2), 13: (0, 2), 14: (208,)}.get(
        kind, (0, 2) if kind in (3, 7) else (0,)
    ):
        blocks[:, scale : scale + 2] = np.frombuffer(struct.pack("<e", 0.25), np.uint8)
    row = entry("w", 0x8000, [4, elements], 0, blocks.size, quant_params={"ggml_type": kind})
    with holdall.open(file([tidx([row]), shard(blocks.tobytes())])) as model:
        want = gguf.dequantize(blocks, type)
        assert model["w"].numpy().tolist() == want.reshape(4, elements).tolist()


@pytest.mark.shows("A19")
@pytest.mark.parametrize("params", [{"ggml_type": 9999}, {"codec": "mine"}, {}, None])
def test_unknown_packed_tensors_are_bytes(params):
    row = entry("w", 0x8000, [4, 4], 0, 7, quant_id=3, **({} if params is None else {"quant_params": params}))
    with holdall.open(file([tidx([row]), shard(b"abcdefg")])) as model:
        assert (bytes(model["w"].raw()), model["w"].shape) == (b"abcdefg", (4, 4))
        with pytest.raises(holdall.HoldallError):
            model["w"].numpy()


@pytest.mark.shows("A20")
def test_descriptors_are_written_for_packed_tensors(tmp_path):
    rows = [entry("a", 0x8000, [32], 0, 18, quant_params={"ggml_type": 2}),
            entry("b", 0x8000, [32], 18, 34, quant_params={"ggml_type": 8}),
            entry("c", 0x8000, [32], 52, 18, quant_params={"ggml_type": 2})]  # fmt: skip
    with holdall.open(file([tidx(rows), shard(bytes(70))])) as model:
        parsed = parse(written(tmp_path / "a", model))
    assert json.loads(parsed.content(b"MJSN"))["quant_descriptors"] == [
        {"id": 0, "quant_name": "Q4_0", "codec": "ggml", "params": {"ggml_type": 2}},
        {"id": 1, "quant_name": "Q8_0", "codec": "ggml", "params": {"ggml_type": 8}},
    ]
    found = [(row["dtype"], row["quant_id"], row["quant_params"]["ggml_type"]) for row in parsed.tensors()]
    assert found == [(0x8000, 0, 2), (0x8000, 1, 8), (0x8000, 0, 2)]
