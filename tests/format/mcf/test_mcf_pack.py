"""The packer's rules that the golden folders do not reach: JSON as Go writes it, ModelInfo, casts, equal tensors."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdall
from holdall.format.mcf import gojson
from holdall.format.mcf.file_plan import find_equal_plain
from holdall.format.mcf.hf_packer import cast, encode_tokenizer_config, info_of
from holdall.model.dtypes import DTYPES
from holdall.model.model import Model
from holdall.model.payload import InMemory
from holdall.model.table import ListTable
from holdall.model.tensor import Tensor
from holdall.operations.convert.convert import convert
from holdall.source import FolderSource


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("[0, -0, -0.0, 2.0, 1e2, 0.5]", "[0,-0,-0,2,100,0.5]"),
        ("[1e20, 1e21, 123456789012345678901234]", "[100000000000000000000,1e+21,1.2345678901234569e+23]"),
        ("[1e-6, 1e-7, 1.5e-300, 0.000001234]", "[0.000001,1e-7,1.5e-300,0.000001234]"),
        ("[9007199254740993, 1e22]", "[9007199254740992,1e+22]"),
        ('["<&>", "\\u2028\\u2029", "\\"\\\\/", "\\u0000\\u001f\\u007f"]',
         '["\\u003c\\u0026\\u003e","\\u2028\\u2029","\\"\\\\/","\\u0000\\u001f\x7f"]'),
        ('["\\b\\f\\n\\r\\t"]', '["\\b\\f\\n\\r\\t"]'),
        ('["\\ud800", "\\ud83d\\ude00", "\\udc00x"]', '["\ufffd","\U0001f600","\ufffdx"]'),
        ('{"b": 1, "a": {"z": null, "Z": true}, "é": false, "a": 2}', '{"a":2,"b":1,"é":false}'),
        ("[]", "[]"),
        ("[{}, []]", "[{},[]]"),
    ],
)  # fmt: skip
def test_json_as_go_writes_it(text: str, written: str) -> None:
    assert gojson.dump(gojson.parse(text.encode())).decode() == written


def test_bytes_that_are_not_utf8() -> None:
    assert gojson.parse(b'["\xe2\x82x\xff"]') == ["\ufffd\ufffdx\ufffd"]  # one for each byte
    assert gojson.dump(gojson.text_of(b"a\xffb")) == b'"a\\ufffdb"'


@pytest.mark.parametrize(
    "data", [b"", b"nan", b"[NaN]", b"[1e999]", b"[1] 2", b"\xef\xbb\xbf{}", b'["\n"]', b"[01]", b"[" * 100_000]
)
def test_what_is_not_json(data: bytes) -> None:
    with pytest.raises(ValueError):
        gojson.parse(data)


@pytest.mark.parametrize(
    ("config", "template", "written"),
    [
        (b'{"a": 1}', b"\n t \n", b'{"a":1,"chat_template":"t"}'),
        (b'{"chat_template": " \\u3000 "}', b"t", b'{"chat_template":"t"}'),
        (b'{"chat_template": 5}', b"t", b'{"chat_template":"t"}'),
        (b'{"chat_template": "own"}', b"t", b'{"chat_template":"own"}'),
        (b'{"chat_template": 5}', b" \n", b'{"chat_template":5}'),
        (b'{"a": 1}', None, b'{"a":1}'),
        (b" { } ", b"t", b'{"chat_template":"t"}'),
        (b" { } ", b" ", b" { } "),
        (b" { } ", None, b" { } "),
        (None, b" t\n", b'{"chat_template":"t"}'),
        (None, b"<|im_start|>", b'{"chat_template":"\\u003c|im_start|\\u003e"}'),
        (None, b" \n", b""),  # no section
        (None, None, b""),
        (b"", None, b""),
        (b"", b"t", b'{"chat_template":"t"}'),
        (b" null\n", None, b" null\n"),
        (b"null", b" \n", b"null"),
    ],
)
def test_tokenizer_config(config: bytes | None, template: bytes | None, written: bytes) -> None:
    assert encode_tokenizer_config(config, template) == written


@pytest.mark.parametrize("config", [b" ", b"[]", b"{", b'"x"', b"{} x"])
def test_a_broken_tokenizer_config_stops_the_pack(config: bytes) -> None:
    with pytest.raises(holdall.ContentError, match=r"tokenizer_config\.json"):
        encode_tokenizer_config(config, None)


def test_a_template_beside_null_is_refused() -> None:
    with pytest.raises(holdall.ContentError) as error:
        encode_tokenizer_config(b"null", b"t")
    assert str(error.value).endswith("it is null, which has no place for the text of chat_template.jinja")


def info(config: str | None) -> dict[str, Any]:
    assets = {} if config is None else {"config.json": config.encode()}
    return dict(info_of(Model([], assets=assets), "name").metadata())


def test_model_info_from_config() -> None:
    assert info(None) == info("[]") == info("{") == {"mcf.model_name": "name"}
    base = {"mcf.model_name": "name", "hf.config_json_present": 1}
    assert info("{}") == base
    assert info("null") == base
    assert info('{"model_type": ""}') == {**base, "hf.model_type": ""}
    assert info('{"model_type": 5, "vocab_size": true, "rope_theta": "x", "rope_scaling": {}}') == base
    assert info('{"model_type": "MyLLaMA-Qwen"}') == {**base, "mcf.arch": "llama", "hf.model_type": "MyLLaMA-Qwen"}
    assert info('{"model_type": "granite"}') == {**base, "hf.model_type": "granite"}
    assert info('{"vocab_size": 4294967295, "hidden_size": 4294967296, "num_hidden_layers": -0.5}') == {
        **base, "mcf.vocab_size": 4294967295,
    }  # fmt: skip
    assert info('{"rope_theta": 10000, "rope_scaling": {"a": 1}}') == {
        **base, "mcf.rope_freq_base": 10000.0, "hf.rope_scaling": "present",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("theta", "stored"),
    [
        ("3.4028234663852886e38", 3.4028234663852886e38),
        ("-1e6", -1e6),
        ("3.4028234663852889e38", 0.0),  # beyond f32, though it would round to its largest number
        ("1e39", 0.0),
        ("-1e39", 0.0),
    ],
)
def test_a_rope_theta_beyond_f32_is_left_out(theta: str, stored: float) -> None:
    made = info_of(Model([], assets={"config.json": f'{{"rope_theta": {theta}}}'.encode()}), "name")
    assert made.rope_freq_base == stored and len(made.encode()) > 88


def test_an_empty_model_type_has_no_text() -> None:
    """The value of an empty text has offset 0: the bytes that the reference's encoder gives, put together by hand."""
    data = info_of(Model([], assets={"config.json": b'{"model_type": ""}'}), "n").encode()
    keys = [b"hf.config_json_present", b"hf.model_type"]
    blobs = struct.pack("<I", 1) + b"n" + bytes(3)
    places = []
    for key in keys:
        places.append(88 + len(blobs))
        text = struct.pack("<I", len(key)) + key
        blobs += text + bytes(-len(text) % 8)
        if key == keys[0]:
            places.append(88 + len(blobs))
            blobs += struct.pack("<I4x", 1)
    table = struct.pack("<QIIQ", places[0], 1, 0, places[1]) + struct.pack("<QIIQ", places[2], 3, 0, 0)
    assert data[88:] == blobs + table
    assert data[56:88] == struct.pack("<QQIIQ", 88, 0, 2, 0, 88 + len(blobs))


@pytest.mark.parametrize("config", [None, b"{}", b""])
def test_a_template_alone_is_packed(tmp_path: Path, config: bytes | None) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    holdall.save(folder / "model.safetensors", {"w": np.ones(2, np.float32)})
    (folder / "chat_template.jinja").write_bytes(b"{{ messages }}\n")
    if config is not None:
        (folder / "tokenizer_config.json").write_bytes(config)
    convert(folder, tmp_path / "out.mcf")
    with holdall.open(tmp_path / "out.mcf") as packed:
        assert packed.assets["tokenizer_config.json"] == b'{"chat_template":"{{ messages }}"}'


def cast_codes(values: np.ndarray, source: str, target: str) -> list[int]:
    tensor = Tensor("t", DTYPES[source], values.shape, InMemory(np.ascontiguousarray(values).view(np.uint8)))
    return np.frombuffer(b"".join(cast(tensor, DTYPES[target]).payload.chunks()), "<u2").tolist()  # type: ignore[union-attr]


def test_casts_round_as_the_packer_does() -> None:
    bits = np.array([0x3F808000, 0x3F818000, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0x7F7FFFFF], np.uint32)
    assert cast_codes(bits.view(np.float32), "f32", "bf16") == [0x3F80, 0x3F82, 0x8000, 0x0000, 0x7F80, 0x7F80]
    bits = np.array([0x7F800001, 0xFFC12345, 0x33000000, 0x33000001, 0x477FF000], np.uint32)
    assert cast_codes(bits.view(np.float32), "f32", "f16") == [0x7E00, 0xFE00, 0, 1, 0x7C00]
    assert cast_codes(np.array([1 + 2**-9 + 2**-40]), "f64", "bf16") == [0x3F80]  # rounded to float32 first
    same = np.array([0x7C01], np.uint16)
    assert cast_codes(same, "f16", "f16") == [0x7C01]  # of that type already: copied, NaN included


def test_only_floats_are_cast(tmp_path: Path) -> None:
    with pytest.raises(holdall.ContentError, match="i64 cannot be cast to bf16"):
        holdall.save(tmp_path / "x.mcf", {"w": np.zeros(2, np.int64)}, cast="bf16")


def test_equal_content_is_found() -> None:
    big = np.arange(200_000, dtype=np.float32)
    other = big.copy()
    other[-1] = 0
    tensors = [Tensor.of("a", big), Tensor.of("b", other), Tensor.of("c", big.reshape(2, -1)), Tensor.of("d", big),
               Tensor.of("e", big.view(np.int32)), Tensor.of("f", other)]  # fmt: skip
    assert find_equal_plain(ListTable(tensors)) == {3: 0, 5: 1}


def test_a_pack_names_its_folder_and_drops_what_the_packer_drops(tmp_path: Path) -> None:
    folder = tmp_path / "some-model"
    folder.mkdir()
    model = Model(
        [Tensor.of("w", np.ones(2, np.float32))], format="hf", sources=[FolderSource(folder)],
        metadata={"format": "pt"}, assets={"README.md": b"hello", "config.json": b"{}"},
    )  # fmt: skip
    holdall.save(tmp_path / "out.mcf", model)
    with holdall.open(tmp_path / "out.mcf") as packed:
        assert packed.metadata["mcf.model_name"] == "some-model"
        assert "format" not in packed.metadata
        assert list(packed.assets) == ["config.json"]
    target = holdall.formats()["mcf"]
    assert list(target.omitted_metadata(model, target.settings({})) or ()) == ["format"]
    assert target.omitted_metadata(model, target.settings({"arrange": "plain"})) == {}
    holdall.save(tmp_path / "named.mcf", model, model_name="other", resources=False)
    with holdall.open(tmp_path / "named.mcf") as packed:
        assert packed.metadata["mcf.model_name"] == "other"
        assert not packed.assets


def test_a_folder_whose_weights_do_not_fit_is_refused(tmp_path: Path) -> None:
    """What surrounds the weights may be left out, as the packer does; the weights may not."""
    folder = tmp_path / "folder"
    folder.mkdir()
    holdall.save(folder / "model.safetensors", {"mask": np.ones(3, np.bool_), "w": np.ones(2, np.float32)})
    with pytest.raises(holdall.ContentError, match="no bool"):
        convert(folder, tmp_path / "out.mcf")
    assert convert(folder, tmp_path / "out.mcf", exclude=["mask"]).tensors == 1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    holdall.save(folder / "model.safetensors", {"w": np.ones(2, np.float32)})
    (folder / "config.json").write_text('{"vocab_size": 5}')
    (folder / "chat_template.jinja").write_text("t")
    return folder


@pytest.mark.parametrize(
    ("config", "fate", "reason"),
    [
        (None, "changed", "its text is chat_template in tokenizer_config.json"),
        (b'{"a": 1, "chat_template": " "}', "changed", "its text is chat_template in tokenizer_config.json"),
        (b'{"chat_template": "own"}', "left out", "is not in what was written"),
    ],
)
def test_the_report_says_where_a_template_is(
    folder: Path, tmp_path: Path, config: bytes | None, fate: str, reason: str
) -> None:
    if config is not None:
        (folder / "tokenizer_config.json").write_bytes(config)
    report = convert(folder, tmp_path / "out.mcf")
    found = [(loss.fate, loss.reason) for loss in report.losses if loss.name == "chat_template.jinja"]
    assert found == [(fate, reason)]
    with holdall.open(tmp_path / "out.mcf") as packed:
        packed_text = json.loads(packed.assets["tokenizer_config.json"])["chat_template"]
    assert packed_text == ("t" if fate == "changed" else "own")
    report = convert(folder, tmp_path / "none.mcf", resources=False)
    assert [loss.fate for loss in report.losses if loss.name == "chat_template.jinja"] == ["left out"]


def test_documents_can_be_given_when_packing(folder: Path, tmp_path: Path) -> None:
    texts = {"config": '{"vocab_size": 7}', "merges": "a b\n", "tokenizer_config": '{"z": 1, "a": 2.0}'}
    holdall.save(tmp_path / "out.mcf", holdall.open(folder), **texts, vocab=b"{}")
    with holdall.open(tmp_path / "out.mcf") as packed:
        assert dict(packed.assets) == {
            "config.json": b'{"vocab_size": 7}',
            "merges.txt": b"a b\n",
            "tokenizer_config.json": b'{"a":2,"chat_template":"t","z":1}',
            "vocab.json": b"{}",
        }
        assert packed.metadata["mcf.vocab_size"] == 5  # of the folder, as the reference packer has it
        assert packed.metadata["mcf.model_name"] == "model"
        holdall.save(tmp_path / "again.mcf", packed, config="{}")  # and when an MCF file is saved again
    with holdall.open(tmp_path / "again.mcf") as again:
        assert again.assets["config.json"] == b"{}" and again.assets["vocab.json"] == b"{}"


def test_documents_from_the_command_line(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "new.json").write_bytes(b'{"new": 1}')
    given = [f"-oconfig=@{tmp_path / 'new.json'}", "-o", 'generation-config={"b": true}', "-o", "vocab=1"]
    command = [sys.executable, "-m", "holdall", "convert", str(folder), str(tmp_path / "out.mcf"), *given]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    with holdall.open(tmp_path / "out.mcf") as packed:
        assert packed.assets["config.json"] == b'{"new": 1}'
        assert packed.assets["generation_config.json"] == b'{"b": true}'
        assert packed.assets["vocab.json"] == b"1"
    ran = subprocess.run([*command[:6], "-o", "config=@no-such"], capture_output=True, text=True)
    assert ran.returncode == 2 and "-o config=@no-such: No such file or directory" in ran.stderr


def test_documents_that_cannot_be_stored(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(holdall.UnsupportedError, match=r"config is given, but resources=false leaves it out"):
        holdall.save(tmp_path / "out.mcf", holdall.open(folder), config="{}", resources=False)
    with pytest.raises(holdall.UnsupportedError, match=r"config\.json is text or bytes, not dict"):
        holdall.save(tmp_path / "out.mcf", holdall.open(folder), config={})
    with pytest.raises(holdall.ContentError, match=r"tokenizer_config\.json cannot be packed: it is not an object"):
        holdall.save(tmp_path / "out.mcf", holdall.open(folder), tokenizer_config="[]")
