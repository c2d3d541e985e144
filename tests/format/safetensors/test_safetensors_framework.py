"""What PyTorch people load says so: transformers 4 refuses safetensors files whose metadata names no framework."""

from pathlib import Path

import gguf
import numpy as np
import pytest
import safetensors
import safetensors.numpy

import holdall

torch = pytest.importorskip("torch")

W = np.arange(12, dtype=np.float32).reshape(3, 4)


def framework_of(path: Path) -> str:
    """As transformers 4 asks: metadata that is missing is an error there too."""
    with safetensors.safe_open(path, "pt") as file:
        return file.metadata().get("format")


@pytest.fixture
def sources(tmp_path: Path) -> dict[str, Path]:
    """One model as three libraries write it."""
    made = {name: tmp_path / f"source.{name}" for name in ("pt", "gguf", "hf")}
    torch.save({"w": torch.from_numpy(W)}, made["pt"])
    writer = gguf.GGUFWriter(made["gguf"], "test")
    writer.add_tensor("w", W)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    made["hf"].mkdir()
    safetensors.numpy.save_file({"w": W}, made["hf"] / "model.safetensors")
    return made


@pytest.mark.parametrize("kind", ["pt", "gguf", "hf"])
def test_files_made_from_what_torch_loads_name_it(kind: str, sources: dict[str, Path], tmp_path: Path) -> None:
    holdall.convert(sources[kind], tmp_path / "x.safetensors", carry=False)
    holdall.convert(sources[kind], tmp_path / "folder", format="hf", recipe="none", max_shard_size=64)
    assert framework_of(tmp_path / "x.safetensors") == "pt"
    assert framework_of(tmp_path / "folder" / "model.safetensors") == "pt"
    assert safetensors.numpy.load_file(tmp_path / "x.safetensors")["w"].tobytes() == W.tobytes()


def test_every_shard_of_a_folder_names_it(tmp_path: Path) -> None:
    holdall.save(tmp_path / "folder", {"a": W, "b": W}, format="hf", metadata={"k": "v"}, max_shard_size=W.nbytes)
    files = sorted((tmp_path / "folder").glob("*.safetensors"))
    assert [framework_of(path) for path in files] == ["pt", "pt"]
    assert holdall.verify(tmp_path / "folder", level="strict").findings == []


def test_a_framework_that_is_stated_stays(tmp_path: Path) -> None:
    torch.save({"w": torch.from_numpy(W)}, tmp_path / "m.pt")
    holdall.convert(tmp_path / "m.pt", tmp_path / "x.safetensors", metadata={"format": "mlx"})
    holdall.save(tmp_path / "folder", {"w": W}, format="hf", metadata={"format": "flax"})
    assert framework_of(tmp_path / "x.safetensors") == "mlx"
    assert framework_of(tmp_path / "folder" / "model.safetensors") == "flax"


def test_other_content_is_left_alone(tmp_path: Path) -> None:
    holdall.save(tmp_path / "m.oinf", {"w": W})
    holdall.convert(tmp_path / "m.oinf", tmp_path / "x.safetensors", carry=False)
    holdall.save(tmp_path / "y.safetensors", {"w": W}, align=8)
    with safetensors.safe_open(tmp_path / "x.safetensors", "np") as file:
        assert not file.metadata()
    assert (tmp_path / "y.safetensors").read_bytes() == safetensors.numpy.save({"w": W})
