"""Conversion: what changes on the way, what is left out, what is refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors import numpy as oracle
from safetensors import safe_open

import holdall
from holdall import oinf
from holdall.errors import ContentError, FormatError, UnsupportedError

W = np.random.default_rng(0).standard_normal((40, 8)).astype(np.float32)


@pytest.fixture
def rich(tmp_path: Path) -> Path:
    """An OINF file with everything that safetensors has no place for."""
    model = oinf.model(
        {
            "w": W,
            "q": oinf.TensorSpec(np.arange(-4, 5), "i4"),
            "scaled": oinf.TensorSpec(np.arange(6, dtype=np.int8), quant=oinf.QuantParams([0.5])),
            "later": oinf.Uninitialized("f32", (3, 4)),
        },
        sizevars={"B": 4},
        metadata={"mode": "fast", "n": 300, "grid": np.arange(4, dtype=np.int16)},
    )
    holdall.save(tmp_path / "rich.oinf", model)
    return tmp_path / "rich.oinf"


def test_tensors_that_the_target_cannot_hold_stop_it_and_the_ways_out_are_named(rich: Path, tmp_path: Path) -> None:
    with pytest.raises(ContentError) as stopped:
        holdall.convert(rich, tmp_path / "x.safetensors")
    message = str(stopped.value)
    assert "safetensors cannot hold 3 tensors" in message
    assert "'q' i4[9] (no i4)" in message
    assert "'later' f32[3, 4] (no tensors without data)" in message
    assert "'scaled'" in message
    assert message.endswith("--cast q=i8, --exclude, --carry")
    assert [path.name for path in tmp_path.iterdir()] == ["rich.oinf"]


def test_metadata_without_a_place_is_left_out_and_listed(tmp_path: Path) -> None:
    metadata = {"mode": "fast", "n": 300, "grid": np.arange(4, dtype=np.int16)}
    holdall.save(tmp_path / "m.oinf", oinf.model({"w": W}, sizevars={"B": 4}, metadata=metadata))
    report = holdall.convert(tmp_path / "m.oinf", tmp_path / "x.npz")
    assert {(loss.name, loss.fate) for loss in report.losses} == {
        ("mode", "left out"), ("n", "left out"), ("grid", "left out"), ("sizevars", "left out"),
    }  # fmt: skip
    assert report.lossless is False
    with np.load(tmp_path / "x.npz") as loaded:
        assert loaded.files == ["w"]
        assert loaded["w"].tobytes() == W.tobytes()
    report = holdall.convert(tmp_path / "m.oinf", tmp_path / "x.safetensors")
    assert {loss.name: loss.fate for loss in report.losses} == {"n": "text", "grid": "text", "sizevars": "left out"}
    with safe_open(tmp_path / "x.safetensors", "np") as loaded:
        assert loaded.metadata() == {"mode": "fast", "n": "300", "grid": "[0, 1, 2, 3]"}


def test_metadata_that_is_given_goes_in_where_none_comes_along(tmp_path: Path) -> None:
    holdall.save(tmp_path / "m.oinf", {"w": W}, metadata={"mode": "fast"})
    report = holdall.convert(tmp_path / "m.oinf", tmp_path / "x.npz", metadata={"note": "mine"})
    assert [(loss.name, loss.fate) for loss in report.losses] == [("mode", "left out")]
    with holdall.open(tmp_path / "x.npz") as model:
        assert dict(model.metadata) == {"note": "mine"}
    with pytest.raises(ContentError, match="gptrs-archive has no place for metadata"):
        holdall.convert(tmp_path / "m.oinf", tmp_path / "x.gptrsten", metadata={"note": "mine"})


def test_strict_refuses_before_writing(tmp_path: Path) -> None:
    holdall.save(tmp_path / "m.oinf", {"w": W}, metadata={"n": 300})
    with pytest.raises(ContentError, match=r"strict was asked for: metadata 'n'.*--carry"):
        holdall.convert(tmp_path / "m.oinf", tmp_path / "x.safetensors", strict=True)
    assert not (tmp_path / "x.safetensors").exists()


def test_what_is_native_is_lossless(tmp_path: Path) -> None:
    holdall.save(tmp_path / "plain.oinf", {"a": W, "b": W[0]}, metadata={"mode": "fast"})
    report = holdall.convert(tmp_path / "plain.oinf", tmp_path / "x.safetensors")
    assert (report.losses, report.skeleton_bytes, report.lossless) == ([], 0, True)
    holdall.convert(tmp_path / "x.safetensors", tmp_path / "back.oinf")
    assert (tmp_path / "back.oinf").read_bytes() == (tmp_path / "plain.oinf").read_bytes()
    dry = holdall.convert(tmp_path / "plain.oinf", tmp_path / "y.safetensors", dry_run=True)
    assert dry.lossless is None


@pytest.mark.shows("G23")
def test_a_plain_npz_becomes_an_archive_without_options(tmp_path: Path) -> None:
    np.savez(tmp_path / "m.npz", b=W, a=W[0])
    assert holdall.convert(tmp_path / "m.npz", tmp_path / "m.gptrsten").lossless
    with holdall.open(tmp_path / "m.gptrsten") as model:
        assert model["b"].numpy().tobytes() == W.tobytes()


def test_choosing_renaming_casting(tmp_path: Path) -> None:
    holdall.save(tmp_path / "a.oinf", {"model.w": W, "model.b": W[0], "other": W})
    report = holdall.convert(
        tmp_path / "a.oinf",
        tmp_path / "b.safetensors",
        include=["model.*"],
        rename=["s/^model[.]//"],
        cast=["*.w=bf16"],
    )
    assert report.tensors == 2
    with holdall.open(tmp_path / "b.safetensors") as model:
        assert {name: str(model[name].dtype) for name in model} == {"w": "bf16", "b": "f32"}


def test_nothing_left_and_idle_rules(rich: Path, tmp_path: Path) -> None:
    with pytest.raises(ContentError, match="no tensor is left"):
        holdall.convert(rich, tmp_path / "x.safetensors", include=["nothing*"])
    report = holdall.convert(rich, tmp_path / "x.safetensors", cast=["zz=f16"], include=["w"])
    assert "cast 'zz' matches no tensor" in report.changes


def test_casts_are_reported_and_leave_integers(tmp_path: Path) -> None:
    holdall.save(tmp_path / "a.oinf", {"w": W * np.float32(1e5), "ids": np.arange(1000)})
    report = holdall.convert(tmp_path / "a.oinf", tmp_path / "b.oinf", cast="f16")
    assert report.changes[0] == "1 tensor from f32 to f16"
    assert "beyond f16" in report.changes[1]
    with holdall.open(tmp_path / "b.oinf") as model:
        assert np.array_equal(model["ids"].numpy(), np.arange(1000))


def test_what_was_asked_to_go_is_listed_and_not_lossless(tmp_path: Path) -> None:
    holdall.save(tmp_path / "m.oinf", {"a": W, "b": W, "c": W[0]})
    cast = holdall.convert(tmp_path / "m.oinf", tmp_path / "cast.oinf", cast="bf16", rename=["s/^c/d/"])
    assert not cast.lossless
    assert cast.dropped == ["tensors 'a', 'b', 'c' go from f32 to bf16"]
    assert cast.changes == ["1 tensor renamed", "3 tensors from f32 to bf16"]
    less = holdall.convert(
        tmp_path / "m.oinf",
        tmp_path / "less.oinf",
        include=["b", "c"],
        cast="a=f16",
        transpose=["b"],
        metadata={"k": "v"},
    )
    assert not less.lossless
    assert less.changes == [
        "1 tensor left out",
        "cast 'a' matches no tensor",
        "1 tensor transposed",
        "metadata 'k' added",
    ]
    assert holdall.convert(tmp_path / "m.oinf", tmp_path / "named.oinf", rename=["s/^c/d/"]).lossless


def test_a_merge_of_two_formats_takes_numbers_as_text(tmp_path: Path) -> None:
    holdall.save(tmp_path / "a.safetensors", {"a": W})
    holdall.save(tmp_path / "b.gguf", {"b": W}, metadata={"blocks": 3})
    report = holdall.convert([tmp_path / "a.safetensors", tmp_path / "b.gguf"], tmp_path / "ab.safetensors")
    assert [(loss.name, loss.fate) for loss in report.losses] == [("blocks", "text")]
    with holdall.open(tmp_path / "ab.safetensors") as model:
        assert (list(model), model.metadata["blocks"]) == (["a", "b"], "3")


def test_the_report_knows_what_was_written_and_replaced(tmp_path: Path) -> None:
    holdall.save(tmp_path / "m.oinf", {"w": W})
    dry = holdall.convert(tmp_path / "m.oinf", tmp_path / "set", format="aeroset", dry_run=True)
    done = holdall.convert(tmp_path / "m.oinf", tmp_path / "set", format="aeroset")
    assert dry.size is None
    assert done.size == sum(file.stat().st_size for file in (tmp_path / "set").iterdir())
    assert not holdall.convert(tmp_path / "m.oinf", tmp_path / "m.gguf").replaces
    assert holdall.convert(tmp_path / "m.oinf", tmp_path / "m.gguf").replaces


def test_a_split_is_for_formats_that_open_it_again(tmp_path: Path) -> None:
    np.savez(tmp_path / "m.npz", a=W, b=W)
    with pytest.raises(
        UnsupportedError, match="npz has no convention for several files; these have: gguf, safetensors"
    ):
        holdall.convert(tmp_path / "m.npz", tmp_path / "parts", format="npz", split=W.nbytes)
    for format in ("gguf", "safetensors"):
        holdall.convert(tmp_path / "m.npz", tmp_path / format, format=format, split=W.nbytes)
        assert len(list((tmp_path / format).glob("*-of-00002*"))) == 2
        with holdall.open(tmp_path / format) as model:
            assert {name: model[name].numpy().tobytes() for name in model} == {"a": W.tobytes(), "b": W.tobytes()}
        assert holdall.verify(tmp_path / format).ok


def test_a_tensor_beyond_the_size_of_a_part_is_named(tmp_path: Path) -> None:
    holdall.save(tmp_path / "m.oinf", {"a": W, "b": W[0]})
    report = holdall.convert(tmp_path / "m.oinf", tmp_path / "parts", format="safetensors", split=100)
    assert f"tensor 'a' alone has {W.nbytes} bytes: the file with it is larger than 100" in report.changes


def test_two_tensors_of_one_name_are_refused(tmp_path: Path) -> None:
    holdall.save(tmp_path / "a.oinf", {"a": W, "b": W})
    with pytest.raises(ContentError, match="two tensors would be called 'x'"):
        holdall.convert(tmp_path / "a.oinf", tmp_path / "b.oinf", rename=["s/./x/"])


def test_merging_and_splitting(tmp_path: Path) -> None:
    holdall.save(tmp_path / "a.oinf", {"a": W, "c": W[1]}, metadata={"k": 1, "same": 2})
    holdall.save(tmp_path / "b.oinf", {"b": W[0]}, metadata={"k": 3, "same": 2})
    report = holdall.convert([tmp_path / "a.oinf", tmp_path / "b.oinf"], tmp_path / "ab.safetensors")
    assert "metadata 'k' differs between the sources: the first stays" in report.dropped
    assert report.lossless is False
    with holdall.open(tmp_path / "ab.safetensors") as model:
        assert sorted(model) == ["a", "b", "c"]
    holdall.convert(tmp_path / "ab.safetensors", tmp_path / "parts", format="gguf", split=W.nbytes)
    parts = sorted(path.name for path in (tmp_path / "parts").iterdir())
    assert parts == ["parts-00001-of-00002.gguf", "parts-00002-of-00002.gguf"]
    with pytest.raises(ContentError, match="two tensors would be called 'a'"):
        holdall.convert([tmp_path / "a.oinf", tmp_path / "a.oinf"], tmp_path / "x.oinf")
    with pytest.raises(ContentError, match="a size looks like"):
        holdall.convert(tmp_path / "a.oinf", tmp_path / "none", format="gguf", split=0)


def test_what_several_files_of_a_format_have_of_its_own_is_named_where_it_is_not_joined(tmp_path: Path) -> None:
    sources = [tmp_path / "a.oinf", tmp_path / "b.oinf"]
    holdall.save(sources[0], oinf.model({"a": W}, sizevars={"D": 3}))
    holdall.save(sources[1], {"b": W})
    report = holdall.convert(sources, tmp_path / "ab.oinf")
    assert len(report.lost) == 1
    assert report.lost[0].endswith("a.oinf: sizevars: size variables D=3: is not joined with that of other files")
    with pytest.raises(ContentError, match="size variables D=3"):
        holdall.convert(sources, tmp_path / "x.oinf", strict=True)


def test_equal_tensors_are_stored_once_where_the_target_can(tmp_path: Path) -> None:
    holdall.save(tmp_path / "a.oinf", {"a": W, "b": W, "c": W + 1})
    report = holdall.convert(tmp_path / "a.oinf", tmp_path / "a.mcf", dedup=True)
    assert report.changes == ["'b' shares the bytes of 'a'"]
    with holdall.open(tmp_path / "a.mcf") as model:
        assert model["a"].offset == model["b"].offset != model["c"].offset
        assert np.array_equal(model["b"].numpy(), W)


def test_dry_run_knows_the_exact_size(rich: Path, tmp_path: Path) -> None:
    planned = holdall.convert(rich, tmp_path / "x.safetensors", carry=True, dry_run=True)
    assert not (tmp_path / "x.safetensors").exists()
    holdall.convert(rich, tmp_path / "x.safetensors", carry=True)
    assert planned.size == (tmp_path / "x.safetensors").stat().st_size


def test_a_file_of_the_format_already_is_copied(rich: Path, tmp_path: Path) -> None:
    holdall.convert(rich, tmp_path / "copy.oinf")
    assert (tmp_path / "copy.oinf").read_bytes() == rich.read_bytes()


def test_a_refused_cast_leaves_nothing(tmp_path: Path) -> None:
    holdall.save(tmp_path / "a.oinf", {"a": np.array([300], np.int32)})
    (tmp_path / "b.oinf").write_bytes(b"old")
    with pytest.raises(ContentError, match="'a'"):
        holdall.convert(tmp_path / "a.oinf", tmp_path / "b.oinf", cast="*=i8")
    assert (tmp_path / "b.oinf").read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.oinf", "b.oinf"]


def test_a_hostile_skeleton_is_an_error_not_a_crash(tmp_path: Path) -> None:
    oracle.save_file({"w": W}, tmp_path / "x.safetensors", metadata={"holdall.skeleton": "AAAA"})
    with pytest.raises(FormatError, match="skeleton"):
        holdall.convert(tmp_path / "x.safetensors", tmp_path / "x.oinf")
    with holdall.open(tmp_path / "x.safetensors") as model, pytest.raises(FormatError):
        _ = model.config


def test_unknown_options_are_refused(rich: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="has no option 'colour'"):
        holdall.convert(rich, tmp_path / "x.oinf", colour=1)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "large.safetensors"
    holdall.save(path, {f"t{n}": np.full((256, 1024), n, np.float32) for n in range(100)}, fsync=False)
    return path


def test_ctrl_c_leaves_nothing_behind(large: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "holdall", "convert", str(large), str(tmp_path / "out.oinf"), "--cast", "bf16"]
    for delay in (0.2, 0.3, 0.45):
        process = subprocess.Popen(command, env=_environment(), stderr=subprocess.PIPE)
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        process.communicate()
        finished = (tmp_path / "out.oinf").exists()
        assert list(tmp_path.glob(".*.part")) == []
        if finished:
            assert holdall.verify(tmp_path / "out.oinf").ok
            (tmp_path / "out.oinf").unlink()
