"""Every field that an AERO file can have is carried into a new file, or named as lost: none disappears in silence."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

import holdall
from tests.format.aero.build import INDEX, MMAP, OPTIONAL, ZSTD, Chunk, entry, file, pack, parse, unpack
from tests.format.aero.test_aero_options import read_chunks

W = np.arange(4, dtype="<f4").tobytes()
MANIFEST = {
    "format": {"name": "AERO", "version": [0, 1]},
    "model": {"name": "m", "architecture": "a"},
    "chunks": [],
    "shards": [],
}
JSON = b'{"architecture":"a","model_name":"m"}'


def make(extra=(), *, tensor=None, manifest=None, json=JSON, root=None, flags=MMAP, before=()):
    entries = [entry("w", 1, [4], 0, 16, **(tensor or {}))]
    return file([
        *before,
        Chunk(b"MJSN", "meta.json", json),
        Chunk(b"MMSG", "manifest", pack({**MANIFEST, **(manifest or {})}), ZSTD),
        Chunk(b"TIDX", "tensors", pack({**(root or {}), "tensors": entries}), ZSTD | INDEX),
        Chunk(b"WTSH", "weights.shard0", W, flags),
        *extra,
    ])  # fmt: skip


def pages(name, content, **more):
    from blake3 import blake3

    document = {"shard_name": name, "page_size": 64, "digests": [blake3(content).digest()], **more}
    return Chunk(b"PHSH", name + ".phsh", pack(document), OPTIONAL)


def control(name, **more):
    return Chunk(
        b"IHSH", name, pack({"algo": "blake3-256", "covered_ranges": [], "digest": bytes(32), **more}), OPTIONAL
    )


def index_again():
    return Chunk(b"TIDX", "again", pack({"tensors": [entry("w", 1, [4], 0, 16)]}), INDEX)


CARRIED = {
    "a chunk of an unknown kind": (make([Chunk(b"ABCD", "x", b"zzzz", 0xFFF0)]), "ABCD 'x'"),
    "a second MJSN": (make([Chunk(b"MJSN", "other", b'{"model_name":"evil"}')]), "MJSN 'other'"),
    "a second MMSG": (make([Chunk(b"MMSG", "other", pack({"z": 1}), ZSTD)]), "MMSG 'other'"),
    "a shard without tensors": (make([Chunk(b"WTSH", "weights.shard9", b"unused bytes", MMAP)]), "weights.shard9'"),
    "a shard of another name": (make([Chunk(b"WTSH", "lora.bin", b"unused bytes", MMAP)]), "lora.bin"),
    "its page hashes": (
        make([Chunk(b"WTSH", "weights.shard9", b"more", MMAP), pages("weights.shard9", b"more", q=1)]),
        "weights.shard9.phsh",
    ),
    "flags of a tensor": (make(tensor={"flags": 7}), "flags"),
    "quant_id of a plain tensor": (make(tensor={"quant_id": 3}), "quant_id"),
    "quant_params of a plain tensor": (make(tensor={"quant_params": {"q": 1}}), "quant_params"),
    "an unknown key of a tensor": (make(tensor={"zz": [1, {"b": b"x"}]}), "zz"),
    "an unknown key of TIDX": (make(root={"foo": [1, "x"]}), "foo"),
    "an unknown key of MMSG": (make(manifest={"custom": {"a": 1}}), "custom"),
    "an unknown key of its model": (make(manifest={"model": {"name": "m", "license": "mit"}}), "license"),
    "a name in MMSG alone": (make(json=b'{"architecture":"a"}'), "model name"),
}
MADE_ANEW = {
    "a second IHSH": (make([control("x2")], before=[control("control.integrity")]), "IHSH 'x2'"),
    "a second TIDX": (make([index_again()]), "TIDX 'again'"),
    "an unknown key of IHSH": (make(before=[control("control.integrity", more=1)]), "IHSH 'control.integrity', more"),
    "an unknown key of PHSH": (make([pages("weights.shard0", W, q=1)]), "PHSH 'weights.shard0.phsh', q"),
    "unknown flags of a shard": (make(flags=0x12), "WTSH 'weights.shard0', flags"),
    "an unknown key of the format in MMSG": (make(manifest={"format": {"name": "AERO", "x": 1}}), "MMSG format, x"),
    "an unknown key of a chunk in MMSG": (make(manifest={"chunks": [{"role": "json", "x": 1}]}), "MMSG chunks, x"),
    "an unknown key of a shard in MMSG": (make(manifest={"shards": [{"shard_id": 0, "y": 1}]}), "MMSG shards, y"),
    "a model in MMSG that is no map": (make(manifest={"model": 5}), "MMSG model"),
    "another name in MMSG": (make(manifest={"model": {"name": "n", "architecture": "a"}}), "MMSG model name"),
}


def list_content(data):
    """What a file holds beside the chunks and keys that every writer makes anew."""
    chunks = read_chunks(data)
    made = {("MJSN", "meta.json"), ("MMSG", "manifest"), ("TIDX", "tensors"), ("WTSH", "weights.shard0")}
    made.add(("PHSH", "weights.shard0.phsh"))
    manifest, index = unpack(chunks["MMSG", "manifest"][1]), unpack(chunks["TIDX", "tensors"][1])
    own = {key: manifest[key] for key in manifest if key not in ("format", "chunks", "shards")}
    tensors = [{key: row[key] for key in row if key not in ("shard_id", "data_off")} for row in index.pop("tensors")]
    return {key: chunk for key, chunk in chunks.items() if key not in made}, own, index, tensors, parse(data).raw("w")


@pytest.mark.parametrize("what", CARRIED)
def test_what_has_a_place_in_aero_is_carried_and_named_elsewhere(what, tmp_path):
    data, name = CARRIED[what]
    source, edited = tmp_path / "x.aero", tmp_path / "edited.aero"
    source.write_bytes(data)
    shutil.copy(source, edited)
    report = holdall.convert(source, tmp_path / "y.aero", options={"tidx": "stored"}, strict=True)
    assert report.lossless
    assert report.losses == []
    assert holdall.edit(edited, set={"mode": "fast"}).changes == ["metadata 'mode' is added: 'fast'"]
    holdall.convert(source, tmp_path / "set.aeroset", strict=True)
    holdall.convert(tmp_path / "set.aeroset", tmp_path / "back.aero", strict=True)
    expected = list_content(data)
    default = {"name": "m", "architecture": "unknown"}
    expected[1]["model"] = {**default, "architecture": "a"} | expected[1]["model"]
    for path in (tmp_path / "y.aero", edited, tmp_path / "back.aero"):
        assert list_content(path.read_bytes()) == expected
        assert holdall.verify(path, level="full").ok
    other = holdall.convert(source, tmp_path / "y.safetensors")
    assert not other.lossless
    assert [loss.name for loss in other.losses if name in loss.name], [str(loss) for loss in other.losses]
    with pytest.raises(holdall.ContentError, match="strict was asked for"):
        holdall.convert(source, tmp_path / "z.safetensors", strict=True)


@pytest.mark.parametrize("what", MADE_ANEW)
def test_what_is_made_anew_is_named_everywhere(what, tmp_path):
    data, name = MADE_ANEW[what]
    source = tmp_path / "x.aero"
    source.write_bytes(data)
    for target, options in (("y.aero", {"tidx": "stored"}), ("y.aeroset", {}), ("y.safetensors", {})):
        report = holdall.convert(source, tmp_path / target, options=options)
        assert not report.lossless
        assert [loss.name for loss in report.losses if name in loss.name], [str(loss) for loss in report.losses]
        with pytest.raises(holdall.ContentError, match="strict was asked for"):
            holdall.convert(source, tmp_path / f"z{target}", options=options, strict=True)
    with pytest.raises(holdall.ContentError, match="an edit would lose it"):
        holdall.edit(source, set={"mode": "fast"})
    assert source.read_bytes() == data


def test_a_file_with_nothing_of_its_own_is_converted_without_loss(tmp_path):
    (tmp_path / "x.aero").write_bytes(make())
    for target, options in (("y.aero", {"tidx": "stored"}), ("y.aeroset", {}), ("y.safetensors", {})):
        assert holdall.convert(tmp_path / "x.aero", tmp_path / target, options=options, strict=True).lossless


def test_a_shard_without_tensors_makes_room_for_one_with_tensors(tmp_path):
    unused = np.random.default_rng(1).bytes(5000)
    data = file([
        Chunk(b"MJSN", "first", JSON),
        Chunk(b"MJSN", "meta.json", b'{"second":1}'),
        Chunk(b"MMSG", "manifest", pack(MANIFEST)),
        Chunk(b"TIDX", "tensors", pack({"tensors": [entry("w", 1, [4], 0, 16, shard=3)]})),
        Chunk(b"WTSH", "weights.shard3", W, MMAP),
        Chunk(b"WTSH", "weights.shard0", unused, MMAP),
        pages("weights.shard0", unused, page_size=8192),
    ])  # fmt: skip
    path = tmp_path / "x.aero"
    path.write_bytes(data)
    changes = holdall.edit(path, set={"mode": "fast"}).changes
    chunks = read_chunks(path.read_bytes())
    assert chunks["WTSH", "weights.shard0"][1] == W
    assert chunks["WTSH", "weights.shard1"][1] == unused
    assert chunks["MJSN", "meta.json.2"][1] == b'{"second":1}'
    assert unpack(chunks["PHSH", "weights.shard1.phsh"][1])["shard_name"] == "weights.shard1"
    assert "chunk WTSH 'weights.shard0' is called 'weights.shard1': its name is needed" in changes
    assert holdall.verify(path, level="full").ok
    with holdall.open(path, check=True) as model:
        assert model["w"].numpy().tobytes() == W


def test_what_said_how_a_tensor_was_packed_does_not_stay_with_its_numbers(tmp_path):
    block = np.arange(18, dtype=np.uint8).tobytes()
    rows = [entry("q", 0x8000, [32], 0, 18, quant_id=0, quant_params={"ggml_type": 2})]
    chunks = [Chunk(b"TIDX", "tensors", pack({"tensors": rows})), Chunk(b"WTSH", "weights.shard0", block)]
    (tmp_path / "x.aero").write_bytes(file(chunks))
    holdall.convert(tmp_path / "x.aero", tmp_path / "y.aero", dequantize=True)
    (row,) = parse((tmp_path / "y.aero").read_bytes()).tensors()
    assert "quant_id" not in row
    assert "quant_params" not in row
