"""A tensor without a name travels through every conversion, or is refused with a message that names the format."""

from __future__ import annotations

import numpy as np
import pytest

import holdall
from holdall.format import registry

FORMATS = registry.names()
HOLDERS = ("embd", "safetensors", "torch", "hf")  # formats whose documents and libraries allow such a name
VALUES = {"": np.arange(6, dtype=np.float32).reshape(2, 3), "w": np.ones(3, np.float32)}


def path_of(folder, name, format):
    suffixes = registry.find(format).suffixes
    return folder / (f"{name}-{format}" if registry.find(format).folder else f"{name}-{format}{suffixes[0]}")


def content_of(path):
    return path.read_bytes() if path.is_file() else {each.name: each.read_bytes() for each in path.iterdir()}


@pytest.mark.parametrize("format", FORMATS)
def test_saving(tmp_path, format):
    path = path_of(tmp_path, "m", format)
    if format in HOLDERS:
        holdall.save(path, VALUES, format=format)
        assert holdall.verify(path).ok
        with holdall.open(path) as model:
            assert np.array_equal(model[""].numpy(), VALUES[""])
        return
    with pytest.raises(holdall.ContentError, match=r"name|''") as caught:
        holdall.save(path, VALUES, format=format)
    assert str(caught.value).startswith(format.partition("-")[0].removesuffix("set"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("target", FORMATS)
@pytest.mark.parametrize("source", HOLDERS)
def test_converting(tmp_path, source, target):
    a, b = path_of(tmp_path, "a", source), path_of(tmp_path, "b", target)
    holdall.save(a, VALUES, format=source)
    if target in HOLDERS:
        holdall.convert(a, b, format=target)
        assert holdall.verify(b).ok
        with holdall.open(b) as model:
            assert np.array_equal(model[""].numpy(), VALUES[""]) and set(model) == set(VALUES)
        return
    with pytest.raises(holdall.ContentError, match=f"^{target} cannot hold 1 tensor: '' f32"):
        holdall.convert(a, b, format=target)
    assert not b.exists()
    holdall.convert(a, b, format=target, rename=["s/^$/named/"])
    with holdall.open(b) as model:
        assert np.array_equal(model["named"].numpy().reshape(2, 3), VALUES[""])


CARRIERS = [(a, b) for a in HOLDERS for b in FORMATS if registry.find(b).carries and (a != b or a == "hf")]


@pytest.mark.parametrize(("source", "target"), CARRIERS)
def test_carrying_and_restoring(tmp_path, source, target):
    a, b, again = (path_of(tmp_path, name, format) for name, format in (("a", source), ("b", target), ("c", source)))
    holdall.save(a, VALUES, format=source)
    holdall.convert(a, b, format=target, carry=True)
    assert holdall.restore(b, again).restored == "bytes"
    assert content_of(again) == content_of(a)


@pytest.mark.parametrize("by", ["safetensors", "torch", "npz"])
def test_a_carried_original_is_handed_on(tmp_path, by):
    """Twice: into a format that holds the name, and into one that gives it another."""
    a, b = tmp_path / "a.weights", path_of(tmp_path, "b", by)
    holdall.save(a, VALUES)
    holdall.convert(a, b, carry=True)
    for target in ("hf", "aero", "safetensors"):
        c, again = path_of(tmp_path, "c", target), tmp_path / f"{target}.weights"
        holdall.convert(b, c, format=target, carry=True)
        holdall.restore(c, again)
        assert again.read_bytes() == a.read_bytes()


def test_a_tensor_without_data_beside_one_without_a_name(tmp_path):
    """Neither is taken for the other: what has no data has no tensor that stores it."""
    a, b, again = tmp_path / "a.safetensors", tmp_path / "b.pt", tmp_path / "c.safetensors"
    holdall.save(a, {"": np.arange(3.0), "empty": np.zeros((0, 3), np.float32), "w": np.ones(2)})
    holdall.convert(a, b, carry=True)
    holdall.restore(b, again)
    assert again.read_bytes() == a.read_bytes()


@pytest.mark.parametrize("target", FORMATS)
def test_files_of_numpy_have_such_names_too(tmp_path, target):
    a, b = tmp_path / "a.npz", path_of(tmp_path, "b", target)
    np.savez(a, **VALUES)
    with holdall.open(a) as model:
        assert set(model) == set(np.load(a).files) == {"", "w"}
    if target in (*HOLDERS, "npz"):  # an npz is copied
        holdall.convert(a, b, format=target)
        with holdall.open(b) as model:
            assert np.array_equal(model[""].numpy(), VALUES[""])
    else:
        with pytest.raises(holdall.ContentError, match=f"^{target} cannot hold 1 tensor: '' f32"):
            holdall.convert(a, b, format=target)
