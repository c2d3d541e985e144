"""A file that has everything of the format's document, and what its tests ask of files."""

from __future__ import annotations

import struct

import ml_dtypes
import numpy as np
import pytest

import holdall
from holdall import oinf
from tests.format.oinf.build import Entry, File, Value, bitset, ndarray, string

F32, U8 = 10, 5
OFFSETS = ["offset_sizevars", "offset_metadata", "offset_tensors", "offset_data"]
# Every kind of metadata, two tensors, packed ones, a declared one. 7 elements and 13 bytes leave padding.
W = np.arange(7, dtype="<f4").reshape(1, 7) / 3
EVERYTHING = File(
    sizevars=[("B", 4), ("layer.D", 2**64 - 1)],
    metadata=[
        Value("array", 15, ndarray(2, [3], struct.pack("<3h", -1, 0, 300))),
        Value("bits", 13, bitset("1010000001")),
        Value("eps", 11, struct.pack("<d", 1e-5)),
        Value("mode", 14, string("clamp_up")),
        Value("on", 12, b"\1"),
    ],
    tensors=[
        Entry("codes", 18, [3], bytes([0x81, 0x07])),
        Entry("state", F32, [4, 16]),
        Entry("w", F32, [1, 7], W.tobytes()),
    ],
)


def everything(order=1):
    """The same content as a user describes it; -1 gives every dict in the other order."""
    tensors = {"w": W, "codes": oinf.TensorSpec([1, -8, 7], "i4"), "state": oinf.Uninitialized("f32", ("B", 16))}
    metadata = {
        "mode": "clamp_up", "on": True, "eps": oinf.ScalarValue(1e-5, "f64"),
        "bits": oinf.Bitset([1, 0, 1, 0, 0, 0, 0, 0, 0, 1]), "array": np.array([-1, 0, 300], np.int16),
    }  # fmt: skip
    sizevars = {"layer.D": 2**64 - 1, "B": 4}
    return oinf.model(
        dict(list(tensors.items())[::order]),
        sizevars=dict(list(sizevars.items())[::order]),
        metadata=dict(list(metadata.items())[::order]),
    )


def refused(data, rule):
    """The file does not open, for this reason, at any level; and nothing is said about bytes outside of it."""
    with pytest.raises(holdall.FormatError) as caught:
        holdall.open(data, format="oinf")
    assert caught.value.rule == rule, caught.value
    report = holdall.verify(data, format="oinf", level="structure")
    assert not report.ok
    assert rule in {finding.rule for finding in report.findings}
    return caught.value


def strict(data):
    """The file opens; the rules that it breaks at level strict."""
    holdall.open(data).close()
    assert holdall.verify(data).ok
    return {finding.rule for finding in holdall.verify(data, level="strict").findings}


def written(path, model, **options):
    holdall.save(path, model, format="oinf", fsync=False, **options)
    return path.read_bytes()


def pack(codes, bits):
    """Codes of some bits each, the first in the lowest bits."""
    number = sum(code % (1 << bits) << index * bits for index, code in enumerate(codes))
    return number.to_bytes(-(-len(codes) * bits // 8), "little")


def elements(kind, values):
    return np.array(values, kind).tobytes()


TYPES = {  # tag: (dtype, values, their bytes)
    1: ("i8", [-128, 0, 127], elements("i1", [-128, 0, 127])),
    2: ("i16", [-32768, 5, 32767], elements("<i2", [-32768, 5, 32767])),
    3: ("i32", [-(2**31), 5, 2**31 - 1], elements("<i4", [-(2**31), 5, 2**31 - 1])),
    4: ("i64", [-(2**63), 5, 2**63 - 1], elements("<i8", [-(2**63), 5, 2**63 - 1])),
    5: ("u8", [0, 255], elements("u1", [0, 255])),
    6: ("u16", [1, 65535], elements("<u2", [1, 65535])),
    7: ("u32", [1, 2**32 - 1], elements("<u4", [1, 2**32 - 1])),
    8: ("u64", [1, 2**64 - 1], elements("<u8", [1, 2**64 - 1])),
    9: ("f16", [0.5, -65504.0], elements("<f2", [0.5, -65504.0])),
    10: ("f32", [0.1, -3.5], elements("<f4", [0.1, -3.5])),
    11: ("f64", [0.1, 1e300], elements("<f8", [0.1, 1e300])),
    12: ("bool", [True, False, True], b"\1\0\1"),
    16: ("bf16", [1.0, -2.5], bytes.fromhex("803f20c0")),
    17: ("f8_e5m2", [1.0, -2.5, 57344.0], elements(ml_dtypes.float8_e5m2, [1.0, -2.5, 57344.0])),
    18: ("i4", [1, -8, 7, -1, 0, 3, -4, 2, -5], pack([1, -8, 7, -1, 0, 3, -4, 2, -5], 4)),
    19: ("i2", [1, -2, 0, -1, 1, 1, -1, 0, -2], pack([1, -2, 0, -1, 1, 1, -1, 0, -2], 2)),
    20: ("i1", [0, -1, -1, 0, 0, 0, -1, 0, -1], pack([0, -1, -1, 0, 0, 0, -1, 0, -1], 1)),
    21: ("u4", [1, 15, 0, 7, 8, 3, 9, 2, 5], pack([1, 15, 0, 7, 8, 3, 9, 2, 5], 4)),
    22: ("u2", [1, 3, 0, 2, 2, 1, 3, 0, 3], pack([1, 3, 0, 2, 2, 1, 3, 0, 3], 2)),
    23: ("u1", [1, 0, 0, 1, 1, 1, 0, 0, 1], pack([1, 0, 0, 1, 1, 1, 0, 0, 1], 1)),
    24: ("t2", [1, 0, -1, -1, 0, 1, 1, 0, -1], pack([1, 0, -1, -1, 0, 1, 1, 0, -1], 2)),
    25: ("t1", [1, -1, -1, 1, 1, 1, -1, -1, 1], pack([int(v > 0) for v in [1, -1, -1, 1, 1, 1, -1, -1, 1]], 1)),
}  # fmt: skip


def first(tag):
    """The first value of a type alone: its bytes, or one byte with its bits."""
    name, values, payload = TYPES[tag]
    return payload[: len(payload) // len(values)] if tag < 18 else bytes([payload[0] % (1 << int(name[1]))])
