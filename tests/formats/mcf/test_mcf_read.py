"""Reading MCF files made by hand: what is public, and each rule that the golden files leave alone."""

from __future__ import annotations

import struct

import numpy as np
import pytest

import holdall
from holdall.formats.mcf.layout import ENTRY, HEADER, SECTION
from tests.formats.mcf.build import Entry, mcf, quant_info, with_tensors

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


@pytest.mark.parametrize("missing", [3, 4])
def test_index_and_data_come_together(missing: int) -> None:
    whole = bytearray(with_tensors([F32]))
    at = struct.unpack_from("<Q", whole, 16)[0]
    for row in range(2):
        if struct.unpack_from("<I", whole, at + row * SECTION.size)[0] == missing:
            struct.pack_into("<I", whole, at + row * SECTION.size, 0x300)
    with pytest.raises(holdall.FormatError) as error:
        holdall.open(bytes(whole))
    assert error.value.rule == "mcf.section.pair"


def test_a_section_twice_is_a_strict_matter() -> None:
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
    """Its pieces come through one buffer: joined as they are, the last would stand in the place of all."""
    texts = {"first": "a" * (5 << 20), "second": "b" * (5 << 20)}
    holdall.save(tmp_path / "m.mcf", {"w": np.zeros((4, 4), np.float32)}, metadata=texts)
    with holdall.open(tmp_path / "m.mcf") as model:
        assert dict(model.metadata) == texts
        section = model.native.section("ModelInfo")
        assert section.data == (tmp_path / "m.mcf").read_bytes()[section.offset : section.offset + section.size]
    assert holdall.verify(tmp_path / "m.mcf", level="strict").findings == []
