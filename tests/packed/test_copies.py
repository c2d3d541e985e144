"""Copies of packed weights hold the same weights, or are refused: other names, other containers, several sources."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdall
import holdall.numpy
from tests.packed.golden import FOLDER


def save_folder(folder: Path, tensors: dict[str, np.ndarray], config: dict[str, Any]) -> Path:
    folder.mkdir()
    holdall.numpy.save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def make_mlx(folder: Path) -> Path:
    """Two layers of equal shapes, of which one has settings of its own that would fit the other as well."""
    words = np.arange(4 * 8, dtype=np.uint32).reshape(4, 8)
    tensors: dict[str, np.ndarray] = {}
    for layer in ("a", "b"):
        tensors |= {f"model.{layer}.weight": words, f"model.{layer}.scales": np.ones((4, 1), np.float32)}
        tensors[f"model.{layer}.biases"] = np.zeros((4, 1), np.float32)
    settings = {"group_size": 64, "bits": 4, "model.b": {"group_size": 32, "bits": 8}}
    return save_folder(folder, tensors, {"model_type": "tiny", "quantization": settings})


def make_int8(folder: Path, dtype: str, layer: str = "a") -> Path:
    tensors = {f"{layer}.weight": np.full((2, 4), 127, np.int8), f"{layer}.SCB": np.full(2, 1e6, np.float32)}
    settings = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    return save_folder(folder, tensors, {"model_type": "tiny", "dtype": dtype, "quantization_config": settings})


def make_quark(folder: Path, layer: str = "a", scale: float = 1.0) -> Path:
    codes = np.arange(6, dtype=np.int8).reshape(2, 3)
    tensors = {f"{layer}.weight": codes, f"{layer}.bias": np.ones(3, np.float32)}
    return save_folder(
        folder, tensors, {"model_type": "tiny", "quantization_config": {"quant_method": "quark", "scale": scale}}
    )


def test_a_type_that_only_the_configuration_states_is_not_lost(tmp_path: Path) -> None:
    source = make_int8(tmp_path / "bf16", "bfloat16")
    with pytest.raises(holdall.ContentError, match=r"'a.weight' first, would stay packed and be decoded otherwise"):
        holdall.convert(source, tmp_path / "m.npz")
    holdall.convert(source, tmp_path / "m.npz", force=True)
    holdall.convert(source, tmp_path / "carried.npz", carry=True)
    half = make_int8(tmp_path / "f16", "float16")
    holdall.convert(half, tmp_path / "half.npz")  # where nothing states a type it is the same


def test_a_layer_is_not_moved_out_of_its_own_settings(tmp_path: Path) -> None:
    source = make_mlx(tmp_path / "mlx")
    with pytest.raises(holdall.ContentError, match=r"'model.b.weight' first|'b.weight' first"):
        holdall.convert(source, tmp_path / "out", format="hf", rename=["s/^model[.]//"])
    holdall.convert(source, tmp_path / "out", format="hf", rename=["s/^model[.]//"], force=True)
    holdall.convert(
        source, tmp_path / "one", format="hf", rename=["s/^model[.]a[.]/a./"]
    )  # without settings of its own


def test_an_edit_does_not_move_a_layer_either(tmp_path: Path) -> None:
    target = tmp_path / "m.mcf"
    holdall.convert(make_mlx(tmp_path / "mlx"), target)
    before = holdall.numpy.load_file(target, decode=True)
    with pytest.raises(holdall.ContentError, match=r"b.weight' first, would stay packed and be decoded otherwise"):
        holdall.edit(target, rules=["s/^model[.]//"])
    with pytest.raises(holdall.ContentError, match=r"nothing could decode them"):
        holdall.edit(target, rename={"model.a.scales": "a.scales"})
    with pytest.raises(holdall.ContentError, match=r"nothing could decode them"):
        holdall.edit(target, assets={"config.json": None})
    holdall.edit(target, rules=["s/^model[.]a[.]/a./"])
    after = holdall.numpy.load_file(target, decode=True)
    assert np.array_equal(after["a.weight"], before["model.a.weight"])
    assert np.array_equal(after["model.b.weight"], before["model.b.weight"])


def test_an_edit_knows_the_configuration_beside_the_file(tmp_path: Path) -> None:
    file = make_mlx(tmp_path / "mlx") / "model.safetensors"
    with pytest.raises(holdall.ContentError, match=r"b.weight' first, would stay packed and be decoded otherwise"):
        holdall.edit(file, rules=["s/^model[.]//"])
    holdall.edit(file, rules=["s/^model[.]a[.]/a./"])
    assert holdall.numpy.load_file(file.parent, decode=True).keys() == {"a.weight", "model.b.weight"}
    holdall.edit(file, set={"note": "the names stay"})


def test_packed_sources_are_merged_if_one_configuration_describes_both(tmp_path: Path) -> None:
    first, second = make_int8(tmp_path / "a", "float16"), make_int8(tmp_path / "b", "float16", "b")
    holdall.convert([first, second], tmp_path / "both", format="hf")
    assert holdall.numpy.load_file(tmp_path / "both", decode=True).keys() == {"a.weight", "b.weight"}
    other = make_int8(tmp_path / "c", "bfloat16", "c")
    with pytest.raises(holdall.ContentError, match=r"be decoded otherwise"):
        holdall.convert([first, other], tmp_path / "wrong", format="hf")
    assert not (tmp_path / "wrong").exists()


def test_sources_of_two_schemes_are_not_merged(tmp_path: Path) -> None:
    first = make_mlx(tmp_path / "mlx")
    second = tmp_path / "int8"
    make_int8(second, "float16", "c")
    for sources in ([first, second], [second, first]):
        with pytest.raises(holdall.ContentError, match=r"of (MLX and bitsandbytes|bitsandbytes and MLX)"):
            holdall.convert(sources, tmp_path / "wrong", format="hf")


def test_each_of_several_sources_is_decoded_by_its_own_settings(tmp_path: Path) -> None:
    sources = [make_mlx(tmp_path / "mlx"), make_int8(tmp_path / "int8", "bfloat16", "c")]
    expected: dict[str, np.ndarray] = {}
    for source in sources:
        expected |= holdall.numpy.load_file(source, decode=True)
    holdall.convert(sources, tmp_path / "plain", format="hf", dequantize=True)
    found = holdall.numpy.load_file(tmp_path / "plain", decode=True)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert found[name].dtype == values.dtype and np.array_equal(found[name], values)


def test_a_plain_and_a_packed_source_keep_the_settings_or_are_refused(tmp_path: Path) -> None:
    packed = make_mlx(tmp_path / "mlx")
    plain = save_folder(tmp_path / "plain", {"n": np.ones(3, np.float32)}, {"model_type": "tiny"})
    with pytest.raises(holdall.ContentError, match=r"no configuration that describes them"):
        holdall.convert([plain, packed], tmp_path / "wrong", format="hf")
    holdall.convert([packed, plain], tmp_path / "both", format="hf")
    found, wanted = (holdall.numpy.load_file(path, decode=True) for path in (tmp_path / "both", packed))
    assert all(np.array_equal(found[name], wanted[name]) for name in wanted)


def test_codes_of_an_unknown_scheme_stay_beside_their_configuration(tmp_path: Path) -> None:
    source = make_quark(tmp_path / "quark")
    for target in ("m.npz", "m.safetensors"):
        with pytest.raises(holdall.ContentError, match=r"'a.weight' .*codes, which only the configuration"):
            holdall.convert(source, tmp_path / target)
        assert not (tmp_path / target).exists()
    holdall.convert(source, tmp_path / "carried.npz", carry=True)
    holdall.convert(source, tmp_path / "forced.npz", force=True)
    holdall.convert(source, tmp_path / "m.mcf", include=["a.bias"])
    holdall.convert(source, tmp_path / "copy", format="hf")
    with pytest.raises(holdall.ContentError, match=r"configuration has a quantization_config"):
        holdall.convert(source, tmp_path / "plain", format="hf", dequantize=True)


def test_codes_of_two_unknown_schemes_are_not_merged(tmp_path: Path) -> None:
    first = make_quark(tmp_path / "one")
    second, third = make_quark(tmp_path / "two", "b", scale=2.0), make_quark(tmp_path / "three", "c")
    with pytest.raises(holdall.ContentError, match=r"codes, which only the configuration"):
        holdall.convert([first, second], tmp_path / "both", format="hf")
    holdall.convert([first, third], tmp_path / "alike", format="hf")
    plain = save_folder(tmp_path / "plain", {"p": np.ones(3, np.float32)}, {"model_type": "tiny"})
    with pytest.raises(holdall.ContentError, match=r"codes, which only the configuration"):
        holdall.convert([plain, second], tmp_path / "mixed", format="hf")


def test_a_copy_of_a_golden_model_decodes_the_same_after_two_hops(tmp_path: Path) -> None:
    shutil.copytree(FOLDER / "bnb-int8", tmp_path / "model")
    holdall.convert(tmp_path / "model", tmp_path / "m.mcf")
    holdall.convert(tmp_path / "m.mcf", tmp_path / "back", format="hf")
    found, wanted = (holdall.numpy.load_file(path, decode=True) for path in (tmp_path / "back", FOLDER / "bnb-int8"))
    assert all(np.array_equal(found[name], wanted[name]) for name in wanted)
