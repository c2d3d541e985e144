"""Small files of many bytes: what tensors become, and what is read for them, is held to the file for all together."""

from __future__ import annotations

import io
import time
import zipfile
from importlib import import_module

import numpy as np
import pytest
from click.testing import CliRunner

import holdall
from holdall import Limits, Tensor
from holdall.cli import main
from holdall.errors import LimitError
from holdall.limits import UNTRUSTED_LIMITS
from holdall.model.metadata import HASHES, SKELETON
from holdall.model.payload import InMemory
from holdall.operations.convert.skeleton import Bond, Skeleton, SkeletonFile
from tests.format.torch.by_hand import save_zip

MIB = 1 << 20


@pytest.fixture
def spread(tmp_path):
    """A thousand tensors of 64 MiB each, all of them one number: 62 GB of some 80 KB."""
    number = np.broadcast_to(np.ones(1, np.float32), (4096, 4096))
    return save_zip(tmp_path / "spread.pt", {f"t{row}": number for row in range(1000)})


@pytest.fixture
def aliased(tmp_path):
    """A tensor of half a megabyte under 3,000 names: 1.5 GB."""
    one = np.arange(128 << 10, dtype=np.float32)
    return save_zip(tmp_path / "aliased.pt", {f"t{row}": one for row in range(3000)})


@pytest.fixture
def crowded(tmp_path):
    """The 500 columns of a matrix of 4 MiB: as many bytes in all, but 1.9 GiB are passed over to gather them."""
    matrix = np.arange(500 * 2048, dtype=np.float32).reshape(2048, 500)
    return save_zip(tmp_path / "crowded.pt", {f"t{column}": matrix[:, column] for column in range(500)})


def run(*words):
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.mark.parametrize("kind", ["spread", "aliased"])
def test_tensors_are_added_up_when_a_file_is_opened(kind, request):
    path = request.getfixturevalue(kind)
    with pytest.raises(
        LimitError, match=r"tensors of \d+ bytes become \d{10,}.*--limit decompression_ratio="
    ) as caught:
        holdall.open(path)
    assert caught.value.rule == "core.limit"
    with holdall.open(path, limits=Limits(decompression_ratio=1 << 40)) as model:
        assert model["t7"].nbytes > 0
    report = holdall.verify(path, level="structure")
    assert [finding.rule for finding in report.findings] == ["core.limit"]


@pytest.mark.parametrize("kind", ["spread", "aliased"])
@pytest.mark.parametrize(
    "words",
    [
        ("convert", "{path}", "{out}.safetensors"),
        ("extract", "{path}", "--all", "{out}"),
        ("verify", "--stats", "{path}"),
        ("diff", "{path}", "{path}"),
        ("quantize", "{path}", "{out}.mcf"),
    ],
    ids=lambda words: words[0],
)
def test_no_command_expands_a_small_file(kind, words, request, tmp_path):
    path = request.getfixturevalue(kind)
    done = run(*(word.format(path=path, out=tmp_path / "out") for word in words))
    assert done.exit_code == 3
    assert "--limit decompression_ratio=" in done.output
    assert not [file for file in tmp_path.iterdir() if file != path]


@pytest.fixture(params=["numpy", "torch"])
def load(request):
    """What loads a file as arrays of numpy or of torch."""
    if request.param == "torch":
        pytest.importorskip("torch")
    return import_module(f"holdall.{request.param}").load_file


def test_no_front_loads_a_small_file_that_expands(spread, load):
    with pytest.raises(LimitError, match="decompression_ratio"):
        load(spread)


def test_loading_counts_the_passes_that_gathering_takes(crowded, load):
    with pytest.raises(LimitError, match=r"torch: passes over the files, since .*: 49\d is above") as caught:
        load(crowded, mmap=False)
    assert caught.value.file.endswith("crowded.pt")
    assert len(load(crowded, mmap=False, limits=Limits(passes=500))) == 500


def test_a_map_reads_only_what_is_gathered(crowded, load):
    loaded = load(crowded)
    assert loaded["t7"].tolist() == [500.0 * row + 7 for row in range(2048)]


def test_loading_many_columns_is_refused_soon(tmp_path):
    """A file of a few megabytes, of which loading would read 160 GB."""
    matrix = np.zeros((32, 32 << 10), np.float32)
    path = save_zip(tmp_path / "columns.pt", {f"t{column}": matrix[:, column % 999] for column in range(20_000)})
    began = time.process_time()
    with pytest.raises(LimitError, match="passes="):
        holdall.numpy.load_file(path, mmap=False)
    assert time.process_time() - began < 2


def test_what_is_read_once_for_its_own_copy_is_loaded(tmp_path, load, monkeypatch):
    """Tied weights under 24 names, the thirds of a fused matrix, a mask spread over its rows, and a matrix turned."""
    monkeypatch.setattr("holdall.model.growth._PASSED", 0)
    tied, fused = np.arange(MIB, dtype=np.float32), np.arange(3 << 16, dtype=np.float32).reshape(256, 768)
    arrays = {f"tied{row}": tied for row in range(24)} | {f"qkv{part}": fused[:, part::3] for part in range(3)}
    arrays |= {"cache": fused.reshape(256, 8, 96)[:, 3], "turned": fused.T}
    arrays |= {f"mask{row}": np.broadcast_to(np.ones(512, np.bool_), (512, 512)) for row in range(32)}
    path = save_zip(tmp_path / "real.pt", arrays)
    loaded = load(path, mmap=False)
    assert all(np.array_equal(loaded[name], array) for name, array in arrays.items())


@pytest.mark.parametrize(
    "words",
    [
        ("convert", "{path}", "{out}.safetensors"),
        ("extract", "{path}", "--all", "{out}"),
        ("verify", "--stats", "{path}"),
        ("diff", "{path}", "{path}"),
    ],
    ids=lambda words: words[0],
)
def test_passes_are_limited_for_whatever_reads_all_tensors(words, crowded, tmp_path):
    words = [word.format(path=crowded, out=tmp_path / "out") for word in words]
    done = run(*words)
    assert done.exit_code == 3
    message = "crowded.pt: torch: passes over the files, since tensors lie in each other's ranges: 491 is above"
    assert message in done.output
    assert f"{tmp_path / 'out'}" not in done.output
    assert not (tmp_path / "out").exists() and not (tmp_path / "out.safetensors").exists()
    assert run(*words, "--limit", "passes=500").exit_code == 0


def test_save_counts_passes_and_a_part_of_the_tensors_may_be_converted(crowded, tmp_path):
    with holdall.open(crowded) as model, pytest.raises(LimitError, match="passes="):
        holdall.save(tmp_path / "all.safetensors", model)
    assert holdall.convert(crowded, tmp_path / "some.safetensors", include=["t1*"]).tensors == 111


def test_new_arrays_in_an_opened_model_are_not_held_to_its_file(tmp_path):
    holdall.save(tmp_path / "small.oinf", {"w": np.zeros(1, np.int8)}, metadata={"k": "v"})
    with holdall.open(tmp_path / "small.oinf") as model:
        large = [Tensor("large", Tensor.of("x", np.zeros(1, np.int8)).dtype, (80 * MIB,), InMemory(bytes(80 * MIB)))]
        holdall.save(tmp_path / "large.oinf", model.replace(tensors=large), fsync=False)
    with holdall.open(tmp_path / "large.oinf") as model:
        assert model.nbytes == 80 * MIB


def test_tensors_in_one_deflated_storage_count_all_that_is_inflated_for_them(tmp_path):
    storage = np.zeros(32 * MIB, np.uint8)
    save_zip(tmp_path / "plain.pt", {f"t{row}": storage[8 * row : 8 * row + 8] for row in range(100)})
    packed = tmp_path / "packed.pt"
    with zipfile.ZipFile(tmp_path / "plain.pt") as old, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    with pytest.raises(LimitError, match=rf"become {100 * 32 * MIB}:"):
        holdall.open(packed)


def test_a_carried_original_is_held_to_its_carrier(tmp_path):
    """An original whose tensors all lie on the same bytes of the carrier: 600 times 512 KiB in a file of a megabyte."""
    alias = np.zeros(512 << 10, np.uint8)
    original = save_zip(tmp_path / "original.pt", {f"t{row}": alias for row in range(600)}).read_bytes()
    bond = Bond("x", "u8", (1,), 1, "w", "u8", (1,))
    skeleton = Skeleton("torch", (bond,), (SkeletonFile("", len(original), (), original),), False)
    metadata = {SKELETON: skeleton.to_text(), HASHES: "A" * 43}
    holdall.save(tmp_path / "c.safetensors", {"w": np.zeros(1, np.uint8)}, metadata=metadata)
    assert (tmp_path / "c.safetensors").stat().st_size < MIB
    for act in (holdall.restore, lambda src, dst: holdall.restore(src, dst, with_changes=True)):
        with pytest.raises(LimitError, match="decompression_ratio"):
            act(tmp_path / "c.safetensors", tmp_path / "again.pt")


@pytest.mark.parametrize("limits", [None, UNTRUSTED_LIMITS], ids=["default", "untrusted"])
def test_what_people_share_stays_readable(limits, tmp_path):
    tied = np.arange(24 * MIB // 4, dtype=np.float32)
    mask = np.broadcast_to(np.ones((1, 1, 1), np.bool_), (1, 512, 512))
    tensors = {f"tied{row}": tied for row in range(4)} | {f"mask{row}": mask for row in range(64)}
    path = save_zip(tmp_path / "real.pt", tensors)
    report = holdall.convert(path, tmp_path / "real.safetensors", limits=limits, fsync=False)
    assert report.nbytes == 4 * 24 * MIB + 64 * 512 * 512
    with holdall.open(tmp_path / "real.safetensors") as model:
        assert np.array_equal(model["tied3"].numpy(), tied)
    zeros = io.BytesIO()
    np.savez_compressed(zeros, **{f"z{row}": np.zeros(7 * MIB, np.uint8) for row in range(8)})
    with holdall.open(zeros.getvalue(), limits=limits) as model:
        assert not model["z7"].numpy().any()
    assert run("verify", "--stats", path).exit_code == 0
