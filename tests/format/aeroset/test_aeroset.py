"""Sets: read by folder or by index, both ways of numbering shards, written in the reference writer's bytes."""

import hashlib
import json
import shutil

import numpy as np
import pytest

import holdall
from holdall.format.aero.layout import TIDX
from holdall.operations.examine import examine
from tests.format.aero.corpus import FOLDER, SETS, name_of


@pytest.mark.shows("A41", "A55")
@pytest.mark.parametrize("folder", SETS, ids=name_of)
@pytest.mark.parametrize("main", ["", "model.aeroset.json"], ids=["folder", "index"])
def test_good_sets_decode_exactly(folder, main):
    want = json.loads((folder / "model.aeroset.expected.json").read_text())
    with holdall.open(folder / main) as model:
        assert (model.format, list(model.version)) == ("aeroset", want["version"])
        assert list(model) == [entry["name"] for entry in want["tensors"]]
        for tensor, entry in zip(model.tensors, want["tensors"], strict=True):
            assert (str(tensor.dtype), list(tensor.shape)) == (entry["dtype"], entry["shape"])
            assert hashlib.sha256(tensor.raw()).hexdigest() == entry["sha256"]
    for level in ("structure", "full", "strict"):
        report = holdall.verify(folder / main, level=level)
        assert report.ok, report.findings


@pytest.mark.shows("A41", "A55")
@pytest.mark.parametrize(("name", "options"), [
    ("set3", {"max_shard_bytes": 600, "part_shards": 2}),
    ("conv/sharded_set", {"max_shard_bytes": 128, "part_shards": 1}),
])  # fmt: skip
def test_the_reference_writers_bytes(name, options, tmp_path):
    with holdall.open(FOLDER / name) as model:
        uuid = model.native.parts[0].model.native.uuid
        holdall.save(tmp_path / "out.aeroset", model, align=1, uuid=uuid.hex, **options)
    for path in (tmp_path / "out.aeroset").iterdir():
        assert path.read_bytes() == (FOLDER / name / path.name).read_bytes(), path.name


def test_into_a_set_and_back(tmp_path):
    content = {f"t{n}": np.full((3, n), n, np.float32) for n in range(1, 20)}
    holdall.save(tmp_path / "one.aero", content, metadata={"k": [1]}, tensor_hash=True)
    options = {"max_shard_bytes": 200, "part_shards": 2, "tensor_hash": True, "page_hash": 64, "control_hash": True}
    with holdall.open(tmp_path / "one.aero") as model:
        holdall.save(tmp_path / "set.aeroset", model, **options)
    assert holdall.verify(tmp_path / "set.aeroset", level="strict").ok
    with holdall.open(tmp_path / "set.aeroset") as model:
        assert len(model.native.parts) > 2
        assert all(tensor.native.hash_b3 for tensor in model.tensors)  # in the global index too
        assert model["t7"][1:].tolist() == content["t7"][1:].tolist()
        holdall.save(tmp_path / "again.aero", model, page_hash=False, control_hash=False)  # keeps hash_b3
    assert (tmp_path / "again.aero").read_bytes() == (tmp_path / "one.aero").read_bytes()


def test_slices_read_their_bytes_once_a_part_is_open(tmp_path):
    from holdall.source import FileSource

    holdall.save(tmp_path / "s.aeroset", {"w": np.arange(1 << 16, dtype=np.float32).reshape(64, 1024)})
    with holdall.open(tmp_path / "s.aeroset", mmap=False) as model:
        tensor = model["w"]
        part = tensor.payload.source.real
        reads = []
        original = FileSource.read_into
        try:
            FileSource.read_into = lambda self, at, buffer: (reads.append(len(buffer)), original(self, at, buffer))[1]
            assert tensor[3].tolist() == list(range(3072, 4096))
        finally:
            FileSource.read_into = original
    assert sum(reads) == 4096
    assert isinstance(part, FileSource)


def test_the_document_keeps_to_its_folder(tmp_path):
    holdall.save(tmp_path / "s.aeroset", {"w": np.ones(4)})
    index = tmp_path / "s.aeroset" / "model.aeroset.json"
    shutil.copy(tmp_path / "s.aeroset" / "part-000.aero", tmp_path / "outside.aero")
    (tmp_path / "s.aeroset" / "link.aero").symlink_to(tmp_path / "outside.aero")
    original = index.read_text()
    for path in ("../outside.aero", "/outside.aero", "http://x/y.aero", "a/../../outside.aero", ""):
        index.write_text(original.replace("part-000.aero", path))
        with pytest.raises(holdall.FormatError):
            holdall.open(index)
        assert not holdall.verify(index).ok
    index.write_text(original.replace("part-000.aero", "link.aero"))
    with holdall.open(index) as model, pytest.raises(holdall.FormatError):
        model["w"].numpy()


@pytest.mark.parametrize(("old", "new"), [
    ('"AEROSET"', '"AERO"'), ("[\n      0,\n      1\n    ]", "[1, 0]"), ('"size_bytes": ', '"size_bytes": -'),
    ('"shards": [\n        0\n      ]', '"shards": [0, 0]'),
    ('"parts"', '"parts": [], "parts"'), ('"sha256": "', '"sha256": "0'),
])  # fmt: skip
def test_documents_that_lie_are_refused(tmp_path, old, new):
    holdall.save(tmp_path / "s.aeroset", {"w": np.ones(4)})
    index = tmp_path / "s.aeroset" / "model.aeroset.json"
    assert old in index.read_text()
    index.write_text(index.read_text().replace(old, new))
    with pytest.raises(holdall.FormatError):
        holdall.open(index)
    assert not holdall.verify(index, level="structure").ok


def test_a_part_that_disagrees_is_named(tmp_path):
    holdall.save(tmp_path / "s.aeroset", {"w": np.ones(4), "v": np.ones(4)}, max_shard_bytes=32, part_shards=1)
    other = tmp_path / "o.aeroset"
    holdall.save(other, {"w": np.ones((2, 2)), "v": np.ones(4)}, max_shard_bytes=32, part_shards=1)
    shutil.copy(other / "index.aero", tmp_path / "s.aeroset" / "index.aero")
    document = json.loads((tmp_path / "s.aeroset" / "model.aeroset.json").read_text())
    document["global_tidx"] = json.loads((other / "model.aeroset.json").read_text())["global_tidx"]
    (tmp_path / "s.aeroset" / "model.aeroset.json").write_text(json.dumps(document))
    with holdall.open(tmp_path / "s.aeroset") as model:
        assert model["v"].numpy().tolist() == [1, 1, 1, 1]
        with pytest.raises(holdall.FormatError, match="global index"):
            model["w"].numpy()
    found = holdall.verify(tmp_path / "s.aeroset").findings
    assert "aeroset.tensor.agree" in {finding.rule for finding in found}


def test_a_part_whose_own_index_is_damaged_is_listed_as_the_set_says(tmp_path):
    holdall.save(tmp_path / "set.aeroset", {"w": np.ones(4, np.float32)})
    with holdall.open(tmp_path / "set.aeroset") as model:
        native = model.native.parts[0].model.native
        part, (index,) = tmp_path / "set.aeroset" / model.native.parts[0].file.path, native.chunks.all(TIDX)
    damaged = bytearray(part.read_bytes())
    damaged[index.offset] ^= 0xFF
    part.write_bytes(damaged)
    with examine(tmp_path / "set.aeroset") as seen:
        assert not seen.report.ok
        assert seen.model.tensors.forms().sizes().tolist() == [16]
        assert seen.model.tensors.ranges().sources
        with pytest.raises(holdall.FormatError):
            seen.model["w"].numpy()


def test_sharded_safetensors_become_the_reference_set(tmp_path):
    meta = {"model_name": "sharded-A", "architecture": "demo"}
    with holdall.open(FOLDER / "conv" / "sharded_src") as source, holdall.open(FOLDER / "conv" / "sharded_set") as want:
        uuid = want.native.parts[0].model.native.uuid.hex
        options = {"align": 1, "sort": True, "uuid": uuid, "max_shard_bytes": 128, "part_shards": 1}
        holdall.save(tmp_path / "out.aeroset", list(source.tensors), metadata=meta, **options)
    for path in (tmp_path / "out.aeroset").iterdir():
        assert path.read_bytes() == (FOLDER / "conv" / "sharded_set" / path.name).read_bytes(), path.name
