"""Which implementation and which instruction set runs, and that it makes no difference."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

DIGEST = """
import hashlib
import numpy as np
from holdall.binary import kernels

random, digest = np.random.default_rng(11), hashlib.sha256()
bits = np.concatenate([random.integers(0, 1 << 32, 100_003, np.uint32), np.arange(1 << 16, dtype=np.uint32) << 16])
for kind, width in {"bf16": 2, "f16": 2, "f8_e4m3": 1, "f8_e5m2": 1}.items():
    small, wide = np.empty(bits.size * width, np.uint8), np.empty(bits.size, np.float32)
    kernels.narrow(kind, bits, small)
    digest.update(small)
    kernels.widen(kind, random.integers(0, 256, small.size, np.uint8), wide)
    digest.update(wide)
for width in (1, 2, 3, 4, 6):
    for count in (5, 64, 10_007):
        stream, codes = np.empty((count * width + 7) // 8, np.uint8), np.empty(count, np.uint8)
        kernels.pack(random.integers(0, 256, count, np.uint8), width, stream)
        digest.update(stream)
        for skipped in (0, 1):
            kernels.unpack(stream, skipped * width, width, count - skipped, 1, codes[skipped:])
            digest.update(codes[skipped:])
for kind in ("f32", "f64", "i32", "u32", "i64", "u64"):
    counts = np.zeros(1 << 16, np.uint64)
    found = kernels.measure(kind, bits[: bits.size // 2 * 2], bytes(int(kind[1:]) // 8), 1.0, counts)
    digest.update(repr(found).encode() + counts.tobytes())
print(kernels.NATIVE, kernels.simd_level(), digest.hexdigest())
"""


def run(**environment):
    """Whether native, the level and the digest of everything computed, of a fresh interpreter."""
    path = os.pathsep.join(filter(None, sys.path))
    answer = subprocess.run(
        [sys.executable, "-c", DIGEST],
        env={**os.environ, "PYTHONPATH": path, **environment},
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=True,
    )
    native, level, digest = answer.stdout.split()
    return native == "True", int(level), digest


@pytest.fixture(scope="module")
def twin():
    return run(HOLDALL_NATIVE="0")


def test_the_twin_can_be_chosen(twin):
    assert twin[:2] == (False, 0)


@pytest.mark.parametrize("asked", [0, 1, 2])
def test_every_level_gives_the_bits_of_the_twin(twins, twin, asked):
    native, level, digest = run(HOLDALL_NATIVE="1", HOLDALL_SIMD=str(asked))
    assert native
    assert level <= asked
    assert digest == twin[2]


@pytest.mark.parametrize("asked", ["", "3", "-1", "12", "avx2"])
def test_a_level_that_does_not_exist_changes_nothing(twins, asked):
    assert run(HOLDALL_NATIVE="1", HOLDALL_SIMD=asked)[1] == run(HOLDALL_NATIVE="1", HOLDALL_SIMD="2")[1]
