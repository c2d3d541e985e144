"""Sections that a file may leave out, and records that it may add."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from click.testing import CliRunner

import holdall
from holdall.cli import main
from holdall.quant import quantize
from tests.format.mcf.build import mcf
from tests.format.mcf.document import parse
from tests.format.mcf.spec import METHODS, Entry, File, quant_info, record, unpack

W = np.arange(6, dtype="<f4").reshape(2, 3) / 7


def without(data, type):
    """The file without the entry of a section in its directory."""
    at = struct.unpack_from("<Q", data, 16)[0]
    count = struct.unpack_from("<I", data, 12)[0]
    kept = [data[at + 24 * n : at + 24 * n + 24] for n in range(count)]
    kept = [entry for entry in kept if struct.unpack_from("<I", entry)[0] != type]
    short = data[:at] + b"".join(kept)
    return short[:12] + struct.pack("<I", len(kept)) + short[16:24] + struct.pack("<Q", len(short)) + short[32:]


@pytest.mark.shows("M06")
def test_an_index_without_data_lists_its_tensors():
    data = without(File([(0x100, b"{}")], [Entry("w", 1, [2, 3], W.tobytes())]).data(), 4)
    with holdall.open(data) as model:
        assert [(name, tensor.shape, tensor.has_data) for name, tensor in model.items()] == [("w", (2, 3), False)]
        with pytest.raises(holdall.HoldallError, match="without data"):
            model["w"].numpy()
    report = holdall.verify(data)
    assert report.ok
    assert [finding.severity for finding in report.findings] == ["warning"]


def section_bytes(data, type):
    at, size = parse(data)[2][type]
    return data[at : at + size]


@pytest.mark.shows("M06")
def test_an_index_without_data_survives_an_edit(tmp_path):
    q = quantize(np.ones((2, 40), np.float32), "k4")
    tensors = [Entry("b", 0x31, [2, 40], bytes(q.payload)), Entry("w", 1, [2, 3], W.tobytes())]
    info = quant_info(record(0, 0x31, low=-0.5, high=0.25))
    data = without(File([(0x100, b"{}"), info, (0x999, b"mine")], tensors).data(), 4)
    path = tmp_path / "nodata.mcf"
    path.write_bytes(data)
    shown = CliRunner().invoke(main, ["edit", str(path), "--set", "x=1"])
    assert shown.exit_code == 0, shown.output
    edited = path.read_bytes()
    for type in (2, 3, 0x100, 0x999):
        assert section_bytes(edited, type) == section_bytes(data, type)
    assert sorted(parse(edited)[2]) == [1, 2, 3, 0x100, 0x999]
    assert edited[32:40] == data[32:40]  # the flags of the header
    with holdall.open(path) as model:
        assert [(t.name, str(t.dtype), t.shape, t.has_data) for t in model.tensors] == [
            ("b", "mcf.k4", (2, 40), False), ("w", "f32", (2, 3), False)
        ]  # fmt: skip
        assert model.metadata["x"] == 1
    with pytest.raises(holdall.ContentError, match="change tensors in the file that has their data"):
        holdall.edit(path, rename={"w": "v"})
    assert path.read_bytes() == edited


@pytest.mark.shows("M06")
def test_data_without_an_index_opens_with_no_tensors():
    data = without(File([(0x100, b"{}")], [Entry("w", 1, [2, 3], W.tobytes())]).data(), 3)
    with holdall.open(data) as model:
        assert (len(model), model.config) == (0, {})
    report = holdall.verify(data)
    assert report.ok
    assert [finding.severity for finding in report.findings] == ["warning"]


def empty_records(count, room):
    return struct.pack("<II", 1, count) + bytes(24 * room)


def test_records_without_an_index_are_noted_and_listed_as_left_out(tmp_path):
    path = tmp_path / "q.mcf"
    path.write_bytes(mcf([(2, empty_records(1, 1))]))
    report = holdall.verify(path)
    assert report.ok
    (finding,) = report.findings
    assert (finding.rule, finding.severity) == ("mcf.section.pair", "warning")
    assert "there is a section QuantInfo, but none TensorIndex: it has records of no tensor" in finding.message
    done = holdall.convert(path, tmp_path / "q.aero", fsync=False)
    assert "QuantInfo" in str(done.losses) and not done.lossless


@pytest.mark.parametrize("count", [2, (1 << 32) - 1])
def test_more_records_than_fit_are_an_error_without_an_index(count):
    data = mcf([(2, empty_records(count, 1))])
    with pytest.raises(holdall.FormatError, match=rf"{count} records are announced, 1 fit"):
        holdall.open(data)
    report = holdall.verify(data, level="structure")
    assert not report.ok and "mcf.quant.size" in {finding.rule for finding in report.findings}


def test_all_loose_sections_are_noted_and_listed_as_left_out(tmp_path):
    path = tmp_path / "two.mcf"
    path.write_bytes(mcf([(4, bytes(100)), (4, bytes(30)), (0x999, bytes(8)), (0x999, bytes(16))]))
    noted = [finding for finding in holdall.verify(path).findings if finding.rule == "mcf.section.pair"]
    assert len(noted) == 2 and len({finding.offset for finding in noted}) == 2
    losses = str(holdall.convert(path, tmp_path / "two.aero", fsync=False).losses)
    for size in (100, 30, 8, 16):
        assert f"a section of {size} bytes" in losses


@pytest.mark.shows("M31")
@pytest.mark.parametrize("plain", ["dtype", "zero"])
def test_a_record_for_every_tensor_is_read(plain):
    q = quantize(np.ones((2, 40), np.float32), "k4")
    tensors = [Entry("a", 1, [2, 3], W.tobytes()), Entry("b", 0x31, [2, 40], bytes(q.payload))]
    method = 1 if plain == "dtype" else 0
    info = quant_info(record(0, method, block=0, super=0), record(1, 0x31, low=-0.5, high=0.25))
    data = File([info], tensors).data()
    with holdall.open(data) as model:
        assert (model["a"].native.method, model["a"].native.min_clip) == (method, -1.0)
        assert model["a"].numpy().tolist() == W.tolist()
        assert (model["b"].native.min_clip, model["b"].native.max_clip) == (-0.5, 0.25)
        assert model["b"].numpy().tolist() == q.numpy().tolist()
    assert holdall.verify(data).findings == []
    strict = holdall.verify(data, level="strict")
    assert strict.ok
    assert [finding.severity for finding in strict.findings] == ["note"]


@pytest.mark.parametrize("plain", [1, 0])
def test_a_record_for_every_tensor_survives_an_edit(plain, tmp_path):
    q = quantize(np.ones((2, 40), np.float32), "k4")
    tensors = [Entry("a", 1, [2, 3], W.tobytes()), Entry("b", 0x31, [2, 40], bytes(q.payload))]
    tensors.append(Entry("d", 1, [2, 3], W.tobytes()))

    def records(a, b, d):
        rows = {
            a: record(a, plain, domain=1, block=7, super=9, low=-2.5, high=1.5),
            b: record(b, 0x31, low=-0.5, high=0.25),
            d: record(d, plain, block=0, super=0, low=0, high=0),
        }
        return quant_info(*(rows[row] for row in range(3)))

    path, less, cast = tmp_path / "q.mcf", tmp_path / "less.mcf", tmp_path / "cast.mcf"
    path.write_bytes(File([records(0, 1, 2)], tensors).data())
    holdall.edit(path, set={"x": 1}, rename={"b": "c"})
    assert section_bytes(path.read_bytes(), 2) == records(0, 1, 2)[1]
    holdall.edit(path, rename={"a": "z"})  # the records follow their tensors to other places in the index
    assert section_bytes(path.read_bytes(), 2) == records(2, 0, 1)[1]
    assert holdall.verify(path).ok
    holdall.convert(path, less, include=["d"])
    assert section_bytes(less.read_bytes(), 2)[8:] == record(0, plain, block=0, super=0, low=0, high=0)
    done = holdall.convert(path, cast, cast={"z": "f16"})  # which has no record now
    assert "1 quant record of a plain tensor left out: not every tensor has a record that fits" in done.changes
    assert section_bytes(cast.read_bytes(), 2)[8:] == record(0, 0x31, low=-0.5, high=0.25)
    assert holdall.verify(cast).ok


@pytest.mark.shows("M26")
@pytest.mark.parametrize("name", ["int8", "int4"])
def test_activations_are_quantized_from_the_command_line(name, tmp_path):
    values = np.random.default_rng(0).uniform(0.5, 3, (40, 100)).astype(np.float32)
    holdall.save(tmp_path / "a.safetensors", {"x.weight": values})
    arguments = ["quantize", tmp_path / "a.safetensors", tmp_path / "b.mcf", "--method", name]
    arguments += ["--domain", "activations", "--mode", "ieee"]
    shown = CliRunner().invoke(main, list(map(str, arguments)))
    assert shown.exit_code == 0, shown.output
    data = (tmp_path / "b.mcf").read_bytes()
    _, _, sections, tensors = parse(data)
    at, _ = sections[2]
    assert struct.unpack_from("<BB", data, at + 8 + 4) == (METHODS[name], 1)
    payload, bits = tensors["x.weight"][3], int(name[3:])
    scale, zero = struct.unpack_from("<f", payload)[0], struct.unpack_from("<f", payload, 64)[0]
    codes = unpack(payload[128:], bits, values.size).reshape(values.shape).astype(np.float32)
    assert np.abs(np.float32(scale) * (codes - np.float32(zero)) - values).max() <= scale * 0.51
    small = holdall.quant.quantize_model(
        holdall.open(tmp_path / "a.safetensors"), name, domain="activations", mode="ieee"
    )
    assert bytes(small["x.weight"].raw()) == payload
