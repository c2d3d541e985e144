"""What the format's document asks for, sentence by sentence, on files that struct and numpy alone make and decode."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest

import holdall
from holdall.quant import quantize
from holdall.quant.record import QuantRecord
from holdall.source import BytesSource
from holdall.testing import RecordingSource
from tests.format.mcf.document import BLOCKS, NAMES, RAW, W, parse, raw_file, refused, run, samples, written
from tests.format.mcf.spec import METHODS, Entry, File, Payload, quant_info, record


@pytest.mark.shows("M01", "M03", "M08", "M09")
def test_a_saved_file_is_read_by_the_document_alone(tmp_path):
    content = {"b.w": W, "a": np.arange(5, dtype=np.int16), "scalar": np.float32(2)}
    data = written(tmp_path / "a", content, metadata={"note": "x"})
    minor, flags, sections, tensors = parse(data)
    assert (minor, flags) == (1, 1)
    assert list(tensors) == sorted(content)
    assert {name: (row[0], row[1], row[3]) for name, row in tensors.items()} == {
        "a": (7, (5,), np.arange(5, dtype="<i2").tobytes()), "b.w": (1, (2, 3), W.tobytes()),
        "scalar": (1, (), struct.pack("<f", 2)),
    }  # fmt: skip
    start, size = sections[4]
    assert all(start <= place and place + len(held) <= start + size for _, _, place, held in tensors.values())
    assert all(place % 64 == 0 for _, _, place, _ in tensors.values())
    assert all(not start <= at < start + size for type, (at, _) in sections.items() if type != 4)


@pytest.mark.shows("M01", "M03", "M13", "M14")
@pytest.mark.parametrize("options", [{}, {"directory_first": True}, {"header_size": 64}, {"header_size": 4096}])
def test_the_file_of_the_document_is_read(options):
    data = raw_file(sections=[(0x100, b"{}")], **options).data()
    with holdall.open(data) as model:
        assert model.version == (1, 1)
        assert model["w"].numpy().tolist() == W.tolist()
        assert model.assets["config.json"] == b"{}"
    assert holdall.verify(data, level="strict").ok


@pytest.mark.shows("M02")
@pytest.mark.parametrize("mmap", [True, False])
def test_random_access_with_and_without_a_map(mmap, tmp_path):
    large = np.arange(3 << 20, dtype="<u4").reshape(3, -1)
    file = File(tensors=[Entry(name, 10, [1 << 20], row.tobytes()) for name, row in zip("abc", large, strict=True)])
    (tmp_path / "a.mcf").write_bytes(file.data())
    with holdall.open(tmp_path / "a.mcf", mmap=mmap) as model:
        assert model["b"].numpy().tobytes() == large[1].tobytes()
        assert np.shares_memory(model["b"].numpy(), model["b"].numpy()) == mmap
    source = RecordingSource(BytesSource(file.data()))
    with holdall.open(source) as model:
        assert source.bytes_read < 1 << 17
        source.reads.clear()
        assert model["c"][5:7].tolist() == large[2, 5:7].tolist()
        assert source.bytes_read == 8


@pytest.mark.shows("M04")
@pytest.mark.parametrize(
    ("sections", "assets"),
    [([(0x100, b"{}")], ["config.json"]), ([(0x7777, b"x")], []), ([(1, bytes(4))], []), ([quant_info()], [])],
)
def test_no_section_is_required(sections, assets, tmp_path):
    data = File(sections=sections).data()
    with holdall.open(data) as model:
        assert (len(model), list(model.assets)) == (0, assets)
    assert holdall.verify(data, level="full").ok
    with holdall.open(written(tmp_path / "a", {})) as model:
        assert len(model) == 0


@pytest.mark.shows("M05", "M30")
def test_records_belong_to_their_tensors_and_may_be_missing():
    q = quantize(np.ones((2, 40), np.float32), "k4")
    tensors = [Entry("a", 1, [2, 3], W.tobytes()), Entry("b", 0x31, [2, 40], bytes(q.payload)),
               Entry("c", 1, [6], W.tobytes()), Entry("d", 0x31, [2, 40], bytes(q.payload))]  # fmt: skip
    info = quant_info(record(3, 0x31, low=-3, high=2), record(1, 0x31, low=-0.5, high=0.25))
    with holdall.open(File([info], tensors).data()) as model:
        found = {name: tensor.native for name, tensor in model.items() if tensor.native is not None}
        assert found == {"b": QuantRecord("k4", "weights", -0.5, 0.25), "d": QuantRecord("k4", "weights", -3, 2)}
    with holdall.open(File(tensors=tensors).data()) as model:
        assert model["b"].numpy().tolist() == q.numpy().tolist()
        assert model["b"].native is None


@pytest.mark.shows("M07")
def test_a_caller_says_which_sections_it_depends_on():
    data = raw_file(sections=[(0x102, b"{}")]).data()
    holdall.open(data, require=("TensorIndex", "TensorData", "tokenizer.json")).close()
    with pytest.raises(holdall.FormatError, match="QuantInfo") as caught:
        holdall.open(data, require=("QuantInfo",))
    assert caught.value.rule == "mcf.section.required"


@pytest.mark.shows("M08", "M45")
def test_a_configuration_is_shown_and_changes_nothing():
    config = b'{"torch_dtype": "float16", "hidden_size": 3}'
    with holdall.open(raw_file(sections=[(0x100, config)]).data()) as model:
        assert model.config == {"torch_dtype": "float16", "hidden_size": 3}
        assert str(model["w"].dtype) == "f32"


@pytest.mark.shows("M10")
@pytest.mark.parametrize("major", [0, 2, 65535])
def test_other_major_versions_are_refused(major):
    refused(raw_file(header={"major": major}).data(), "mcf.header.major")


@pytest.mark.shows("M11")
@pytest.mark.parametrize("minor", [0, 1, 9, 65535])
def test_any_minor_version_is_read(minor):
    with holdall.open(raw_file(header={"minor": minor}).data()) as model:
        assert model.version == (1, minor)
        assert model["w"].numpy().tolist() == W.tolist()


@pytest.mark.shows("M12")
def test_unknown_sections_are_kept(tmp_path):
    unknown = [(0x0042, b"forty-two"), (0xFFFF0001, b""), (0x0106, bytes(1000))]
    with holdall.open(raw_file(sections=unknown).data()) as model:
        data = written(tmp_path / "a", model)
    _, _, sections, tensors = parse(data)
    assert {type: data[at : at + size] for type, (at, size) in sections.items() if type not in (3, 4)} == dict(unknown)
    assert tensors["w"][3] == W.tobytes()


DOCUMENTS = {0x100: "config.json", 0x101: "generation_config.json", 0x102: "tokenizer.json",
             0x103: "tokenizer_config.json", 0x104: "vocab.json", 0x105: "merges.txt"}  # fmt: skip


@pytest.mark.shows("M15")
@pytest.mark.parametrize("type", DOCUMENTS)
def test_documents_are_assets(type, tmp_path):
    with holdall.open(File([(type, b'{"a": 1}')]).data()) as model:
        assert dict(model.assets) == {DOCUMENTS[type]: b'{"a": 1}'}
    model = holdall.Model([holdall.Tensor.of("w", W)], assets={DOCUMENTS[type]: b'{"a":1}'})
    data = written(tmp_path / "a", model)
    at, size = parse(data)[2][type]
    assert data[at : at + size] == b'{"a":1}'


@pytest.mark.shows("M16")
def test_model_info(tmp_path):
    data = written(
        tmp_path / "a", {"w": W}, metadata={"mcf.arch": "llama", "mcf.vocab_size": 7, "mcf.rope_freq_base": 0.5}
    )
    at, size = parse(data)[2][1]
    info = data[at : at + size]
    head = struct.unpack_from("<12I2f2Q2IQ", info)
    assert head == (1, 0, 1, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0.5, 0, 0, 0, 0, 0, 88)
    with holdall.open(File([(1, info)]).data()) as model:
        record = model.native.model_info
        assert (record.arch_name, record.vocab_size, record.rope_freq_base) == ("llama", 7, 0.5)


@pytest.mark.shows("M17")
@pytest.mark.parametrize("name", BLOCKS)
def test_the_flag_of_quantized_tensors(name, tmp_path):
    q = quantize(np.ones((2, 40), np.float32), name)
    assert parse(written(tmp_path / "a", [q.tensor("w")], tensor_align=1))[1] & 1
    entry = Entry("w", METHODS[name], [2, 40], bytes(q.payload))
    holdall.open(File(tensors=[entry], header={"flags": 1}).data()).close()
    refused(File(tensors=[entry], header={"flags": 0}).data(), "mcf.header.aligned64")
    holdall.open(raw_file(header={"flags": 0}).data()).close()  # raw ones need none


@pytest.mark.shows("M18")
@pytest.mark.parametrize("name", METHODS)
def test_ids_of_methods(name, tmp_path):
    ids = {"int8": 0x10, "int4": 0x11, "q8": 0x20, "q4": 0x21, "k6": 0x30, "k4": 0x31, "k3": 0x32, "k2": 0x33}
    data = written(tmp_path / "a", [quantize(np.ones((2, 40), np.float32), name).tensor("w")])
    _, _, sections, tensors = parse(data)
    assert tensors["w"][0] == ids[name]
    at, size = sections[2]
    assert struct.unpack_from("<IIIB", data, at) == (1, 1, 0, ids[name])
    assert size == 8 + 24
    assert str(holdall.open(data)["w"].dtype) == f"mcf.{name}"


@pytest.mark.shows("M19")
@pytest.mark.parametrize("name", ["q2", "q3", "q6", "k8"])
def test_excluded_methods_are_refused(name, tmp_path):
    with pytest.raises(holdall.UnsupportedError, match=name):
        quantize(W, name)
    holdall.save(tmp_path / "a.safetensors", {"w": W})
    shown = run("quantize", tmp_path / "a.safetensors", tmp_path / "b.mcf", "--method", name)
    assert shown.exit_code == 2
    for id in {"q2": (0x22,), "q3": (0x23,), "q6": (0x24, 0x2F), "k8": (0x34, 0x3F)}[name]:
        data = File([quant_info(record(0, id))], [Entry("w", id, [1, 32], bytes(64))]).data()
        with pytest.raises(holdall.FormatError):
            holdall.open(data)["w"].numpy()
        assert not holdall.verify(data).ok


@pytest.mark.shows("M38")
@pytest.mark.parametrize("id", RAW)
def test_raw_types(id, tmp_path):
    values = np.array([[0, 1, 2], [3, 100, 7]]).astype(RAW[id])
    with holdall.open(File(tensors=[Entry("w", id, [2, 3], values.tobytes())]).data()) as model:
        assert str(model["w"].dtype) == NAMES[id - 1]
        assert model["w"].numpy().tolist() == values.tolist()
    dtype, shape, _, held = parse(written(tmp_path / "a", {"w": values}))[3]["w"]
    assert (dtype, shape, held) == (id, (2, 3), values.tobytes())


@pytest.mark.shows("M39")
@pytest.mark.parametrize("name", ["bool", "f8_e5m2", "f8_e4m3", "i4", "u1", "c64"])
def test_types_that_the_format_has_no_id_for_are_refused(name, tmp_path):
    tensor = holdall.Tensor.of("w", np.zeros(4), name)
    with pytest.raises(holdall.ContentError, match=name):
        written(tmp_path / "a", [tensor])
    holdall.save(tmp_path / "a.npz", {"w": np.zeros(4, np.bool_)})
    with pytest.raises(holdall.ContentError, match="bool"):
        holdall.convert(tmp_path / "a.npz", tmp_path / "b.mcf")
    holdall.convert(tmp_path / "a.npz", tmp_path / "b.mcf", cast="*=u8")
    assert parse((tmp_path / "b.mcf").read_bytes())[3]["w"][0] == 6


@pytest.mark.shows("M41")
@pytest.mark.parametrize("name", METHODS)
def test_every_method_from_the_command_line(name, tmp_path):
    values = samples((40, 100))
    holdall.save(tmp_path / "a.safetensors", {"w.weight": values, "bias": W[0]})
    mode = "ieee" if name.startswith("int") else "reference"
    shown = run("quantize", tmp_path / "a.safetensors", tmp_path / "b.mcf", "--method", name, "--mode", mode)
    assert shown.exit_code == 0, shown.output
    tensors = parse((tmp_path / "b.mcf").read_bytes())[3]
    assert (tensors["w.weight"][0], tensors["bias"][0]) == (METHODS[name], 1)
    assert tensors["w.weight"][3] == bytes(quantize(values, name, mode=mode).payload)


@pytest.mark.shows("M42")
def test_bounds_of_clipping_are_stored_and_come_from_the_command_line(tmp_path):
    values = samples((40, 100))
    holdall.save(tmp_path / "a.safetensors", {"w.weight": values})
    for options, want in (
        ([], (-np.abs(values).max(), np.abs(values).max())),
        (["--clip", "-0.5", "0.25"], (-0.5, 0.25)),
    ):
        shown = run("quantize", tmp_path / "a.safetensors", tmp_path / "b.mcf", "--method", "q8", *options)
        assert shown.exit_code == 0, shown.output
        data = (tmp_path / "b.mcf").read_bytes()
        at, _ = parse(data)[2][2]
        assert struct.unpack_from("<2f", data, at + 8 + 16) == tuple(np.float32(want).tolist())
        (tmp_path / "b.mcf").unlink()


@pytest.mark.shows("M44")
@pytest.mark.parametrize(
    ("fields", "rule"),
    [({"count": 0}, "mcf.header.section_count"), ({"file_size": 1}, "mcf.header.file_size"),
     ({"file_size": 2**63}, "mcf.header.file_size"), ({"directory": 2**64 - 24}, "mcf.header.directory"),
     ({"directory": 8}, "mcf.header.directory"), ({"count": 2**32 - 1}, "mcf.header.directory"),
     ({"header_size": 39}, "mcf.header.size"), ({"header_size": 2**32 - 1}, "mcf.header.size")],
)  # fmt: skip
def test_headers_that_lie_are_refused(fields, rule):
    refused(raw_file(header=fields).data(), rule, "core.limit")
    refused(raw_file().data() + b"\0", "mcf.header.file_size")


@pytest.mark.shows("M03", "M44")
@pytest.mark.parametrize(
    ("offset", "size", "rule"),
    [(2**63, 8, "place"), (2**64 - 8, 16, "place"), (64, 2**63, "place"), (8, 8, "place"), (44, 4, "align"),
     (48, 8, "overlap")],
)  # fmt: skip
def test_sections_that_lie_are_refused(offset, size, rule):
    data = File([(0x200, bytes(16)), (0x201, bytes(16))]).data()
    at = struct.unpack_from("<Q", data, 16)[0] + 24 + 8
    refused(data[:at] + struct.pack("<QQ", offset, size) + data[at + 16 :], f"mcf.section.{rule}")


@pytest.mark.shows("M03", "M44")
@pytest.mark.parametrize("offset", [0, 32, 80, 2**63, 2**64 - 8])
def test_payloads_outside_tensor_data_are_refused(offset):
    refused(File(tensors=[Entry("w", 1, [2, 3], W.tobytes(), offset=offset)]).data(), "mcf.tensor.place")


@pytest.mark.shows("M46")
@pytest.mark.parametrize("suffix", ["safetensors", "gguf", "oinf", "npz", "aero", "weights", "gptrs", "mcf"])
def test_quantized_tensors_become_numbers_in_any_container(suffix, tmp_path):
    values = samples((6, 64))
    q = quantize(values, "k4")
    written(tmp_path / "a.mcf", {"w": q.tensor("w")})
    shown = run("convert", tmp_path / "a.mcf", tmp_path / f"b.{suffix}", "--dequantize")
    assert shown.exit_code == 0, shown.output
    with holdall.open(tmp_path / f"b.{suffix}") as model:
        assert str(model["w"].dtype) == "f32"
        assert model["w"].numpy().tolist() == Payload(0x31, (6, 64), bytes(q.payload)).decode().tolist()


@pytest.mark.shows("M47")
@pytest.mark.parametrize("suffix", ["safetensors", "oinf", "npz", "aero", "gptrs"])
def test_codes_travel_through_another_container(suffix, tmp_path):
    q = quantize(samples((6, 64)), "k4")
    before = written(tmp_path / "a.mcf", {"w": q.tensor("w"), "b": W})
    holdall.convert(tmp_path / "a.mcf", tmp_path / f"b.{suffix}", carry=True)
    holdall.restore(tmp_path / f"b.{suffix}", tmp_path / "c.mcf")
    assert (tmp_path / "c.mcf").read_bytes() == before


@pytest.mark.shows("M45")
def test_the_configuration_is_a_facet_of_the_document():
    with holdall.open(File([(0x100, json.dumps({"a": [1, None]}).encode())]).data()) as model:
        assert model.config == {"a": [1, None]}
    with holdall.open(raw_file().data()) as model:
        assert model.config is None


def add_section(data, type, content):
    """The file with one more section, which is the last of the directory."""
    count, directory = struct.unpack_from("<IQ", data, 12)
    body = data[:directory] + content + bytes(-len(content) % 8)
    rows = data[directory : directory + 24 * count] + struct.pack("<IIQQ", type, 1, directory, len(content))
    out = bytearray(body + rows)
    struct.pack_into("<IQQ", out, 12, count + 1, len(body), len(out))
    return bytes(out)


@pytest.mark.parametrize(("type", "name"), [(2, "QuantInfo"), (4, "TensorData"), (3, "TensorIndex")])
def test_a_second_table_of_a_kind_is_never_dropped_in_silence(type, name, tmp_path):
    """No sentence of the document forbids it: it opens, strict reports it, and what leaves it out names it."""
    first = [(0x100, b"{}"), (1, bytes(4)), quant_info()]
    path, plain = tmp_path / "a.mcf", raw_file(sections=first).data()
    path.write_bytes(add_section(plain, type, b"the second"))
    assert holdall.verify(path).ok
    assert [finding.rule for finding in holdall.verify(path, level="strict").findings] == ["mcf.section.duplicate"]
    for target, options in (("b.mcf", {"rename": ["s/w/v/"]}), ("b.safetensors", {})):
        lost = holdall.convert(path, tmp_path / target, **options).lost
        what = f"native '{name} at byte {len(plain) - 24 * 5:#x}': a section of 10 bytes"
        assert [each for each in lost if each.startswith(what)], lost
    with pytest.raises(holdall.ContentError, match=f"{name} at byte"):
        holdall.convert(path, tmp_path / "c.mcf", strict=True, rename=["s/w/v/"])
    before = path.read_bytes()
    with pytest.raises(holdall.ContentError, match=rf"{name} at byte .* an edit would lose it"):
        holdall.edit(path, rename={"w": "v"})
    with holdall.open(path) as model, pytest.raises(holdall.ContentError, match="beside the first"):
        holdall.save(tmp_path / "d.mcf", model)
    assert path.read_bytes() == before and not (tmp_path / "d.mcf").exists()
    assert holdall.convert(path, tmp_path / "copy.mcf").lossless and (tmp_path / "copy.mcf").read_bytes() == before
    (tmp_path / "plain.mcf").write_bytes(plain)
    assert [what for _, what in holdall.diff(path, tmp_path / "plain.mcf").native] == ["only a"]
