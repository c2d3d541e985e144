"""Source and destination are the same file: it works, or is refused and nothing is touched."""

import os

import numpy as np
import pytest
from tools.writes import snapshot

import holdall
from holdall.cli import main
from holdall.errors import UnsupportedError
from holdall.model.casts import cast
from holdall.model.dtypes import DTYPES, FINITE, find_dtype
from holdall.model.table import ListTable
from holdall.model.tensor import Tensor
from holdall.operations.convert.overwrite import list_narrowing

CONTENT = {"a": np.arange(1024, dtype=np.float32).reshape(4, 256), "b": np.full(7, 0.1, np.float32), "n": np.arange(3)}


@pytest.fixture
def folder(tmp_path):
    """A model under several names: a symbolic link, and a second hard link in another folder."""
    holdall.save(tmp_path / "m.safetensors", CONTENT, metadata={"mode": "fast"})
    (tmp_path / "link.safetensors").symlink_to("m.safetensors")
    (tmp_path / "deep").mkdir()
    return tmp_path


SPELLINGS = ["m.safetensors", "link.safetensors", "deep/../m.safetensors", "./m.safetensors"]


@pytest.mark.parametrize("dst", SPELLINGS)
@pytest.mark.parametrize("src", SPELLINGS)
def test_a_file_is_converted_into_itself(folder, src, dst):
    holdall.convert(f"{folder}/{src}", f"{folder}/{dst}", rename=["s/a/x/"], metadata={"more": "1"})
    with holdall.open(folder / "m.safetensors") as model:
        assert dict(model.metadata) == {"mode": "fast", "more": "1"}
        np.testing.assert_array_equal(model["x"].numpy(), CONTENT["a"])
    assert (folder / "link.safetensors").is_symlink()
    assert sorted(os.listdir(folder)) == ["deep", "link.safetensors", "m.safetensors"]


@pytest.mark.parametrize("dst", SPELLINGS)
@pytest.mark.parametrize(
    "changes", [{"cast": "bf16"}, {"exclude": ["b"]}, {"include": ["a"]}, {"cast": "a=f16"}, {"quantize": "q8"}]
)
def test_what_loses_something_needs_force(folder, dst, changes):
    before = snapshot(folder)
    options = {"format": "mcf"} if "quantize" in changes else {}
    for dry_run in (True, False):
        with pytest.raises(UnsupportedError, match=r"is the file that is being read.*--force"):
            holdall.convert(folder / "m.safetensors", f"{folder}/{dst}", **changes, **options, dry_run=dry_run)
    assert snapshot(folder) == before
    holdall.convert(folder / "m.safetensors", f"{folder}/{dst}", force=True, **changes, **options)
    assert snapshot(folder) != before
    assert holdall.verify(folder / "m.safetensors").ok


@pytest.mark.parametrize("changes", [{"cast": "f64"}, {"cast": "n=i32"}, {"transpose": ["a"]}, {"dedup": True}])
def test_what_loses_nothing_needs_none(folder, changes):
    holdall.convert(folder / "m.safetensors", folder / "m.safetensors", **changes)
    with holdall.open(folder / "m.safetensors") as model:
        np.testing.assert_array_equal(model["b"].numpy(), CONTENT["b"])


@pytest.mark.parametrize("old", [name for name, dtype in DTYPES.items() if dtype.kind == "float" and dtype.bits <= 16])
def test_a_cast_is_called_exact_when_no_value_changes(old):
    """All values of the small types, compared by their bits: zeros have a sign, and any NaN equals another."""
    dtype = find_dtype(old)
    codes = np.arange(1 << dtype.bits, dtype=f"u{dtype.numpy.itemsize}").view(dtype.numpy)
    tensor = Tensor.of("w", codes, old)
    for new in DTYPES.values():
        if new.kind not in ("float", "complex") or (new.name in FINITE - {old} and old not in FINITE):
            continue  # those refuse a NaN
        made = cast(tensor, new)
        with np.errstate(invalid="ignore"):  # of NaN
            before, after = (values.real.astype(np.float64) for values in (codes, made.numpy()))
        same = np.array_equal(before, after, equal_nan=True) and np.array_equal(np.signbit(before), np.signbit(after))
        assert (list_narrowing(ListTable([tensor]), ListTable([made])) == []) == same, new


def test_losses_of_a_format_count_too(tmp_path):
    holdall.save(tmp_path / "m.oinf", {"a": CONTENT["a"]}, metadata={"mode": "fast"})
    before = snapshot(tmp_path)
    with pytest.raises(UnsupportedError, match=r"metadata 'mode'.*--force"):
        holdall.convert(tmp_path / "m.oinf", tmp_path / "m.oinf", format="npz")
    assert snapshot(tmp_path) == before


def test_another_hard_link_keeps_the_old_file(folder):
    os.link(folder / "m.safetensors", folder / "deep/twin.safetensors")
    before = (folder / "m.safetensors").read_bytes()
    holdall.convert(folder / "m.safetensors", folder / "deep/twin.safetensors", cast="bf16")
    assert (folder / "m.safetensors").read_bytes() == before
    with holdall.open(folder / "deep/twin.safetensors") as model:
        assert str(model["a"].dtype) == "bf16"
    with pytest.raises(UnsupportedError, match="--force"):
        holdall.convert(folder / "m.safetensors", folder / "link.safetensors", cast="bf16")


@pytest.mark.parametrize(("format", "options"), [("hf", {"max_shard_size": 64}), ("aeroset", {"max_shard_bytes": 64})])
def test_no_file_of_a_set_is_replaced_by_the_whole(tmp_path, format, options):
    holdall.save(tmp_path / "set", CONTENT, format=format, **options)
    before = snapshot(tmp_path)
    members = [name for name, data in before.items() if data is not None]
    assert len(members) > 2
    for name in members:
        with pytest.raises(UnsupportedError, match="is one of the files of"):
            holdall.convert(tmp_path / "set", tmp_path / name, format="safetensors", force=True)
    with pytest.raises(UnsupportedError, match="is the folder that is being read"):
        holdall.convert(tmp_path / "set", tmp_path / "set", format=format, force=True)
    assert snapshot(tmp_path) == before
    holdall.convert(tmp_path / "set", tmp_path / "set/whole.safetensors")  # a new file is not one of the set


def test_no_file_beside_the_weights_of_a_folder_is_replaced_by_the_whole(tmp_path):
    holdall.save(tmp_path / "set", CONTENT, format="hf")
    for name in ("config.json", "tokenizer.json", "1_Pooling/config.json"):
        (tmp_path / "set" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "set" / name).write_text("{}")
    before = snapshot(tmp_path)
    for name in ("config.json", "tokenizer.json", "1_Pooling/config.json", "1_Pooling/../config.json"):
        with pytest.raises(UnsupportedError, match="is one of the files of"):
            holdall.convert(tmp_path / "set", tmp_path / "set" / name, format="gguf", force=True)
    assert snapshot(tmp_path) == before


def test_parts_merged_into_one_of_them(tmp_path):
    for name in "ab":
        holdall.save(tmp_path / f"{name}.safetensors", {name: CONTENT[name]})
    holdall.convert([tmp_path / "a.safetensors", tmp_path / "b.safetensors"], tmp_path / "a.safetensors")
    with holdall.open(tmp_path / "a.safetensors") as model:
        assert sorted(model) == ["a", "b"]
        np.testing.assert_array_equal(model["b"].numpy(), CONTENT["b"])


def test_edit_through_a_link(folder):
    holdall.edit(folder / "link.safetensors", set={"mode": "slow"})
    assert (folder / "link.safetensors").is_symlink()
    with holdall.open(folder / "m.safetensors") as model:
        assert model.metadata["mode"] == "slow"


def test_the_command_line_says_so(folder, monkeypatch):
    from click.testing import CliRunner

    monkeypatch.chdir(folder)
    before = snapshot(folder)
    for words in (
        "convert m.safetensors link.safetensors --cast bf16",
        "quantize m.safetensors m.safetensors --format mcf",
    ):
        ran = CliRunner().invoke(main, words.split())
        assert ran.exit_code == 1
        assert "use --force" in ran.output
    ran = CliRunner().invoke(main, ["extract", "m.safetensors", "a", "-o", "link.safetensors"])
    assert ran.exit_code == 2
    assert "is the file that is being read" in ran.output
    assert snapshot(folder) == before
    for command in ("convert", "quantize"):
        assert "--force" in CliRunner().invoke(main, [command, "--help"]).output
    ran = CliRunner().invoke(main, ["convert", "m.safetensors", "m.safetensors", "--cast", "bf16", "--force"])
    assert ran.exit_code == 0
