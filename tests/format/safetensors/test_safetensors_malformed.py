"""Everything that can be wrong with a file, each refused by its own rule, at its own byte."""

import struct

import pytest

import holdall
from holdall.format.safetensors.rules import RULES
from tests.format.safetensors.files import build, entry

EIGHT = bytes(8)
ONE = b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'


def one(old: bytes, new: bytes) -> bytes:
    """The header of one tensor with something else in it."""
    assert old in ONE
    return ONE.replace(old, new)


# What is wrong: the file, the rule, the bytes at the place that the error names (or the place), a part of the message.
BAD = {
    "no bytes": (b"", "header.short", 0, "0 bytes cannot hold"),
    "seven bytes": (bytes(7), "header.short", 7, "7 bytes cannot hold"),
    "header past the end": (build(ONE, EIGHT, length=1000), "header.length", 0, "1000 bytes is announced"),
    "length of 2^64-1": (struct.pack("<Q", 2**64 - 1) + ONE, "header.length", 0, "18446744073709551615"),
    "length of 2^63": (struct.pack("<Q", 2**63) + ONE, "header.length", 0, "9223372036854775808"),
    "no header": (build(b""), "header.start", 8, "begins with b''"),
    "leading space": (build(b" " + ONE, EIGHT), "header.start", 8, "begins with b' '"),
    "byte order mark": (build(b"\xef\xbb\xbf{}"), "header.start", 8, "begins with"),
    "an array": (build(b"[]"), "header.start", 8, "begins with b'['"),
    "cut header": (build(ONE[:-1]), "header.json", 8 + len(ONE) - 1, "ends too early"),
    "zeros as padding": (build(ONE + b"\0\0", EIGHT), "header.json", b"\0\0", "something follows"),
    "two objects": (build(ONE + b"{}", EIGHT), "header.json", b"{}", "something follows"),
    "a comma too many": (build(b'{"__metadata__":{},}'), "header.json", b"}", "a key is expected"),
    "NaN": (build(one(b"[2]", b"[NaN]"), EIGHT), "header.json", b"NaN", "a value is expected"),
    "control character": (build(b'{"a\n":1}'), "header.json", b"\n", "a control character"),
    "half a surrogate pair": (build(b'{"\\ud800":1}'), "header.json", b"\\ud8", "half of a surrogate pair"),
    "deep nesting": (build(b'{"a":' * 200), "header.json", 8 + 5 * 128, "nested deeper than 128"),
    "not UTF-8": (build(b'{"\xff":1}'), "header.utf8", b"\xff", "not UTF-8"),
    "overlong UTF-8": (build(b'{"\xc0\xaf":1}'), "header.utf8", b"\xc0", "not UTF-8"),
    "metadata null": (build(b'{"__metadata__":null}'), "metadata.type", b"null", "__metadata__ is null"),
    "metadata list": (build(b'{"__metadata__":["a"]}'), "metadata.type", b'["a"]', "an array"),
    "metadata number": (build(b'{"__metadata__":{"a":7}}'), "metadata.value", b"7}", "'a' is an integer"),
    "metadata object": (build(b'{"__metadata__":{"a":{}}}'), "metadata.value", b"{}}}", "'a' is an object"),
    "metadata twice": (
        build(b'{"__metadata__":{"a":"1","\\u0061":"2"}}'), "metadata.duplicate", b'"\\u0061"', "'a' twice"),
    "two metadata": (
        build(b'{"__metadata__":{},"__metadata__" :{}}'), "name.duplicate", b'"__metadata__" ', "'__metadata__' twice"),
    "two tensors of a name": (
        build(ONE[:-1] + b',"a" :{"dtype":"F32","shape":[],"data_offsets":[8,12]}}', bytes(12)),
        "name.duplicate", b'"a" ', "'a' twice"),
    "the same name in escapes": (
        build(ONE[:-1] + b',"\\u0061":{"dtype":"F32","shape":[],"data_offsets":[8,12]}}', bytes(12)),
        "name.duplicate", b'"\\u0061"', "'a' twice"),
    "tensor null": (build(b'{"a":null}'), "entry.type", b"null", "described by null"),
    "tensor as an array": (build(b'{"a":["F32",[2],[0,8]]}', EIGHT), "entry.type", b'["F32"', "described by an array"),
    "unknown field": (build({"a": entry(strides=[1])}, EIGHT), "entry.field", b'"strides"', "'strides'"),
    "dtype twice": (
        build(one(b'"shape"', b'"dtype" :"F32","shape"'), EIGHT), "entry.duplicate", b'"dtype" ', "dtype twice"),
    "no dtype": (build(one(b'"dtype":"F32",', b""), EIGHT), "entry.missing", b'{"shape"', "no dtype"),
    "no shape": (build(one(b'"shape":[2],', b""), EIGHT), "entry.missing", b'{"dtype"', "no shape"),
    "no offsets": (build(one(b',"data_offsets":[0,8]', b"")), "entry.missing", b'{"dtype"', "no data_offsets"),
    "nothing": (build(b'{"a":{}}'), "entry.missing", b"{}}", "no dtype and no shape and no data_offsets"),
    "dtype number": (build(one(b'"F32"', b"32"), EIGHT), "dtype.type", b"32,", "dtype is an integer"),
    "unknown dtype": (build(one(b'"F32"', b'"F33"'), EIGHT), "dtype.unknown", b'"F33"', "dtype 'F33' is unknown"),
    "dtype in lower case": (build(one(b'"F32"', b'"f32"'), EIGHT), "dtype.unknown", b'"f32"', "'f32' is unknown"),
    "shape null": (build(one(b"[2]", b"null"), EIGHT), "shape.type", b"null", "shape is null"),
    "shape number": (build(one(b"[2]", b"2"), EIGHT), "shape.type", b"2,", "shape is an integer"),
    "dim of 2.0": (build(one(b"[2]", b"[2.0]"), EIGHT), "shape.dim", b"2.0", "a dim is a fraction"),
    "dim of 2e0": (build(one(b"[2]", b"[2e0]"), EIGHT), "shape.dim", b"2e0", "a dim is a fraction"),
    "dim of true": (build(one(b"[2]", b"[2,true]"), EIGHT), "shape.dim", b"true", "a dim is true"),
    "dim as text": (build(one(b"[2]", b'["2"]'), EIGHT), "shape.dim", b'"2"', "a dim is text"),
    "negative dim": (build(one(b"[2]", b"[-2]"), EIGHT), "shape.dim", b"-2", "is -2, which is negative"),
    "dim of minus zero": (build(one(b"[2]", b"[-0]"), EIGHT), "shape.dim", b"-0", "is -0, which is negative"),
    "dim of 2^64": (
        build(one(b"[2]", b"[18446744073709551616]"), EIGHT), "shape.dim", b"18446744073709551616", "64 bits"),
    "one offset": (build(one(b"[0,8]", b"[0]"), EIGHT), "offsets.type", b"[0]", "an array of 1"),
    "three offsets": (build(one(b"[0,8]", b"[0,8,8]"), EIGHT), "offsets.type", b"[0,8,8]", "an array of 3"),
    "offsets null": (build(one(b"[0,8]", b"null"), EIGHT), "offsets.type", b"null", "data_offsets are null"),
    "negative offset": (build(one(b"[0,8]", b"[-8,0]"), EIGHT), "offsets.type", b"-8", "is -8, which is negative"),
    "fraction as offset": (build(one(b"[0,8]", b"[0,8.0]"), EIGHT), "offsets.type", b"8.0", "is a fraction"),
    "descending offsets": (build(one(b"[0,8]", b"[8,0]"), EIGHT), "offsets.order", b"[8,0]", "at 8 and ends at 0"),
    "past the data": (build(ONE, bytes(7)), "offsets.range", b"[0,8]", "ends at 8 of the data, which has 7 bytes"),
    "far past the data": (
        build(one(b"[0,8]", b"[0,18446744073709551615]"), EIGHT), "offsets.range", b"[0,18", "18446744073709551615"),
    "too few bytes": (build({"a": entry(offsets=[0, 4])}, bytes(4)), "size.bytes", b"[0,4]", "needs 8 bytes but"),
    "too many bytes": (build({"a": entry(offsets=[0, 12])}, bytes(12)), "size.bytes", b"[0,12]", "span 12"),
    "bytes for nothing": (build({"a": entry(shape=[0])}, EIGHT), "size.bytes", b"[0,8]", "needs 0 bytes"),
    "a product that wraps to 8": (
        build({"a": entry(shape=[2**62 + 1, 2], offsets=[0, 8])}, EIGHT), "size.bytes", b"[0,8]",
        "needs about 2^65 bytes"),
    "a product that wraps to 0": (
        build({"a": entry(shape=[2**32, 2**32], offsets=[0, 0])}), "size.bytes", b"[0,0]", "about 2^66"),
    "a product too long to print": (
        build({"a": entry(shape=[2**64 - 1] * 2000, offsets=[0, 0])}), "size.bytes", b"[0,0]", "about 2^128001"),
    "half a byte": (build({"a": entry("F4", [3], [0, 2])}, bytes(2)), "size.bits", b"[3]", "takes 12 bits"),
    "part of a byte": (build({"a": entry("F6_E2M3", [2], [0, 2])}, bytes(2)), "size.bits", b"[2]", "takes 12 bits"),
    "hole at the start": (
        build({"a": entry(offsets=[4, 12])}, bytes(12)), "data.hole", b"[4,12]", "4 bytes after the one before it"),
    "hole in the middle": (
        build({"a": entry(), "b": entry(offsets=[9, 17])}, bytes(17)), "data.hole", b"[9,17]", "1 bytes after"),
    "overlap": (build({"a": entry(), "b": entry(offsets=[4, 12])}, bytes(12)), "data.overlap", b"[4,12]", "inside"),
    "the same bytes twice": (
        build(b'{"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},' + ONE[1:].replace(b"[0,8]", b"[0, 8]"), EIGHT),
        "data.overlap", b"[0, 8]", "'a' begins at 0"),
    "empty inside another": (
        build({"a": entry(), "b": entry(shape=[0], offsets=[4, 4])}, EIGHT), "data.overlap", b"[4,4]", "'b' begins"),
    "trailing byte": (build(ONE, bytes(9)), "data.trailing", 8 + len(ONE) + 8, "1 bytes follow the last tensor"),
    "data without tensors": (build(b"{}", EIGHT), "data.trailing", 10, "8 bytes follow"),
}  # fmt: skip

UNSEEN = {"header.padding", "header.cap", "header.align", "name.empty", "shape.product", "data.align"}  # level strict


@pytest.mark.parametrize("native", [True, False], ids=["native", "twin"])
@pytest.mark.parametrize("name", BAD)
def test_refused(name, native, monkeypatch):
    from holdall.binary import kernels
    from holdall.binary.kernels import json_reference

    if not native:
        for function in json_reference.__all__:
            monkeypatch.setattr(kernels, function, getattr(json_reference, function))
    data, rule, place, message = BAD[name]
    with pytest.raises(holdall.FormatError) as caught:
        holdall.open(data, format="safetensors")
    error = caught.value
    assert error.rule == f"safetensors.{rule}"
    assert message in error.message
    assert error.message.startswith("safetensors: ")
    if isinstance(place, int):
        assert error.offset == place
    else:
        assert error.offset is not None
        assert data[error.offset :].startswith(place)
    report = holdall.verify(data, format="safetensors", level="structure")
    assert not report.ok
    assert f"safetensors.{rule}" in {finding.rule for finding in report.findings}


def test_every_rule_of_the_structure_has_its_file():
    shown = {rule for _, rule, _, _ in BAD.values()}
    assert {rule.id.removeprefix("safetensors.") for rule in RULES} == shown | UNSEEN
    assert len(BAD) >= 40


def test_verify_finds_all_of_it():
    header = b'{"a":{"dtype":"F99","shape":[2],"data_offsets":[0,8]},"b":7,"c":{"dtype":"F32","shape":[-1],'
    header += (
        b'"data_offsets":[0,8]},"d":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"__metadata__":{"x":1,"y":""}}'
    )
    report = holdall.verify(build(header, EIGHT))
    assert [finding.rule.removeprefix("safetensors.") for finding in report.findings] == [
        "metadata.value", "dtype.unknown", "entry.type", "shape.dim",
    ]  # fmt: skip
    assert all(finding.offset for finding in report.findings)


@pytest.mark.parametrize(
    ("data", "rule", "ok"),
    [
        (build(ONE + b" \n", EIGHT), "header.padding", False),
        (build(ONE + b"\t  ", EIGHT), "header.padding", False),
        (build(ONE + b" ", EIGHT), "header.align", True),
        (build({"": entry()}, EIGHT), "name.empty", True),
        (build({"a": entry(shape=[2**63, 2, 0], offsets=[0, 0])}), "shape.product", False),
        (build({"b": entry("U8", [1], [0, 1]), "a": entry(offsets=[1, 9])}, bytes(9)), "data.align", True),
    ],
)
def test_what_only_strictness_minds(data, rule, ok):
    with holdall.open(data, format="safetensors") as model:
        assert len(model) >= 1
    report = holdall.verify(data, level="strict", format="safetensors")
    assert f"safetensors.{rule}" in {finding.rule for finding in report.findings}
    assert report.ok is ok
    assert holdall.verify(data, level="full", format="safetensors").findings == []


@pytest.mark.parametrize(
    ("limits", "what"),
    [
        (holdall.Limits(index_bytes=20), "bytes of header"),
        (holdall.Limits(tensors=0), "members of the header"),
        (holdall.Limits(name_bytes=0), "the name of tensor"),
        (holdall.Limits(rank=0), "the rank"),
    ],
)
def test_limits(limits, what):
    with pytest.raises(holdall.LimitError, match=what):
        holdall.open(build(ONE, EIGHT), limits=limits)
