"""The packer's rules that the golden folders do not reach: JSON as Go writes it, ModelInfo, casts, equal tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdall
from holdall.dtypes import DTYPES
from holdall.formats.mcf import gojson
from holdall.formats.mcf.pack import cast, info_of, tokenizer_config
from holdall.formats.mcf.survey import survey
from holdall.model import Model
from holdall.operations.convert.convert import convert
from holdall.payload import Held
from holdall.source import FolderSource
from holdall.tensor import Tensor


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
        (b" { } ", b"t", b" { } "),
    ],
)
def test_tokenizer_config(config: bytes, template: bytes | None, written: bytes) -> None:
    assert tokenizer_config(config, template) == written


@pytest.mark.parametrize("config", [b"", b"[]", b"null", b"{", b'"x"', b"{} x"])
def test_a_broken_tokenizer_config_stops_the_pack(config: bytes) -> None:
    with pytest.raises(holdall.ContentError, match=r"tokenizer_config\.json"):
        tokenizer_config(config, None)


def info(config: str | None) -> dict[str, Any]:
    assets = {} if config is None else {"config.json": config.encode()}
    return dict(info_of(Model([], assets=assets), "name").metadata())


def test_model_info_from_config() -> None:
    assert info(None) == info("[]") == info("{") == {"mcf.model_name": "name"}
    base = {"mcf.model_name": "name", "hf.config_json_present": 1}
    assert info("{}") == base
    assert info('{"model_type": ""}') == base
    assert info('{"model_type": 5, "vocab_size": true, "rope_theta": "x", "rope_scaling": {}}') == base
    assert info('{"model_type": "MyLLaMA-Qwen"}') == {**base, "mcf.arch": "llama", "hf.model_type": "MyLLaMA-Qwen"}
    assert info('{"model_type": "granite"}') == {**base, "hf.model_type": "granite"}
    assert info('{"vocab_size": 4294967295, "hidden_size": 4294967296, "num_hidden_layers": -0.5}') == {
        **base, "mcf.vocab_size": 4294967295,
    }  # fmt: skip
    assert info('{"rope_theta": 10000, "rope_scaling": {"a": 1}}') == {
        **base, "mcf.rope_freq_base": 10000.0, "hf.rope_scaling": "present",
    }  # fmt: skip


def casted(values: np.ndarray, source: str, target: str) -> list[int]:
    tensor = Tensor("t", DTYPES[source], values.shape, Held(np.ascontiguousarray(values).view(np.uint8)))
    return np.frombuffer(b"".join(cast(tensor, DTYPES[target]).payload.chunks()), "<u2").tolist()  # type: ignore[union-attr]


def test_casts_round_as_the_packer_does() -> None:
    bits = np.array([0x3F808000, 0x3F818000, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0x7F7FFFFF], np.uint32)
    assert casted(bits.view(np.float32), "f32", "bf16") == [0x3F80, 0x3F82, 0x8000, 0x0000, 0x7F80, 0x7F80]
    bits = np.array([0x7F800001, 0xFFC12345, 0x33000000, 0x33000001, 0x477FF000], np.uint32)
    assert casted(bits.view(np.float32), "f32", "f16") == [0x7E00, 0xFE00, 0, 1, 0x7C00]
    assert casted(np.array([1 + 2**-9 + 2**-40]), "f64", "bf16") == [0x3F80]  # rounded to float32 first
    same = np.array([0x7C01], np.uint16)
    assert casted(same, "f16", "f16") == [0x7C01]  # of that type already: copied, NaN included


def test_only_floats_are_cast(tmp_path: Path) -> None:
    with pytest.raises(holdall.ContentError, match="i64 cannot be cast to bf16"):
        holdall.save(tmp_path / "x.mcf", {"w": np.zeros(2, np.int64)}, cast="bf16")


def test_the_survey_finds_equal_content() -> None:
    big = np.arange(200_000, dtype=np.float32)
    other = big.copy()
    other[-1] = 0
    tensors = [Tensor.of("a", big), Tensor.of("b", other), Tensor.of("c", big.reshape(2, -1)), Tensor.of("d", big),
               Tensor.of("e", big.view(np.int32)), Tensor.of("f", other)]  # fmt: skip
    assert survey(tensors) == {3: 0, 5: 1}


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
    assert list(target.leaves(model, target.settings({})) or ()) == ["format"]
    assert target.leaves(model, target.settings({"arrange": "plain"})) == {}
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
