"""Files that are cut, written to, replaced, removed or locked away while a model is open."""

from __future__ import annotations

import os

import pytest

import holdall
from holdall.errors import FormatError
from holdall.operations.convert.job import Job
from holdall.source import descriptors
from tests.survival import shelf


def cut(file):
    os.truncate(file, file.stat().st_size // 2)


def write_into(file):
    with file.open("r+b") as handle:
        data = bytes(255 - byte for byte in handle.read())
        handle.seek(0)
        handle.write(data)


def append(file):
    with file.open("ab") as handle:
        handle.write(b"more")


def replace(file):
    other = file.with_name(file.name + ".new")
    other.write_bytes(bytes(255 - byte for byte in file.read_bytes()))
    os.replace(other, file)


def unlink(file):
    file.unlink()


IN_PLACE = (cut, write_into, append)
OUT_OF_PLACE = (replace, unlink)


@pytest.mark.parametrize("mapped", [True, False], ids=["map", "read"])
@pytest.mark.parametrize("change", IN_PLACE, ids=lambda change: change.__name__)
def test_what_is_written_to_is_noticed(path, change, mapped):
    with holdall.open(path, mmap=mapped) as model:
        assert len(list(shelf.right(model, ["layers.0.weight"]))) == 1
        for file in shelf.files(path):
            change(file)
        for name in shelf.values():
            with pytest.raises((FormatError, OSError)) as caught:
                model[name].numpy()
            assert shelf.noticed(caught.value, shelf.files(path)), caught.value


@pytest.mark.parametrize("mapped", [True, False], ids=["map", "read"])
@pytest.mark.parametrize("change", OUT_OF_PLACE, ids=lambda change: change.__name__)
def test_what_is_replaced_or_removed_stays_as_it_was_opened(path, change, mapped):
    there = shelf.files(path)
    with holdall.open(path, mmap=mapped) as model:
        held = list(shelf.right(model))  # every file of a set has been opened now
        for file in there:
            change(file)
        assert list(shelf.right(model)) == held
        assert [tensor.numpy().shape for tensor in model.fetch()] == [(64, 48)] * len(held)


@pytest.mark.parametrize("change", OUT_OF_PLACE, ids=lambda change: change.__name__)
def test_what_has_to_be_opened_again_has_to_be_the_same_file(path, change):
    there = shelf.files(path)
    with holdall.open(path, mmap=False) as model:
        assert len(list(shelf.right(model))) == 12
        descriptors._make_room(0)
        assert len(list(shelf.right(model))) == 12
        for file in there:
            change(file)
        descriptors._make_room(0)
        for name in shelf.values():
            with pytest.raises((FormatError, OSError)) as caught:
                model[name].numpy()
            assert shelf.noticed(caught.value, there), caught.value


def test_what_may_not_be_opened_again_is_said_with_its_name(path, monkeypatch):
    honest = os.open

    def refuse(what, flags, *arguments, **options):  # root would be let in
        if not flags & os.O_DIRECTORY:
            raise PermissionError(13, "Permission denied", what)
        return honest(what, flags, *arguments, **options)

    with holdall.open(path, mmap=False) as model:
        assert len(list(shelf.right(model))) == 12
        monkeypatch.setattr(os, "open", refuse)
        assert len(list(shelf.right(model))) == 12  # open already
        descriptors._make_room(0)
        with pytest.raises(PermissionError) as caught:
            model["layers.3.weight"].numpy()
        assert shelf.noticed(caught.value, shelf.files(path))
        monkeypatch.undo()
        assert len(list(shelf.right(model))) == 12


@pytest.mark.parametrize("change", IN_PLACE, ids=lambda change: change.__name__)
def test_a_change_in_the_middle_of_a_conversion_leaves_no_target(path, change, tmp_path, monkeypatch):
    target = tmp_path / "out" / "copy.safetensors"
    target.parent.mkdir()

    honest = Job.plan

    def spoil(job, stem):
        for file in shelf.files(path):
            change(file)
        return honest(job, stem)

    monkeypatch.setattr(Job, "plan", spoil)
    with pytest.raises((FormatError, OSError)) as caught:
        holdall.convert(path, target, include=["*"])  # else a file of the same format is copied
    assert shelf.noticed(caught.value, shelf.files(path)), caught.value
    assert list(target.parent.iterdir()) == []


def test_a_change_in_the_middle_of_verifying_is_a_finding(path):
    from holdall.operations.examine import examine

    with examine(path, level="full") as seen:
        assert seen.report.ok
        for file in shelf.files(path):
            write_into(file)
        seen.audit()
    reads_payloads = any(finding.rule in shelf.NOTICED for finding in seen.report.findings)
    assert reads_payloads or seen.report.ok, seen.report.findings  # a format without hashes reads no payload


def test_views_outlive_their_model_and_the_name_of_its_file(path):
    there = shelf.files(path)
    with holdall.open(path) as model:
        arrays = {tensor.name: tensor.numpy() for tensor in model.tensors}
    for file in there:
        file.unlink()
    for name, expected in shelf.values().items():
        assert arrays[name].tobytes() == expected.tobytes()
