"""Models in several files are one model, whichever of them is opened."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import holdall
from holdall.cli import main
from holdall.errors import FormatError, UnsupportedError
from tests.format.gguf.build import entry, file, info, u16, u32

ARRAYS = {f"t{n}": np.full((4, 8), n, np.float32) for n in range(7)}
METADATA = {"general.architecture": "test", "tokens": ["a"] * 5000}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    holdall.save(tmp_path / "whole.gguf", ARRAYS, metadata=METADATA)
    holdall.convert(tmp_path / "whole.gguf", tmp_path / "m", format="gguf", split=256)
    return tmp_path / "m"


def part(number: int, count: int = 2, *, tensors: int | None = None, name: str = "") -> bytes:
    entries = [u16("split.no", number), u16("split.count", count)]
    if tensors is not None:
        entries.append(entry("split.tensors.count", 5, tensors.to_bytes(4, "little")))
    return file((*entries, u32(f"from.{number}", 1)), (info(name or f"w{number}"),), bytes([number]) * 32)


def test_any_part_opens_the_model(folder: Path) -> None:
    parts = sorted(folder.iterdir())
    assert [path.name for path in parts] == [f"m-{n:05}-of-00004.gguf" for n in range(1, 5)]
    for path in parts:
        with holdall.open(path) as model:
            assert list(model) == list(ARRAYS)
            assert dict(model.metadata) == METADATA
            assert len(model.native.files) == 4
            for name, values in ARRAYS.items():
                assert model[name].numpy().tobytes() == values.tobytes()
                assert model[name][1:3].tobytes() == values[1:3].tobytes()
        assert holdall.verify(path, level="strict").findings == []


def test_the_package_reads_each_part(folder: Path) -> None:
    gguf = pytest.importorskip("gguf")
    seen = []
    for number, path in enumerate(sorted(folder.iterdir())):
        reader = gguf.GGUFReader(path)
        stated = [reader.fields[f"split.{key}"].contents() for key in ("no", "count", "tensors.count")]
        assert stated == [number, 4, 7]
        seen += [tensor.name for tensor in reader.tensors]
    assert seen == list(ARRAYS)


def test_a_split_model_becomes_one_file(folder: Path, tmp_path: Path) -> None:
    holdall.convert(folder / "m-00003-of-00004.gguf", tmp_path / "one.gguf")
    assert (tmp_path / "one.gguf").read_bytes() == (tmp_path / "whole.gguf").read_bytes()


def test_a_split_model_comes_back_as_it_was(folder: Path, tmp_path: Path) -> None:
    holdall.convert(folder / "m-00002-of-00004.gguf", tmp_path / "x.safetensors", carry=True)
    assert holdall.restore(tmp_path / "x.safetensors", tmp_path / "back").restored == "bytes"
    for path in folder.iterdir():
        assert (tmp_path / "back" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("files", "rule"),
    [
        ({"m-00001-of-00002.gguf": part(0)}, "gguf.split.missing"),
        ({"m-00001-of-00002.gguf": part(0), "m-00002-of-00002.gguf": part(0)}, "gguf.split.agree"),
        ({"m-00001-of-00002.gguf": part(0), "m-00002-of-00002.gguf": part(1, 3)}, "gguf.split.agree"),
        ({"m-00001-of-00002.gguf": part(0), "m-00002-of-00002.gguf": file()}, "gguf.split.agree"),
        ({"m-00001-of-00002.gguf": part(0, tensors=5), "m-00002-of-00002.gguf": part(1)}, "gguf.split.tensors"),
        ({"m-00001-of-00002.gguf": part(0), "m-00002-of-00002.gguf": part(1, name="w0")}, "gguf.split.duplicate"),
        ({"m-00001-of-00002.gguf": part(0), "m-00002-of-00002.gguf": part(1)[:-1]}, "gguf.tensor.place"),
        ({"m-00001-of-00002.gguf": part(1)}, "gguf.split.name"),
        ({"model.gguf": part(0)}, "gguf.split.name"),
    ],
)
def test_parts_that_do_not_make_a_model_are_refused(files: dict[str, bytes], rule: str, tmp_path: Path) -> None:
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    path = tmp_path / next(iter(files))
    with pytest.raises(FormatError) as caught:
        holdall.open(path)
    assert caught.value.rule == rule
    assert rule in [finding.rule for finding in holdall.verify(path, level="structure").findings]


def test_a_part_without_a_folder_says_so(tmp_path: Path) -> None:
    with pytest.raises((FormatError, UnsupportedError)):
        holdall.open(part(0))


def test_the_folder_opens_as_the_model(folder: Path, tmp_path: Path) -> None:
    (folder / "README.md").write_text("no part")
    with holdall.open(folder) as model:
        assert (model.format, list(model), dict(model.metadata)) == ("gguf", list(ARRAYS), METADATA)
        assert {name: model[name].numpy().tobytes() for name in model} == {k: v.tobytes() for k, v in ARRAYS.items()}
    assert holdall.verify(folder, level="strict").findings == []
    assert not holdall.diff(folder, tmp_path / "whole.gguf")
    report = holdall.convert(folder, tmp_path / "one.gguf")
    assert "left behind, no part of the model: README.md" in report.changes
    assert (tmp_path / "one.gguf").read_bytes() == (tmp_path / "whole.gguf").read_bytes()


def test_the_commands_take_the_folder(folder: Path) -> None:
    runner = CliRunner()
    for command in ("info", "ls", "verify"):
        done = runner.invoke(main, [command, str(folder)])
        assert done.exit_code == 0, done.output
        assert "none of the formats" not in done.output
    listed = runner.invoke(main, ["ls", str(folder), "--json"]).output.splitlines()
    assert [json.loads(line)["name"] for line in listed] == list(ARRAYS)


def test_one_part_is_a_set_too(tmp_path: Path) -> None:
    holdall.save(tmp_path / "whole.gguf", ARRAYS, metadata=METADATA)
    holdall.convert(tmp_path / "whole.gguf", tmp_path / "m", format="gguf", split="1MB")
    assert [path.name for path in (tmp_path / "m").iterdir()] == ["m-00001-of-00001.gguf"]
    with holdall.open(tmp_path / "m") as model:
        assert (list(model), dict(model.metadata)) == (list(ARRAYS), METADATA)


@pytest.mark.parametrize(
    ("change", "rule", "message"),
    [
        (lambda f: (f / "m-00002-of-00004.gguf").unlink(), "gguf.split.missing", "part 2 of 4 cannot be opened"),
        (lambda f: (f / "m-00001-of-00004.gguf").unlink(), "core.member", "'m-00001-of-00004.gguf' is not in"),
        (lambda f: (f / "x-00002-of-00003.gguf").write_bytes(part(1, 3)), "gguf.split.folder", "the parts of 2 models"),
    ],
)
def test_a_folder_without_one_whole_set_is_refused(folder: Path, change, rule: str, message: str) -> None:
    change(folder)
    with pytest.raises(FormatError, match=message) as caught:
        holdall.open(folder)
    assert caught.value.rule == rule
    assert rule in [finding.rule for finding in holdall.verify(folder).findings]


def test_a_part_is_not_reached_through_a_link(folder: Path, tmp_path: Path) -> None:
    (folder / "m-00003-of-00004.gguf").rename(tmp_path / "outside.gguf")
    (folder / "m-00003-of-00004.gguf").symlink_to(tmp_path / "outside.gguf")
    with pytest.raises(FormatError, match="symbolic link"):
        holdall.open(folder)


def test_parts_beside_safetensors_leave_the_folder_to_them(folder: Path) -> None:
    holdall.save(folder / "model.safetensors", {"w": np.zeros(2, np.float32)})
    with holdall.open(folder) as model:
        assert model.format == "hf"


def test_only_an_allowed_format_looks_at_a_folder(folder: Path) -> None:
    with pytest.raises(FormatError, match="none of the formats hf"):
        holdall.open(folder, allowed=["hf"])
    (folder / "net.bin").write_bytes(b"?")
    (folder / "a.npy").write_bytes(b"?")
    with pytest.raises(FormatError, match=r"no model by itself: open the file net\.bin in it"):
        holdall.open(folder, allowed=["hf", "torch"])
    with pytest.raises(FormatError, match=r"no model by itself: open the file a\.npy in it"):
        holdall.open(folder, allowed=["npz"])
