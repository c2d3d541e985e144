"""Writing: the reference writer's bytes, every hash, determinism, and what is refused."""

import json

import numpy as np
import pytest
from safetensors import safe_open

import holdall
from holdall.model.ggml import BLOCKS
from holdall.model.payload import InMemory
from holdall.model.tensor import Tensor
from tests.attacks.files import aero, tidx_entry
from tests.format.aero.corpus import FOLDER, GOOD, expected, name_of

# Made by the reference writer, but not by the one that lays out models: a manifest without lists, other orders, raw or
# compressed documents, hashes without a tail. And one whose page hashes stand in room that was reserved too large.
BY_HAND = {
    "chunk_order_reversed.aero", "hash_b3.aero", "hash_b3_partial.aero", "meta_compressed_json.aero",
    "meta_uncompressed.aero", "no_json.aero", "unicode_chunk_name.aero", "unknown_keys.aero",
    "unknown_optional_chunk.aero", "ihsh_phsh_multi_shard.aero", "conv/from_gguf.aero",
}  # fmt: skip
REFERENCE = [
    path
    for path in GOOD
    if expected(path)["extra"]["origin"].startswith("upstream")
    and path.name != "index.aero"
    and name_of(path) not in BY_HAND
]


def same_content(left, right):
    assert dict(left.metadata) == dict(right.metadata)
    for a, b in zip(left.tensors, right.tensors, strict=True):
        assert (a.name, str(a.dtype), a.shape, bytes(a.raw())) == (b.name, str(b.dtype), b.shape, bytes(b.raw()))


@pytest.mark.shows("A01", "A54")
@pytest.mark.parametrize("path", REFERENCE, ids=name_of)
def test_the_reference_writers_bytes(path, tmp_path):
    pages = expected(path)["extra"].get("phsh")
    with holdall.open(path) as model:
        shards = [chunk.length for chunk in model.native.chunks if chunk.fourcc == "WTSH"]
        options = {"align": 1, "uuid": model.native.uuid.hex, "page_hash": pages[0]["page_size"] if pages else None}
        attempts = [2 << 30] if len(shards) == 1 else [max(shards), 2048, 1024, 512, 256, 300_000, 500_000]
        for most in attempts:  # the limit that was used is not in the file
            holdall.save(tmp_path / "out.aero", model, max_shard_bytes=most, **options)
            if (tmp_path / "out.aero").read_bytes() == path.read_bytes():
                return
        with holdall.open(tmp_path / "out.aero") as reopen:  # another build of zstd: the same content all the same
            found = [(c.fourcc, c.name, c.ulen, c.blake3) for c in reopen.native.chunks]
            assert found == [(c.fourcc, c.name, c.ulen, c.blake3) for c in model.native.chunks]


@pytest.mark.parametrize(
    "options",
    [{}, {"tensor_hash": True}, {"page_hash": 64, "control_hash": True, "tensor_hash": True, "max_shard_bytes": 300}],
    ids=["plain", "tensors", "everything"],
)
@pytest.mark.parametrize("path", [p for p in GOOD if p.name != "index.aero"], ids=name_of)
def test_round_trips_verify_strictly(path, options, tmp_path):
    with holdall.open(path) as model:
        holdall.save(tmp_path / "out.aero", model, **options)
        report = holdall.verify(tmp_path / "out.aero", level="strict")
        assert report.ok, report.findings
        with holdall.open(tmp_path / "out.aero") as reopen:
            same_content(model, reopen)
            if options:
                assert all(tensor.native.hash_b3 for tensor in reopen.tensors)


@pytest.mark.shows("A07")
def test_tensors_are_aligned_and_the_uuid_is_the_contents(tmp_path):
    content = {"a": np.ones(5, np.uint8), "b": np.arange(3.0)}
    for name in ("one", "two"):
        holdall.save(tmp_path / f"{name}.aero", content)
    assert (tmp_path / "one.aero").read_bytes() == (tmp_path / "two.aero").read_bytes()
    holdall.save(tmp_path / "three.aero", {**content, "b": np.arange(3.0) + 1})
    with holdall.open(tmp_path / "one.aero") as model, holdall.open(tmp_path / "three.aero") as other:
        assert model.native.uuid != other.native.uuid
        assert all(tensor.offset % 64 == 0 for tensor in model.tensors)
    holdall.save(tmp_path / "one.aero", content, uuid="random")
    holdall.save(tmp_path / "two.aero", content, uuid="random")
    assert (tmp_path / "one.aero").read_bytes() != (tmp_path / "two.aero").read_bytes()


def test_the_index_with_hashes_stays_in_its_slot(tmp_path):
    holdall.save(tmp_path / "m.aero", {"a": np.ones(100)}, tensor_hash=True, control_hash=True, page_hash=256)
    with holdall.open(tmp_path / "m.aero") as model:
        chunks = model.native.chunks
        assert [c.fourcc for c in chunks] == ["IHSH", "MJSN", "MMSG", "TIDX", "WTSH", "PHSH"]
        assert max(chunks, key=lambda chunk: chunk.offset).fourcc == "TIDX"


@pytest.mark.shows("A10", "A25")
def test_unknown_chunks_and_keys_are_carried_along(tmp_path):
    with holdall.open(FOLDER / "unknown_optional_chunk.aero") as model:
        holdall.save(tmp_path / "m.aero", model)
        with holdall.open(tmp_path / "m.aero") as reopen:
            kept = [(c.fourcc, c.name, c.flags, c.blake3) for c in reopen.native.extras]
            assert kept == [(c.fourcc, c.name, c.flags, c.blake3) for c in model.native.extras]
            assert kept
    with holdall.open(FOLDER / "unknown_keys.aero") as model:
        holdall.save(tmp_path / "m.aero", model)
        with holdall.open(tmp_path / "m.aero") as reopen:
            assert [t.native.extra for t in reopen.tensors] == [t.native.extra for t in model.tensors]
            assert any(t.native.extra for t in reopen.tensors)


def test_what_cannot_be_held_is_refused(tmp_path):
    for content, metadata in (
        ({"": np.ones(1)}, None),
        ({"c": np.ones(1, np.complex64)}, None),
        ({"w": np.ones(1)}, {"x": float("nan")}),
        ({"w": np.ones(1)}, {"x": b"bytes"}),
        ({"w": np.ones((1,) * 33)}, None),
    ):
        with pytest.raises(holdall.ContentError):
            holdall.save(tmp_path / "m.aero", content, metadata=metadata)
    assert not (tmp_path / "m.aero").exists()


def test_safetensors_become_what_the_reference_converter_makes(tmp_path):
    path = FOLDER / "conv" / "from_safetensors.aero"
    with safe_open(FOLDER / "conv" / "from_safetensors.src.safetensors", "np") as file:
        arrays = {name: file.get_tensor(name) for name in sorted(file.keys())}
        metadata = {**(file.metadata() or {}), "source_format": "safetensors"}
    with holdall.open(path) as want:
        wanted = {key: metadata[key] for key in want.metadata}
        options = {"align": 1, "uuid": want.native.uuid.hex, "sort": True}
        holdall.save(tmp_path / "out.aero", arrays, metadata=wanted, **options)
        with holdall.open(tmp_path / "out.aero") as found:
            same_content(want, found)
            assert found.native.manifest == want.native.manifest
    assert (tmp_path / "out.aero").read_bytes() == path.read_bytes()


@pytest.mark.shows("A20")
def test_packed_tensors_get_descriptors(tmp_path):
    blocks = BLOCKS[8]
    data = np.arange(68, dtype=np.uint8).tobytes()
    holdall.save(tmp_path / "m.aero", [Tensor("q", blocks, (2, 32), InMemory(data))])
    with holdall.open(tmp_path / "m.aero") as model:
        tensor = model["q"]
        assert (str(tensor.dtype), tensor.native.quant_id, tensor.native.quant_params) == (
            "ggml.q8_0",
            0,
            {"ggml_type": 8},
        )
        assert tensor.numpy().shape == (2, 32)
        assert tensor[1].tobytes() == tensor.numpy()[1].tobytes()
        descriptor = {"id": 0, "quant_name": "Q8_0", "codec": "ggml", "params": {"ggml_type": 8}}
        assert model.metadata["quant_descriptors"] == [descriptor]


def test_json_keeps_its_bytes_until_changed(tmp_path):
    with holdall.open(FOLDER / "unicode_names.aero") as model:
        holdall.save(tmp_path / "same.aero", model)
        changed = {**model.metadata, "more": [1, 2]}
        holdall.save(tmp_path / "changed.aero", model, metadata=changed)
        chunk = model.native.chunks.first(b"MJSN")
        with holdall.open(tmp_path / "same.aero") as reopen:
            assert reopen.native.content(reopen.native.chunks.first(b"MJSN")) == model.native.content(chunk)
        with holdall.open(tmp_path / "changed.aero") as reopen:
            assert json.loads(reopen.native.content(reopen.native.chunks.first(b"MJSN"))) == changed


def test_gguf_becomes_what_the_reference_converter_makes_but_for_axes_and_padding(tmp_path):
    with holdall.open(FOLDER / "conv" / "from_gguf.src.gguf") as source:
        holdall.save(tmp_path / "out.aero", source, sort=True)
    assert holdall.verify(tmp_path / "out.aero", level="strict").ok
    with holdall.open(FOLDER / "conv" / "from_gguf.aero") as want, holdall.open(tmp_path / "out.aero") as found:
        assert found.native.manifest["model"] == want.native.manifest["model"]
        assert found.metadata["quant_descriptors"] == want.metadata["quant_descriptors"]
        assert (found.metadata["source_format"], found.metadata["shape_order"]) == ("gguf", "row-major")
        for a, b in zip(found.tensors, want.tensors, strict=True):
            assert (a.name, str(a.dtype), a.shape) == (b.name, str(b.dtype), b.shape[::-1])
            assert bytes(a.raw()) == bytes(b.raw())
            assert (a.native.quant_id, a.native.quant_params) == (b.native.quant_id, b.native.quant_params)


@pytest.mark.parametrize(("bytes_of_block", "name"), [(36, "ggml.q8_1.f16"), (40, "ggml.q8_1"), (43, "ggml.q8_1")])
def test_q8_1_has_the_layout_of_its_size(bytes_of_block, name, tmp_path):
    """Both layouts have one id; more bytes than blocks of 40 take are padding of the converter."""
    float_ = "<f2" if bytes_of_block == 36 else "<f4"
    block = np.zeros(6, [("d", float_), ("s", float_), ("qs", "i1", 32)])
    block["d"], block["qs"] = np.arange(6) / 8, np.arange(192).reshape(6, 32) - 96
    stored = block.tobytes().ljust(6 * bytes_of_block, b"\0")
    entry = tidx_entry(dtype=0x8000, shape=[3, 64], data_len=len(stored), quant_params={"ggml_type": 9}, quant_id=0)
    (tmp_path / "x.aero").write_bytes(aero(entry, shard=stored))
    expected = (block["d"].astype(np.float32)[:, None] * block["qs"].astype(np.float32)).reshape(3, 64)
    holdall.convert(tmp_path / "x.aero", tmp_path / "y.aero", options={"sort": True})
    for path in (tmp_path / "x.aero", tmp_path / "y.aero"):
        with holdall.open(path) as model:
            assert str(model["w"].dtype) == name
            np.testing.assert_array_equal(model["w"].numpy(), expected)
            np.testing.assert_array_equal(model["w"][1], expected[1])
    with pytest.raises(holdall.FormatError, match=r"needs 240 bytes for ggml.q8_1\[3, 64\] but its entry says 200"):
        holdall.open(aero({**entry, "data_len": 200}, shard=stored))
