"""What a caller keeps is his own: pieces that are collected, documents larger than every buffer, memory used again."""

from __future__ import annotations

import io
import json
import tracemalloc
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdall
from holdall.base.check import Check
from holdall.format.hf.assets import FolderFile
from holdall.format.onnx.values import Numbers
from holdall.format.onnx.wire import varint
from holdall.format.zip.archive import read_archive
from holdall.model.payload import Computed, InMemory, Payload, SourceRange
from holdall.model.strided import Arrangement
from holdall.operations.convert import skeleton
from holdall.operations.convert.carried_source import SkeletonSource
from holdall.operations.truncated import TruncatedSource
from holdall.source import CHUNK, BytesSource, FileSource, FolderSource, Source, range_hashing
from holdall.source.buffers import Buffers, regroup
from holdall.source.deferred import DeferredSource
from holdall.source.digests import Tap
from holdall.source.ledger import Ledger
from holdall.source.pending_source import PendingSource
from holdall.testing.recording import RecordingSource

WEIGHTS = np.arange(12, dtype=np.float32).reshape(3, 4)
DATA = np.random.default_rng(5).bytes(2 * CHUNK + 4321)
# Every eight letters are others, so that no piece of it can stand for another. Letters that oinf has too.
NOTE = ".".join(f"{number:07d}" for number in range((CHUNK + (CHUNK >> 1)) // 8))
SMALL_NOTE = NOTE[:65_000]  # embd holds 65,535 bytes
SUFFIXES = {
    "mcf": ".mcf", "oinf": ".oinf", "embd": ".weights", "gptrs-checkpoint": ".bin", "aero": ".aero", "aeroset": "",
    "gguf": ".gguf", "safetensors": ".safetensors", "torch": ".pt", "npz": ".npz", "onnx": ".onnx", "hf": "",
}  # fmt: skip
ASSET = json.dumps({"note": NOTE}).encode()


# -- buffers ----------------------------------------------------------------------------------------------------------


def address(piece: memoryview) -> int:
    return int(np.frombuffer(piece, np.uint8).__array_interface__["data"][0])


def test_a_loop_runs_in_two_buffers() -> None:
    pieces = BytesSource(DATA).chunks(0, len(DATA), 1000)
    assert len({address(piece) for piece in pieces}) == 2


def test_memory_is_not_used_again_while_anything_looks_into_it() -> None:
    buffers = Buffers(16)
    kept: list[Any] = []
    for number in range(20):
        piece = buffers.take(16)
        piece[:] = bytes([number]) * 16
        kept.append([piece, piece[3:7], np.frombuffer(piece, np.uint32)[1:3], piece.toreadonly()][number % 4])
        del piece
    for number, part in enumerate(kept):
        assert set(bytes(part)) == {number}


def test_memory_is_used_again_once_it_is_let_go_of() -> None:
    buffers = Buffers(16)
    piece = buffers.take(16)
    there = address(piece)
    part = np.frombuffer(piece, np.uint8)[2:5]
    del piece
    assert address(buffers.take(16)) != there
    del part
    assert there in {address(buffers.take(16)) for _ in range(3)}


def test_memory_stays_bounded_in_a_loop(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(40 * CHUNK)
    source = FileSource(tmp_path / "large", map=False)
    made = Computed(40 * CHUNK, lambda: source.chunks(0, source.size, CHUNK // 3))
    for payload in (SourceRange(source, 0, source.size), made):
        tracemalloc.start()
        assert sum(len(piece) for piece in payload.chunks()) == source.size
        assert tracemalloc.get_traced_memory()[1] < 5 * CHUNK
        tracemalloc.stop()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("pieces", [[], [b""], [b"abc"], [b"a", b"", b"bcdefgh", b"ij"], [b"abcdefg", bytearray(9)]])
def test_pieces_regrouped(pieces: list[bytes], size: int) -> None:
    found = list(regroup(pieces, size))
    whole = b"".join(pieces)
    assert [bytes(piece) for piece in found] == [whole[at : at + size] for at in range(0, len(whole), size)]


# -- pieces that are collected ----------------------------------------------------------------------------------------


def sources(folder: Path) -> Iterator[Source]:
    """DATA from every kind of source."""
    path = folder / "data"
    path.write_bytes(DATA)
    yield BytesSource(DATA)
    yield FileSource(path, map=True)
    yield FileSource(path, map=False)
    yield FolderSource(folder).sibling("data")
    yield DeferredSource("deferred", len(DATA), lambda: FileSource(path))
    yield TruncatedSource(FileSource(path), len(DATA))
    yield RecordingSource(FileSource(path))
    yield PendingSource(FileSource(path), [(5, lambda: memoryview(DATA)[5 : CHUNK + 99])])
    yield SkeletonSource(
        "x", skeleton.SkeletonFile("", len(DATA), ((77, len(DATA) - 77, 0),), DATA[:77]), [InMemory(DATA[77:])]
    )


@pytest.mark.parametrize("chunk", [4001, CHUNK])
def test_collected_pieces_of_every_source(tmp_path: Path, chunk: int) -> None:
    for source in sources(tmp_path):
        pieces = list(source.chunks(3, len(DATA) - 5, chunk))
        assert b"".join(pieces) == DATA[3:-2], type(source).__name__
        assert all(len(piece) == chunk for piece in pieces[:-1])


def payloads(folder: Path) -> Iterator[tuple[str, bytes, Payload]]:
    """Payloads of every kind, and what they hold."""
    for source in sources(folder):
        yield type(source).__name__, DATA[9:], SourceRange(source, 9, len(DATA) - 9)
    yield "held", DATA, InMemory(DATA)
    yield "made", DATA, Computed(len(DATA), lambda: (DATA[at : at + 70_001] for at in range(0, len(DATA), 70_001)))
    yield "made of chunks", DATA, Computed(len(DATA), lambda: BytesSource(DATA).chunks(0, len(DATA), 999_999))
    yield "member", DATA, FolderFile(FolderSource(folder), "data")
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data", DATA)
    yield "inflated", DATA, read_archive(BytesSource(file.getvalue()), Check(), Ledger(), "zip").payload(0)
    grid = np.frombuffer(DATA[: 1400 * 1300 * 4], "<f4").reshape(1400, 1300)
    turned = Arrangement(SourceRange(FileSource(folder / "data"), 0, grid.nbytes), 4, (1300, 1400), (1, 1300)).payload()
    yield "arranged", np.ascontiguousarray(grid.T).tobytes(), turned
    numbers = np.frombuffer(DATA, np.uint8)[: CHUNK + 5].astype("<i4")
    stored = b"".join(map(varint, numbers.tolist()))
    spans = ((0, len(stored)),)
    varints = Numbers(BytesSource(stored), spans, numbers.nbytes, 4, varints=True, what="numbers").payload()
    yield "varints", numbers.tobytes(), varints


@pytest.mark.parametrize("piece", [64 << 10, CHUNK])
def test_collected_pieces_of_every_payload(tmp_path: Path, piece: int) -> None:
    for name, data, payload in payloads(tmp_path):
        pieces = list(payload.chunks(piece))
        assert b"".join(pieces) == data, name
        assert {len(one) for one in pieces[:-1]} <= {piece}, name
        assert payload.read() == data, name


@pytest.mark.parametrize("options", [{"tensor_hash": True}, {"page_hash": 64 << 10}], ids=str)
@pytest.mark.parametrize("is_remote", [False, True])
def test_collected_pieces_of_proven_payloads(tmp_path: Path, options: dict[str, Any], is_remote: bool) -> None:
    values = np.frombuffer(DATA[: len(DATA) // 4 * 4], np.float32)
    holdall.save(tmp_path / "x.aero", {"w": values}, **options)
    source = BytesSource((tmp_path / "x.aero").read_bytes())
    source.is_remote = is_remote
    payload = holdall.open(source)["w"].payload
    assert payload is not None
    for piece in (100_000, CHUNK):
        assert b"".join(list(payload.chunks(piece))) == values.tobytes()
    assert payload.read() == values.tobytes()


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i4", "bool"])
def test_collected_blocks(tmp_path: Path, dtype: str) -> None:
    values = np.random.default_rng(1).integers(0, 2, 100_003)
    holdall.save(tmp_path / "x.oinf", {"w": holdall.Tensor.of("w", values, dtype)})
    with holdall.open(tmp_path / "x.oinf") as model:
        blocks = list(model["w"].blocks(1000))
    assert np.array_equal(np.concatenate(blocks).astype(np.int64), values)


def test_digests_of_a_source_that_lag() -> None:
    import hashlib

    found = range_hashing.digest_ranges(
        BytesSource(DATA), [Tap("a", "sha256", 0, len(DATA)), Tap("b", "sha256", 5, 5000)]
    )
    assert found["a"] == hashlib.sha256(DATA).digest()
    assert found["b"] == hashlib.sha256(DATA[5:5000]).digest()


# -- large documents --------------------------------------------------------------------------------------------------


def saved(folder: Path, format: str) -> Path:
    path = folder / f"t{SUFFIXES[format]}"
    note = SMALL_NOTE if format == "embd" else NOTE
    holdall.save(path, {"w": WEIGHTS}, metadata={"note": note}, format=format)
    return path


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("format", SUFFIXES)
def test_a_large_document_comes_back(tmp_path: Path, format: str, mmap: bool) -> None:
    with holdall.open(saved(tmp_path, format), format=format, mmap=mmap) as model:
        assert model.metadata["note"] == (SMALL_NOTE if format == "embd" else NOTE)
        assert np.array_equal(model["w"].numpy(), WEIGHTS)


@pytest.mark.parametrize("format", SUFFIXES)
def test_a_file_with_a_large_document_is_sound(tmp_path: Path, format: str) -> None:
    report = holdall.verify(saved(tmp_path, format), format=format, level="strict")
    assert report.ok, report.findings


def test_metadata_of_mcf_larger_than_a_chunk(tmp_path: Path) -> None:
    holdall.save(tmp_path / "t.mcf", {"w": np.zeros(4, np.float32)}, metadata={"note": "x" * (4 << 20)})
    with holdall.open(tmp_path / "t.mcf") as model:
        assert dict(model.metadata) == {"note": "x" * (4 << 20)}


def test_safetensors_reads_it(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors")
    with safetensors.safe_open(saved(tmp_path, "safetensors"), "np") as file:
        assert file.metadata() == {"note": NOTE}


def test_gguf_reads_it(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    assert gguf.GGUFReader(saved(tmp_path, "gguf")).get_field("note").contents() == NOTE


def test_numpy_reads_it(tmp_path: Path) -> None:
    with np.load(saved(tmp_path, "npz")) as file:
        assert json.loads(file["__metadata__"].tobytes()) == {"note": NOTE}


def test_onnx_reads_it(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    model = onnx.load(saved(tmp_path, "onnx"))
    assert [(entry.key, entry.value) for entry in model.metadata_props] == [("note", NOTE)]


def test_torch_reads_it(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    assert torch.load(saved(tmp_path, "torch"), weights_only=True).metadata == {"note": NOTE}


def test_what_other_libraries_wrote(tmp_path: Path) -> None:
    save_file = pytest.importorskip("safetensors.numpy").save_file
    save_file({"w": WEIGHTS}, tmp_path / "t.safetensors", metadata={"note": NOTE})
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(tmp_path / "t.gguf", "llama")
    writer.add_string("note", NOTE)
    writer.add_tensor("w", WEIGHTS)
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()
    for name in ("t.safetensors", "t.gguf"):
        with holdall.open(tmp_path / name) as model:
            assert model.metadata["note"] == NOTE


@pytest.mark.parametrize("format", ["mcf", "hf"])
def test_a_large_asset_comes_back(tmp_path: Path, format: str) -> None:
    path = tmp_path / f"t{SUFFIXES[format]}"
    model = holdall.Model([holdall.Tensor.of("w", WEIGHTS)], assets={"tokenizer.json": ASSET})
    holdall.save(path, model, format=format)
    with holdall.open(path) as found:
        assert found.assets["tokenizer.json"] == ASSET
        assert b"".join(list(found.assets.payload("tokenizer.json").chunks())) == ASSET
    if format == "hf":
        assert (path / "tokenizer.json").read_bytes() == ASSET


def test_large_assets_move_between_formats(tmp_path: Path) -> None:
    model = holdall.Model([holdall.Tensor.of("w", WEIGHTS)], assets={"tokenizer.json": ASSET})
    holdall.save(tmp_path / "a", model, format="hf")
    holdall.convert(tmp_path / "a", tmp_path / "b.mcf")
    with holdall.open(tmp_path / "b.mcf") as found:
        assert found.assets["tokenizer.json"] == ASSET
