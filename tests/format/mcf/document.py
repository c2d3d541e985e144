"""Files and a reader of the format's document alone, and what its tests ask of files."""

from __future__ import annotations

import struct

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner

import holdall
from holdall.cli import main
from tests.format.mcf.spec import Entry, File

W = np.arange(6, dtype="<f4").reshape(2, 3) / 7
RAW = {1: "<f4", 2: "<f2", 3: ml_dtypes.bfloat16, 4: "<f8", 5: "i1", 6: "u1", 7: "<i2", 8: "<u2", 9: "<i4", 10: "<u4",
       11: "<i8", 12: "<u8"}  # fmt: skip
NAMES = ["f32", "f16", "bf16", "f64", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"]
BLOCKS = ["q8", "q4", "k6", "k4", "k3", "k2"]
SHAPES = [(1, 1), (1, 32), (3, 33), (2, 255), (5, 256), (2, 257), (4, 600)]


def raw_file(**options):
    return File(tensors=[Entry("w", 1, [2, 3], W.tobytes())], **options)


def refused(data, *rules):
    with pytest.raises(holdall.FormatError) as caught:
        holdall.open(data, format="mcf")
    assert caught.value.rule in rules, caught.value
    assert not holdall.verify(data, format="mcf", level="structure").ok


def strict(data):
    holdall.open(data).close()
    return {finding.rule for finding in holdall.verify(data, level="strict").findings}


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def written(path, content, **options):
    holdall.save(path, content, format="mcf", fsync=False, **options)
    return path.read_bytes()


def parse(data):
    """Header, sections and tensors of a file as a reader finds them that follows the document and nothing else."""
    magic, major, minor, size, count, at, file_size, flags = struct.unpack_from("<4sHHIIQQQ", data)
    assert (magic, major, size, file_size) == (b"MCF\0", 1, 40, len(data))
    sections = {}
    for row in range(count):
        type, version, offset, length = struct.unpack_from("<IIQQ", data, at + 24 * row)
        assert version == 1
        sections[type] = (offset, length)
    tensors = {}
    if 3 in sections:
        base = sections[3][0]
        _, _, count, _, entries, dims, strings, _ = struct.unpack_from("<IIIIQQQQ", data, base)
        for row in range(count):
            name, length, dtype, rank, dim, _, place, nbytes = struct.unpack_from(
                "<IIIIIIQQ", data, base + entries + 40 * row
            )
            start = base + strings + name
            shape = struct.unpack_from(f"<{rank}Q", data, base + dims + 8 * dim)
            tensors[data[start : start + length].decode()] = (dtype, shape, place, data[place : place + nbytes])
    return minor, flags, sections, tensors


def samples(shape, seed=0):
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    values[:, ::7] *= 100
    values[-1, -1] = 0
    return values
