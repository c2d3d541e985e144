"""Reading MCF files made by hand: what is public, and each rule that the golden files leave alone."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdall
from holdall.format.mcf.layout import ENTRY, HEADER, QUANTINFO, SECTION
from tests.format.mcf.build import Entry, mcf, quant_info, with_tensors

F32 = Entry(b"w", 1, (2, 2), np.arange(4, dtype="<f4").tobytes())


def test_sections_are_readable_by_type_and_name() -> None:
    model = holdall.open(mcf([(0x200, b"abc"), (0x105, b"merges")]))
    native = model.native
    assert native.section("0x0200").data == native.section(0x200).data == b"abc"
    assert native.section("merges.txt").data == model.assets["merges.txt"] == b"merges"
    assert native.get("ModelInfo") is None
    assert native.model_info is None
    with pytest.raises(holdall.MissingError, match="TensorIndex"):
        native.section("TensorIndex")
    with pytest.raises(holdall.UnsupportedError, match="Tensors"):
        native.get("Tensors")


@pytest.mark.shows("M07")
def test_requiring_sections() -> None:
    data = with_tensors([F32])
    with holdall.open(data, require=("TensorIndex", "TensorData")) as model:
        assert model["w"].shape == (2, 2)
    with pytest.raises(holdall.FormatError, match=r"no section tokenizer\.json") as error:
        holdall.open(data, require=("TensorIndex", "tokenizer.json"))
    assert error.value.rule == "mcf.section.required"


def test_facets_come_from_the_assets() -> None:
    model = holdall.open(mcf([(0x100, b'{"hidden_size": 8}'), (0x102, b'{"model": {"vocab": {"b": 1, "a": 0}}}')]))
    assert model.config == {"hidden_size": 8}
    assert list(model.vocab) == ["a", "b"]
    assert holdall.open(mcf([(0x200, b"")])).config is None
    with pytest.raises(holdall.FormatError, match=r"config\.json"):
        _ = holdall.open(mcf([(0x100, b"{")])).config


def test_no_section_is_required() -> None:
    model = holdall.open(mcf([(0x200, b"")]))
    assert len(model) == 0
    assert holdall.verify(mcf([(0x200, b"")]), level="strict").ok


def without(whole: bytes, missing: int) -> bytes:
    """The file with a section of type ``missing`` made one of an unknown type."""
    data = bytearray(whole)
    at, count = struct.unpack_from("<Q", data, 16)[0], struct.unpack_from("<I", data, 12)[0]
    for row in range(count):
        if struct.unpack_from("<I", data, at + row * SECTION.size)[0] == missing:
            struct.pack_into("<I", data, at + row * SECTION.size, 0x300)
    return bytes(data)


def test_an_index_without_data_lists_tensors_without_data(tmp_path: Path) -> None:
    entries = [F32, Entry(b"x", 0x31, (4, 32), bytes(64 + 64 + 64)), Entry(b"y", 0x10, (3,), bytes(3))]
    data = without(with_tensors(entries, [quant_info((1, 0x31, 0, 32, 256))]), 4)
    with holdall.open(data) as model:
        assert [(t.name, str(t.dtype), t.shape, t.has_data, t.nbytes) for t in model.tensors] == [
            ("w", "f32", (2, 2), False, 0), ("x", "mcf.k4", (4, 32), False, 0), ("y", "mcf.int8", (3,), False, 0),
        ]  # fmt: skip
        assert model["x"].native.method == "k4" and model.nbytes == 0
        with pytest.raises(holdall.ContentError, match="declared without data"):
            model["w"].numpy()
        assert model["w"].numpy(fill=0).tolist() == [[0, 0], [0, 0]]
        with pytest.raises(holdall.ContentError, match="declared without data, which MCF cannot do"):
            holdall.save(tmp_path / "again.mcf", model, arrange="plain")
    for level in ("structure", "full", "strict"):
        report = holdall.verify(data, level=level)  # type: ignore[arg-type]
        assert report.ok and [(f.rule, f.severity) for f in report.findings] == [("mcf.section.pair", "warning")]
        assert report.findings[0].message.endswith("but none TensorData: its tensors have no data")


def test_entries_of_an_index_without_data_may_say_anything_of_it() -> None:
    far = Entry(b"w", 1, (2, 2), b"", offset=1 << 60)
    assert not holdall.open(without(with_tensors([far]), 4))["w"].has_data
    bad = Entry(b"w", 1, (2, 0), b"")
    with pytest.raises(holdall.FormatError) as error:
        holdall.open(without(with_tensors([bad]), 4))
    assert error.value.rule == "mcf.tensor.dim"


def test_data_without_an_index_opens_with_no_tensors(tmp_path: Path) -> None:
    records = QUANTINFO.pack(version=1, record_count=0) + b"anything"
    data = mcf([(0x100, b"{}"), (4, b"payload bytes"), (2, records)])
    with holdall.open(data) as model:
        assert len(model) == 0 and model.config == {}
        holdall.save(tmp_path / "again.mcf", model)
    with holdall.open(tmp_path / "again.mcf") as again:
        assert {s.name: s.data for s in again.native.sections} == {  # type: ignore[attr-defined]
            "config.json": b"{}", "TensorData": b"payload bytes", "QuantInfo": records,
        }  # fmt: skip
    report = holdall.verify(data, level="strict")
    assert report.ok
    assert [(finding.rule, finding.severity, finding.offset) for finding in report.findings] == [
        ("mcf.section.pair", "warning", 48), ("mcf.section.pair", "warning", 64),
    ]  # fmt: skip
    (tmp_path / "m.mcf").write_bytes(data)
    losses = holdall.convert(tmp_path / "m.mcf", tmp_path / "m.aero").losses
    assert [loss.reason for loss in losses if loss.name == "TensorData"] == [
        "a section of 13 bytes: aero has no place for it"
    ]


K4 = Entry(b"q", 0x31, (1, 32), bytes(64 + 64 + 16))


@pytest.mark.parametrize("method", [1, 0])
def test_a_record_for_every_tensor(method: int) -> None:
    record = (0, 0x31, 0, 32, 256)
    data = with_tensors([K4, F32], [quant_info((1, method, 0, 0, 0), record)])
    with holdall.open(data) as model:
        assert model["q"].native.method == "k4" and model["w"].native.method == method
        assert model["w"].numpy().tolist() == [[0, 1], [2, 3]]
    assert holdall.verify(data).findings == []
    report = holdall.verify(data, level="strict")
    assert report.ok and [(f.rule, f.severity) for f in report.findings] == [("mcf.quant.plain", "note")]
    assert report.findings[0].message == "mcf: quant record 0: tensor 1 of dtype 0x1 is not quantized"


@pytest.mark.parametrize(
    ("entries", "records", "rule"),
    [
        ([K4, F32], [(1, 1, 0, 0, 0)], "mcf.quant.method"),  # not one for every tensor
        ([K4, F32], [(0, 0x31, 0, 32, 256), (1, 2, 0, 0, 0)], "mcf.quant.method"),  # another dtype
        ([K4, F32], [(0, 0x31, 0, 32, 256), (1, 0x31, 0, 32, 256)], "mcf.quant.match"),
        ([K4, F32], [(0, 0, 0, 0, 0), (1, 1, 0, 0, 0)], "mcf.quant.method"),
        ([K4, F32], [(1, 1, 0, 0, 0), (1, 1, 0, 0, 0)], "mcf.quant.method"),
        ([K4, F32], [(0, 0x31, 0, 32, 256), (1, 1, 2, 0, 0)], "mcf.quant.domain"),
    ],
)
def test_records_of_plain_tensors_that_are_refused(entries: list[Entry], records: list[Any], rule: str) -> None:
    with pytest.raises(holdall.FormatError) as error:
        holdall.open(with_tensors(entries, [quant_info(*records)]))
    assert error.value.rule == rule


def test_a_second_section_of_a_type_breaks_a_strict_rule() -> None:
    data = mcf([(0x105, b"first"), (0x105, b"second")])
    assert holdall.open(data).assets["merges.txt"] == b"first"
    assert holdall.verify(data, level="full").ok
    assert [f.rule for f in holdall.verify(data, level="strict").findings] == ["mcf.section.duplicate"]


def test_many_sections_meet_a_limit() -> None:
    data = mcf([(0x200 + n, b"") for n in range(20)])
    with pytest.raises(holdall.LimitError):
        holdall.open(data, limits=holdall.Limits(sections=10))


@pytest.mark.parametrize(
    ("entries", "flags", "rule"),
    [
        ([F32, Entry(b"w", 1, (2, 2), bytes(16))], 2, "mcf.name.duplicate"),
        ([F32, Entry(b"w", 1, (2, 2), bytes(16))], 3, "mcf.name.duplicate"),
        ([F32, Entry(b"a", 1, (2, 2), bytes(16))], 3, "mcf.index.sorted"),
        ([Entry(b"", 1, (2, 2), bytes(16))], 3, "mcf.name.empty"),
        ([Entry(b"\xff", 1, (2, 2), bytes(16))], 0, "mcf.name.utf8"),
        ([Entry(b"w", 1, (2, 0), b"")], 3, "mcf.tensor.dim"),
        ([Entry(b"w", 1, (1 << 63, 1), b"")], 3, "mcf.tensor.dim"),
        ([Entry(b"w", 1, (2, 2), bytes(16), offset=40 + 24 - 8)], 3, "mcf.tensor.place"),
        ([Entry(b"w", 1, (2, 2), bytes(16), offset=0)], 3, "mcf.tensor.place"),
        ([Entry(b"w", 0x10000, (2, 2), bytes(16))], 3, "mcf.tensor.dtype_range"),
        ([Entry(b"w", 0x31, (1, 8), bytes(144), offset=72), Entry(b"x", 1, (64,), bytes(256))], 3, "mcf.tensor.align"),
        ([Entry(b"w", 0x10, (4,), bytes(68), offset=72), Entry(b"x", 1, (64,), bytes(256))], 3, "mcf.tensor.align"),
        ([Entry(b"w", 0x10, (4,), bytes(5))], 3, "mcf.tensor.size"),
        ([Entry(b"w", 0x31, (1, 8), bytes(143))], 3, "mcf.tensor.size"),
    ],
)
def test_entries_that_break_a_rule(entries: list[Entry], flags: int, rule: str) -> None:
    data = with_tensors(entries, index_flags=flags)
    with pytest.raises(holdall.FormatError) as error:
        holdall.open(data)
    assert error.value.rule == rule
    assert rule in {finding.rule for finding in holdall.verify(data).findings}


def test_unsorted_names_are_fine_without_the_flag() -> None:
    assert list(holdall.open(with_tensors([F32, Entry(b"a", 1, (), bytes(4))], index_flags=0))) == ["w", "a"]


def test_bare_codes_need_no_alignment() -> None:
    data = with_tensors([Entry(b"w", 0x10, (3,), b"\xff\x02\x03", offset=73), Entry(b"x", 1, (64,), bytes(256))])
    tensor = holdall.open(data)["w"]
    assert (str(tensor.dtype), tensor.nbytes, tensor.native) == ("mcf.int8", 3, None)


@pytest.mark.parametrize(("head", "domain"), [(64, 0), (128, 1)])
def test_domain_and_size_must_agree(head: int, domain: int) -> None:
    entry = Entry(b"w", 0x11, (3,), bytes(head + 2))
    good = holdall.open(with_tensors([entry], [quant_info((0, 0x11, domain, 0, 0))]))
    assert good["w"].native.domain == ("weights", "activations")[domain]
    bare = Entry(b"w", 0x11, (3,), bytes(2))
    for wrong, said in ((entry, 1 - domain), (bare, domain)):
        data = with_tensors([wrong], [quant_info((0, 0x11, said, 0, 0))])
        with pytest.raises(holdall.FormatError) as error:
            holdall.open(data)
        assert error.value.rule == "mcf.quant.layout"


def test_two_records_for_one_tensor_are_refused() -> None:
    entry = Entry(b"w", 0x31, (1, 8), bytes(144))
    data = with_tensors([entry], [quant_info((0, 0x31, 0, 32, 256), (0, 0x31, 0, 32, 256))])
    with pytest.raises(holdall.FormatError) as error:
        holdall.open(data)
    assert error.value.rule == "mcf.quant.duplicate"


def test_records_are_optional_and_in_any_order() -> None:
    entries = [Entry(name, 0x31, (1, 8), bytes(144)) for name in (b"a", b"b", b"c")]
    model = holdall.open(with_tensors(entries, [quant_info((2, 0x31, 0, 32, 256), (0, 0x31, 0, 32, 256))]))
    assert [tensor.native is not None for tensor in model.tensors] == [True, False, True]
    assert model["a"].numpy().tolist() == [[0.0] * 8]


def test_unknown_dtypes_are_listed_and_extracted() -> None:
    data = with_tensors([Entry(b"w", 0x77, (3,), b"abcde")])
    model = holdall.open(data)
    assert (str(model["w"].dtype), bytes(model["w"].raw())) == ("mcf.dtype119", b"abcde")
    with pytest.raises(holdall.FormatError):
        model["w"].numpy()
    assert [f.rule for f in holdall.verify(data).findings] == ["mcf.tensor.dtype"]
    assert holdall.verify(data, level="structure").ok


def test_shared_names_and_shapes_do_not_unfold() -> None:
    """Entries may point at the same name bytes; a small file must not become a large list."""
    entries = [Entry(b"x" * 4096 if n == 0 else b"%06d" % n, 1, (1,), bytes(4)) for n in range(200)]
    data = bytearray(with_tensors(entries, index_flags=0))
    index = struct.unpack_from("<Q", data, struct.unpack_from("<Q", data, 16)[0] + SECTION.size + 8)[0]
    for row in range(200):
        at = index + 48 + row * ENTRY.size
        struct.pack_into("<II", data, at, 0, 4096 - row)
    with pytest.raises(holdall.FormatError) as error:
        holdall.open(bytes(data))
    assert error.value.rule == "mcf.index.total"


@pytest.mark.shows("M33", "M34", "M37")
def test_strict_looks_into_quantized_payloads() -> None:
    def strict(entry: Entry) -> set[str]:
        return {finding.rule for finding in holdall.verify(with_tensors([entry]), level="strict").findings}

    def changed(size: int, at: int, value: int) -> bytes:
        data = bytearray(size)
        data[at] = value
        return bytes(data)

    assert strict(Entry(b"w", 0x31, (1, 8), changed(144, 63, 1))) == {"mcf.payload.gap"}  # behind the super-scale
    assert strict(Entry(b"w", 0x31, (1, 8), changed(144, 64, 0x40))) == {"mcf.payload.subscale"}
    assert strict(Entry(b"w", 0x31, (1, 8), changed(144, 131, 0xFF))) == set()  # columns 6 and 7
    assert strict(Entry(b"w", 0x31, (1, 7), changed(144, 131, 0xF0))) == {"mcf.payload.columns"}
    assert strict(Entry(b"w", 0x32, (1, 3), changed(140, 129, 0x02))) == {"mcf.payload.columns"}  # bit 9 of the stream
    assert strict(Entry(b"w", 0x32, (1, 3), changed(140, 129, 0x01))) == set()
    assert strict(Entry(b"w", 0x10, (3,), changed(67, 4, 1))) == {"mcf.payload.gap"}
    assert strict(Entry(b"w", 0x11, (3,), changed(66, 65, 0x10))) == {"mcf.payload.spare"}
    assert strict(Entry(b"w", 0x11, (3,), changed(66, 65, 0x01))) == set()


def test_header_bytes_beyond_the_known_ones_are_skipped() -> None:
    data = bytearray(mcf([(0x200, b"x" * 8), (0x201, b"y" * 8)]))
    struct.pack_into("<I", data, HEADER.offset_of("header_size"), 48)
    with pytest.raises(holdall.FormatError, match="header of 48 bytes"):
        holdall.open(bytes(data))  # the first section now lies in the header


def test_a_section_beyond_every_buffer_is_read_whole(tmp_path):
    """Its pieces share one buffer: joined without a copy, each of them would have the bytes of the last."""
    texts = {"first": "a" * (5 << 20), "second": "b" * (5 << 20)}
    holdall.save(tmp_path / "m.mcf", {"w": np.zeros((4, 4), np.float32)}, metadata=texts)
    with holdall.open(tmp_path / "m.mcf") as model:
        assert dict(model.metadata) == texts
        section = model.native.section("ModelInfo")
        assert section.data == (tmp_path / "m.mcf").read_bytes()[section.offset : section.offset + section.size]
    assert holdall.verify(tmp_path / "m.mcf", level="strict").findings == []
