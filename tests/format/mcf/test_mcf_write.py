"""Writing MCF: from arrays, from MCF files with changes, with aliases; and what is refused."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdall
from holdall.format.mcf.sections import McfNative
from holdall.model.dtypes import DTYPES
from holdall.model.model import Model
from holdall.model.payload import InMemory, SourceRange
from holdall.model.tensor import Tensor
from holdall.quant.encodings import MCF, encoding_of
from holdall.quant.record import QuantRecord
from holdall.source import BytesSource
from tests.format.mcf.build import Entry, mcf, with_tensors


def save_strict(path: Path, content: Any, **options: Any) -> Model:
    holdall.save(path, content, fsync=False, **options)
    assert holdall.verify(path, level="strict").ok
    return holdall.open(path)


def test_arrays_and_metadata(tmp_path: Path) -> None:
    arrays = {"b": np.arange(6, dtype=np.int16).reshape(2, 3), "a": np.float32(1.5), "é": np.ones((1, 2, 3, 4))}
    model = save_strict(tmp_path / "x.mcf", arrays, metadata={"k": 1, "note": "hello", "mcf.arch": "qwen"})
    assert list(model) == ["a", "b", "é"]
    assert all(np.array_equal(model[name].numpy(), array) for name, array in arrays.items())
    assert dict(model.metadata) == {"k": 1, "note": "hello", "mcf.arch": "qwen"}
    assert all(tensor.offset % 64 == 0 for tensor in model.values())
    assert model.native.flags == 1
    assert model.version == (1, 1)


@pytest.mark.parametrize(("align", "flags"), [(1, 0), (8, 0), (64, 1), (256, 1), (0, 1)])
def test_alignment_and_flag(tmp_path: Path, align: int, flags: int) -> None:
    model = save_strict(tmp_path / "x.mcf", {"a": np.ones(3, np.int8), "b": np.ones(3, np.int8)}, tensor_align=align)
    step = align or 64
    assert model["b"].offset == -(-(model["a"].offset + 3) // step) * step
    assert model.native.flags == flags


@pytest.mark.shows("M17")
def test_quantized_tensors_are_aligned_whatever_is_asked(tmp_path: Path) -> None:
    shape = (2, 40)
    payload = InMemory(bytes(MCF["mcf.k4"].nbytes(shape)))
    record = QuantRecord("k4", "weights", -1.0, 0.5)
    tensors = [Tensor.of("a", np.ones(3, np.int8)), Tensor("b", MCF["mcf.k4"], shape, payload, record)]
    model = save_strict(tmp_path / "x.mcf", tensors, tensor_align=1)
    assert (model["b"].offset % 64, model.native.flags, model["b"].native) == (0, 1, record)
    with pytest.raises(holdall.ContentError, match="minor version 0"):
        holdall.save(tmp_path / "y.mcf", tensors, minor=0)


@pytest.mark.parametrize("domain", ["weights", "activations"])
def test_int_payloads_come_with_their_domain(tmp_path: Path, domain: Any) -> None:
    encoding = encoding_of("int4", ("weights", "activations").index(domain))
    payload = InMemory(bytes(encoding.nbytes((3, 3))))
    model = save_strict(
        tmp_path / "x.mcf", [Tensor("w", encoding, (3, 3), payload, QuantRecord("int4", domain, -1, 1))]
    )
    assert (model["w"].nbytes, model["w"].native.domain) == (payload.size, domain)
    other = "weights" if domain == "activations" else "activations"
    with pytest.raises(holdall.ContentError, match="its record"):
        holdall.save(tmp_path / "y.mcf", [Tensor("w", encoding, (3, 3), payload, QuantRecord("int4", other, -1, 1))])


def test_the_quantizers_order_needs_an_mcf_file(tmp_path: Path) -> None:
    """From anything else it only means that QuantInfo is there, even without records."""
    model = save_strict(tmp_path / "x.mcf", {"w": np.ones(2, np.float32)}, arrange="quantize")
    assert model.native.section("QuantInfo").size == 8
    reopen = save_strict(tmp_path / "y.mcf", model, arrange="quantize", dedup="auto")
    assert reopen.native.section("QuantInfo").size == 8


def test_a_record_does_not_outlive_its_payload(tmp_path: Path) -> None:
    """A tensor that was dequantized since keeps its native record, which then means nothing."""
    tensor = Tensor("w", DTYPES["f32"], (1, 1), InMemory(bytes(4)), QuantRecord("k4", "weights", -1, 1))
    model = save_strict(tmp_path / "x.mcf", [tensor])
    assert model.native.get("QuantInfo") is None


ALIASES = [
    Entry(b"a", 1, (4,), np.arange(4, dtype="<f4").tobytes(), offset=64),
    Entry(b"b", 1, (2, 2), np.arange(4, dtype="<f4").tobytes(), offset=64),
    Entry(b"c", 6, (8,), bytes(8), offset=68),
    Entry(b"z", 1, (64,), np.arange(64, dtype="<f4").tobytes()),
]


def test_aliases_stay_aliases(tmp_path: Path) -> None:
    source = holdall.open(with_tensors(ALIASES))
    model = save_strict(tmp_path / "x.mcf", source)
    assert [tensor.offset for tensor in model.values()] == [64, 64, 68, 64]
    reopen = save_strict(
        tmp_path / "y.mcf", Model([source["c"], source["b"]])
    )  # not a whole file: the stretch moves along
    assert reopen["c"].offset == reopen["b"].offset + 4
    assert bytes(reopen["c"].raw()) == bytes(source["c"].raw())
    apart = save_strict(tmp_path / "z.mcf", source, dedup="none")
    assert len({tensor.offset for tensor in apart.values()}) == 4
    assert all(bytes(apart[name].raw()) == bytes(source[name].raw()) for name in source)


def test_quantized_aliases_keep_their_alignment(tmp_path: Path) -> None:
    size = MCF["mcf.q8"].nbytes((1, 8))
    source = BytesSource(bytes(range(256)))
    tensors = [Tensor("a", DTYPES["u8"], (40,), SourceRange(source, 30, 40)),
               Tensor("b", MCF["mcf.q8"], (1, 8), SourceRange(source, 64, size))]  # fmt: skip
    model = save_loose(tmp_path / "x.mcf", tensors)
    assert model["b"].offset % 64 == 0
    assert model["b"].offset - model["a"].offset == 34
    tensors.append(Tensor("c", MCF["mcf.q8"], (1, 8), SourceRange(source, 65, size)))  # cannot be aligned together
    model = save_loose(tmp_path / "y.mcf", tensors)
    assert all(bytes(model[t.name].raw()) == bytes(t.raw()) for t in tensors)


def save_loose(path: Path, content: Any) -> Model:
    holdall.save(path, content, fsync=False)
    return holdall.open(path)


def test_equal_content_on_request(tmp_path: Path) -> None:
    arrays = {"a": np.ones(100, np.float32), "b": np.ones(100, np.float32), "c": np.ones(100, np.float32)}
    plain, shared = save_strict(tmp_path / "x.mcf", arrays), save_strict(tmp_path / "y.mcf", arrays, dedup="content")
    assert len({tensor.offset for tensor in plain.values()}) == 3
    assert len({tensor.offset for tensor in shared.values()}) == 1


def test_unknown_sections_travel_with_a_changed_model(tmp_path: Path) -> None:
    source = holdall.open(mcf([(0x200, b"abc"), (0x105, b"m"), (0x300, b"")], flags=6, minor=0))
    model = Model(
        [Tensor.of("w", np.ones(2, np.float32))], metadata={"k": 5}, native=source.native, format="mcf",
        assets={"config.json": b"{}"}, version=source.version,
    )  # fmt: skip
    back = save_strict(tmp_path / "x.mcf", model)
    assert {section.name: section.data for section in back.native.sections if section.type > 0x1FF} == {
        "0x0200": b"abc", "0x0300": b"",
    }  # fmt: skip
    assert dict(back.assets) == {"config.json": b"{}"}
    assert back.metadata["k"] == 5
    assert back.native.flags & ~1 == 6
    assert back.version == (1, 0)


def test_changed_metadata_replaces_model_info(tmp_path: Path) -> None:
    first = save_strict(tmp_path / "x.mcf", {"w": np.ones(2)}, metadata={"k": 1})
    holdall.save(tmp_path / "y.mcf", first, metadata={**first.metadata, "l": 2})
    assert dict(holdall.open(tmp_path / "y.mcf").metadata) == {"k": 1, "l": 2}
    holdall.save(tmp_path / "z.mcf", first, metadata={})
    assert holdall.open(tmp_path / "z.mcf").native.get("ModelInfo") is None


def test_an_empty_model_is_a_file(tmp_path: Path) -> None:
    model = save_strict(tmp_path / "x.mcf", {})
    assert [section.name for section in model.native.sections] == ["ModelInfo"]
    assert len(model) == 0


@pytest.mark.parametrize(
    "tensor",
    [
        Tensor.of("", np.ones(2)),
        Tensor.of("\ud800", np.ones(2)),
        Tensor.of("w", np.ones((0, 2))),
        Tensor.of("w", np.ones(2, np.bool_)),
        Tensor("w", DTYPES["f32"], (2,), None),
        Tensor("w", DTYPES["f32"], (2,), InMemory(bytes(7))),
    ],
)
def test_what_cannot_be_held_is_refused(tmp_path: Path, tensor: Tensor) -> None:
    with pytest.raises(holdall.ContentError):
        holdall.save(tmp_path / "x.mcf", [tensor])


def test_other_refusals(tmp_path: Path) -> None:
    path = tmp_path / "x.mcf"
    with pytest.raises(holdall.ContentError, match="two tensors"):
        holdall.save(path, [Tensor.of("w", np.ones(2)), Tensor.of("w", np.ones(2))])
    with pytest.raises(holdall.ContentError, match="no section for the asset"):
        holdall.save(path, Model([], assets={"README.md": b""}))
    with pytest.raises(holdall.ContentError, match="merges it"):
        holdall.save(path, Model([], assets={"chat_template.jinja": b""}))
    for options in ({"tensor_align": 3}, {"tensor_align": "x"}, {"minor": 2}, {"dedup": "some"}, {"arrange": "keep"},
                    {"resources": "perhaps", "arrange": "pack"}):  # fmt: skip
        with pytest.raises(holdall.UnsupportedError):
            holdall.save(path, {"w": np.ones(2)}, **options)
    assert not path.exists()


def test_an_unassigned_dtype_is_copied(tmp_path: Path) -> None:
    source = holdall.open(with_tensors([Entry(b"w", 0x77, (3,), b"abcde")]))
    holdall.save(tmp_path / "x.mcf", source)
    assert bytes(holdall.open(tmp_path / "x.mcf")["w"].raw()) == b"abcde"


def test_native_is_only_looked_at_by_its_own_format() -> None:
    assert McfNative().sections == ()


@pytest.mark.parametrize("align", [1, 8, 32, 64, 128, 256, 4096, 1 << 16])
def test_a_file_that_is_saved_again_keeps_its_alignment(tmp_path: Path, align: int) -> None:
    sizes = (3, 100, 4097, 5, 64)
    holdall.save(tmp_path / "a.mcf", {f"t{i}": np.ones(n, np.int8) for i, n in enumerate(sizes)}, tensor_align=align)
    with holdall.open(tmp_path / "a.mcf") as model:
        assert all(tensor.offset % align == 0 for tensor in model.tensors)
        holdall.save(tmp_path / "b.mcf", model)
        renamed = model.replace(tensors=[t.replace(name=f"new.{t.name}") for t in model.tensors])
        holdall.save(tmp_path / "c.mcf", renamed)
        added = model.replace(tensors=[*model.tensors, holdall.Tensor.of("z", np.ones(3, np.int8))])
        holdall.save(tmp_path / "d.mcf", added)
    assert (tmp_path / "b.mcf").read_bytes() == (tmp_path / "a.mcf").read_bytes()
    for name in ("c.mcf", "d.mcf"):
        with holdall.open(tmp_path / name) as again:
            assert all(tensor.offset % align == 0 for tensor in again.tensors)


def test_offsets_that_are_large_multiples_by_accident_do_not_count(tmp_path: Path) -> None:
    """One tensor at a multiple of 2048, right behind the padding to 64: the alignment is 64."""
    holdall.save(tmp_path / "a.mcf", {"w": np.ones(3, np.int8)}, metadata={"fill": "x" * 1850})
    with holdall.open(tmp_path / "a.mcf") as model:
        at = model["w"].offset
        assert at is not None and at % 128 == 0
        added = model.replace(tensors=[*model.tensors, holdall.Tensor.of("z", np.ones(3, np.int8))])
        holdall.save(tmp_path / "b.mcf", added)
    with holdall.open(tmp_path / "b.mcf") as again:
        first, second = again["w"].offset, again["z"].offset
        assert first is not None and second == first + 64


def read_name_and_types(path: Path) -> tuple[str, list[int]]:
    """The model_name of ModelInfo and the types of all sections, by struct alone."""
    data = path.read_bytes()
    count, directory = struct.unpack_from("<IQ", data, 12)
    entries = [struct.unpack_from("<IIQQ", data, directory + 24 * number) for number in range(count)]
    start = next(offset for type, _, offset, _ in entries if type == 1)
    place = start + struct.unpack_from("<Q", data, start + 56)[0]
    (length,) = struct.unpack_from("<I", data, place)
    return data[place + 4 : place + 4 + length].decode(), [type for type, *_ in entries]


@pytest.mark.parametrize("arrange", ["auto", "keep", "plain", "quantize", "pack"])
def test_name_and_resources_of_an_mcf_file_can_be_given(arrange: str, tmp_path: Path) -> None:
    content = Model(
        [Tensor.of("w", np.ones(4, np.float32))],
        metadata={"mcf.model_name": "old", "mcf.vocab_size": 7},
        assets={"config.json": b"{}", "tokenizer.json": b"{}"},
    )
    save_strict(tmp_path / "m.mcf", content)
    assert read_name_and_types(tmp_path / "m.mcf") == ("old", [1, 3, 4, 0x100, 0x102])
    report = holdall.convert(tmp_path / "m.mcf", tmp_path / "n.mcf", arrange=arrange, model_name="zz")
    name, types = read_name_and_types(tmp_path / "n.mcf")
    assert name == "zz" and {0x100, 0x102} < set(types)
    assert [str(loss) for loss in report.losses if loss.name == "mcf.model_name"] == [
        "metadata 'mcf.model_name': is written otherwise (changed)"
    ]
    report = holdall.convert(tmp_path / "m.mcf", tmp_path / "n.mcf", arrange=arrange, resources=False, model_name="old")
    name, types = read_name_and_types(tmp_path / "n.mcf")
    assert name == "old" and {type for type in types if type >= 0x100} == set()
    assert [loss.name for loss in report.losses if loss.part == "asset"] == ["config.json", "tokenizer.json"]
    assert holdall.verify(tmp_path / "n.mcf", level="strict").ok
