"""A file made of an AERO file or set has the kinds of hashes that it had, whatever was changed; read by msgspec."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from blake3 import blake3
from click.testing import CliRunner

import holdall
from holdall.cli import main
from tests.format.aero.test_aero_options import read_chunks

PAGE = 65536
RANDOM = np.random.default_rng(3)
# The first is longer than a page of 4 MiB, the last has no bytes.
VALUES = {
    "model.w": RANDOM.standard_normal((1100, 1024)).astype(np.float32),
    "model.b": RANDOM.standard_normal(70_000).astype(np.float32),
    "n": RANDOM.integers(-9, 9, (3, 5), np.int16),
    "none": np.zeros((0, 4), np.float32),
}
ALL = {"tensor_hash": True, "page_hash": PAGE, "control_hash": True}


def run(*words: object) -> str:
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.output


def read_kinds(path: Path) -> tuple[bool, int, bool]:
    """Whether all tensors have hashes, the bytes of a page, and whether there is IHSH; each hash is computed again."""
    chunks = read_chunks(path.read_bytes())
    tensors = msgspec.msgpack.decode(chunks["TIDX", "tensors"][1])["tensors"]
    hashed = set()
    for entry in tensors:
        shard = chunks.get(("WTSH", f"weights.shard{entry['shard_id']}"))
        hashed.add("hash_b3" in entry)
        if shard is not None and "hash_b3" in entry:  # the index of a set has no shards
            payload = shard[1][entry["data_off"] : entry["data_off"] + entry["data_len"]]
            assert entry["hash_b3"] == blake3(payload).hexdigest(), entry["name"]
    pages = set()
    for (fourcc, name), (_, content) in chunks.items():
        if fourcc == "WTSH" and content:
            if ("PHSH", f"{name}.phsh") not in chunks:
                pages.add(0)
                continue
            stated = msgspec.msgpack.decode(chunks["PHSH", f"{name}.phsh"][1])
            size = stated["page_size"]
            pages.add(size)
            assert stated["digests"] == [
                blake3(content[at : at + size]).digest() for at in range(0, len(content), size)
            ]
    assert len(hashed) == 1 and len(pages) <= 1
    return hashed.pop(), max(pages, default=0), any(fourcc == "IHSH" for fourcc, _ in chunks)


def list_kinds(path: Path) -> set[tuple[bool, int, bool]]:
    """The kinds of a file, or of all parts of a set. The index of a set is compared too; it has no pages."""
    if path.is_file():
        return {read_kinds(path)}
    parts = {read_kinds(part) for part in path.glob("part-*.aero")}
    ((tensor, _, control),) = parts
    assert read_kinds(path / "index.aero") == (tensor, 0, control)
    return parts


CHANGES = {
    "rename": ["--rename", "s/^model[.]//"],
    "exclude": ["--exclude", "n"],
    "cast": ["--cast", "model.b=f16"],
    "shards": ["-o", "max_shard_bytes=3000000"],
    "metadata": ["--meta", "note=new"],
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kinds", [ALL, {"tensor_hash": True}, {"page_hash": PAGE}, {"control_hash": True}, {}])
def test_a_changed_file_keeps_the_kinds(change: str, kinds: dict[str, int], tmp_path: Path) -> None:
    holdall.save(tmp_path / "a.aero", VALUES, **kinds)
    run("convert", tmp_path / "a.aero", tmp_path / "b.aero", *CHANGES[change])
    assert list_kinds(tmp_path / "b.aero") == {
        ("tensor_hash" in kinds, kinds.get("page_hash", 0), "control_hash" in kinds)
    }
    assert holdall.verify(tmp_path / "b.aero").ok


@pytest.mark.parametrize("change", [["--rename", "model.w=w"], ["--rename", "s/model/x/"], ["--set", "note=new"]])
def test_an_edited_file_keeps_the_kinds(change: list[str], tmp_path: Path) -> None:
    holdall.save(tmp_path / "a.aero", VALUES, **ALL)
    run("edit", tmp_path / "a.aero", *change)
    assert list_kinds(tmp_path / "a.aero") == {(True, PAGE, True)}


def test_a_model_that_is_saved_with_other_tensors_keeps_the_kinds(tmp_path: Path) -> None:
    holdall.save(tmp_path / "a.aero", VALUES, **ALL)
    with holdall.open(tmp_path / "a.aero") as model:
        holdall.save(tmp_path / "b.aero", model.replace(tensors=[model["n"], model["model.b"]]))
    assert list_kinds(tmp_path / "b.aero") == {(True, PAGE, True)}


def test_kinds_can_be_left_out(tmp_path: Path) -> None:
    holdall.save(tmp_path / "a.aero", VALUES, **ALL)
    none = {"tensor_hash": False, "page_hash": False, "control_hash": False}
    holdall.convert(tmp_path / "a.aero", tmp_path / "b.aero", options=none)
    assert list_kinds(tmp_path / "b.aero") == {(False, 0, False)}
    holdall.convert(tmp_path / "a.aero", tmp_path / "c.aero", options={"page_hash": True})
    assert list_kinds(tmp_path / "c.aero") == {(True, 4 << 20, True)}


@pytest.mark.parametrize("kinds", [ALL, {"tensor_hash": True}, {"page_hash": PAGE}, {"control_hash": True}, {}])
def test_sets_and_files_keep_the_kinds_of_each_other(kinds: dict[str, int], tmp_path: Path) -> None:
    """AERO to a set, that to a set of other parts, that to a renamed file."""
    expected = {("tensor_hash" in kinds, kinds.get("page_hash", 0), "control_hash" in kinds)}
    holdall.save(tmp_path / "a.aero", VALUES, **kinds)
    cut = ["-o", "max_shard_bytes=300000", "-o", "part_shards=1"]
    outputs = [
        run("convert", tmp_path / "a.aero", tmp_path / "s.aeroset", *cut),
        run("convert", tmp_path / "s.aeroset", tmp_path / "t.aeroset", "-o", "part_shards=2"),
        run("convert", tmp_path / "t.aeroset", tmp_path / "b.aero", "--rename", "s/model/x/"),
    ]
    for path in ("s.aeroset", "t.aeroset", "b.aero"):
        assert list_kinds(tmp_path / path) == expected, path
        assert holdall.verify(tmp_path / path).ok
    assert not any("left out" in output or "lost" in output for output in outputs)
    with holdall.open(tmp_path / "b.aero", check=True) as model:
        np.testing.assert_array_equal(model["x.w"].numpy(), VALUES["model.w"])


def test_damaged_page_hashes_are_made_anew(tmp_path: Path) -> None:
    holdall.save(tmp_path / "a.aero", VALUES, **ALL)
    data = bytearray((tmp_path / "a.aero").read_bytes())
    data[data.index(b"page_size") + 9] ^= 1
    (tmp_path / "a.aero").write_bytes(data)
    run("convert", tmp_path / "a.aero", tmp_path / "b.aero", "--rename", "s/model/x/")
    assert list_kinds(tmp_path / "b.aero") == {(True, 4 << 20, True)}


def test_a_part_that_is_missing_does_not_stop_the_others(tmp_path: Path) -> None:
    holdall.save(tmp_path / "s.aeroset", VALUES, max_shard_bytes=300_000, part_shards=1, **ALL)
    last = sorted((tmp_path / "s.aeroset").glob("part-*.aero"))[-1]
    last.unlink()
    run("convert", tmp_path / "s.aeroset", tmp_path / "b.aero", "--include", "model.w")
    assert list_kinds(tmp_path / "b.aero") == {(True, PAGE, True)}
    with pytest.raises(holdall.HoldallError, match=last.name):
        holdall.convert(tmp_path / "s.aeroset", tmp_path / "c.aero")
