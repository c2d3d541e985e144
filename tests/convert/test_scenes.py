"""Scenes in which numbers once changed in silence, each with an oracle that is not holdall."""

from __future__ import annotations

import json
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

W = np.random.default_rng(0).standard_normal((96, 64)).astype(np.float16)
TARGETS = [name for name, found in holdall.formats().items() if "bf16" in found.holds.dtypes]


def run(*words: object) -> tuple[int, str]:
    """The exit code and all that is printed by a command."""
    done = CliRunner().invoke(main, [str(word) for word in words])
    return done.exit_code, done.output


@pytest.mark.parametrize("through", TARGETS)
def test_a_cast_is_not_undone_in_name_only(tmp_path: Path, through: str) -> None:
    """f16 through bf16: the way back holds bf16 numbers and says so, never f16 with the bits of bf16."""
    save_file({"w": W}, tmp_path / "a.safetensors")
    code, text = run(
        "convert", tmp_path / "a.safetensors", tmp_path / "w", "--format", through, "--cast", "bf16", "--json"
    )
    assert (code, json.loads(text)["lossless"]) == (0, False)
    code, text = run("convert", tmp_path / "w", tmp_path / "b.safetensors", "--json")
    assert code == 0
    assert json.loads(text)["restored"] is None
    assert "byte for byte" not in text
    want = W.astype(np.float32).astype(ml_dtypes.bfloat16)
    with safe_open(tmp_path / "b.safetensors", "np") as back:
        assert back.get_slice("w").get_dtype() == "BF16"
    raw = (tmp_path / "b.safetensors").read_bytes()
    assert raw.endswith(want.tobytes())


def test_a_transposed_matrix_keeps_its_new_shape(tmp_path: Path) -> None:
    save_file({"w": W}, tmp_path / "a.safetensors")
    assert run("convert", tmp_path / "a.safetensors", tmp_path / "w.oinf", "--transpose", "w")[0] == 0
    assert run("convert", tmp_path / "w.oinf", tmp_path / "b.safetensors")[0] == 0
    assert np.array_equal(load_file(tmp_path / "b.safetensors")["w"], W.T)


def test_another_program_that_transposes_is_noticed(tmp_path: Path) -> None:
    """It keeps the metadata, and with it the skeleton: restore must not lay its bytes under the old shape."""
    np.savez(tmp_path / "m.npz", w=W)
    assert run("convert", tmp_path / "m.npz", tmp_path / "a.safetensors", "--carry")[0] == 0
    with safe_open(tmp_path / "a.safetensors", "np") as model:
        metadata = model.metadata()
    save_file({"w": np.ascontiguousarray(W.T)}, tmp_path / "b.safetensors", metadata=metadata)
    code, text = run("restore", tmp_path / "b.safetensors", tmp_path / "back.npz")
    assert code == 1
    assert "'w' is f16[64, 96], but was carried as f16[96, 64]" in text
    assert not (tmp_path / "back.npz").exists()


@pytest.mark.parametrize("size", [4 << 20, (4 << 20) + 1, 9 << 20])
def test_documents_beyond_a_buffer_are_read_whole(tmp_path: Path, size: int) -> None:
    note = "".join(chr(97 + n % 26) for n in range(1000)) * (size // 1000 + 1)
    holdall.save(tmp_path / "t.mcf", {"w": np.zeros(3, np.float32)}, metadata={"note": note[:size]})
    with holdall.open(tmp_path / "t.mcf") as model:
        assert dict(model.metadata) == {"note": note[:size]}


def test_two_hops_keep_what_one_keeps(tmp_path: Path) -> None:
    """npz, quantized, carried in safetensors, and MCF again: the matrix has its type, its shape and its values."""
    np.savez(tmp_path / "m.npz", w=W.astype(np.float32))
    assert run("quantize", tmp_path / "m.npz", tmp_path / "q.mcf", "--method", "k4")[0] == 0
    with holdall.open(tmp_path / "q.mcf") as model:
        values = model["w"].numpy().tobytes()
    code, text = run("convert", tmp_path / "q.mcf", tmp_path / "q.safetensors")
    assert code == 1
    assert "safetensors cannot hold 1 tensor: 'w' mcf.k4[96, 64]" in text
    assert "--dequantize" in text
    assert run("convert", tmp_path / "q.mcf", tmp_path / "q.safetensors", "--carry")[0] == 0
    code, text = run("convert", tmp_path / "q.safetensors", tmp_path / "again.mcf", "--json")
    assert (code, json.loads(text)["lossless"]) == (0, True)
    with holdall.open(tmp_path / "again.mcf") as model:
        assert (str(model["w"].dtype), model["w"].shape) == ("mcf.k4", (96, 64))
        assert model["w"].numpy().tobytes() == values


def test_what_was_changed_on_the_way_stays_changed(tmp_path: Path) -> None:
    save_file({"w": W}, tmp_path / "a.safetensors", metadata={"note": "old"})
    there = run("convert", tmp_path / "a.safetensors", tmp_path / "w.oinf", "--rename", "s/w/x/", "--meta", "note=new")
    assert there[0] == 0
    assert run("convert", tmp_path / "w.oinf", tmp_path / "b.safetensors")[0] == 0
    with safe_open(tmp_path / "b.safetensors", "np") as back:
        assert (list(back.keys()), back.metadata()) == (["x"], {"note": "new"})
        assert np.array_equal(back.get_tensor("x"), W)


@pytest.mark.parametrize("format", ["aero", "aeroset", "embd", "npz", "torch"])
def test_a_flipped_byte_does_not_pass(tmp_path: Path, format: str) -> None:
    large = np.random.default_rng(1).standard_normal((1500, 1000)).astype(np.float32)
    holdall.save(tmp_path / "m", {"a": large, "b": W}, format=format)
    with holdall.open(tmp_path / "m") as model:
        offset = model["a"].offset + 3_000_001
    file = tmp_path / "m" / "part-000.aero" if format == "aeroset" else tmp_path / "m"
    data = bytearray(file.read_bytes())
    data[offset] ^= 0x40
    file.write_bytes(data)
    if format == "npz":
        with pytest.raises(Exception, match="CRC"), np.load(tmp_path / "m") as archive:
            archive["a"]
    (tmp_path / "out.oinf").write_bytes(b"old")
    for target in ("out.oinf", "cast.oinf"):
        cast = ["--cast", "bf16"] if target.startswith("cast") else []
        code, text = run("convert", tmp_path / "m", tmp_path / target, *cast)
        assert code == 1, text
        assert "CRC-32" in text or "BLAKE3" in text or "SHA-256" in text
    assert (tmp_path / "out.oinf").read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m", "out.oinf"]
    assert run("convert", tmp_path / "m", tmp_path / "out.oinf", "--no-check")[0] == 0
    with pytest.raises(FormatError):
        holdall.convert(tmp_path / "m", tmp_path / "q.mcf", quantize="q8")
    assert not (tmp_path / "q.mcf").exists()


@pytest.mark.parametrize("target", list(holdall.formats()))
def test_nothing_of_ours_is_written_unasked(tmp_path: Path, target: str) -> None:
    np.savez(tmp_path / "m.npz", w=W.astype(np.float32), b=W[0].astype(np.float32))
    report = holdall.convert(tmp_path / "m.npz", tmp_path / "x", format=target)
    assert report.lossless
    assert report.skeleton_bytes == 0
    files = [tmp_path / "x"] if (tmp_path / "x").is_file() else list((tmp_path / "x").iterdir())
    assert not any(b"holdall." in file.read_bytes() or b"__metadata__.npy" in file.read_bytes() for file in files)


def test_a_type_that_numpy_lacks_is_refused(tmp_path: Path) -> None:
    holdall.save(tmp_path / "m.oinf", {"w": W.astype(ml_dtypes.bfloat16)})
    with pytest.raises(ContentError, match=r"npz cannot hold 1 tensor: 'w' bf16.*--cast f32"):
        holdall.convert(tmp_path / "m.oinf", tmp_path / "m.npz")
    holdall.convert(tmp_path / "m.oinf", tmp_path / "m.npz", cast="f32")
    with np.load(tmp_path / "m.npz") as back:
        assert np.array_equal(back["w"], W.astype(ml_dtypes.bfloat16).astype(np.float32))


@pytest.fixture
def scaled(tmp_path: Path) -> Path:
    """A folder with one FP8 weight and its scales, as DeepSeek publishes them."""
    folder = tmp_path / "fp8"
    folder.mkdir()
    config = {"model_type": "x", "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    (folder / "config.json").write_text(json.dumps(config))
    weight = np.ones((8, 8), ml_dtypes.float8_e4m3fn)
    holdall.save(
        folder / "model.safetensors",
        {"a.weight": weight, "a.weight_scale_inv": np.full((1, 1), 1e-3, np.float32), "norm.weight": W[0]},
    )
    return folder


@pytest.mark.parametrize("change", [{"cast": "bf16"}, {"transpose": ["a.*"]}])
def test_weights_of_several_tensors_are_not_changed_one_by_one(
    scaled: Path, tmp_path: Path, change: dict[str, object]
) -> None:
    with pytest.raises(ContentError, match=r"'a.weight_scale_inv' scales 'a.weight': the weight is made of"):
        holdall.convert(scaled, tmp_path / "out", format="hf", **change)
    assert not (tmp_path / "out").exists()
    holdall.convert(scaled, tmp_path / "out", format="hf")
    before, after = (load_raw(folder / "model.safetensors") for folder in (scaled, tmp_path / "out"))
    assert before == after


def load_raw(path: Path) -> dict[str, tuple[str, list[int], bytes]]:
    """The tensors of a safetensors file by its own definition."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    return {
        name: (row["dtype"], row["shape"], data[8 + size + row["data_offsets"][0] : 8 + size + row["data_offsets"][1]])
        for name, row in header.items()
    }


def test_a_norm_beside_packed_weights_can_be_cast(scaled: Path, tmp_path: Path) -> None:
    holdall.convert(scaled, tmp_path / "out", format="hf", cast={"norm.*": "f32"})
    assert load_raw(tmp_path / "out" / "model.safetensors")["norm.weight"][0] == "F32"


def test_packed_weights_are_decoded_before_they_are_quantized(scaled: Path, tmp_path: Path) -> None:
    holdall.convert(scaled, tmp_path / "out.mcf", quantize="q8")
    with holdall.open(tmp_path / "out.mcf") as model:
        assert sorted(model) == ["a.weight", "norm.weight"]
        assert np.allclose(model["a.weight"].numpy(), 1e-3, rtol=1e-2)
        assert "quantization_config" not in json.loads(model.assets["config.json"])
