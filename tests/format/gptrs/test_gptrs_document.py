"""What the format's document asks for, sentence by sentence, on files that struct alone makes."""

from __future__ import annotations

import json
import struct

import ml_dtypes
import numpy as np
import pytest
from blake3 import blake3
from click.testing import CliRunner

import holdall
from holdall import identity
from holdall.cli import main
from holdall.params import ParamStore
from holdall.source import BytesSource
from holdall.testing import RecordingSource
from tests.format.gptrs.build import CONFIG, Entry, archive, base_id, checkpoint, read

A = np.arange(6, dtype="<f4").reshape(2, 3) / 7
B = np.array([-(2**31), 0, 2**31 - 1], "<i4")
ENTRIES = [Entry("blocks.0.w", 0, [2, 3], A.tobytes()), Entry("ids", 3, [3], B.tobytes())]
CONTENT = {"ids": B, "blocks.0.w": A}  # not sorted: files are
BUILDERS = {"gptrs-checkpoint": checkpoint, "gptrs-archive": archive}
TAGS = {0: ("f32", "<f4"), 1: ("f16", "<f2"), 2: ("bf16", ml_dtypes.bfloat16), 3: ("i32", "<i4")}


@pytest.fixture(params=BUILDERS)
def format(request):
    return request.param


def refused(data, *rules):
    with pytest.raises(holdall.FormatError) as caught:
        holdall.open(data)
    assert caught.value.rule in rules, caught.value
    assert not holdall.verify(data, level="structure").ok


def written(path, content, format, **options):
    holdall.save(path, content, format=format, fsync=False, **options)
    return path.read_bytes()


@pytest.mark.shows("G01", "G03", "G07", "G10", "G14", "G20")
@pytest.mark.parametrize("align", [64, 1])
@pytest.mark.parametrize("ids", [True, False])
def test_a_checkpoint_is_the_one_that_struct_makes(align, ids, tmp_path):
    want = checkpoint(ENTRIES, align=align, ids=ids)
    options = {"metadata": CONFIG, "align": align, "ids": ids}
    assert written(tmp_path / "a", CONTENT, "gptrs-checkpoint", **options) == want
    with holdall.open(want) as model:
        assert (model.format, model.version, model.config) == ("gptrs-checkpoint", (2,), CONFIG)
        assert {name: model[name].numpy().tolist() for name in model} == {"blocks.0.w": A.tolist(), "ids": B.tolist()}
        assert [model[name].offset for name in model] == [want.index(A.tobytes()), want.rindex(B.tobytes())]


@pytest.mark.shows("G02", "G03", "G10", "G20")
@pytest.mark.parametrize("align", [64, 1])
def test_an_archive_is_the_one_that_struct_makes(align, tmp_path):
    want = archive(ENTRIES, align=align)
    assert written(tmp_path / "a", CONTENT, "gptrs-archive", align=align) == want
    with holdall.open(want) as model:
        assert (model.format, model.version, model.config) == ("gptrs-archive", (2,), None)
        assert {name: model[name].numpy().tolist() for name in model} == {"blocks.0.w": A.tolist(), "ids": B.tolist()}


@pytest.mark.shows("G03", "G42")
@pytest.mark.parametrize("magic", [b"GPTRSXXX", b"gptrschk", b"GPTRSCH\0"])
def test_another_magic_is_refused(format, magic):
    data = BUILDERS[format](ENTRIES)
    with pytest.raises(holdall.FormatError) as caught:
        holdall.open(magic + data[8:], format=format)
    assert caught.value.rule == "gptrs.header.magic"
    with pytest.raises(holdall.FormatError):
        holdall.open(magic + data[8:])


@pytest.mark.shows("G04")
@pytest.mark.parametrize("version", [0, 3, 2**32 - 1])
def test_unknown_versions_are_refused(format, version):
    refused(BUILDERS[format](ENTRIES, version=version), "gptrs.header.version")


@pytest.mark.shows("G05", "G07")
def test_a_configuration_has_a_kind_and_what_the_model_needs(tmp_path):
    config = {"kind": "resnet34", "config": {"classes": 10, "deep": {"a": [1, None]}}}
    with holdall.open(checkpoint(ENTRIES, config)) as model:
        assert model.config == config
    data = written(tmp_path / "a", CONTENT, "gptrs-checkpoint", config=config)
    (size,) = struct.unpack_from("<I", data, 12)
    assert json.loads(data[16 : 16 + size]) == config  # no runtime, and nothing else


@pytest.mark.shows("G06")
def test_runtime_is_kept_as_it_is(tmp_path):
    runtime = {"functional_overrides": {"softmax": "force=fast", "mm": "benchmark(cache=4)"}, "other": [1]}
    data = checkpoint(ENTRIES, {**CONFIG, "runtime": runtime}, align=64)
    with holdall.open(data) as model:
        assert model.config["runtime"] == runtime
        assert written(tmp_path / "a", model, "gptrs-checkpoint") == data
    refused(
        checkpoint(ENTRIES, {**CONFIG, "runtime": {"functional_overrides": {"mm": "often"}}}), "gptrs.config.runtime"
    )


LEGACY = {"vocab_size": 32, "context_length": 16, "embed_dim": 8, "num_layers": 1, "num_heads": 2, "mlp_ratio": 2,
          "dropout": 0.1}  # fmt: skip


@pytest.mark.shows("G08")
def test_a_configuration_without_a_kind_is_one_of_gpt():
    with holdall.open(checkpoint(ENTRIES, LEGACY)) as model:
        assert model.config == {"kind": "gpt", "config": LEGACY}
    for key in LEGACY:
        less = {name: value for name, value in LEGACY.items() if name != key}
        refused(checkpoint(ENTRIES, less), "gptrs.config.kind")


@pytest.mark.shows("G09")
@pytest.mark.parametrize(
    "config", [b"", b"{", b"kind", b"[]", {"config": {}}, {"kind": 1}, {"kind": "x", "runtime": 1}]
)
def test_other_configurations_are_refused(config):
    refused(checkpoint(ENTRIES, config), "gptrs.config.json", "gptrs.config.kind", "gptrs.config.runtime")


@pytest.mark.shows("G10", "G11")
def test_a_tensor_is_found_by_its_name_and_by_its_id(format):
    large = np.arange(2 << 20, dtype="<i4").reshape(2, -1)  # 8 MiB, beyond every buffer
    entries = [Entry(name, 3, [1 << 20], row.tobytes()) for name, row in zip("ab", large, strict=True)]
    source = RecordingSource(BytesSource(BUILDERS[format](entries)))
    with holdall.open(source) as model:
        assert source.bytes_read < 1 << 17
        source.reads.clear()
        found = identity.Identities(model).tensor(int.from_bytes(base_id("b"), "little"))
        assert found.numpy().tobytes() == large[1].tobytes()
        assert source.bytes_read == 4 << 20
        assert model["a"][7:9].tolist() == [7, 8]


@pytest.mark.shows("G12", "G13")
def test_a_stored_id_is_zero_or_that_of_the_name():
    for stored in (bytes(16), base_id("w")):
        with holdall.open(checkpoint([Entry("w", 0, [1], bytes(4), id=stored)])) as model:
            ids = identity.Identities(model)
            assert ids.by_name["w"] == int.from_bytes(base_id("w"), "little")
    for stored in (base_id("v"), base_id("w")[::-1], b"\1" + bytes(15)):
        refused(checkpoint([Entry("w", 0, [1], bytes(4), id=stored)]), "gptrs.index.base_id")


@pytest.mark.shows("G15")
def test_names(tmp_path):
    for name in ("größe", "層.0", " "):
        assert list(holdall.open(archive([Entry(name, 0, [1], bytes(4))]))) == [name]
    refused(checkpoint([Entry("größe", 0, [1], bytes(4))]), "gptrs.index.ascii")
    for build in BUILDERS.values():
        refused(build([Entry(b"\xff", 0, [1], bytes(4), id=bytes(16))]), "gptrs.index.utf8")
    with pytest.raises(holdall.ContentError, match="ASCII"):
        written(tmp_path / "a", {"größe": A}, "gptrs-checkpoint")
    assert written(tmp_path / "a", {"größe": A}, "gptrs-archive", align=1) == archive(
        [Entry("größe", 0, [2, 3], A.tobytes())]
    )


@pytest.mark.shows("G16")
def test_requires_grad_is_read_and_kept(format, tmp_path):
    entries = [Entry("a", 0, [1], bytes(4), grad=1), Entry("b", 0, [1], bytes(4)), Entry("c", 0, [1], bytes(4), grad=1)]
    data = BUILDERS[format](entries, align=64)
    with holdall.open(data) as model:
        assert [bool(tensor.native and tensor.native.flag) for tensor in model.tensors] == [True, False, True]
        options = {"config": CONFIG} if format == "gptrs-checkpoint" else {}
        assert written(tmp_path / "a", model, format, **options) == data


@pytest.mark.shows("G18")
@pytest.mark.parametrize("tag", TAGS)
def test_every_type(format, tag, tmp_path):
    name, kind = TAGS[tag]
    values = np.array([[1, 2, 3], [-4, 5, 6]]).astype(kind)
    data = BUILDERS[format]([Entry("w", tag, [2, 3], values.tobytes())])
    with holdall.open(data) as model:
        assert str(model["w"].dtype) == name
        assert model["w"].numpy().tolist() == values.tolist()
    options = {"config": CONFIG} if format == "gptrs-checkpoint" else {}
    assert written(tmp_path / "a", {"w": values}, format, align=1, **options) == data


@pytest.mark.shows("G18")
@pytest.mark.parametrize("tag", [4, 255, 2**32 - 1])
def test_unknown_types_are_refused(format, tag, tmp_path):
    refused(BUILDERS[format]([Entry("w", tag, [1], bytes(4))]), "gptrs.tensor.dtype")
    with pytest.raises(holdall.ContentError):
        written(tmp_path / "a", {"w": np.zeros(1, np.float64)}, format)


@pytest.mark.shows("G20")
@pytest.mark.parametrize("make", [np.asfortranarray, lambda a: a.astype(">f4")])
def test_rows_come_first(format, make, tmp_path):
    assert written(tmp_path / "a", {"w": make(A)}, format)[-24:] == A.tobytes()


@pytest.mark.shows("G21")
@pytest.mark.parametrize(
    ("change", "rule"),
    [({"size": 3}, "size"), ({"size": 5}, "size"), ({"dims": [2]}, "size"), ({"dims": [2**32, 2**32]}, "size"),
     ({"dims": [2**63, 2], "payload": b""}, "size"), ({"offset": 10_000}, "place"), ({"offset": 2**64 - 4}, "place"),
     ({"size": 4000, "dims": [1000]}, "place"), ({"size": 2**63, "dims": [2**61]}, "place")],
)  # fmt: skip
def test_payloads_that_do_not_fit_are_refused(format, change, rule):
    entry = Entry(**{"name": "w", "tag": 0, "dims": [1], "payload": bytes(4), **change})
    refused(BUILDERS[format]([entry]), f"gptrs.tensor.{rule}")
    cut = BUILDERS[format]([Entry("w", 0, [1], bytes(4))])[:-1]
    refused(cut, "gptrs.tensor.place")


@pytest.mark.shows("G22")
@pytest.mark.parametrize("align", [None, 64, 1])
def test_both_forms_are_read_by_a_reader_that_follows_the_document(format, align, tmp_path):
    data = written(tmp_path / "a", CONTENT, format, **({} if align is None else {"align": align}))
    assert {name: values.tolist() for name, values in read(data).items()} == {n: v.tolist() for n, v in CONTENT.items()}
    offsets = [tensor.offset for tensor in holdall.open(data).tensors]
    assert (offsets[1] == offsets[0] + A.nbytes) == (align == 1)
    if align != 1:
        assert [offset % 64 for offset in offsets] == [0, 0]


@pytest.mark.shows("G23")
def test_arrays_of_numpy_become_the_input_of_a_vision_model(tmp_path):
    image = np.linspace(0, 1, 24, dtype=np.float32).reshape(1, 2, 3, 4)
    np.savez(tmp_path / "x.npz", input=image)
    np.save(tmp_path / "input.npy", image)
    want, out = archive([Entry("input", 0, [1, 2, 3, 4], image.tobytes())], align=64), tmp_path / "in.gptrsten"
    for source, options in (("x.npz", []), ("input.npy", ["--rename", "s/.*/input/"])):
        shown = CliRunner().invoke(main, ["convert", str(tmp_path / source), str(out), *options])
        assert shown.exit_code == 0, shown.output
        assert out.read_bytes() == want
        out.unlink()


@pytest.mark.shows("G24")
def test_a_trace_is_listed_and_extracted(tmp_path):
    path = tmp_path / "trace.bin"
    path.write_bytes(archive([Entry("blocks.0.out", 0, [2, 3], A.tobytes()), Entry("logits", 0, [6], A.tobytes())]))
    rows = [json.loads(line) for line in CliRunner().invoke(main, ["ls", "--json", str(path)]).output.splitlines()]
    assert [(row["name"], row["dtype"], row["shape"]) for row in rows] == [
        ("blocks.0.out", "f32", [2, 3]), ("logits", "f32", [6]),
    ]  # fmt: skip
    shown = CliRunner().invoke(main, ["extract", str(path), "logits", "-o", str(tmp_path / "l.npy")])
    assert shown.exit_code == 0
    assert np.load(tmp_path / "l.npy").tobytes() == A.tobytes()


@pytest.mark.shows("G25")
def test_metadata_does_not_go_into_an_archive_and_that_is_said(tmp_path):
    holdall.save(tmp_path / "a.safetensors", {"w": A}, metadata={"note": "mine"})
    report = holdall.convert(tmp_path / "a.safetensors", tmp_path / "a.gptrsten")
    assert [(loss.name, loss.fate) for loss in report.losses] == [("note", "left out")]
    assert (tmp_path / "a.gptrsten").read_bytes() == archive([Entry("w", 0, [2, 3], A.tobytes())], align=64)
    with pytest.raises(holdall.ContentError, match="metadata"):
        written(tmp_path / "b.gptrsten", {"w": A}, "gptrs-archive", metadata={"note": "mine"})


@pytest.mark.shows("G26", "G41")
def test_names_of_parameters_are_dots_between_ascii_segments():
    assert identity.flatten({"blocks": [{"w": 1}], "lm_head": 2}) == {"blocks.0.w": 1, "lm_head": 2}
    assert identity.nest({"blocks.0.w": 1}) == {"blocks": {"0": {"w": 1}}}
    for bad in ("", ".", "a..b", "a.", "größe"):
        assert identity.name_breach(bad)
    for tree in ({"a.b": 1}, {"": 1}, {"ö": 1}):
        with pytest.raises(holdall.ContentError, match="segment"):
            identity.flatten(tree)


@pytest.mark.shows("G27")
@pytest.mark.parametrize(
    ("name", "want"),
    [("", "49c9dc36ea4d40a0a6a1f9f5b94913af"), ("a", "a2eec37a71655d9253a469d9dd2f7617"),
     ("tok_embeddings.weight", "e69eece7056dba699fb4dde1cfea7f7e"), ("lm_head", "a962c72e0d59ef7a13ff91bdee235d58"),
     ("blocks.11.feed_forward.b_out", "a24fcb15ec27272c12116567aea78842")],
)  # fmt: skip
def test_the_id_of_a_name_is_the_start_of_its_blake3(name, want):
    assert f"{identity.base_id(name):032x}" == want
    assert identity.base_id(name) == int.from_bytes(blake3(name.encode()).digest()[:16], "little")


@pytest.mark.shows("G28")
@pytest.mark.parametrize("namespace", [0, 1, 2, 2**64, 2**128 - 1])
def test_the_key_is_the_start_of_a_blake3_of_namespace_and_id(namespace):
    for name in ("a", "lm_head", "x" * 3000):
        hashed = blake3(b"gpt-rs:param-key:v1" + namespace.to_bytes(16, "little") + base_id(name))
        assert identity.param_key(namespace, identity.base_id(name)) == int.from_bytes(hashed.digest()[:16], "little")


@pytest.mark.shows("G29")
def test_two_models_of_the_same_names_live_side_by_side():
    store = ParamStore()
    first = store.add(holdall.open(checkpoint([Entry("w", 0, [1], struct.pack("<f", 1))])))
    second = store.add(holdall.open(checkpoint([Entry("w", 0, [1], struct.pack("<f", 2))])))
    assert (first["w"][0], second["w"][0], first["w"][0]) == (1, 2, 1)
    assert first.namespace != second.namespace
    assert first.key("w") == identity.param_key(first.namespace, identity.base_id("w")) != second.key("w")


@pytest.mark.shows("G30")
def test_a_parameter_is_read_when_it_is_first_needed_and_once():
    source = RecordingSource(BytesSource(checkpoint(ENTRIES)))
    (parameters,) = ParamStore.from_model(holdall.open(source)).models.values()
    source.reads.clear()
    assert list(parameters) == ["blocks.0.w", "ids"]
    assert source.reads == []
    found = parameters.by_id(int.from_bytes(base_id("ids"), "little"))
    assert found.tolist() == B.tolist()
    assert source.bytes_read == B.nbytes
    assert parameters["ids"] is found
    assert source.bytes_read == B.nbytes


@pytest.mark.shows("G37")
@pytest.mark.parametrize(
    "suffix", ["gptrs", "gptrsten", "oinf", "weights", "mcf", "aero", "safetensors", "gguf", "npz", "pt"]
)
def test_keys_do_not_depend_on_the_container(suffix, tmp_path):
    holdall.save(tmp_path / f"a.{suffix}", {"blocks.0.w": A}, fsync=False)
    with holdall.open(tmp_path / f"a.{suffix}") as model:
        (parameters,) = ParamStore.from_model(model).models.values()
        assert parameters.key("blocks.0.w") == identity.param_key(1, int.from_bytes(base_id("blocks.0.w"), "little"))
        assert parameters["blocks.0.w"].tolist() == A.tolist()


@pytest.mark.shows("G38")
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2)])
def test_scalars_and_empty_tensors(format, shape, tmp_path):
    values = np.full(shape, 2.5, np.float32)
    options = {"config": CONFIG} if format == "gptrs-checkpoint" else {}
    data = written(tmp_path / "a", {"w": values}, format, align=1, **options)
    assert data == BUILDERS[format]([Entry("w", 0, shape, values.tobytes())])
    with holdall.open(data) as model:
        assert model["w"].shape == shape
        assert model["w"].numpy().tolist() == values.tolist()


@pytest.mark.shows("G39")
def test_version_1_is_read():
    body = b""
    for name, kind, values in (("z", 0, A), ("ids", 3, B)):
        body += struct.pack("<I", len(name)) + name.encode()
        body += (
            struct.pack(f"<I{values.ndim}QIBQ", values.ndim, *values.shape, kind, 0, values.nbytes) + values.tobytes()
        )
    config = json.dumps(LEGACY).encode()
    for data in (
        b"GPTRSTEN" + struct.pack("<II", 1, 2) + body,
        b"GPTRSCHK" + struct.pack("<II", 1, len(config)) + config + struct.pack("<I", 2) + body,
    ):
        with holdall.open(data) as model:
            assert model.version == (1,)
            assert {name: model[name].numpy().tolist() for name in model} == {"z": A.tolist(), "ids": B.tolist()}


@pytest.mark.shows("G41")
def test_a_name_or_a_namespace_that_is_taken_is_refused(format, tmp_path):
    twice = [Entry("w", 0, [1], bytes(4)), Entry("w", 0, [1], bytes(4))]
    refused(BUILDERS[format](twice), "gptrs.index.duplicate")
    tensors = [holdall.Tensor.of("w", A), holdall.Tensor.of("w", B)]
    with pytest.raises(holdall.ContentError, match="'w'"):
        written(tmp_path / "a", tensors, format)
    store = ParamStore()
    store.add(holdall.open(checkpoint(ENTRIES)), namespace=5)
    with pytest.raises(holdall.ContentError, match="taken"):
        store.add(holdall.open(checkpoint(ENTRIES)), namespace=5)


@pytest.mark.shows("G43")
@pytest.mark.parametrize("length", [2**32 - 1, 2**31, 10_000])
def test_lengths_that_lie_are_refused(format, length):
    refused(BUILDERS[format](ENTRIES, index_len=length), "gptrs.header.short")
    refused(BUILDERS[format](ENTRIES, count=length), "gptrs.index.entry", "core.limit")
    data = checkpoint(ENTRIES)
    refused(data[:12] + struct.pack("<I", length) + data[16:], "gptrs.header.short")
    name = BUILDERS[format](ENTRIES)
    at = name.index(b"blocks.0.w") - 4
    refused(name[:at] + struct.pack("<I", length) + name[at + 4 :], "gptrs.index.entry")


@pytest.mark.shows("G40")
def test_a_folder_of_gpt2_becomes_a_checkpoint_with_a_table_of_names(tmp_path):
    """What the published exporter does: other names, weights turned where they are, its own configuration."""
    rng = np.random.default_rng(0)
    shapes = {"wte.weight": (8, 4), "wpe.weight": (6, 4), "h.0.attn.c_attn.weight": (4, 12), "h.0.ln_1.weight": (4,)}
    arrays = {f"transformer.{name}": rng.standard_normal(shape).astype("<f4") for name, shape in shapes.items()}
    folder = tmp_path / "gpt2"
    folder.mkdir()
    holdall.save(folder / "model.safetensors", arrays)
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2", "n_layer": 1}))
    (folder / "tokenizer.json").write_text("{}")
    table = {"wte.weight": "tok_embeddings.weight", "wpe.weight": "pos_embeddings"}
    table |= {"h.0.ln_1.weight": "blocks.0.ln_1.gamma", "h.0.attn.c_attn.weight": "blocks.0.attention.w_qkv"}
    config = {"kind": "gpt", "config": LEGACY}
    report = holdall.convert(
        folder, tmp_path / "a.gptrs", names={f"transformer.{old}": new for old, new in table.items()},
        config=config, transpose=["*.c_attn.weight"], recipe="none",
    )  # fmt: skip
    want = []
    for new, old in sorted((new, old) for old, new in table.items()):
        values = arrays[f"transformer.{old}"]
        values = values.T if new == "blocks.0.attention.w_qkv" else values
        want.append(Entry(new, 0, values.shape, values.tobytes()))
    assert (tmp_path / "a.gptrs").read_bytes() == checkpoint(want, config, align=64)
    assert {loss.name for loss in report.losses} == {"config.json", "tokenizer.json"}
