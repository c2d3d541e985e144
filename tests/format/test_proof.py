"""Hashes are checked in passing: a flipped byte never goes through unnoticed."""

from __future__ import annotations

import pickle
import threading
import time
import zipfile
import zlib

import numpy as np
import pytest
from blake3 import blake3
from click.testing import CliRunner

import holdall
import holdall.numpy
from holdall.cli import main
from holdall.errors import FormatError, HashError
from holdall.format.aero.integrity import encode_phsh
from holdall.format.proof import Proof, Prover, proofs_for, proofs_of
from holdall.source import BytesSource
from holdall.source.file import FileSource
from tests.attacks.files import aero, tidx_entry

SHAPE = (1536, 1024)  # 6 MiB of f32: beyond every buffer
PAGE = 64 << 10
KINDS = {  # kind: format, options, the rule of a damaged payload
    "aero tensors": ("aero", {"tensor_hash": True}, "aero.tensor.blake3"),
    "aero pages": ("aero", {"page_hash": PAGE}, "aero.page.blake3"),
    "aero shards": ("aero", {}, "aero.shard.blake3"),
    "aeroset": ("aeroset", {"tensor_hash": True}, "aero.tensor.blake3"),
    "embd": ("embd", {"checksums": True}, "embd.footer.data_checksum"),
    "npz": ("npz", {}, "zip.entry.crc"),
    "torch": ("torch", {}, "zip.entry.crc"),
    "npz deflated": ("npz", {}, "zip.entry.crc"),
}


@pytest.fixture(scope="module")
def values():
    rng = np.random.default_rng(7)
    return {name: rng.standard_normal(SHAPE, np.float32) for name in ("first", "w", "last")}


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


class Case:
    """A sound file, and the same one with a flipped byte in the middle of tensor ``w``."""

    def __init__(self, folder, kind, values):
        self.format, options, self.rule = KINDS[kind]
        self.sound, self.damaged = folder / f"sound.{self.format}", folder / f"damaged.{self.format}"
        for path in (self.sound, self.damaged):
            if kind == "npz deflated":
                with path.open("wb") as file:
                    np.savez_compressed(file, **values)
            else:
                holdall.save(path, values, format=self.format, fsync=False, **options)
        self.file = self.damaged
        if self.format == "aeroset":
            self.file = next(
                part for part in self.damaged.rglob("*.aero") if values["w"].tobytes() in part.read_bytes()
            )
        self.data = bytearray(self.file.read_bytes())
        self.start, self.flipped = self._place(kind, values["w"].tobytes())
        self.data[self.flipped] ^= 0x10
        self.file.write_bytes(self.data)

    def _place(self, kind, payload):
        """Where ``w`` begins, and the byte to flip; random numbers hardly deflate, and literals are bytes."""
        if kind != "npz deflated":
            start = self.data.index(payload)
            return start, start + len(payload) // 2
        with zipfile.ZipFile(self.sound) as archive:
            entry = archive.getinfo("w.npy")
            start = (
                entry.header_offset
                + 30
                + len("w.npy")
                + int.from_bytes(self.data[entry.header_offset + 28 : entry.header_offset + 30], "little")
            )
            for at in range(start + entry.compress_size // 2, start + entry.compress_size):
                trial = bytearray(self.data[start : start + entry.compress_size])
                trial[at - start] ^= 0x10
                try:
                    decoder = zlib.decompressobj(-15)
                    found = decoder.decompress(trial)
                except zlib.error:
                    continue
                if len(found) == entry.file_size and decoder.eof and not decoder.unused_data:
                    return start, at
        raise AssertionError("no byte can be flipped without breaking the stream")


@pytest.fixture
def case(tmp_path, kind, values):
    return Case(tmp_path, kind, values)


def assert_found(error, case, kind):
    """The rule that verify names, the place of a stretch around the byte, and the name of tensor or member."""
    assert isinstance(error, HashError)
    report = holdall.verify(case.damaged)
    assert error.rule in (case.rule, "aeroset.sha256") and error.rule in {finding.rule for finding in report.findings}
    if error.rule == "aeroset.sha256":  # most of a part is read: the hash that also notices a part of another set
        assert "part-000.aero" in str(error) and "'w'" in str(error)
        return
    if kind == "aero pages":
        assert error.offset <= case.flipped < error.offset + PAGE
        assert "page " in str(error) and "'w'" in str(error)
    elif kind in ("aero tensors", "aeroset"):
        assert error.offset == case.start and "tensor 'w'" in str(error)
    elif kind in ("aero shards", "embd"):
        assert error.offset <= case.start and "'first', 'w', 'last'" in str(error)
    else:
        assert case.start - 256 <= error.offset <= case.start
        assert "w.npy" in str(error) or "data/1" in str(error)


def test_reads_of_all_kinds_find_it(case, kind, values):
    reads = {
        "load": lambda: holdall.numpy.load_file(case.damaged, check=True),
        "diff": lambda: holdall.diff(case.sound, case.damaged),
        "diff with itself": lambda: holdall.diff(case.damaged, case.damaged),
        "whole": lambda: holdall.open(case.damaged, check=True)["w"].numpy(),
        "raw": lambda: holdall.open(case.damaged, check=True)["w"].raw(),
        "slice": lambda: holdall.open(case.damaged, check=True)["w"][SHAPE[0] // 2],
        "blocks": lambda: next(holdall.open(case.damaged, check=True)["w"].blocks()),
        "pickled": lambda: pickle.loads(pickle.dumps(holdall.open(case.damaged, check=True)))["w"][SHAPE[0] // 2],
    }
    for read in reads.values():
        with pytest.raises(FormatError) as caught:
            read()
        assert_found(caught.value, case, kind)


def test_sound_files_go_through(case, values):
    loaded = holdall.numpy.load_file(case.sound, check=True)
    with holdall.open(case.sound, check=True) as model:
        for name, array in values.items():
            np.testing.assert_array_equal(loaded[name], array)
            np.testing.assert_array_equal(model[name].numpy(), array)
            np.testing.assert_array_equal(model[name][5:7, ::3], array[5:7, ::3])
    assert not holdall.diff(case.sound, case.sound).tensors


def test_only_what_is_read_is_judged(case, kind, values):
    """Tensors apart from the damage are handed out, unless one checksum covers all."""
    with holdall.open(case.damaged, check=True) as model:
        if kind in ("aero shards", "embd"):
            with pytest.raises(HashError):
                model["first"].numpy()
        else:
            np.testing.assert_array_equal(model["first"].numpy(), values["first"])


def test_without_check_it_goes_through(case, kind, values):
    found = holdall.diff(case.sound, case.damaged, check=False)
    assert [(each.name, each.verdict) for each in found.tensors] == [("w", "different")]
    with holdall.open(case.damaged, check=False) as model:
        assert np.sum(model["w"].numpy() != values["w"]) >= 1
    if kind != "npz deflated":  # which is checked wherever it is inflated to its end
        with holdall.open(case.damaged) as model:
            assert np.sum(model["w"][:] != values["w"]) == 1
    if kind == "aero tensors":  # a hash of the tensor itself is compared by every whole read
        with holdall.open(case.damaged) as model, pytest.raises(HashError, match="hash_b3"):
            model["w"].numpy()
    elif kind != "npz deflated":
        with holdall.open(case.damaged) as model:
            assert np.sum(model["w"].numpy() != values["w"]) == 1
        assert np.sum(holdall.numpy.load_file(case.damaged)["w"] != values["w"]) == 1


def test_extract_writes_nothing_that_is_damaged(case, kind, tmp_path, values):
    run = CliRunner().invoke
    target = tmp_path / "w.npy"
    for arguments in (["w", "-o", str(target)], ["w", "-o", str(tmp_path / "w.bin")], ["w", "-o", "-"]):
        result = run(main, ["extract", str(case.damaged), *arguments])
        assert result.exit_code == 1 and "says" in result.stderr, result.output
        assert result.stdout == "" or kind == "npz deflated"
    assert not list(tmp_path.glob("w.*"))
    result = run(main, ["extract", str(case.damaged), "--all", str(tmp_path / "all")])
    assert result.exit_code == 1 and not (tmp_path / "all" / "w.npy").exists()
    result = run(main, ["extract", str(case.damaged), "w", "-o", str(target), "--no-check"])
    assert result.exit_code == 0, result.output
    assert np.sum(np.load(target) != values["w"]) >= 1
    result = run(main, ["diff", str(case.sound), str(case.damaged), "--quick"])
    assert result.exit_code == 1 and "says" in result.stderr
    result = run(main, ["diff", str(case.sound), str(case.damaged), "--quick", "--no-check"])
    assert result.exit_code == 1 and "differ in 1 tensor" in result.stdout


def test_the_formats_own_libraries_refuse_it_too(tmp_path, values):
    for kind in ("npz", "npz deflated", "torch"):
        (tmp_path / kind).mkdir()
        case = Case(tmp_path / kind, kind, values)
        with zipfile.ZipFile(case.damaged) as archive:
            assert archive.testzip() is not None
        if kind != "torch":
            with pytest.raises(zipfile.BadZipFile):
                np.load(case.damaged)["w"]


def test_a_page_is_hashed_once(tmp_path, values, monkeypatch):
    holdall.save(tmp_path / "x.aero", values, page_hash=PAGE, fsync=False)
    checked = []
    original = Proof.compare
    monkeypatch.setattr(Proof, "compare", lambda self, found: (checked.append(self.start), original(self, found)))
    with holdall.open(tmp_path / "x.aero", check=True) as model:
        row = model["w"][100]
        assert len(checked) == 1  # a row of 4 KiB
        for number in range(100, 110):
            np.testing.assert_array_equal(model["w"][number], values["w"][number])
        np.testing.assert_array_equal(row, values["w"][100])
        model["w"].numpy()
        model["w"].numpy()
    assert len(checked) == len(set(checked)) == values["w"].nbytes // PAGE


def test_a_tensor_without_pages_is_hashed_once(tmp_path, values, monkeypatch):
    holdall.save(tmp_path / "x.aero", values, tensor_hash=True, fsync=False)
    checked = []
    original = Proof.compare
    monkeypatch.setattr(Proof, "compare", lambda self, found: (checked.append(found), original(self, found)))
    with holdall.open(tmp_path / "x.aero", check=True) as model:
        for number in range(4):
            model["w"][number]
        model["w"].numpy()
    assert checked == [blake3(values["w"].tobytes()).digest()]


def test_bytes_that_are_proven_are_not_hashed_again(tmp_path, values, monkeypatch):
    """Whatever hash proved them: pages first and then the tensor, and the tensor first and then a slice of it."""
    read = []
    original = FileSource.read_into
    monkeypatch.setattr(
        FileSource, "read_into", lambda *given: (read.append((given[1], len(given[2]))), original(*given))
    )
    for options in ({"tensor_hash": True, "page_hash": PAGE}, {"page_hash": PAGE}, {"tensor_hash": True}):
        holdall.save(tmp_path / "x.aero", values, fsync=False, **options)
        with holdall.open(tmp_path / "x.aero", check=True) as model:
            start, stop = model["w"].offset, model["w"].offset + model["w"].nbytes
            model["w"][SHAPE[0] // 2], model["w"].numpy(), model["w"][3:700], model["w"].raw()
            read.clear()
            np.testing.assert_array_equal(model["w"].numpy(), values["w"])
            np.testing.assert_array_equal(model["w"][::5, 3], values["w"][::5, 3])
            assert read == []  # the map gives the bytes
        with holdall.open(tmp_path / "x.aero", check=True) as model:
            model["w"][SHAPE[0] // 2], model["w"].numpy()
            count = sum(size for at, size in read if start <= at < stop)
            assert values["w"].nbytes <= count <= values["w"].nbytes + PAGE


def test_a_whole_tensor_is_hashed_once_and_a_slice_never(tmp_path, values, monkeypatch):
    """Of a local file that is opened with nothing said of checking."""
    holdall.save(tmp_path / "x.aero", values, tensor_hash=True, page_hash=PAGE, fsync=False)
    checked = []
    original = Proof.compare
    monkeypatch.setattr(Proof, "compare", lambda self, found: (checked.append(found), original(self, found)))
    for mmap in (True, False):
        checked.clear()
        with holdall.open(tmp_path / "x.aero", mmap=mmap) as model:
            np.testing.assert_array_equal(model["w"][7], values["w"][7])
            np.testing.assert_array_equal(model["w"][:], values["w"])
            assert checked == []
            for _ in range(3):
                np.testing.assert_array_equal(model["w"].numpy(), values["w"])
            assert checked == [blake3(values["w"].tobytes()).digest()]
            again = pickle.loads(pickle.dumps(model["w"]))
            np.testing.assert_array_equal(again.numpy(), values["w"])
            assert len(checked) == 2  # another process has proven nothing


@pytest.mark.parametrize("options", [{"tensor_hash": True}, {"page_hash": 4 << 20}, {}])
def test_one_long_tensor_is_proven_by_all_cores(tmp_path, options):
    """Longer than what one thread proves: by one hash over all of it, or by many."""
    array = np.random.default_rng(2).integers(0, 256, (45 << 20) + 3, np.uint8)
    holdall.save(tmp_path / "x.aero", {"w": array}, fsync=False, **options)
    with holdall.open(tmp_path / "x.aero", check=True) as model:
        np.testing.assert_array_equal(model["w"].numpy(), array)
        place = model["w"].offset + (31 << 20)
    with (tmp_path / "x.aero").open("r+b") as file:
        file.seek(place)
        file.write(bytes([array[31 << 20] ^ 1]))
    with holdall.open(tmp_path / "x.aero", check=True) as model, pytest.raises(HashError, match="its BLAKE3 is"):
        model["w"].numpy()


def test_pages_prove_where_there_are_some(tmp_path, values):
    """A hash_b3 that is wrong goes unnoticed beside right page hashes; only verify compares all hashes."""
    data = values["w"].tobytes()
    digests = b"".join(blake3(data[at : at + PAGE]).digest() for at in range(0, len(data), PAGE))
    entry = tidx_entry(shape=list(SHAPE), data_len=len(data), hash_b3="0" * 64)
    pages = (b"PHSH", b"weights.shard0.phsh", 8, encode_phsh("weights.shard0", PAGE, digests))
    (tmp_path / "x.aero").write_bytes(aero(entry, shard=data, chunks=[pages]))
    with holdall.open(tmp_path / "x.aero", check=True) as model:
        assert model["w"].native.hash_b3 == "0" * 64
        np.testing.assert_array_equal(model["w"].numpy(), values["w"])
    found = [each.rule for each in holdall.verify(tmp_path / "x.aero").findings if each.severity == "error"]
    assert found == ["aero.tensor.blake3"]


def test_many_small_tensors_are_quick(tmp_path):
    count = 100_000
    arrays = {f"t{number}": np.full(4, number, np.int32) for number in range(count)}
    holdall.save(tmp_path / "x.aero", arrays, tensor_hash=True, fsync=False)
    with holdall.open(tmp_path / "x.aero") as model:
        payloads = [tensor.payload for tensor in model.tensors]
        began = time.process_time()
        proofs = proofs_for(model, payloads)
        with Prover(proofs):
            pass
        assert time.process_time() - began < 5
    assert len(proofs) == count
    assert proofs[5].expected == blake3(arrays[proofs[5].what.split("'")[1]].tobytes()).digest()


def test_small_tensors_share_their_pages(tmp_path):
    arrays = {f"t{number}": np.arange(1000, dtype=np.int32) + number for number in range(2000)}
    holdall.save(tmp_path / "x.aero", arrays, page_hash=PAGE, fsync=False)
    with holdall.open(tmp_path / "x.aero") as model:
        pages = [page.start for proof in proofs_of(model) for page in proof.pages()]
    assert len(pages) == len(set(pages)) == -(-sum(-(-4000 // 64) * 64 for _ in arrays) // PAGE)


@pytest.mark.parametrize("format", ["npz", "torch"])
@pytest.mark.parametrize("wrong", ["t0", "t57", "long", "t199"])
def test_one_of_many_entries_is_damaged(tmp_path, format, wrong):
    path, rng = tmp_path / f"x.{format}", np.random.default_rng(3)
    content = {f"t{number}": rng.standard_normal(5 + number % 3) for number in range(200)}
    content["long"] = rng.standard_normal(700_000)  # longer than what is read at once, and among the small ones
    holdall.save(path, {name: content[name] for name in sorted(content)}, format=format, fsync=False)
    with holdall.open(path) as model:
        at, entry = model[wrong].offset + 3, list(model.tensors.names).index(wrong)
        found = [page for proof in proofs_of(model) for page in proof.pages()]
        sums = {proof.expected for proof in found}
        with zipfile.ZipFile(path) as archive:
            stated = {info.CRC for info in archive.infolist() if "data/" in info.filename or format == "npz"}
        assert len(found) == len(content) and sums == stated
        stated_crc = next(proof.expected for proof in found if proof.start <= at < proof.stop)
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    for work in (lambda: holdall.diff(path, path), lambda: holdall.convert(path, tmp_path / "y.oinf")):
        with pytest.raises(HashError, match=rf"entry '.*': its CRC-32 is [0-9a-f]+, the directory .*{stated_crc:08x}"):
            work()
    name = f"{wrong}.npy" if format == "npz" else f"/{entry}"
    with pytest.raises(HashError, match=f"{name}'"):
        holdall.diff(path, path)


def test_threads_end(tmp_path):
    data = np.random.default_rng(1).bytes(40 << 20)
    source = BytesSource(data)
    good = [Proof(source, 0, len(data), "crc32", zlib.crc32(data), "r", "all")]
    good += [Proof(source, at, at + (1 << 20), "blake3", blake3(data[at : at + (1 << 20)]).digest(), "r", f"{at}")
             for at in range(0, len(data), 1 << 20)]  # fmt: skip
    before = set(threading.enumerate())
    calls = []
    with Prover(good, lambda done, total: calls.append((done, total))):
        pass
    assert calls[-1] == (2 * len(data), 2 * len(data))
    with pytest.raises(KeyError), Prover(good):
        raise KeyError
    assert set(threading.enumerate()) <= before
    with Prover([]):
        assert set(threading.enumerate()) <= before
    bad = Proof(source, 7, 3 << 20, "sha256", bytes(32), "rule", "what")
    with pytest.raises(HashError) as caught, Prover([*good, bad]) as prover:
        for _ in range(10_000):
            prover.raise_failure()
            time.sleep(0.001)
    assert (caught.value.rule, caught.value.offset) == ("rule", 7)
    assert set(threading.enumerate()) <= before


def test_payloads_that_are_made_name_what_they_are_made_of(tmp_path, values):
    """A cast of a transposition of a tensor in Fortran order still touches the entry that holds it."""
    from holdall.model.casts import cast, transpose
    from holdall.model.dtypes import find_dtype

    np.savez(tmp_path / "x.npz", w=np.asfortranarray(values["w"]))
    with holdall.open(tmp_path / "x.npz") as model:
        made = cast(transpose(model["w"]), find_dtype("f64"))
        assert [proof.what for proof in proofs_for(model, made.payloads)] == ["npz: entry 'w.npy'"]
