"""Blocks of ggml: sizes, values compared with the gguf package, rows, and what happens without the package."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from holdall.binary import kernels
from holdall.binary.kernels import ggml_reference
from holdall.errors import UnsupportedError
from holdall.model.ggml import BLOCKS, HALF_Q8_1, PLAIN, REMOVED, Blocks, find_blocks
from holdall.model.payload import InMemory
from holdall.model.tensor import Tensor
from holdall.source import source_of
from holdall.testing.recording import RecordingSource

NATIVE = [blocks for blocks in BLOCKS.values() if blocks.id in (2, 3, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 42)]
UNDECODED = ("Q1_0",)
STRUCTS = {  # the types that the gguf package does not decode, as ggml declares them: float d, then codes
    9: np.dtype([("d", "<f4"), ("s", "<f4"), ("qs", "i1", 32)]),
    15: np.dtype([("d", "<f4"), ("qs", "i1", 256), ("bsums", "<i2", 16)]),
}
PACKAGE_ONLY = [blocks for blocks in BLOCKS.values() if blocks not in NATIVE and blocks.title not in UNDECODED]
NAMED = {"ids": lambda blocks: blocks.title}


def random_blocks(blocks: Blocks, count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, blocks.block_bytes), np.uint8)


def decode_q2_0(stored: np.ndarray) -> np.ndarray:
    """Q2_0, which the package does not know yet: 64 codes of two bits, lowest first; a value is d times code - 1."""
    scales = stored[:, :2].copy().view("<f2").astype(np.float32)
    pairs = np.unpackbits(stored[:, 2:], axis=1, bitorder="little").reshape(len(stored), 64, 2).astype(np.float32)
    with np.errstate(all="ignore"):
        values: np.ndarray = scales * (pairs @ np.array([1, 2], np.float32) - 1)
    return values.reshape(-1)


def oracle(stored: np.ndarray, blocks: Blocks) -> np.ndarray:
    if blocks.id in STRUCTS:
        block = stored.view(STRUCTS[blocks.id]).reshape(-1)
        with np.errstate(all="ignore"):
            plain: np.ndarray = block["d"][:, None] * block["qs"].astype(np.float32)
        return plain.reshape(-1)
    if blocks.title == "Q2_0":
        return decode_q2_0(stored)
    gguf = pytest.importorskip("gguf")
    with np.errstate(all="ignore"):
        values: np.ndarray = gguf.dequantize(stored, gguf.GGMLQuantizationType(blocks.id))
    return values.reshape(-1)


def same(left: np.ndarray, right: np.ndarray) -> bool:
    """Equal to the bit, except that all NaN count as equal."""
    return bool(((left.view("u4") == right.view("u4")) | (np.isnan(left) & np.isnan(right))).all())


def decoded(blocks: Blocks, stored: np.ndarray) -> np.ndarray:
    values: np.ndarray = blocks.decode(memoryview(stored.tobytes()), (len(stored), blocks.elements))
    return values.reshape(-1)


@pytest.mark.parametrize("blocks", NATIVE, **NAMED)
def test_any_bytes_decode_as_the_package_does(blocks: Blocks) -> None:
    stored = random_blocks(blocks, 4000)
    assert same(decoded(blocks, stored), oracle(stored, blocks))


@pytest.mark.parametrize("blocks", NATIVE, **NAMED)
def test_the_kernel_and_its_twin_give_the_same_bits(blocks: Blocks) -> None:
    stored = random_blocks(blocks, 5000, 1)
    one, two = np.empty((2, stored.shape[0] * blocks.elements), np.float32)
    kernels.ggml_decode(blocks.id, stored, one)
    ggml_reference.ggml_decode(blocks.id, stored, two)
    assert one.tobytes() == two.tobytes()


SPECIAL = [0x7E00, 0xFE01, 0x7C01, 0x7C00, 0xFC00, 0, 0x8000, 1, 0x3C00, 0x7BFF]


@pytest.mark.parametrize("blocks", NATIVE, **NAMED)
def test_scales_that_are_not_numbers(blocks: Blocks) -> None:
    """NaN, infinite, zero and subnormal scales and offsets, each with each."""
    places = {2: [0], 3: [0, 2], 6: [0], 7: [0, 2], 8: [0], 9: [0], 10: [80, 82], 11: [108], 12: [0, 2], 13: [0, 2],
              14: [208], 15: [0], 42: [0]}  # fmt: skip
    stored = random_blocks(blocks, len(SPECIAL) ** 2, 2)
    for row, block in enumerate(stored):
        for place, code in zip(places[blocks.id], divmod(row, len(SPECIAL)), strict=False):
            half = np.array([SPECIAL[code]], "<u2")
            scale = half.view("<f2").astype("<f4") if blocks.id in STRUCTS else half
            block[place : place + scale.nbytes] = scale.view(np.uint8)
    one, two = np.empty((2, stored.shape[0] * blocks.elements), np.float32)
    kernels.ggml_decode(blocks.id, stored, one)
    ggml_reference.ggml_decode(blocks.id, stored, two)
    assert one.tobytes() == two.tobytes()
    assert same(one, oracle(stored, blocks))


@pytest.mark.parametrize("blocks", [b for b in NATIVE if b.block_bytes < 40 and b.title != "Q2_0"], **NAMED)
def test_real_values_decode_as_the_package_does(blocks: Blocks) -> None:
    gguf = pytest.importorskip("gguf")
    values = np.random.default_rng(3).standard_normal((50, 256)).astype(np.float32)
    stored = gguf.quantize(values, gguf.GGMLQuantizationType(blocks.id))
    tensor = Tensor("w", blocks, values.shape, InMemory(stored))
    assert tensor.numpy().tobytes() == gguf.dequantize(stored, gguf.GGMLQuantizationType(blocks.id)).tobytes()
    assert np.abs(tensor.numpy() - values).max() < 1


def test_q8_1_of_both_sizes() -> None:
    """ggml of today has f16 for d and s where older versions have f32."""
    rng = np.random.default_rng(4)
    block = np.zeros(3000, [("d", "<f2"), ("s", "<f2"), ("qs", "i1", 32)])
    block["d"], block["qs"] = rng.standard_normal(3000), rng.integers(-128, 128, (3000, 32))
    block["s"] = np.nan  # not part of the values
    wide = block.astype(STRUCTS[9])
    expected = block["d"].astype(np.float32)[:, None] * block["qs"].astype(np.float32)
    for blocks, stored in ((HALF_Q8_1, block), (BLOCKS[9], wide)):
        tensor = Tensor("w", blocks, (1500, 64), InMemory(stored.tobytes()))
        assert tensor.nbytes == blocks.nbytes((1500, 64)) and tensor.numpy().tobytes() == expected.tobytes()
        assert tensor[700:703, 5:].tobytes() == expected.reshape(1500, 64)[700:703, 5:].tobytes()
        assert pickle.loads(pickle.dumps(blocks)).block_bytes == blocks.block_bytes


@pytest.mark.parametrize("blocks", PACKAGE_ONLY, **NAMED)
def test_the_package_decodes_the_rest(blocks: Blocks) -> None:
    stored = random_blocks(blocks, 20)
    assert same(decoded(blocks, stored), oracle(stored, blocks))


@pytest.mark.parametrize("title", UNDECODED)
def test_a_type_without_a_decoder_is_refused_with_the_reason(title: str) -> None:
    blocks = find_blocks(f"ggml.{title.lower()}")
    with pytest.raises(UnsupportedError, match="raw"):
        blocks.decode(memoryview(bytes(blocks.block_bytes)), (blocks.elements,))


def test_without_the_package_the_rest_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(UnsupportedError, match=r"holdall\[gguf\]"):
        BLOCKS[39].decode(memoryview(bytes(17)), (32,))
    assert BLOCKS[2].decode(memoryview(bytes(18)), (32,)).tolist() == [0.0] * 32


_LEVELS = """
import hashlib, numpy as np
from holdall.binary import kernels
digest = hashlib.sha256()
for id, size, count in {cases}:
    stored = np.random.default_rng(id).integers(0, 256, (500, size), np.uint8)
    out = np.empty(500 * count, np.float32)
    kernels.ggml_decode(id, stored, out)
    digest.update(out.tobytes())
print(digest.hexdigest())
"""


def test_every_instruction_set_gives_the_same_bits() -> None:
    cases = [(blocks.id, blocks.block_bytes, blocks.elements) for blocks in NATIVE]
    found = set()
    for choice in ({"HOLDALL_SIMD": "0"}, {"HOLDALL_SIMD": "1"}, {"HOLDALL_SIMD": "2"}, {"HOLDALL_NATIVE": "0"}):
        environment = {**os.environ, **choice, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        code = _LEVELS.format(cases=cases)
        ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        found.add(ran.stdout)
    assert len(found) == 1


@pytest.mark.parametrize("decode", [kernels.ggml_decode, ggml_reference.ggml_decode])
@pytest.mark.parametrize(("kind", "data", "out"), [(0, 4, 4), (99, 18, 128), (2, 17, 128), (2, 18, 127), (2, 36, 128)])
def test_sizes_that_do_not_fit_are_refused(decode: Any, kind: int, data: int, out: int) -> None:
    with pytest.raises(ValueError):
        decode(kind, bytes(data), bytearray(out))


def test_unaligned_blocks_and_values() -> None:
    stored = random_blocks(BLOCKS[14], 3)
    straight, shifted = np.empty(768, np.float32), bytearray(768 * 4 + 1)
    kernels.ggml_decode(14, stored, straight)
    kernels.ggml_decode(14, memoryview(b"x" + stored.tobytes())[1:], memoryview(shifted)[1:])
    assert bytes(shifted[1:]) == straight.tobytes()


@pytest.mark.parametrize("blocks", NATIVE, **NAMED)
def test_slices_read_only_their_rows(blocks: Blocks) -> None:
    stored = random_blocks(blocks, 64, 4)
    shape = (16, 2, 2 * blocks.elements)
    source = RecordingSource(source_of(stored.tobytes()))
    from holdall.model.payload import SourceRange

    tensor = Tensor("w", blocks, shape, SourceRange(source, 0, stored.nbytes))
    whole = tensor.numpy()
    for index in (3, slice(2, 5), slice(None, None, 7), (4, 1), (slice(5, 6), slice(None), 3), -1):
        source.reads.clear()
        assert tensor[index].tobytes() == whole[index].tobytes()
        if index == 3 or index == (4, 1):
            assert source.bytes_read == stored.nbytes // 16
    assert b"".join(block.tobytes() for block in tensor.blocks(1000)) == whole.tobytes()


def test_large_tensors_are_decoded_by_several_threads_to_the_same_bits() -> None:
    blocks = BLOCKS[8]
    stored = np.tile(random_blocks(blocks, 1024, 5), (300, 1))
    whole = decoded(blocks, stored)
    assert whole.size > 8 << 20
    assert whole.tobytes() == np.tile(decoded(blocks, stored[:1024]), 300).tobytes()


def test_the_last_block_may_be_partly_filled() -> None:
    values = BLOCKS[8].decode(memoryview(bytes(68)), (40,))
    assert values.shape == (40,)
    assert BLOCKS[8].rows((5, 8), 0, 1) is None


def test_types_can_be_pickled_and_differ() -> None:
    for blocks in BLOCKS.values():
        assert pickle.loads(pickle.dumps(blocks)) is blocks
        assert blocks.decode(memoryview(b""), (0, blocks.elements)).shape == (0, blocks.elements)
    assert not set(BLOCKS) & set(PLAIN) and not (set(BLOCKS) | set(PLAIN)) & set(REMOVED)
    with pytest.raises(UnsupportedError):
        find_blocks("ggml.q9_9")
