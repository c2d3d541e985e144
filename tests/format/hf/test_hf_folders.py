"""Folders: one file or shards, what the index must agree on, assets, and paths that lead outside."""

import json
import os

import numpy as np
import pytest
import safetensors.numpy

import holdall
from holdall.testing import assert_same
from tests.format.safetensors.files import build, entry

INDEX = "model.safetensors.index.json"
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
CONFIG = b'{"model_type": "bert", "hidden_size": 8}'


def arrays(count=6):
    return {f"layer.{n}.weight": np.full((4, 4), n, np.float32) for n in range(count)}


@pytest.fixture
def sharded(tmp_path):
    """Two shards as the ecosystem lays them out."""
    folder = tmp_path / "model"
    folder.mkdir()
    parts = [dict(list(arrays().items())[:3]), dict(list(arrays().items())[3:])]
    for name, part in zip((FIRST, SECOND), parts, strict=True):
        safetensors.numpy.save_file(part, folder / name, {"format": "pt"})
    weight_map = {name: file for file, part in zip((FIRST, SECOND), parts, strict=True) for name in part}
    write_index(folder, weight_map)
    (folder / "config.json").write_bytes(CONFIG)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_bytes(b"{}")
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    (folder / ".gitattributes").write_bytes(b"")
    return folder


def write_index(folder, weight_map, **metadata):
    content = {"metadata": {"total_size": 6 * 64, **metadata}, "weight_map": weight_map}
    (folder / INDEX).write_text(json.dumps(content, indent=2))


def edit_index(folder, change):
    content = json.loads((folder / INDEX).read_text())
    change(content)
    (folder / INDEX).write_text(json.dumps(content, indent=2))


@pytest.mark.parametrize("opened", ["folder", "index"])
def test_shards_are_one_model(sharded, opened):
    with holdall.open(sharded if opened == "folder" else sharded / INDEX) as model:
        assert model.format == "hf"
        assert {name: model[name].numpy().tolist() for name in model} == {k: v.tolist() for k, v in arrays().items()}
        assert dict(model.metadata) == {"format": "pt"}
        assert sorted(model.assets) == ["1_Pooling/config.json", "config.json"]
        assert model.assets["config.json"] == CONFIG
        assert model.config == {"model_type": "bert", "hidden_size": 8}
        assert model.vocab is None
        assert model.native.weight_map["layer.4.weight"] == SECOND
        assert model.native.files == (FIRST, SECOND)
        assert model.native.index_metadata == {"total_size": 384}
        assert model["layer.5.weight"][1:3, 0].tolist() == [5.0, 5.0]
        assert model.tensors.totals()["f32"].elements == 96
    assert holdall.verify(sharded, level="strict").findings == []


def test_one_file_under_any_name(tmp_path):
    safetensors.numpy.save_file(arrays(), tmp_path / "weights.safetensors")
    with holdall.open(tmp_path) as model:
        assert (model.format, len(model)) == ("hf", 6)
    (tmp_path / "more.safetensors").write_bytes((tmp_path / "weights.safetensors").read_bytes())
    said = (
        r"is a folder of 2 models without model\.safetensors\.index\.json, each .*: more\.safetensors, weights\.safet"
    )
    with pytest.raises(holdall.ForeignError, match=said) as caught:
        holdall.open(tmp_path)
    assert caught.value.rule == "hf.folder.weights"
    report = holdall.verify(tmp_path)
    assert (report.verdict, report.format) == ("not read", None)


def test_several_indexes_are_models_and_parts_without_an_index_are_damage(sharded):
    (sharded / "model.safetensors.index.json").rename(sharded / "a.safetensors.index.json")
    with holdall.open(sharded) as model:
        assert len(model) == 6
    (sharded / "b.safetensors.index.json").write_bytes((sharded / "a.safetensors.index.json").read_bytes())
    with pytest.raises(holdall.ForeignError, match=r"is a folder of 2 models .*: a\.safetensors\.index\.json, b\."):
        holdall.open(sharded)
    with holdall.open(sharded / "a.safetensors.index.json") as model:
        assert len(model) == 6
    for name in ("a", "b"):
        (sharded / f"{name}.safetensors.index.json").unlink()
    report = holdall.verify(sharded)
    assert (report.verdict, [finding.rule for finding in report.findings]) == ("not ok", ["hf.folder.weights"])
    assert "has 2 files of weights and no model.safetensors.index.json: model-00001" in report.findings[0].message


def test_the_single_file_wins_over_an_index(sharded):
    safetensors.numpy.save_file({"only": np.zeros(2, np.float32)}, sharded / "model.safetensors")
    with holdall.open(sharded) as model:
        assert list(model) == ["only"]
    assert [f.rule for f in holdall.verify(sharded, level="strict").findings] == ["hf.folder.both"]


@pytest.mark.parametrize(
    ("change", "rule", "message"),
    [
        (lambda c: c["weight_map"].update(ghost=FIRST), "hf.index.missing", "'ghost' is not in model-00001"),
        (
            lambda c: c["weight_map"].pop("layer.0.weight"),
            "hf.index.unlisted",
            "'layer.0.weight', which .* does not list",
        ),
        (lambda c: c["weight_map"].update({"layer.0.weight": SECOND}), "hf.index.unlisted", "says is in model-00002"),
        (lambda c: c["weight_map"].update(x="model-00003-of-00002.safetensors"), "core.member", "is not in"),
        (lambda c: c["weight_map"].update(x="../secret.safetensors"), "core.path", "not a plain path"),
        (lambda c: c["weight_map"].update(x="/etc/passwd"), "core.path", "not a plain path"),
        (lambda c: c["weight_map"].update(x="a/../../b"), "core.path", "not a plain path"),
        (lambda c: c["weight_map"].update(x="a\\b"), "core.path", "not a plain path"),
        (lambda c: c["weight_map"].update(x="file:///etc/passwd"), "core.path", "not a plain path"),
        (lambda c: c["weight_map"].update(x=""), "core.path", "not a plain path"),
        (lambda c: c["weight_map"].update(x=7), "hf.index.type", "something else than a file"),
        (lambda c: c.update(weight_map=[]), "hf.index.type", "not an object with a weight_map"),
        (lambda c: c.pop("weight_map"), "hf.index.type", "not an object with a weight_map"),
        (lambda c: c.update(metadata=5), "hf.index.type", "the metadata of"),
    ],
)
def test_bad_indexes(sharded, change, rule, message):
    edit_index(sharded, change)
    with pytest.raises(holdall.FormatError, match=message) as caught:
        holdall.open(sharded)
    assert caught.value.rule == rule
    report = holdall.verify(sharded, level="structure")
    assert rule in {finding.rule for finding in report.findings}
    assert not report.ok


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (b"{", "hf.index.json"),
        (b'{"weight_map":{"a":"b"},"weight_map":{}}', "hf.index.duplicate"),
        (b'{"weight_map":{"a":"x","\\u0061":"y"}}', "hf.index.duplicate"),
        (b"\xff", "hf.index.json"),
        (b"[" * 500, "hf.index.json"),
        (b"[]", "hf.index.type"),
        (b"7", "hf.index.type"),
    ],
)
def test_indexes_that_are_not_an_index(sharded, text, rule):
    (sharded / INDEX).write_bytes(text)
    with pytest.raises(holdall.FormatError, match=f"^{INDEX}: hf: ") as caught:
        holdall.open(sharded)
    assert caught.value.rule == rule


def test_a_tensor_in_two_files(sharded):
    safetensors.numpy.save_file(arrays(), sharded / SECOND)
    with pytest.raises(holdall.FormatError, match=r"'layer.0.weight' is in .* and in model-00002") as caught:
        holdall.open(sharded)
    assert caught.value.rule == "hf.shard.duplicate"


def test_a_wrong_total_is_reported_at_level_strict(sharded):
    edit_index(sharded, lambda content: content["metadata"].update(total_size=7))
    assert holdall.verify(sharded).ok
    (finding,) = holdall.verify(sharded, level="strict").findings
    assert (finding.rule, finding.severity) == ("hf.index.total_size", "warning")
    assert (sharded / INDEX).read_bytes()[finding.offset :].startswith(b"7")


def test_a_damaged_shard_is_named(sharded):
    (sharded / SECOND).write_bytes(build({"a": entry(shape=[3])}, bytes(8)))
    with pytest.raises(holdall.FormatError, match=f"^{SECOND}: safetensors: tensor 'a'") as caught:
        holdall.open(sharded)
    assert caught.value.rule == "safetensors.size.bytes"
    findings = holdall.verify(sharded).findings
    assert [(f.rule, f.file) for f in findings] == [("safetensors.size.bytes", SECOND)]


def test_shards_with_other_metadata(sharded):
    safetensors.numpy.save_file(dict(list(arrays().items())[3:]), sharded / SECOND, {"format": "tf", "more": "1"})
    with holdall.open(sharded) as model:
        assert dict(model.metadata) == {"format": "pt", "more": "1"}
    assert [f.rule for f in holdall.verify(sharded, level="strict").findings] == ["hf.shard.metadata"]


# -- links ---------------------------------------------------------------------------------------------------------


def test_links_are_not_followed(sharded, tmp_path):
    outside = tmp_path / "outside.safetensors"
    os.replace(sharded / SECOND, outside)
    (sharded / SECOND).symlink_to(outside)
    with pytest.raises(holdall.FormatError, match="symbolic link") as caught:
        holdall.open(sharded)
    assert caught.value.rule == "core.path"
    (sharded / SECOND).unlink()
    os.replace(outside, sharded / SECOND)
    (sharded / "secret.txt").symlink_to("/etc/passwd")
    with holdall.open(sharded) as model:
        assert "secret.txt" in model.assets
        with pytest.raises(holdall.FormatError, match="symbolic link"):
            model.assets["secret.txt"]


@pytest.fixture
def cache(sharded, tmp_path):
    """The same files as the hub's cache keeps them: links into ../../blobs."""
    repository = tmp_path / "models--me--mine"
    snapshot = repository / "snapshots" / ("5" * 40)
    (repository / "blobs").mkdir(parents=True)
    (snapshot / "1_Pooling").mkdir(parents=True)
    for number, file in enumerate((FIRST, SECOND, INDEX, "config.json", "1_Pooling/config.json")):
        blob = f"{number:064x}"
        os.replace(sharded / file, repository / "blobs" / blob)
        (snapshot / file).symlink_to(f"{'../' * (2 + file.count('/'))}blobs/{blob}")
    return snapshot


def test_a_cache_of_the_hub_opens(cache):
    with holdall.open(cache) as model:
        assert {name: model[name].numpy()[0, 0] for name in model} == {k: v[0, 0] for k, v in arrays().items()}
        assert model.assets["1_Pooling/config.json"] == b"{}"
        assert model.config["hidden_size"] == 8
    with holdall.open(cache / INDEX) as model:
        assert len(model) == 6
    link = cache.parent.parent.parent / "named"
    link.symlink_to(cache)
    with holdall.open(link) as model:
        assert len(model) == 6


@pytest.mark.parametrize(
    "target",
    ["/etc/passwd", "../../blobs/../secret", "../../secret", "../../../blobs/" + "0" * 64, "../blobs/" + "0" * 64,
     "../../blobs/name", "../../blobs/" + "a" * 64, "config.json"],
)  # fmt: skip
def test_a_cache_has_no_other_links(cache, target):
    repository = cache.parent.parent
    (repository / "secret").write_bytes(b"secret")
    (repository / "blobs" / "name").write_bytes(b"secret")
    (repository / "blobs" / ("a" * 64)).symlink_to("../secret")
    (cache / "x.txt").symlink_to(target)
    with holdall.open(cache) as model, pytest.raises(holdall.FormatError, match="symbolic link"):
        model.assets["x.txt"]


def test_blobs_that_are_a_link_themselves(cache):
    repository = cache.parent.parent
    os.replace(repository / "blobs", repository / "elsewhere")
    (repository / "blobs").symlink_to("elsewhere")
    with pytest.raises(holdall.FormatError, match="symbolic link"):
        holdall.open(cache)


# -- writing -------------------------------------------------------------------------------------------------------


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_writing_shards(sharded, tmp_path):
    with holdall.open(sharded) as model:
        holdall.save(tmp_path / "a", model, format="hf", max_shard_size=192)
        holdall.save(tmp_path / "b", model, format="hf", max_shard_size="0.2kB")
        holdall.save(tmp_path / "one", model, format="hf")
        holdall.save(tmp_path / "kept", model, format="hf", max_shard_size="keep", align=8)
        written = files(tmp_path / "a")
        assert sorted(written) == ["1_Pooling/config.json", "config.json", FIRST, SECOND, INDEX]
        assert sorted(files(tmp_path / "one")) == ["1_Pooling/config.json", "config.json", "model.safetensors"]
        assert written == files(tmp_path / "b")
        for name in ("a", "one", "kept"):
            with holdall.open(tmp_path / name) as back:
                assert_same(model, back)
            assert holdall.verify(tmp_path / name, level="strict").findings == []
    assert files(tmp_path / "kept")[FIRST] == (sharded / FIRST).read_bytes()
    index = written[INDEX].decode()
    assert index == json.dumps(json.loads(index), indent=2, sort_keys=True) + "\n"
    assert json.loads(index)["metadata"] == {"total_size": 384}
    assert json.loads(index)["weight_map"]["layer.5.weight"] == SECOND
    for name, file in json.loads(index)["weight_map"].items():
        assert np.array_equal(safetensors.numpy.load(written[file])[name], arrays()[name])


def test_a_tensor_larger_than_a_shard_has_its_own(tmp_path):
    holdall.save(tmp_path / "x", arrays(3), format="hf", max_shard_size=1)
    assert len(files(tmp_path / "x")) == 4


@pytest.mark.parametrize("size", ["", "5 apples", "-1", "0", "GB", "keep"])
def test_sizes_that_are_not_sizes(tmp_path, size):
    with pytest.raises(holdall.ContentError, match="max_shard_size"):
        holdall.save(tmp_path / "x", arrays(), format="hf", max_shard_size=size)


@pytest.mark.parametrize(
    "name", ["../x", "/x", "a/b/c", ".hidden", "a/.b", "model.safetensors", INDEX, "pytorch_model.bin", "x.gguf", ""]
)
def test_assets_that_a_folder_cannot_hold(tmp_path, name):
    model = holdall.Model(assets={name: b""})
    with pytest.raises(holdall.ContentError, match="hf: "):
        holdall.save(tmp_path / "x", model, format="hf")
    assert holdall.formats()["hf"].holds.refuses_asset(name)


def test_an_existing_folder_is_not_touched(sharded):
    before = files(sharded)
    with pytest.raises(FileExistsError):
        holdall.save(sharded, arrays(), format="hf")
    assert files(sharded) == before


# -- facets --------------------------------------------------------------------------------------------------------


def folder_with(tmp_path, **assets):
    holdall.save(
        tmp_path / "x",
        holdall.Model(assets={name.replace("__", "."): data.encode() for name, data in assets.items()}),
        format="hf",
    )
    return tmp_path / "x"


@pytest.mark.parametrize(
    ("assets", "tokens", "special"),
    [
        ({"vocab__txt": "[PAD]\n[UNK]\na\n"}, ("[PAD]", "[UNK]", "a"), {"pad": 0, "unk": 1}),
        ({"vocab__txt": "a\nb\n", "added_tokens__json": '{"<x>": 2}'}, ("a", "b", "<x>"), {}),
        ({"vocab__json": '{"b": 1, "a": 0}', "added_tokens__json": '{"<x>": 3}'}, ("a", "b", "", "<x>"), {}),
        (
            {
                "tokenizer__json": '{"model": {"vocab": {"a": 0, "b": 1}}, '
                '"added_tokens": [{"id": 2, "content": "</s>"}]}',
                "special_tokens_map__json": '{"eos_token": {"content": "</s>"}, "bos_token": "gone"}',
                "tokenizer_config__json": '{"eos_token": "a", "unk_token": "b"}',
            },
            ("a", "b", "</s>"),
            {"eos": 2, "unk": 1},
        ),
        ({"tokenizer__json": '{"model": {"vocab": [["<s>", 0.0], ["▁a", -1.5]]}}'}, ("<s>", "▁a"), {}),
    ],
)
def test_vocabularies(tmp_path, assets, tokens, special):
    with holdall.open(folder_with(tmp_path, **assets)) as model:
        assert model.vocab.tokens == tokens
        assert model.vocab.special == special


def test_assets_that_hold_no_vocabulary(tmp_path):
    with holdall.open(folder_with(tmp_path, vocab__json='{"a": 99999999999}')) as model:
        assert model.vocab is None
        assert model.config is None


def test_infinity_in_a_configuration_is_read(tmp_path):
    path = folder_with(tmp_path, config__json='{"time_step_limit": [0.0, Infinity]}')
    with holdall.open(path) as model:
        assert model.config == {"time_step_limit": [0.0, float("inf")]}
    assert holdall.verify(path, level="strict").ok


def test_a_config_that_is_not_json(tmp_path):
    path = folder_with(tmp_path, config__json='{"a": [1, }')
    with holdall.open(path) as model, pytest.raises(holdall.FormatError, match=r"config.json: a value is expected"):
        _ = model.config
    (finding,) = holdall.verify(path).findings
    assert (finding.rule, finding.file) == ("core.asset", "config.json")


@pytest.mark.parametrize("size, expected", [("5GB", 1), (8192, 3)])
def test_a_folder_of_diffusers_has_the_file_names_that_diffusers_opens(size, expected, tmp_path):
    from holdall.model.model import Model
    from holdall.model.tensor import Tensor

    tensors = [Tensor.of(f"w{n}", np.full(1500, n, np.float32)) for n in range(3)]
    model = Model(tensors, assets={"config.json": b'{"_class_name": "FluxTransformer2DModel"}'})
    holdall.save(tmp_path / "folder", model, format="hf", max_shard_size=size)
    stem = "diffusion_pytorch_model"
    weights = sorted(name for name in os.listdir(tmp_path / "folder") if name != "config.json")
    shards = [f"{stem}-{n:05}-of-00003.safetensors" for n in (1, 2, 3)]
    assert weights == ([f"{stem}.safetensors"] if expected == 1 else [*shards, f"{stem}.safetensors.index.json"])
    with holdall.open(tmp_path / "folder") as again:
        assert all(again[tensor.name].numpy().tobytes() == tensor.numpy().tobytes() for tensor in tensors)
        holdall.save(tmp_path / "kept", again, format="hf", max_shard_size="keep")
    assert sorted(os.listdir(tmp_path / "kept")) == sorted(os.listdir(tmp_path / "folder"))


WEIGHTS_OF_OTHERS = (
    *("model.onnx.data", "model.onnx_data", "model.onnx_data_1", "m.hdf5", "m.keras", "m.pth.tar", "m.jit", "m.ptl"),
    *("m.pt2", "m.pte", "m.ort", "m.engine", "m.plan", "m.joblib", "m.npy", "m.mar", "m.dduf", "saved_model.pb"),
    *("weights.bin", "onnx/M.ORT", "rng_state_0.pth", "training_args.bin"),
)


def test_weights_in_other_forms_are_no_assets(tmp_path):
    holdall.save(tmp_path / "m", {"w": np.zeros(3, np.float32)}, format="hf")
    kept = ("config.json", "graph.pb", "vocab.bin", "data.txt", "plan.md", "weights.bin.txt")
    for name in (*WEIGHTS_OF_OTHERS, *kept):
        (tmp_path / "m" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "m" / name).write_bytes(b"{}")
    with holdall.open(tmp_path / "m") as model:
        assert sorted(model.assets) == sorted(kept)
        assert holdall.formats()["hf"].unread_files(model) == sorted(WEIGHTS_OF_OTHERS)
    report = holdall.convert(tmp_path / "m", tmp_path / "n", format="hf")
    assert any("left behind" in note for note in report.dropped + report.changes)
    assert sorted(path.name for path in (tmp_path / "n").iterdir()) == sorted([*kept, "model.safetensors"])


@pytest.mark.parametrize("name", WEIGHTS_OF_OTHERS)
def test_an_asset_that_would_be_taken_for_weights_is_refused(tmp_path, name):
    with pytest.raises(holdall.ContentError, match="would be taken for a file of weights"):
        holdall.save(tmp_path / "m", holdall.Model(assets={name: b"x"}), format="hf")
