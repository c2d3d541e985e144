"""The golden MCF files: what must come out of the good ones, and that the bad ones are refused."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

import holdall
from holdall.format.mcf.modelinfo import ModelInfo
from holdall.format.mcf.sections import McfNative
from holdall.model.model import Model
from holdall.model.payload import InMemory
from holdall.model.tensor import Tensor
from holdall.operations.convert.convert import convert
from holdall.quant.encodings import McfEncoding
from holdall.quant.record import QuantRecord
from holdall.source.ledger import Ledger
from tests.format.mcf.folders import folder_model
from tests.golden import golden

FOLDER = golden("mcf")
GOOD = sorted(path.stem for path in FOLDER.glob("*.mcf"))
BAD = {row["name"]: row["upstream_stage"] for row in json.loads((FOLDER / "bad" / "index.json").read_text())}

# Files that holdall does not write in just this way, and why.
NOT_REWRITTEN = {
    "dir_first": "the directory goes to the end",
    "header64": "headers have 40 bytes",
    "index_permuted": "index tables follow each other without gaps",
    "minor7": "the format does not say what minor version 7 promises",
    "unaligned_raw": "its TensorData begins with bytes of no tensor",
    "unsorted_index": "entries are sorted by name",
    "pack_embed_int8": "bare codes are not written",
    "pack_embed_int4": "bare codes are not written",
}
NOT_CLEAN = {"index_permuted", "unaligned_raw"}  # bytes between their tables are not zero
PACKED = [name for name in GOOD if name.startswith("pack_") and name not in NOT_REWRITTEN]
QUANTIZED = [name for name in GOOD if "quantize" in json.loads((FOLDER / f"{name}.expected.json").read_text())]


def expected(name: str) -> dict:
    return json.loads((FOLDER / f"{name}.expected.json").read_text())


def native_of(model: Model) -> McfNative:
    assert isinstance(model.native, McfNative)
    return model.native


def number(value: object) -> float:
    return float(value) if not isinstance(value, str) else {"NaN": np.nan, "Infinity": np.inf}.get(value, -np.inf)


@pytest.mark.shows("M20", "M38")
@pytest.mark.parametrize("name", GOOD)
def test_tensors(name: str) -> None:
    wanted = expected(name)
    with holdall.open(FOLDER / f"{name}.mcf") as model:
        assert (model.format, model.version) == ("mcf", tuple(wanted["version"]))
        rows = wanted.get("tensors") or []
        assert list(model) == [row["name"] for row in rows]
        for row in rows:
            tensor = model[row["name"]]
            quantized = row["dtype_id"] >= 16
            assert str(tensor.dtype) == ("mcf." if quantized else "") + row["dtype"]
            assert (list(tensor.shape), tensor.offset, tensor.nbytes) == (row["shape"], row["offset"], row["nbytes"])
            assert hashlib.sha256(tensor.raw()).hexdigest() == row["sha256"]
            array = row.get("dequant_ieee_npy") or row.get("dequant_npy")
            if array:
                np.testing.assert_array_equal(tensor.numpy(), np.load(FOLDER / array))
            elif row.get("layout") == "upstream-bare":
                with pytest.raises(holdall.UnsupportedError, match="scale"):
                    tensor.numpy()
                codes = tensor.dtype.codes(tensor.raw(), tensor.shape)  # type: ignore[union-attr]
                assert codes.reshape(-1).tolist() == row["codes"]
            elif "values" in row:
                values = tensor.numpy().reshape(-1)
                if values.dtype.kind in "iu":
                    assert values.tolist() == row["values"]
                else:
                    np.testing.assert_array_equal(values.astype(np.float64), [number(v) for v in row["values"]])


@pytest.mark.shows("M15")
@pytest.mark.parametrize("name", GOOD)
def test_sections_and_assets(name: str) -> None:
    wanted = expected(name)
    with holdall.open(FOLDER / f"{name}.mcf") as model:
        native = native_of(model)
        assert native.flags == wanted["flags"]
        for section, row in zip(native.sections, wanted["sections"], strict=True):
            place = (section.type, section.version, section.offset, section.size)
            assert place == (row["type"], row["version"], row["offset"], row["size"])
            assert hashlib.sha256(section.data).hexdigest() == row["sha256"]
            assert native.section(row["type"]) is section
            if 0x100 <= row["type"] <= 0x105:
                assert model.assets[section.name] == section.data


@pytest.mark.shows("M16")
@pytest.mark.parametrize("name", GOOD)
def test_model_info(name: str) -> None:
    wanted = expected(name)["model_info"]
    with holdall.open(FOLDER / f"{name}.mcf") as model:
        native = native_of(model)
        info = native.model_info
        if wanted is None:
            assert info is None
            return
        assert info is not None
        extras = wanted.pop("extras")
        assert {key: getattr(info, key) for key in wanted} == wanted
        assert dict(info.extras) == {key: row["value"] for key, row in extras.items()}
        assert {key: info.extras.kind(key) for key in extras} == {key: row["kind"] for key, row in extras.items()}
        assert info.encode() == native.section("ModelInfo").data
        assert ModelInfo.of(info.metadata()).encode() == info.encode()


@pytest.mark.shows("M30", "M42")
@pytest.mark.parametrize("name", GOOD)
def test_quant_records(name: str) -> None:
    wanted = expected(name)["quant"]
    with holdall.open(FOLDER / f"{name}.mcf") as model:
        records = {tensor.name: tensor.native for tensor in model.tensors if tensor.native is not None}
    if wanted is None:
        assert not records
        return
    assert list(records) == [row["tensor"] for row in wanted]
    for row in wanted:
        record = records[row["tensor"]]
        assert isinstance(record, QuantRecord)
        assert (record.method, record.block_size, record.super_size) == (
            row["method_name"], row["block_size"], row["super_size"],
        )  # fmt: skip
        assert record.domain == ("weights", "activations")[row["domain"]]
        for bound in ("min_clip", "max_clip"):
            bits = int(np.float32(getattr(record, bound)).view(np.uint32))
            assert bits == int(row[f"{bound}_bits"], 16)


@pytest.mark.parametrize("name", GOOD)
def test_good_files_verify(name: str) -> None:
    assert not holdall.verify(FOLDER / f"{name}.mcf", level="full").findings
    assert holdall.verify(FOLDER / f"{name}.mcf", level="strict").ok == (name not in NOT_CLEAN)


@pytest.mark.parametrize("name", [name for name in GOOD if name not in NOT_CLEAN])
def test_every_byte_has_an_owner(name: str) -> None:
    path = FOLDER / f"{name}.mcf"
    data = path.read_bytes()
    with holdall.open(path) as model:
        assert isinstance(model.ledger, Ledger)
        for start, stop in model.ledger.gaps(len(data)):
            assert not any(data[start:stop]), (start, stop)
            assert stop % model.ledger.pad_to == 0, (start, stop)


@pytest.mark.shows("M12")
@pytest.mark.parametrize("name", GOOD)
def test_rewritten_bit_for_bit(name: str, tmp_path: Path) -> None:
    path, copy = FOLDER / f"{name}.mcf", tmp_path / "copy.mcf"
    with holdall.open(path) as model:
        if "bare" in NOT_REWRITTEN.get(name, ""):
            with pytest.raises(holdall.ContentError, match="bare"):
                holdall.save(copy, model, fsync=False)
            return
        holdall.save(copy, model, fsync=False)
        with holdall.open(copy) as reopen:
            assert list(reopen) == sorted(model)
            assert all(bytes(reopen[name].raw()) == bytes(model[name].raw()) for name in model)
            assert dict(reopen.assets) == dict(model.assets)
    assert (copy.read_bytes() == path.read_bytes()) == (name not in NOT_REWRITTEN)


@pytest.mark.shows("M40")
@pytest.mark.parametrize("name", PACKED)
def test_packed_as_the_reference_packs(name: str, tmp_path: Path) -> None:
    wanted = expected(name)["pack"]
    model = folder_model(FOLDER / wanted["source_dir"])
    options = {key: wanted[key] for key in ("cast", "tensor_align", "dedup", "minor")}
    holdall.save(tmp_path / "out.mcf", model, fsync=False, resources=wanted["include_resources"], **options)
    assert (tmp_path / "out.mcf").read_bytes() == (FOLDER / f"{name}.mcf").read_bytes()


@pytest.mark.shows("M40")
@pytest.mark.parametrize("name", [name for name in PACKED if name != "pack_llama_nodedup"])
def test_converted_from_a_folder(name: str, tmp_path: Path) -> None:
    wanted = expected(name)["pack"]
    options = {key: wanted[key] for key in ("tensor_align", "minor")}
    options["resources"] = wanted["include_resources"]
    cast = {} if wanted["cast"] == "keep" else {"cast": wanted["cast"]}
    out = tmp_path / "out.mcf"
    report = convert(FOLDER / wanted["source_dir"], out, fsync=False, **cast, **options)
    assert out.read_bytes() == (FOLDER / f"{name}.mcf").read_bytes()
    assert all(loss.fate in ("left out", "changed") and loss.part != "tensor" for loss in report.losses)


@pytest.mark.parametrize("name", QUANTIZED)
def test_arranged_as_the_reference_quantizer_does(name: str, tmp_path: Path) -> None:
    """Given the payloads and the records, the whole file follows."""
    wanted = expected(name)["quantize"]
    with holdall.open(FOLDER / wanted["input"]) as source, holdall.open(FOLDER / f"{name}.mcf") as made:
        tensors = []
        for tensor in source.tensors:
            new = made[tensor.name]
            if isinstance(new.dtype, McfEncoding):
                tensor = Tensor(new.name, new.dtype, new.shape, InMemory(bytes(new.raw())), new.native)
            tensors.append(tensor)
        model = Model(
            tensors, metadata=source.metadata, assets=source.assets, native=source.native, format=source.format,
            version=source.version, sources=source.sources,
        )  # fmt: skip
        nothing = not any(isinstance(tensor.dtype, McfEncoding) for tensor in tensors)
        options = {"arrange": "quantize"} if nothing else {}
        holdall.save(tmp_path / "out.mcf", model, fsync=False, **options)
    assert (tmp_path / "out.mcf").read_bytes() == (FOLDER / f"{name}.mcf").read_bytes()


def test_a_file_without_an_index_opens_with_no_tensors() -> None:
    with holdall.open(FOLDER / "bad" / "no_index.mcf") as model:
        assert len(model) == 0
    report = holdall.verify(FOLDER / "bad" / "no_index.mcf")
    assert [(finding.rule, finding.severity) for finding in report.findings] == [("mcf.section.pair", "warning")]


@pytest.mark.shows("M32", "M36", "M44")
@pytest.mark.parametrize("name", [name for name in BAD if name != "no_index"])
def test_bad_files_are_refused(name: str) -> None:
    path, stage = FOLDER / "bad" / f"{name}.mcf", BAD[name]
    assert not holdall.verify(path, level="full").ok
    if stage in ("open", "store open", "accepted"):
        with pytest.raises(holdall.FormatError):
            holdall.open(path)
    elif stage == "model info":
        with holdall.open(path) as model, pytest.raises(holdall.FormatError):
            _ = native_of(model).model_info
    else:
        with pytest.raises(holdall.FormatError), holdall.open(path) as model:
            for tensor in model.tensors:
                tensor.numpy()
