"""Every golden file, against what is expected of it."""

import hashlib

import numpy as np
import pytest

import holdall
from holdall import identity
from tests.format.gptrs import corpus

STRICT = {
    "chk_shared_payload": "gptrs.tensor.overlap",
    "chk_trailing_file_bytes": "gptrs.file.trailing",
    "chk_trailing_index_bytes": "gptrs.index.trailing",
    "chk_unsorted_index": "gptrs.index.order",
    "ten_scalar_rank0": "gptrs.index.order",
}

# Files that the writer cannot make again: of version 1, or with some ids stored and others not.
NOT_WRITTEN = {"chk_v1", "ten_v1", "chk_mixed_base_ids"}

# Files whose configuration bytes are not what the writer makes of its value.
OTHER_CONFIG_BYTES = {"chk_no_config_key", "chk_runtime_null", "chk_untagged_config", "chk_whitespace_config"}


def number(value):
    return float(value) if isinstance(value, str) else value


@pytest.mark.shows("G10", "G16", "G27", "G28", "G39")
@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("name", corpus.GOOD + corpus.ODD)
def test_content(name, mmap):
    want = corpus.expected(name)
    with holdall.open(corpus.file(name), mmap=mmap) as model:
        assert (model.format, model.version) == (corpus.FORMATS[want["format"]], (want["version"],))
        check_config(model.config, want.get("config"))
        assert list(model) == [row["name"] for row in want["tensors"]]
        ids = identity.Identities(model)
        keys = ids.keys(1)
        for row in want["tensors"]:
            tensor = model[row["name"]]
            assert (str(tensor.dtype), list(tensor.shape)) == (row["dtype"], row["shape"])
            assert (tensor.offset, tensor.nbytes) == (row["offset"], row["nbytes"])
            assert hashlib.sha256(tensor.raw()).hexdigest() == row["sha256"]
            assert (0 if tensor.native is None else tensor.native.flag) == row["reserved"]
            assert tensor.requires_grad is (row["reserved"] != 0)
            if "base_id" in row:
                assert f"{ids.by_name[row['name']]:032x}" == row["base_id"]
                assert f"{keys[row['name']]:032x}" == row["param_key_ns1"]
                assert ids.name(int(row["base_id"], 16)) == row["name"]
            if "values" in row:
                values = np.array([number(value) for value in row["values"]]).astype(tensor.dtype.numpy)
                np.testing.assert_array_equal(tensor.numpy().reshape(-1), values)


def check_config(found, want):
    if want is None:
        assert found is None
        return
    known = {key: found[key] for key in ("kind", "config", "runtime", "eos_token_ids") if key in found}
    assert known == want


@pytest.mark.parametrize("name", corpus.GOOD + corpus.ODD)
def test_verdicts(name):
    path = corpus.file(name)
    report, strict = holdall.verify(path), holdall.verify(path, level="strict")
    rows = corpus.expected(name)["tensors"]
    noted = {"gptrs.tensor.old_readers": any(row["dtype"] in ("f16", "bf16") for row in rows),
             "gptrs.tensor.scalar": any(not row["shape"] for row in rows)}  # fmt: skip
    assert report.ok and [finding.severity for finding in report.findings] == ["note"] * sum(noted.values())
    assert {finding.rule for finding in report.findings} == {rule for rule, found in noted.items() if found}
    assert strict.ok == (name not in STRICT), strict.findings
    if name in STRICT:
        assert STRICT[name] in [finding.rule for finding in strict.findings]


@pytest.mark.shows("G09", "G13", "G21", "G43")
@pytest.mark.parametrize("name", corpus.BAD)
def test_bad(name):
    path = corpus.FOLDER / "bad" / f"{name}.bin"
    with pytest.raises(holdall.FormatError):
        holdall.open(path)
    named = "gptrs-archive" if name.startswith("ten_") else "gptrs-checkpoint"
    with pytest.raises(holdall.FormatError) as caught:
        holdall.open(path, format=named)
    assert caught.value.rule.startswith("gptrs.")
    assert not holdall.verify(path).ok
    assert not holdall.verify(path, format=named).ok


@pytest.mark.parametrize("name", [name for name in corpus.GOOD if name not in NOT_WRITTEN])
def test_an_opened_model_is_written_back_byte_for_byte(name, tmp_path):
    with holdall.open(corpus.file(name)) as model:
        holdall.save(tmp_path / "again", model, format=model.format, fsync=False, **corpus.options(name))
    assert (tmp_path / "again").read_bytes() == corpus.file(name).read_bytes()


@pytest.mark.shows("G01", "G02")
@pytest.mark.parametrize("name", [n for n in corpus.GOOD if n not in NOT_WRITTEN | OTHER_CONFIG_BYTES])
def test_the_same_content_gives_the_same_bytes(name, tmp_path):
    target = corpus.FORMATS[corpus.expected(name)["format"]]
    holdall.save(tmp_path / "new", corpus.rebuild(name), format=target, fsync=False, **corpus.options(name))
    assert (tmp_path / "new").read_bytes() == corpus.file(name).read_bytes()


@pytest.mark.shows("G27", "G28")
def test_vectors():
    vectors = corpus.vectors()
    ids = identity.base_ids([row["name"] for row in vectors])
    assert [f"{id:032x}" for id in ids] == [row["base_id"] for row in vectors]
    for row, id in zip(vectors, ids, strict=True):
        assert identity.base_id(row["name"]) == id
        assert id.to_bytes(16, "little").hex() == row["base_id_le_bytes"]
        for namespace, key in row["param_key"].items():
            assert f"{identity.param_key(int(namespace), id):032x}" == key


@pytest.mark.parametrize("name", corpus.GOOD)
def test_through_safetensors_and_back(name, tmp_path):
    holdall.convert(corpus.file(name), tmp_path / "x.safetensors", carry=True, fsync=False)
    holdall.restore(tmp_path / "x.safetensors", tmp_path / "back", fsync=False)
    assert (tmp_path / "back").read_bytes() == corpus.file(name).read_bytes()
