"""Edits: what changes, what stays to the bit, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import holdall
from holdall import oinf
from holdall.cli import main
from holdall.errors import ContentError, MissingError, UnsupportedError
from holdall.testing import ZOO, restrict_to
from tests.format.gguf import build

W = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    model = oinf.model({"a": W, "b": W[0]}, sizevars={"B": 4}, metadata={"mode": "fast", "n": 7})
    holdall.save(tmp_path / "m.oinf", model)
    return tmp_path / "m.oinf"


def test_metadata_and_names(path: Path) -> None:
    holdall.edit(path, set={"mode": "slow", "new": 1.5}, unset=["n"], rename={"a": "layer.a"})
    with holdall.open(path) as model:
        assert dict(model.metadata) == {"mode": "slow", "new": 1.5}
        assert list(model) == ["b", "layer.a"]
        assert np.array_equal(model["layer.a"].numpy(), W)
        assert model.sizevars == {"B": 4}
    assert holdall.verify(path, level="strict").ok


def test_a_value_is_stored_as_the_old_one_was(path: Path) -> None:
    for value in (300, -1, "text", [1]):
        with pytest.raises(ContentError, match=r"'n'.*u8"):
            holdall.edit(path, set={"n": value})
    report = holdall.edit(path, set={"n": 300}, unset=["n"])
    assert report.changes == ["metadata 'n': 7 became 300"]
    with holdall.open(path) as model:
        assert model.metadata.kind("n") == "u16"  # stored anew
    holdall.edit(path, set={"n": 1})
    with holdall.open(path) as model:
        assert model.metadata.kind("n") == "u16"
    holdall.edit(path, set={"n": "text"}, keep_kinds=False)
    with holdall.open(path) as model:
        assert model.metadata.kind("n") == "string"


def test_nothing_to_change_touches_nothing(path: Path) -> None:
    before = path.stat()
    assert holdall.edit(path, set={"mode": "fast"}).changes == []
    assert path.stat().st_mtime_ns == before.st_mtime_ns


def test_dry_run_writes_nothing_and_knows_the_size(path: Path) -> None:
    before = path.read_bytes()
    planned = holdall.edit(path, set={"mode": "slower-by-far"}, dry_run=True)
    assert path.read_bytes() == before
    holdall.edit(path, set={"mode": "slower-by-far"})
    assert path.stat().st_size == planned.size


def test_there_and_back_is_the_same_file(path: Path) -> None:
    before = path.read_bytes()
    holdall.edit(path, rename={"a": "z"}, set={"extra": True})
    holdall.edit(path, rename={"z": "a"}, unset=["extra"])
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"unset": ["nothing"]}, MissingError),
        ({"rename": {"x": "y"}}, MissingError),
        ({"rename": {"a": "b"}}, ContentError),
        ({"rename": {"a": "with space"}}, ContentError),
        ({"set": {"bad key": 1}}, ContentError),
        ({"set": {"k": "two words"}}, ContentError),
        ({"assets": {"tokenizer.json": b"{}"}}, ContentError),
        ({"assets": {"tokenizer.json": None}}, MissingError),
    ],
)
def test_what_cannot_be_is_refused_and_the_file_stays(path: Path, changes: dict, error: type) -> None:
    before = path.read_bytes()
    with pytest.raises(error):
        holdall.edit(path, **changes)
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == ["m.oinf"]


def test_names_can_be_swapped(path: Path) -> None:
    holdall.edit(path, rename={"a": "b", "b": "a"})
    with holdall.open(path) as model:
        assert model["b"].shape == (3, 4)


def test_a_skeleton_is_dropped(path: Path, tmp_path: Path) -> None:
    holdall.convert(path, tmp_path / "m.safetensors", carry=True)
    report = holdall.edit(tmp_path / "m.safetensors", set={"note": "mine"})
    assert "the carried skeleton is dropped" in report.changes
    with holdall.open(tmp_path / "m.safetensors") as model:
        assert not any(key.startswith("holdall.") for key in model.metadata)


def test_assets(tmp_path: Path) -> None:
    holdall.save(tmp_path / "m.mcf", holdall.Model([holdall.Tensor.of("a", W)], assets={"config.json": b"{}"}))
    holdall.edit(tmp_path / "m.mcf", assets={"config.json": b'{"hidden_size":4}', "vocab.json": b"{}"})
    with holdall.open(tmp_path / "m.mcf") as model:
        assert model.config == {"hidden_size": 4}
        assert model.assets["vocab.json"] == b"{}"
    holdall.edit(tmp_path / "m.mcf", assets={"vocab.json": None})
    with holdall.open(tmp_path / "m.mcf") as model:
        assert "vocab.json" not in model.assets


def test_a_folder_is_refused(tmp_path: Path) -> None:
    holdall.save(tmp_path / "folder", {"a": W}, format="hf")
    with pytest.raises(UnsupportedError, match="folder"):
        holdall.edit(tmp_path / "folder", rename={"a": "b"})


@pytest.mark.parametrize("name", [name for name, f in holdall.formats().items() if f.writes and not f.folder])
def test_renaming_in_every_format(name: str, tmp_path: Path) -> None:
    target = holdall.formats()[name]
    model = restrict_to(ZOO["many"](), target)
    assert model is not None
    holdall.save(tmp_path / "m", model, format=name)
    old = next(iter(model))
    holdall.edit(tmp_path / "m", rename={old: "renamed.weight"})
    assert holdall.verify(tmp_path / "m").ok
    with holdall.open(tmp_path / "m") as edited:
        assert bytes(edited["renamed.weight"].raw()) == bytes(model[old].raw())
        assert old not in edited


def test_the_command(path: Path) -> None:
    shown = CliRunner().invoke(
        main, ["edit", str(path), "--set", "n=9", "--set", "mode=7", "--rename", "b=c", "--json"]
    )
    assert shown.exit_code == 0, shown.output
    assert len(json.loads(shown.output)["changes"]) == 3
    with holdall.open(path) as model:
        assert (model.metadata["n"], model.metadata["mode"]) == (9, "7")  # a text stays a text
    wrong = CliRunner().invoke(main, ["edit", str(path), "--set", "n"])
    assert wrong.exit_code == 2
    gone = CliRunner().invoke(main, ["edit", str(path), "--unset", "nothing"])
    assert (gone.exit_code, "Traceback" in gone.output) == (1, False)


def test_rules_rename_as_in_a_conversion(path: Path) -> None:
    report = holdall.edit(path, rename={"a": "x"}, rules=["s/^/layer./", "s/[.]x$/.y/"])
    assert report.changes == ["tensor 'a' is called 'layer.y'", "tensor 'b' is called 'layer.b'"]
    with pytest.raises(MissingError, match="s/nothing/x/"):
        holdall.edit(path, rules=["s/nothing/x/"])
    with pytest.raises(ContentError, match="both"):
        holdall.edit(path, rules=["s/layer[.]./z/"])


def invoke(*words: str) -> tuple[int, str]:
    shown = CliRunner().invoke(main, ["edit", *words])
    assert "Traceback" not in shown.output and isinstance(shown.exception, SystemExit | None), shown.output
    return shown.exit_code, shown.output


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["a=x"], ["b", "x"]),
        (["s/a/x/"], ["b", "x"]),
        (["s|^|l.|", "l.a=y"], None),  # exact names come first, and there is no l.a then
        (["a=y", "s/^/l./"], ["l.b", "l.y"]),
    ],
)
def test_both_ways_to_rename(path: Path, words: list[str], names: list[str] | None) -> None:
    status, shown = invoke(str(path), *(word for rule in words for word in ("--rename", rule)))
    assert status == (1 if names is None else 0), shown
    if names is not None:
        with holdall.open(path) as model:
            assert sorted(model) == names


def test_a_name_that_looks_like_a_rule_is_a_name(tmp_path: Path) -> None:
    holdall.save(tmp_path / "m.safetensors", {"scale.c": W, "s.a.b": W})
    status, shown = invoke(str(tmp_path / "m.safetensors"), "--rename", "scale.c=abc", "--rename", "s.a.b=c.")
    assert status == 0, shown
    with holdall.open(tmp_path / "m.safetensors") as model:
        assert sorted(model) == ["abc", "c."]


@pytest.mark.parametrize("rule", ["a", "s/(/x/", "=a", "s/a"])
def test_what_is_no_way_to_rename(path: Path, rule: str) -> None:
    status, shown = invoke(str(path), "--rename", rule)
    assert status == 2
    assert "--rename takes OLD=NEW or s/OLD/NEW/" in shown and "NAME=VALUE" not in shown


@pytest.mark.parametrize("suffix", ["safetensors", "onnx"])
@pytest.mark.parametrize("text", ["3", "1.5", "true", "null", "[1, 2]"])
def test_where_only_text_is_held_it_is_what_was_typed(suffix: str, text: str, tmp_path: Path) -> None:
    holdall.save(tmp_path / f"m.{suffix}", {"a": W})
    status, shown = invoke(str(tmp_path / f"m.{suffix}"), "--set", f"n={text}")
    assert status == 0, shown
    with holdall.open(tmp_path / f"m.{suffix}") as model:
        assert model.metadata["n"] == text


def test_kinds_of_gguf(tmp_path: Path) -> None:
    path = str(tmp_path / "m.gguf")
    metadata = {"general.name": "x", "llama.block_count": 3, "scale": 0.5, "list": [1, 2]}
    holdall.save(path, {"a": W}, metadata=metadata)
    before = (tmp_path / "m.gguf").read_bytes()
    for text, reason in {
        "llama.block_count=abc": "'abc' is not a u32",
        "llama.block_count=-1": "-1 does not fit u32",
        "scale=x": "'x' is not a f32",
        "list=[1.5]": "do not fit i32",
    }.items():
        status, shown = invoke(path, "--set", text)
        key = text.partition("=")[0]
        assert (status, f"gguf: metadata {key!r}: " in shown and reason in shown) == (1, True), shown
    assert (tmp_path / "m.gguf").read_bytes() == before
    assert invoke(path, "--set", "general.name=5", "--set", "scale=2", "--set", "list=[7]")[0] == 0
    assert invoke(path, "--set", "llama.block_count=12", "--text")[0] == 0
    with holdall.open(path) as model:
        kinds = {entry.key: (entry.kind, entry.value) for entry in model.metadata.entries if entry.key != "list"}
        assert model.metadata.kind("list") == "array:i32"
    assert kinds["general.name"] == ("string", "5")
    assert kinds["scale"] == ("f32", 2.0)
    assert kinds["llama.block_count"] == ("string", "12")


def test_unset_and_set_choose_the_type_of_a_text_anew_in_gguf(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    holdall.save(tmp_path / "m.gguf", {"a": W}, metadata={"general.architecture": "x", "n": "7", "t": "7"})
    status, shown = invoke(str(tmp_path / "m.gguf"), "--unset", "n", "--set", "n=7", "--set", "t=8")
    assert status == 0 and "metadata 'n': '7' became 7\n" in shown, shown
    fields = gguf.GGUFReader(tmp_path / "m.gguf").fields
    assert (fields["n"].types, fields["n"].contents()) == ([gguf.GGUFValueType.UINT32], 7)
    assert (fields["t"].types, fields["t"].contents()) == ([gguf.GGUFValueType.STRING], "8")  # it was not unset
    assert invoke(str(tmp_path / "m.gguf"), "--unset", "n", "--set", "n=5", "--text")[0] == 0
    assert gguf.GGUFReader(tmp_path / "m.gguf").fields["n"].contents() == "5"


@pytest.mark.parametrize(
    ("suffix", "metadata", "stored"),
    [("aero", {}, b'{"n":12}'), ("gptrs", {"kind": "k", "config": {}}, b'{"kind":"k","config":{},"n":12}')],
)
def test_unset_and_set_choose_the_type_of_a_text_anew(
    suffix: str, metadata: dict, stored: bytes, tmp_path: Path
) -> None:
    path = tmp_path / f"m.{suffix}"
    holdall.save(path, {"a": W}, metadata={**metadata, "n": "7"})
    assert stored not in path.read_bytes()
    assert invoke(str(path), "--unset", "n", "--set", "n=12")[0] == 0
    assert stored in path.read_bytes()


def test_an_older_version_of_gguf_is_not_kept_in_silence(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(build.file((build.u32("a.b", 7),), (build.info(),), bytes(32), version=2))
    report = holdall.edit(tmp_path / "m.gguf", set={"a.b": 8})
    assert report.changes == ["metadata 'a.b': 7 became 8", "was of GGUF version 2: written as version 3"]
    assert holdall.edit(tmp_path / "m.gguf", set={"a.b": 9}).changes == ["metadata 'a.b': 8 became 9"]


@pytest.mark.parametrize("name", [name for name, f in holdall.formats().items() if f.writes and f.holds.metadata])
def test_reasons_do_not_repeat_what_they_are_about(name: str) -> None:
    refuses = holdall.formats()[name].holds.refuses_metadata
    for value in (object(), 1.5, 1 << 80, None, {"a": 1}, [1, "a"], "two words", "\ud800", float("nan")):
        reason = refuses("the.key", value) or ""
        assert "the.key" not in reason and not reason.startswith(f"{name}:"), reason
