"""The flag byte of tensors, and what some readers of the format do not take."""

import json
import struct

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner

import holdall
from holdall.cli import main
from holdall.model.tensor import Tensor

W = np.arange(4, dtype=np.float32)


def read_entries(path):
    """Every tensor of an archive as (name, shape, dtype tag, flag, bytes), by struct alone."""
    data = path.read_bytes()
    magic, version, _, count = struct.unpack_from("<8sIII", data)
    assert (magic, version) == (b"GPTRSTEN", 2)
    at, found = 20, []
    for _ in range(count):
        (size,) = struct.unpack_from("<I", data, at)
        name, at = data[at + 4 : at + 4 + size].decode(), at + 4 + size
        (rank,) = struct.unpack_from("<I", data, at)
        shape = struct.unpack_from(f"<{rank}Q", data, at + 4)
        tag, flag, offset, nbytes = struct.unpack_from("<IBQQ", data, at + 4 + 8 * rank)
        at += 25 + 8 * rank
        found.append((name, shape, tag, flag, data[offset : offset + nbytes]))
    return found


def flags_of(path):
    return {name: flag for name, _, _, flag, _ in read_entries(path)}


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_the_mark_is_an_attribute_of_a_tensor(tmp_path):
    path = tmp_path / "x.gptrsten"
    holdall.save(path, [Tensor.of("a", W, requires_grad=True), Tensor.of("b", W), Tensor.of("c", W)])
    assert flags_of(path) == {"a": 1, "b": 0, "c": 0}
    with holdall.open(path) as model:
        assert {name: model[name].requires_grad for name in model} == {"a": True, "b": False, "c": False}
        changed = [tensor.replace(requires_grad=tensor.name != "a") for tensor in model.tensors]
        holdall.save(tmp_path / "y.gptrsten", changed)
    assert flags_of(tmp_path / "y.gptrsten") == {"a": 0, "b": 1, "c": 1}
    tensor = Tensor.of("d", W)
    tensor.requires_grad = True
    holdall.save(path, [tensor])
    assert flags_of(path) == {"d": 1}


def test_the_mark_survives_casts_and_new_names(tmp_path):
    holdall.save(tmp_path / "x.gptrsten", [Tensor.of("a", W, requires_grad=True), Tensor.of("b", W)])
    holdall.convert(tmp_path / "x.gptrsten", tmp_path / "y.gptrsten", cast="bf16", rename=["s/a/z/"])
    assert flags_of(tmp_path / "y.gptrsten") == {"b": 0, "z": 1}


def test_the_writer_marks_by_name_and_pattern(tmp_path):
    content = {"blocks.0.w": W, "blocks.1.w": W, "head": W}
    path = tmp_path / "x.gptrsten"
    holdall.save(path, content, requires_grad=["blocks.*"])
    assert flags_of(path) == {"blocks.0.w": 1, "blocks.1.w": 1, "head": 0}
    holdall.save(path, content, requires_grad=True)
    assert set(flags_of(path).values()) == {1}
    with pytest.raises(holdall.ContentError, match="no tensor is called 'tail'"):
        holdall.save(path, content, requires_grad=["tail"])
    holdall.save(tmp_path / "a.safetensors", content)
    assert run("convert", tmp_path / "a.safetensors", path, "-o", "requires_grad=head, *.0.*").exit_code == 0
    assert flags_of(path) == {"blocks.0.w": 1, "blocks.1.w": 0, "head": 1}


def test_an_odd_flag_byte_stays_until_the_mark_changes(tmp_path):
    path = tmp_path / "x.gptrsten"
    holdall.save(path, [Tensor.of("a", W, requires_grad=True)])
    data = bytearray(path.read_bytes())
    at = data.index(struct.pack("<IBQ", 0, 1, 64)) + 4
    data[at] = 7
    path.write_bytes(data)
    with holdall.open(path) as model:
        assert model["a"].requires_grad
        holdall.save(tmp_path / "same.gptrsten", model)
        holdall.save(tmp_path / "off.gptrsten", [model["a"].replace(requires_grad=False)])
    assert flags_of(tmp_path / "same.gptrsten") == {"a": 7}
    assert flags_of(tmp_path / "off.gptrsten") == {"a": 0}


def test_edit_and_ls(tmp_path):
    path = tmp_path / "x.gptrsten"
    holdall.save(path, {"blocks.0.w": W, "blocks.1.w": W, "head": W})
    before = [row[-1] for row in read_entries(path)]
    result = run("edit", path, "--requires-grad", "blocks.*", "--requires-grad", "blocks.1.w=false")
    assert result.exit_code == 0, result.output
    assert "tensor 'blocks.0.w': requires_grad became true" in result.output
    assert flags_of(path) == {"blocks.0.w": 1, "blocks.1.w": 0, "head": 0}
    assert [row[-1] for row in read_entries(path)] == before
    listed = [json.loads(line) for line in run("ls", path, "--json").stdout.splitlines()]
    assert {row["name"]: row["requires_grad"] for row in listed} == {
        "blocks.0.w": True,
        "blocks.1.w": False,
        "head": False,
    }
    report = holdall.edit(path, requires_grad={"blocks.0.w": False, "head": True}, rename={"head": "tail"})
    assert flags_of(path) == {"blocks.0.w": 0, "blocks.1.w": 0, "tail": 1} and len(report.changes) == 3
    with pytest.raises(holdall.MissingError, match="no tensor 'none' to mark"):
        holdall.edit(path, requires_grad={"none": True})
    holdall.save(tmp_path / "x.oinf", {"w": W})
    with pytest.raises(holdall.ContentError, match="oinf has no place for requires_grad"):
        holdall.edit(tmp_path / "x.oinf", requires_grad={"w": True})


@pytest.mark.parametrize("target", ["x.gptrs", "x.gptrsten"])
def test_types_and_ranks_that_some_readers_refuse_are_noted(tmp_path, target):
    content = {"s": np.float32(3), "h": W.astype(np.float16), "b": W.astype(ml_dtypes.bfloat16), "w": W}
    holdall.save(tmp_path / "a.safetensors", content)
    report = holdall.convert(tmp_path / "a.safetensors", tmp_path / target)
    assert report.changes == [
        "2 tensors of f16 or bf16, 'b' first: older gpt-rs readers refuse these types; "
        "--cast f32 writes what all of them read",
        "1 tensor without dimensions, 's' first: the Rust reader panics on it; -o scalars=as-vector writes [1]",
    ]
    found = {finding.rule: finding.severity for finding in holdall.verify(tmp_path / target).findings}
    assert found == {"gptrs.tensor.old_readers": "note", "gptrs.tensor.scalar": "note"}
    report = holdall.convert(tmp_path / "a.safetensors", tmp_path / target, exclude=["[sbh]"])
    assert report.changes == ["3 tensors left out"] and not holdall.verify(tmp_path / target).findings


def test_scalars_as_vectors(tmp_path):
    path = tmp_path / "x.gptrsten"
    holdall.save(path, {"s": np.float32(3), "w": W}, scalars="as-vector")
    assert [row[:2] for row in read_entries(path)] == [("s", (1,)), ("w", (4,))]
    holdall.save(tmp_path / "a.safetensors", {"s": np.float32(3), "w": W})
    result = run("convert", tmp_path / "a.safetensors", path, "-o", "scalars=as-vector")
    assert result.exit_code == 0, result.output
    assert "1 tensor without dimensions, 's' first: written with the shape [1]" in result.output
    assert "lost: tensor 's' goes from no dimensions to the shape [1]" in result.output
    assert read_entries(path)[0] == ("s", (1,), 0, 0, np.float32(3).tobytes())


def test_a_plain_npz_becomes_an_archive(tmp_path):
    """numpy makes f64 and i64 unless it is asked for other types; gpt-rs has f32 and i32."""
    wide, path = np.linspace(0, 1, 6).reshape(2, 3), tmp_path / "x.gptrsten"
    np.savez(tmp_path / "x.npz", input=wide, ids=np.arange(-2, 3), mask=np.arange(3, dtype=np.int32))
    report = holdall.convert(tmp_path / "x.npz", path)
    assert {row[0]: (row[1], row[2], row[4]) for row in read_entries(path)} == {
        "ids": ((5,), 3, np.arange(-2, 3, dtype=np.int32).tobytes()),
        "input": ((2, 3), 0, wide.astype(np.float32).tobytes()),
        "mask": ((3,), 3, np.arange(3, dtype=np.int32).tobytes()),
    }
    assert {"1 tensor from f64 to f32", "1 tensor from i64 to i32"} <= set(report.changes) and not report.lossless
    with pytest.raises(holdall.ContentError, match="cannot hold 2 tensors"):
        holdall.convert(tmp_path / "x.npz", path, strict=True)
    np.savez(tmp_path / "big.npz", ids=np.array([1, 1 << 31]))
    with pytest.raises(holdall.ContentError, match=r"'ids': .*2147483648"):
        holdall.convert(tmp_path / "big.npz", path)
    np.save(tmp_path / "input.npy", wide.astype(np.float32))
    assert run("convert", tmp_path / "input.npy", path, "--rename", "s/.*/input/").exit_code == 0
    assert read_entries(path)[0] == ("input", (2, 3), 0, 0, wide.astype(np.float32).tobytes())


def test_marks_are_a_loss_only_where_the_target_has_no_place_for_them(tmp_path):
    marked = [Tensor.of("a", W, requires_grad=True), Tensor.of("b", W)]
    holdall.save(tmp_path / "x.gptrs", marked)
    report = holdall.convert(tmp_path / "x.gptrs", tmp_path / "x.gptrsten")
    assert flags_of(tmp_path / "x.gptrsten") == {"a": 1, "b": 0}
    assert [loss.name for loss in report.losses] == ["kind", "config"]  # an archive has no metadata
    report = holdall.convert(tmp_path / "x.gptrsten", tmp_path / "y.gptrs", strict=True)
    assert report.losses == [] and report.lossless
    for source in ("x.gptrs", "x.gptrsten"):
        losses = holdall.convert(tmp_path / source, tmp_path / "x.npz").losses
        (loss,) = (loss for loss in losses if loss.part == "native")
        assert (loss.name, loss.fate) == ("requires_grad", "left out")
        assert loss.reason == "the mark of 1 trained tensor: npz has no place for it"
    with pytest.raises(holdall.ContentError, match="strict was asked for: native 'requires_grad'"):
        holdall.convert(tmp_path / "x.gptrsten", tmp_path / "x.npz", strict=True)


def test_marks_that_an_option_changes_are_among_the_changes(tmp_path):
    path, other = tmp_path / "x.gptrsten", tmp_path / "y.gptrsten"
    holdall.save(path, [Tensor.of(name, W, requires_grad=name != "c") for name in "cab"])
    report = holdall.convert(path, other, requires_grad=False)
    assert set(flags_of(other).values()) == {0}
    assert report.changes == ["2 tensors no longer marked as trained, 'a' first: requires_grad"]
    report = holdall.convert(path, other, requires_grad=["a", "c"])
    assert flags_of(other) == {"a": 1, "b": 0, "c": 1}
    assert report.changes == [
        "1 tensor marked as trained, 'c' first: requires_grad",
        "1 tensor no longer marked as trained, 'b' first: requires_grad",
    ]
    assert holdall.convert(path, other, requires_grad=["a", "b"]).changes == []
    shown = run("convert", path, other, "-o", "requires_grad=false").output
    assert "2 tensors no longer marked as trained, 'a' first: requires_grad" in shown


def test_models_that_differ_in_marks_alone_differ(tmp_path):
    names = [f"t{number:03}" for number in range(150)]
    holdall.save(tmp_path / "a.gptrs", [Tensor.of(name, W, requires_grad=True) for name in names])
    holdall.convert(tmp_path / "a.gptrs", tmp_path / "b.gptrs", requires_grad=["t*"])
    assert not holdall.diff(tmp_path / "a.gptrs", tmp_path / "b.gptrs")
    holdall.edit(tmp_path / "b.gptrs", requires_grad={"t002": False, "t149": False})
    found = holdall.diff(tmp_path / "a.gptrs", tmp_path / "b.gptrs")
    assert found and found.tensors == [] and found.requires_grad == [("t002", True, False), ("t149", True, False)]
    shown = run("diff", tmp_path / "a.gptrs", tmp_path / "b.gptrs")
    assert shown.exit_code == 1
    assert shown.output.splitlines() == [
        f"{tmp_path / 'a.gptrs'} and {tmp_path / 'b.gptrs'} differ in 0 tensors, 0 of metadata, 0 of assets, "
        "2 of requires_grad; 150 tensors equal",
        "tensor t002: requires_grad true became false",
        "tensor t149: requires_grad true became false",
    ]
    listed = json.loads(run("diff", tmp_path / "a.gptrs", tmp_path / "b.gptrs", "--json").output)
    assert listed["different"] and listed["requires_grad"][0] == {"name": "t002", "a": True, "b": False}
    run("diff", tmp_path / "a.gptrs", tmp_path / "b.gptrs", "--report", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "2 differ: t002 (true became false), t149 (true became false)" in page


def test_many_marks_are_counted_and_formats_without_marks_are_not_compared_by_them(tmp_path):
    names = [f"t{number:03}" for number in range(150)]
    holdall.save(tmp_path / "a.gptrsten", [Tensor.of(name, W, requires_grad=True) for name in names])
    holdall.convert(tmp_path / "a.gptrsten", tmp_path / "b.gptrsten", requires_grad=False)
    shown = run("diff", tmp_path / "a.gptrsten", tmp_path / "b.gptrsten").output.splitlines()
    assert len(shown) == 102 and shown[-1] == "… and 50 marks more: --json lists all"
    holdall.convert(tmp_path / "a.gptrsten", tmp_path / "b.safetensors")
    assert holdall.diff(tmp_path / "a.gptrsten", tmp_path / "b.safetensors").requires_grad == []


@pytest.mark.parametrize("target", [name for name, each in holdall.formats().items() if each.writes])
def test_marks_of_tensors_without_a_file_are_refused_where_they_have_no_place(target, tmp_path):
    marked = [Tensor.of("a", W, requires_grad=True), Tensor.of("b", W)]
    holdall.save(tmp_path / "plain.oinf", {"a": W, "b": W})
    with holdall.open(tmp_path / "plain.oinf") as opened:
        renewed = opened.replace(tensors=[tensor.replace(requires_grad=True) for tensor in opened.tensors])
        contents = (marked, {"a": marked[0], "b": W}, holdall.Model(marked), renewed)
        for content in contents:
            if holdall.formats()[target].holds.requires_grad:
                holdall.save(tmp_path / "out", content, format=target)
                continue
            with pytest.raises(holdall.ContentError, match=r"no place for the mark of (1|2) trained tensors?: holdall"):
                holdall.save(tmp_path / "out", content, format=target)
            assert not (tmp_path / "out").exists()
