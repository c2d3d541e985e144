"""ModelInfo: as metadata, back into bytes, and what is wrong with damaged ones."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

import holdall
from holdall.format.mcf.layout import KV, MODELINFO
from holdall.format.mcf.modelinfo import ModelInfo, metadata_breach
from holdall.model.metadata import Metadata
from tests.format.mcf.build import mcf


def read_info(info: bytes) -> ModelInfo | None:
    return holdall.open(mcf([(1, info)])).native.model_info


def test_metadata_is_the_fields_that_are_set_and_the_extras() -> None:
    info = ModelInfo(arch=1, vocab_size=5, rope_freq_base=0.5, model_name="m", extras=Metadata({"k": 7, "t": ""}))
    model = holdall.open(mcf([(1, info.encode())]))
    fixed = {"mcf.arch": "llama", "mcf.vocab_size": 5, "mcf.rope_freq_base": 0.5, "mcf.model_name": "m"}
    assert dict(model.metadata) == {**fixed, "k": 7, "t": ""}
    assert model.metadata.kind("k") == "u32"
    assert ModelInfo.of(model.metadata).encode() == info.encode()


@pytest.mark.parametrize(
    "value", [0, 0xFFFFFFFF, 0.5, -0.0, "", "text", "é\0", b"", b"\xff\xfe", float(np.float32(0.1))]
)
def test_values_come_back_as_they_were(value: object) -> None:
    info = read_info(ModelInfo(extras=Metadata({"key": value})).encode())
    assert info is not None
    back = info.extras["key"]
    assert (type(back), back, str(back)) == (type(value), value, str(value))


@pytest.mark.parametrize(
    ("key", "value"),
    [("", 1), ("k", -1), ("k", 1 << 32), ("k", 0.1), ("k", float("nan")), ("k", 1e300), ("k", True), ("k", None),
     ("k", b"text"), ("k", "\ud800"), ("\ud800", 1), ("k", [1]), ("mcf.vocab_size", "5"), ("mcf.vocab_size", 0.5),
     ("mcf.model_name", 5), ("mcf.arch", "gpt"), ("mcf.rope_scale", 1)],
)  # fmt: skip
def test_what_would_change_is_refused(key: str, value: object) -> None:
    assert metadata_breach(key, value)
    with pytest.raises(holdall.ContentError):
        ModelInfo.of({key: value})


def test_numbers_without_a_name_stay_numbers() -> None:
    info = ModelInfo(arch=77, rope_type=9)
    assert (info.arch_name, info.rope_type_name) == ("77", "9")
    assert dict(info.metadata()) == {"mcf.arch": 77, "mcf.rope_type": 9}
    assert ModelInfo.of(info.metadata()) == info


@pytest.mark.parametrize("data", [b"", b"{}", b"\x02\0\0\0", bytes(87)])
def test_other_things_are_left_alone(data: bytes) -> None:
    assert read_info(data) is None
    assert holdall.verify(mcf([(1, data)]), level="strict").ok


def damage_info(**fields: int) -> bytes:
    """A ModelInfo with one entry, some of whose numbers are changed."""
    data = bytearray(ModelInfo(model_name="name", extras=Metadata({"key": "value"})).encode())
    table = MODELINFO.read(data, 0).kv_off
    for field, value in fields.items():
        layout, start = (MODELINFO, 0) if field in MODELINFO.fields else (KV, table)
        width = layout.fields[field].fixed_size
        at = start + layout.offset_of(field)
        data[at : at + width] = value.to_bytes(width, "little")
    return bytes(data)


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"version": 2}, "version"),
        ({"flags": 1}, "version"),
        ({"model_name_off": 1 << 63}, "text"),
        ({"base_model_off": (1 << 64) - 1}, "text"),
        ({"kv_count": 1 << 31}, "table"),
        ({"kv_off": 0}, "table"),
        ({"kv_off": 1 << 63}, "table"),
        ({"key_off": 0}, "key"),
        ({"type": 4}, "type"),
        ({"value_off": 1 << 40}, "text"),
        ({"type": 1, "value_off": 1 << 40}, "text"),
    ],
)
def test_damage_is_found_when_it_is_read(fields: dict[str, int], rule: str) -> None:
    data = mcf([(1, damage_info(**fields))])
    model = holdall.open(data)  # opening does not depend on it
    assert dict(model.metadata) == {}
    with pytest.raises(holdall.FormatError) as error:
        _ = model.native.model_info
    assert error.value.rule == f"mcf.modelinfo.{rule}"
    assert f"mcf.modelinfo.{rule}" in {finding.rule for finding in holdall.verify(data).findings}
    assert holdall.verify(data, level="structure").ok


def test_damaged_ones_are_kept_unchanged(tmp_path: Path) -> None:
    data = mcf([(1, damage_info(version=2))])
    holdall.save(tmp_path / "copy.mcf", holdall.open(data), fsync=False)
    assert holdall.open(tmp_path / "copy.mcf").native.section("ModelInfo").data == damage_info(version=2)


def test_padding_is_a_strict_matter() -> None:
    for field in ("pad", "kv_pad"):
        data = mcf([(1, damage_info(**{field: 1}))])
        assert holdall.verify(data).ok
        assert [f.rule for f in holdall.verify(data, level="strict").findings] == ["mcf.modelinfo.zero"]


def test_overlapping_texts_do_not_unfold() -> None:
    """A hundred entries whose values are the same large text."""
    text = b"x" * 10_000
    blob = struct.pack("<I", len(text)) + text
    key = struct.pack("<I", 1) + b"k" + bytes(3)
    head = dict.fromkeys(MODELINFO.fields, 0) | {"version": 1, "kv_count": 100, "kv_off": 96 + len(blob)}
    row = KV.pack(key_off=88, type=3, pad=0, value_off=96)
    data = MODELINFO.pack(**head) + key + blob + row * 100
    with pytest.raises(holdall.FormatError, match="its texts take more"):
        read_info(data)


def test_text_that_is_not_utf8_is_bytes() -> None:
    data = damage_info().replace(b"name", b"nam\xff").replace(b"value", b"valu\xff")
    info = read_info(data)
    assert info is not None
    assert (info.model_name, info.extras["key"]) == (b"nam\xff", b"valu\xff")
    assert info.encode() == data
