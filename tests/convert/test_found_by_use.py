"""Bugs found by people who knew only the documentation, each as its shortest case."""

from __future__ import annotations

import hashlib
import json
import threading
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import holdall
from holdall.cli import main
from holdall.errors import ContentError, FormatError
from holdall.model.metadata import HASHES, SKELETON
from holdall.operations.convert.skeleton import Bond, Skeleton, SkeletonFile

W = np.random.default_rng(0).standard_normal((3, 3)).astype(np.float32)


def run(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(main, [str(word) for word in words])
    return done.exit_code, done.output


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_skeleton_that_shrinks_to_nothing_is_restored(tmp_path: Path) -> None:
    save_file({"w": W}, tmp_path / "m.safetensors", metadata={"note": "x" * (4 << 20)})
    holdall.convert(tmp_path / "m.safetensors", tmp_path / "m.oinf", carry=True)
    holdall.restore(tmp_path / "m.oinf", tmp_path / "back.safetensors")
    assert sha256(tmp_path / "back.safetensors") == sha256(tmp_path / "m.safetensors")
    holdall.convert(tmp_path / "m.oinf", tmp_path / "m.npz")


def test_a_square_matrix_that_is_transposed_is_reported(tmp_path: Path) -> None:
    save_file({"w": W}, tmp_path / "m.safetensors")
    report = holdall.convert(tmp_path / "m.safetensors", tmp_path / "t.safetensors", transpose=["w"])
    assert report.changes == ["1 tensor transposed"]
    assert np.array_equal(load_file(tmp_path / "t.safetensors")["w"], W.T)


@pytest.fixture(params=["npz", "npz deflated", "torch", "aero", "embd"])
def damaged(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A file with one flipped byte in a payload."""
    path = tmp_path / "m"
    large = np.random.default_rng(1).standard_normal((600, 700)).astype(np.float32)
    if request.param == "npz deflated":
        with path.open("wb") as file:
            np.savez_compressed(file, a=large)
    else:
        holdall.save(path, {"a": large}, format=request.param)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)
    return path


def test_a_copy_compares_the_hashes_too(damaged: Path, tmp_path: Path) -> None:
    with holdall.open(damaged) as model:
        format = model.format
    with pytest.raises(FormatError):
        holdall.convert(damaged, tmp_path / "copy", format=format)
    assert not (tmp_path / "copy").exists()


def test_an_edit_does_not_give_damage_a_new_hash(damaged: Path) -> None:
    before = sha256(damaged)
    with pytest.raises(FormatError):
        holdall.edit(damaged, set={"q": "1"})
    assert sha256(damaged) == before


def test_errors_of_hashes_name_the_damaged_file_and_the_rule(damaged: Path, tmp_path: Path) -> None:
    code, text = run("convert", damaged, tmp_path / "x.oinf")
    assert code == 1
    assert text.startswith(f"holdall: {damaged}: ")
    if "CRC-32" in text or "BLAKE3" in text:
        assert "rule " in text


def test_packed_weights_are_known_behind_a_carrier(tmp_path: Path) -> None:
    folder = tmp_path / "hf"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"quantization_config": {"quant_method": "fp8"}}))
    holdall.save(folder / "model.safetensors", {"l.weight": np.ones((4, 4), ml_dtypes.float8_e4m3fn), "l.weird": W})
    holdall.convert(folder, tmp_path / "c.safetensors", carry=True)
    for target in (folder, tmp_path / "c.safetensors"):
        with pytest.raises(ContentError, match="quantization_config"):
            holdall.convert(target, tmp_path / "x.safetensors", cast={"l.weight": "bf16"})


def test_an_edit_does_not_take_types_away(tmp_path: Path) -> None:
    np.savez(tmp_path / "m.npz", w=np.ones((64, 64), np.float32))
    holdall.convert(tmp_path / "m.npz", tmp_path / "q.mcf", quantize="k4")
    holdall.convert(tmp_path / "q.mcf", tmp_path / "c.safetensors", carry=True)
    before = sha256(tmp_path / "c.safetensors")
    with pytest.raises(ContentError, match=r"tensor 'w' mcf.k4\[64, 64\] would be lost"):
        holdall.edit(tmp_path / "c.safetensors", set={"note": "1"})
    assert sha256(tmp_path / "c.safetensors") == before


def test_no_clobber_holds_until_the_end(tmp_path: Path) -> None:
    save_file({"w": np.zeros((2000, 1000), np.float32)}, tmp_path / "m.safetensors")
    seen = threading.Event()

    def late(done: int, total: int | None) -> None:
        if not seen.is_set():
            seen.set()
            (tmp_path / "x.npz").write_bytes(b"PRECIOUS")

    with pytest.raises(FileExistsError, match="not to be replaced"):
        holdall.convert(tmp_path / "m.safetensors", tmp_path / "x.npz", clobber=False, progress=late)
    assert (tmp_path / "x.npz").read_bytes() == b"PRECIOUS"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.safetensors", "x.npz"]
    holdall.convert(tmp_path / "m.safetensors", tmp_path / "y.npz", clobber=False)
    holdall.convert(tmp_path / "m.safetensors", tmp_path / "set", format="aeroset", clobber=False)


def test_a_carrier_with_other_values_is_not_handed_on(tmp_path: Path) -> None:
    np.savez(tmp_path / "m.npz", w=W)
    holdall.convert(tmp_path / "m.npz", tmp_path / "a.safetensors", carry=True)
    with safe_open(tmp_path / "a.safetensors", "np") as model:
        save_file({"w": W + 1}, tmp_path / "b.safetensors", metadata=model.metadata())
    with pytest.raises(ContentError, match="cannot be handed on: tensor 'w' has other values"):
        holdall.convert(tmp_path / "b.safetensors", tmp_path / "c.oinf", carry=True)
    assert not (tmp_path / "c.oinf").exists()


def test_what_a_carrier_says_itself_is_listed_when_it_is_restored(tmp_path: Path) -> None:
    np.savez(tmp_path / "m.npz", w=W)
    holdall.convert(tmp_path / "m.npz", tmp_path / "a.safetensors", carry=True)
    with safe_open(tmp_path / "a.safetensors", "np") as model:
        save_file({"w": W}, tmp_path / "b.safetensors", metadata={**model.metadata(), "mine": "1"})
    report = holdall.restore(tmp_path / "b.safetensors", tmp_path / "back.npz")
    assert report.changes == ["not in the original, and left out: metadata 'mine'"]
    assert holdall.restore(tmp_path / "a.safetensors", tmp_path / "back.npz").changes == []


def test_dropped_names_every_tensor_that_loses(tmp_path: Path) -> None:
    save_file({"a": W, "b": W, "z": np.zeros((0, 2), np.float32)}, tmp_path / "m.safetensors")
    report = holdall.convert(tmp_path / "m.safetensors", tmp_path / "x.safetensors", cast="f16")
    assert report.dropped == ["tensors 'a', 'b' go from f32 to f16"]


def test_sources_that_differ_are_said_and_strict_refuses(tmp_path: Path) -> None:
    save_file({"a": W}, tmp_path / "a.safetensors", metadata={"k": "1"})
    save_file({"b": W}, tmp_path / "b.safetensors", metadata={"k": "2"})
    line = ["convert", tmp_path / "a.safetensors", tmp_path / "b.safetensors", tmp_path / "ab.safetensors"]
    code, text = run(*line)
    assert code == 0
    assert "lost: metadata 'k' differs between the sources: the first stays" in text
    assert run(*line, "--strict")[0] == 1


def forged(path: Path, skeleton: Skeleton) -> Path:
    """A carrier with a skeleton that an attacker made."""
    hashes = "A" * -(-32 * len(skeleton.bonds) * 4 // 3)
    save_file({"a": W}, path, metadata={SKELETON: skeleton.to_text(), HASHES: hashes})
    return path


def bond(name: str, carried: str = "a", size: int = 36) -> Bond:
    return Bond(name, "f32", (3, 3), size, carried, "f32", (3, 3))


@pytest.mark.parametrize(
    "skeleton",
    [
        Skeleton(
            "npz", (Bond("x", "f32", (3, 3), 36, "", "", ()),), (SkeletonFile("", 40, ((0, 36, 0),), b"1234"),), False
        ),
        Skeleton("npz", (bond("x"), bond("y")), (SkeletonFile("", 76, ((0, 36, 0), (36, 36, 1)), b"1234"),), False),
        Skeleton("hf", (bond("x"),), (SkeletonFile("/".join("abcdefgh"), 1, (), b"x"),), True),
        Skeleton("hf", (bond("x"),), (SkeletonFile("m", 1, (), b"x"), SkeletonFile("m/y", 1, (), b"x")), True),
        Skeleton("hf", (bond("x"),), (SkeletonFile("m", 1, (), b"x"), SkeletonFile("m", 1, (), b"x")), True),
    ],
)
def test_forged_skeletons_are_refused(tmp_path: Path, skeleton: Skeleton) -> None:
    path = forged(tmp_path / "f.safetensors", skeleton)
    for with_changes in (False, True):
        with pytest.raises(FormatError, match="skeleton"):
            holdall.restore(path, tmp_path / "out", with_changes=with_changes)
    with pytest.raises(FormatError, match="skeleton"):
        holdall.convert(path, tmp_path / "out.npz")


def test_text_arrays_are_extracted_as_bytes(tmp_path: Path) -> None:
    np.savez(tmp_path / "m.npz", text=np.array(["abc", "dé"]), w=W)
    code, text = run("extract", tmp_path / "m.npz", "--all", tmp_path / "all")
    assert code == 0, text
    assert (tmp_path / "all" / "text.bin").read_bytes() == np.array(["abc", "dé"]).tobytes()
    assert np.array_equal(np.load(tmp_path / "all" / "w.npy"), W)
