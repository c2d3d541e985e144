"""Every type of tensors and of metadata that the format's document has, on files that struct alone makes."""

from __future__ import annotations

import struct

import numpy as np
import pytest

import holdall
from holdall import oinf
from tests.format.oinf.build import Entry, File, Value, bitset, ndarray, string
from tests.format.oinf.document import (
    F32,
    TYPES,
    U8,
    first,
    refused,
    strict,
    written,
)


@pytest.mark.shows("O19", "O38")
@pytest.mark.parametrize("tag", TYPES)
def test_every_type_of_tensor(tag, tmp_path):
    name, values, payload = TYPES[tag]
    data = File(tensors=[Entry("w", tag, [len(values)], payload)]).data()
    with holdall.open(data) as model:
        assert str(model["w"].dtype) == name
        found = model["w"].numpy()
        want = np.array(values, found.dtype)
        assert found.tolist() == want.tolist()
    assert written(tmp_path / "a.oinf", oinf.model({"w": oinf.TensorSpec(values, name)})) == data


@pytest.mark.shows("O38")
@pytest.mark.parametrize(("tag", "size"), [(20, 2), (23, 2), (25, 2), (19, 3), (22, 3), (24, 3), (18, 5), (21, 5)])
def test_nine_packed_elements(tag, size, tmp_path):
    name, values, payload = TYPES[tag]
    assert (len(values), len(payload)) == (9, size)
    with holdall.open(written(tmp_path / "a.oinf", oinf.model({"w": oinf.TensorSpec(values, name)}))) as model:
        assert (model["w"].nbytes, bytes(model["w"].raw())) == (size, payload)


@pytest.mark.shows("O39")
@pytest.mark.parametrize("tag", range(18, 26))
def test_another_count_of_packed_bytes_is_refused(tag):
    _, values, payload = TYPES[tag]
    for wrong in (payload[:-1], payload + b"\0"):
        refused(File(tensors=[Entry("w", tag, [len(values)], wrong)]).data(), "oinf.tensor.size")


@pytest.mark.shows("O40")
@pytest.mark.parametrize("tag", [*range(1, 13), 16, 17])
def test_another_count_of_bytes_is_refused(tag):
    _, values, payload = TYPES[tag]
    for wrong in (payload[:-1], payload + b"\0", b"", payload * 2):
        refused(File(tensors=[Entry("w", tag, [len(values)], wrong)]).data(), "oinf.tensor.size")


@pytest.mark.shows("O20")
@pytest.mark.parametrize("tag", [0, 14, 15, 26, 99, 2**32 - 1])
def test_tags_that_no_tensor_has_are_refused(tag):
    refused(File(tensors=[Entry("w", tag, [8], bytes(8))]).data(), "oinf.tensor.dtype")


@pytest.mark.shows("O21", "O22")
@pytest.mark.parametrize("tag", TYPES)
def test_scalars_of_every_type(tag, tmp_path):
    name, values, _ = TYPES[tag]
    data = File(metadata=[Value("k", tag, first(tag))]).data()
    with holdall.open(data) as model:
        want = float(np.float32(values[0])) if name == "f32" else values[0]
        assert (model.metadata["k"], model.metadata.kind("k")) == (want, name)
    assert written(tmp_path / "a.oinf", oinf.model(metadata={"k": oinf.ScalarValue(values[0], name)})) == data


OTHERS = [
    ("text.-_9", 14, string("text.-_9")),
    (oinf.Bitset([1, 1, 0]), 13, bitset("110")),
    (oinf.Bitset([]), 13, bitset("")),
    (oinf.Bitset([1] * 17), 13, bitset("1" * 17)),
    (np.arange(6, dtype=np.int32).reshape(2, 3), 15, ndarray(3, [2, 3], struct.pack("<6i", *range(6)))),
    (np.array(2.5, np.float32), 15, ndarray(F32, [], struct.pack("<f", 2.5))),
    (np.zeros((0, 4), np.uint8), 15, ndarray(U8, [0, 4], b"")),
]  # fmt: skip


@pytest.mark.shows("O21", "O22")
@pytest.mark.parametrize(("value", "tag", "payload"), OTHERS, ids=lambda item: str(item)[:12])
def test_other_metadata(value, tag, payload, tmp_path):
    data = File(metadata=[Value("k", tag, payload)]).data()
    with holdall.open(data) as model:
        found = model.metadata["k"]
        assert np.array_equal(found, value) if tag == 15 else found == value
    given = (
        oinf.ScalarValue(value, str(value.dtype).replace("float", "f"))
        if np.shape(value) == () and tag == 15
        else value
    )
    assert written(tmp_path / "a.oinf", oinf.model(metadata={"k": value if tag != 15 else given})) == data


@pytest.mark.shows("O22")
def test_text_is_not_taken_for_bits():
    with pytest.raises(holdall.ContentError, match="'110' is text"):
        oinf.Bitset("110")


@pytest.mark.shows("O21")
@pytest.mark.parametrize("tag", [0, 26, 99])
def test_unknown_types_of_metadata_are_refused(tag):
    refused(File(metadata=[Value("k", tag, bytes(8))]).data(), "oinf.metadata.type")


@pytest.mark.shows("O23")
@pytest.mark.parametrize("flags", [1, 2**31])
def test_flags_of_metadata_are_zero(flags):
    refused(File(metadata=[Value("k", U8, b"\1", flags=flags)]).data(), "oinf.metadata.flags")


@pytest.mark.shows("O24")
@pytest.mark.parametrize("tag", [*TYPES, 13, 14, 15])
@pytest.mark.parametrize("change", [-1, 1, 8])
def test_another_size_of_a_metadata_value_is_refused(tag, change):
    others = {13: bitset("101"), 14: string("mode"), 15: ndarray(U8, [3], b"abc")}
    payload = others[tag] if tag in others else first(tag)
    values = [Value("k", tag, payload, nbytes=len(payload) + change), Value("last", U8, bytes(1))]
    with pytest.raises(holdall.FormatError) as caught:
        holdall.open(File(metadata=values, tensors=[Entry("w", U8, [64], bytes(64))]).data())
    assert caught.value.rule in ("oinf.metadata.size", "oinf.metadata.bitset")


@pytest.mark.shows("O25")
def test_a_bool_is_one_byte_of_0_or_1(tmp_path):
    assert written(tmp_path / "a.oinf", oinf.model(metadata={"k": True}))[-8:] == b"\1" + bytes(7)
    assert written(tmp_path / "a.oinf", oinf.model(metadata={"k": False}))[-8:] == bytes(8)
    assert strict(File(metadata=[Value("k", 12, b"\2")]).data()) == {"oinf.metadata.bool"}
