import os
import pickle
import threading

import numpy as np
import pytest

import holdall
from holdall.errors import ClosedError, FormatError, UnsupportedError
from holdall.source import BytesSource, FileSource, FolderSource, source_of
from holdall.testing import RecordingSource, run_isolated
from tests.process import descriptors_of

DATA = bytes(range(256)) * 40


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "data.bin"
    file.write_bytes(DATA)
    return file


@pytest.fixture(params=["map", "pread", "bytes", "recording"])
def source(request, path):
    kinds = {
        "map": lambda: FileSource(path),
        "pread": lambda: FileSource(path, map=False),
        "bytes": lambda: BytesSource(DATA),
        "recording": lambda: RecordingSource(FileSource(path)),
    }
    made = kinds[request.param]()
    yield made
    made.close()


def test_every_kind_gives_the_same_bytes(source):
    assert source.size == len(DATA)
    for offset, size in ((0, 0), (0, 1), (5, 300), (len(DATA), 0), (len(DATA) - 1, 1), (0, len(DATA))):
        expected = DATA[offset : offset + size]
        assert source.read(offset, size) == expected
        assert bytes(source.view(offset, size)) == expected
        assert b"".join(map(bytes, source.chunks(offset, size, 1000))) == expected
        buffer = bytearray(size)
        source.read_into(offset, memoryview(buffer))
        assert buffer == expected


@pytest.mark.parametrize(
    ("offset", "size"),
    [(0, len(DATA) + 1), (len(DATA), 1), (len(DATA) + 1, 0), (-1, 1), (0, -1), (2**64, 2**64), (1, -2)],
)
def test_ranges_outside_are_refused(source, offset, size):
    for read in (source.read, source.view, lambda o, s: list(source.chunks(o, s))):
        with pytest.raises(FormatError) as caught:
            read(offset, size)
        assert caught.value.rule == "core.short"


def test_views_are_read_only_and_outlive_the_source(source):
    view = source.view(10, 20)
    assert view.readonly
    source.close()
    source.close()
    assert bytes(view) == DATA[10:30]
    for read in (source.read, source.view):
        with pytest.raises(ClosedError):
            read(0, 4)


def test_chunks_that_are_kept_do_not_change(path):
    pieces = list(FileSource(path, map=False).chunks(0, 3000, 1000))
    assert pieces == [DATA[:1000], DATA[1000:2000], DATA[2000:3000]]


def test_fifos_devices_and_missing_files(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name in (tmp_path / "pipe", "/dev/zero", "/dev/null"):
        before = descriptors_of(name)
        with pytest.raises(UnsupportedError, match="not a regular file"):
            FileSource(name)
        assert descriptors_of(name) <= before
    with pytest.raises(FileNotFoundError):
        source_of(tmp_path / "nothing")


@pytest.mark.parametrize("map", [True, False])
def test_a_file_cut_while_open_raises(path, map):
    source = FileSource(path, map=map)
    os.truncate(path, 100)
    with pytest.raises(FormatError, match="cut while open") as caught:
        source.read(50, 100)
    assert caught.value.rule == "core.short"
    with pytest.raises(FormatError, match="cut while open"):
        source.read(50, 50)
    with pytest.raises(FormatError):
        list(source.chunks(0, len(DATA)))
    with pytest.raises(FormatError, match="cut while open"):
        source.view(50, 100)


def test_an_empty_file_can_be_looked_at(tmp_path):
    (tmp_path / "empty").touch()
    source = FileSource(tmp_path / "empty")
    assert source.size == 0
    assert bytes(source.view(0, 0)) == b""


def test_identity_changes_with_the_content(path):
    first = FileSource(path).identity
    assert FileSource(path).identity == first
    assert pickle.loads(pickle.dumps(first)) == first
    path.write_bytes(DATA + b"x")
    assert FileSource(path).identity != first


def test_descriptors_are_given_back(path):
    for _ in range(50):
        source = FileSource(path)
        source.view(0, 10)
        del source
    assert descriptors_of(path) == set()


def test_reading_from_many_threads(path):
    source = FileSource(path)
    wrong = []

    def read(seed):
        for n in range(200):
            at = (seed * 37 + n * 101) % (len(DATA) - 64)
            if bytes(source.view(at, 64)) != DATA[at : at + 64] or source.read(at, 64) != DATA[at : at + 64]:
                wrong.append(at)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_bytes_sources_take_what_is_like_bytes():
    for data in (b"abc", bytearray(b"abc"), memoryview(b"abc"), memoryview(np.arange(3, dtype=np.uint16))):
        source = source_of(data)
        assert source.view(0, source.size).readonly
        assert source.read(0, source.size) == bytes(data)
    with pytest.raises(UnsupportedError):
        source_of(b"abc").sibling("x")
    with pytest.raises(UnsupportedError):
        source_of(b"abc").names()


def test_a_source_is_taken_as_it_is(path):
    source = FileSource(path)
    assert source_of(source) is source
    assert isinstance(source_of(path.parent), FolderSource)


def test_verify_leaves_the_source_of_the_caller_open(tmp_path):
    holdall.save(tmp_path / "m.oinf", {"w": np.ones(3, np.float32)})
    source = FileSource(tmp_path / "m.oinf")
    assert holdall.verify(source).ok
    assert source.read(0, 4) == b"OINF"


def test_streams_do_not_make_a_file_resident(tmp_path):
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(300 << 20)

    def stream():
        from holdall.testing.isolation import resident_bytes

        source = FileSource(path)
        before = resident_bytes()
        for _ in source.chunks(0, source.size):
            pass
        return resident_bytes() - before

    assert run_isolated(stream) < 16 << 20
