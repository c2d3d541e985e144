"""Forms on disk: shared between processes, never taken from a damaged file or from another model."""

from __future__ import annotations

import multiprocessing
import os
import shutil

import ml_dtypes
import numpy as np
import pytest

import holdall
from holdall.model.identity import base_id, derived_key, param_key
from holdall.model.model import model_of
from holdall.params import DiskForms, ParamStore

VALUES = np.arange(3 << 19, dtype=np.float32).reshape(1024, -1)  # 6 MiB, more than any buffer


def double(values):
    return values * 2


def refuse(values):
    raise AssertionError("the form is on disk")


@pytest.fixture
def path(tmp_path):
    holdall.save(tmp_path / "m.safetensors", {"w": VALUES, "v": VALUES + 1}, fsync=False)
    return tmp_path / "m.safetensors"


def derive(path, folder, make, name="w", **options):
    with holdall.open(path) as model:
        store = ParamStore.from_model(model, disk=folder, **options)
        (weights,) = store.models.values()
        return weights.derive(name, "double", make), store.figures()


def test_a_form_is_made_once_for_all_stores(path, tmp_path):
    folder = tmp_path / "deep" / "forms"
    made, figures = derive(path, folder, double)
    assert (figures.derived, figures.disk, figures.loads) == (1, 0, 1)
    found, figures = derive(path, folder, refuse)
    assert (figures.derived, figures.disk, figures.loads, figures.held) == (0, 1, 0, VALUES.nbytes)
    assert found.dtype == np.float32 and np.array_equal(found, VALUES * 2) and np.array_equal(made, found)
    assert not found.flags.writeable
    key = derived_key(param_key(1, base_id("w")), "double")
    assert [entry.name for entry in folder.iterdir()] == [f"{key:032x}.aero"]
    with holdall.open(folder / f"{key:032x}.aero") as model:
        assert np.array_equal(model["form"].numpy(), VALUES * 2)


@pytest.mark.parametrize("size", [0, 1, 100, 4096, VALUES.nbytes, -1])
def test_a_truncated_file_is_made_again(path, tmp_path, size):
    derive(path, tmp_path / "forms", double)
    (file,) = (tmp_path / "forms").iterdir()
    os.truncate(file, size if size >= 0 else file.stat().st_size - 1)
    found, figures = derive(path, tmp_path / "forms", double)
    assert (figures.derived, figures.disk) == (1, 0) and np.array_equal(found, VALUES * 2)
    assert derive(path, tmp_path / "forms", refuse)[1].disk == 1


class Mine(np.ndarray):
    pass


KEPT = {
    "f16": lambda a: (a / 64).astype(np.float16),
    "bool": lambda a: a > 3,
    "transposed": lambda a: a.T,
    "fortran": np.asfortranarray,
    "no dims": lambda a: np.array(a.sum()),
    "strided": lambda a: a[::-1, ::7],
    "bf16": lambda a: a.astype(ml_dtypes.bfloat16),
}
NOT_KEPT = {
    "masked": lambda a: np.ma.masked_array(a, a > 1),
    "matrix": np.matrix,
    "subclass": lambda a: a.view(Mine),
    "record": lambda a: np.rec.fromarrays([a[0], a[1]]),
    "fields": lambda a: np.zeros(3, [("x", "f4")]),
    "big-endian": lambda a: a.astype(">f4"),
    "complex": lambda a: a.astype(np.complex64),
    "time": lambda a: a.astype("M8[s]"),
    "longdouble": lambda a: a.astype(np.longdouble),
    "objects": lambda a: a.astype(object),
    "text": lambda a: a[0, :4].astype("U8"),
}


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize("kind", [*KEPT, *NOT_KEPT])
def test_a_form_comes_back_as_what_it_was_or_is_made_again(path, tmp_path, kind):
    make = {**KEPT, **NOT_KEPT}[kind]
    first, _ = derive(path, tmp_path / "forms", make)
    second, figures = derive(path, tmp_path / "forms", make)
    expected = make(VALUES)
    for found in (first, second):
        assert type(found) is type(expected) and found.dtype == expected.dtype and found.shape == expected.shape
        assert np.array_equal(np.asarray(found), np.asarray(expected))
        assert np.array_equal(np.ma.getmaskarray(found), np.ma.getmaskarray(expected))
    if kind in NOT_KEPT:
        assert figures.disk == 0 and figures.derived == 1


def test_a_flipped_bit_is_noticed(path, tmp_path):
    derive(path, tmp_path / "forms", double)
    (file,) = (tmp_path / "forms").iterdir()
    data = bytearray(file.read_bytes())
    at = data.index((VALUES * 2)[512, :64].tobytes())
    data[at] ^= 1
    file.write_bytes(data)
    found, figures = derive(path, tmp_path / "forms", double)
    assert figures.disk == 0 and np.array_equal(found, VALUES * 2)


@pytest.mark.parametrize("there", [True, False])
def test_a_link_is_replaced_and_not_what_it_leads_to(path, tmp_path, there):
    derive(path, tmp_path / "forms", double)
    (file,) = (tmp_path / "forms").iterdir()
    file.unlink()
    if there:
        (tmp_path / "other").write_bytes(b"mine")
    try:
        file.symlink_to(tmp_path / "other")
    except OSError:
        pytest.skip("links cannot be made here")
    derive(path, tmp_path / "forms", double)
    assert (tmp_path / "other").exists() == there
    assert not there or (tmp_path / "other").read_bytes() == b"mine"
    assert not file.is_symlink() and derive(path, tmp_path / "forms", refuse)[1].disk == 1


def test_foreign_files_are_not_taken(path, tmp_path):
    derive(path, tmp_path / "forms", double)
    (file,) = (tmp_path / "forms").iterdir()
    for foreign in (b"", b"text", np.random.default_rng(0).bytes(10_000)):
        file.write_bytes(foreign)
        assert derive(path, tmp_path / "forms", double)[1].derived == 1
    holdall.save(file, {"form": VALUES}, format="aero", fsync=False)  # a good file of the format, without a stamp
    assert np.array_equal(derive(path, tmp_path / "forms", double)[0], VALUES * 2)
    derive(path, tmp_path / "forms", double, "v")
    other = next(entry for entry in (tmp_path / "forms").iterdir() if entry != file)
    shutil.copy(other, file)  # the form of another parameter
    assert np.array_equal(derive(path, tmp_path / "forms", double)[0], VALUES * 2)
    file.unlink()
    file.mkdir()
    assert np.array_equal(derive(path, tmp_path / "forms", double)[0], VALUES * 2)


def test_another_model_with_the_same_names_does_not_find_it(path, tmp_path):
    derive(path, tmp_path / "forms", double)
    holdall.save(tmp_path / "other.safetensors", {"w": VALUES + 5, "v": VALUES}, fsync=False)
    found, figures = derive(tmp_path / "other.safetensors", tmp_path / "forms", double)
    assert figures.derived == 1 and np.array_equal(found, (VALUES + 5) * 2)
    holdall.save(path, {"w": VALUES, "v": VALUES + 7}, fsync=False)  # the same file with other content
    assert derive(path, tmp_path / "forms", double)[1].derived == 1


def test_a_model_in_memory_has_no_forms_on_disk(tmp_path):
    store = ParamStore.from_model(model_of({"w": VALUES}), disk=tmp_path / "forms")
    next(iter(store.models.values())).derive("w", "double", double)
    assert not (tmp_path / "forms").exists()


def test_objects_are_packed_and_unpacked(path, tmp_path):
    forms = DiskForms(tmp_path / "forms", pack=lambda handle: handle["device"], unpack=lambda array: {"device": array})
    derive(path, forms, lambda values: {"device": values * 2})
    found, figures = derive(path, forms, refuse)
    assert figures.disk == 1 and np.array_equal(found["device"], VALUES * 2)
    derive(path, tmp_path / "plain", lambda values: {"device": values})  # not an array, and no way to pack it
    assert not (tmp_path / "plain").exists()


def test_a_folder_that_cannot_be_written_is_no_error(path, tmp_path):
    (tmp_path / "forms").write_bytes(b"a file")
    assert np.array_equal(derive(path, tmp_path / "forms", double)[0], VALUES * 2)


def derive_often(path, folder, start, results):
    start.wait()
    made = right = 0
    for turn in range(6):
        if turn % 2:
            for entry in folder.glob("*.aero"):
                entry.unlink(missing_ok=True)
        found, figures = derive(path, folder, double)
        made += figures.derived
        right += bool(np.array_equal(found, VALUES * 2))
    results.put((made, right))


def test_processes_at_the_same_time(path, tmp_path):
    context = multiprocessing.get_context("spawn")
    start, results, folder = context.Barrier(3), context.Queue(), tmp_path / "forms"
    processes = [context.Process(target=derive_often, args=(path, folder, start, results)) for _ in range(3)]
    for process in processes:
        process.start()
    found = [results.get(timeout=120) for _ in processes]
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert [right for _, right in found] == [6, 6, 6] and sum(made for made, _ in found) >= 1
    assert [entry for entry in folder.iterdir() if entry.suffix != ".aero"] == []
    assert derive(path, folder, refuse if any(folder.iterdir()) else double)[1].loads <= 1
