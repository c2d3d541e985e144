"""What the format's document asks for, sentence by sentence, on files that struct alone makes."""

from __future__ import annotations

import struct
import zlib

import ml_dtypes
import numpy as np
import pytest

import holdall
from holdall import profiles
from holdall.binary.crc32 import crc32_combine
from holdall.format.embd.layout import KEYS
from holdall.model.dtypes import DTYPES
from holdall.model.vocab import Vocab
from holdall.source import BytesSource
from holdall.source.range_crc32 import crc32_of
from holdall.testing import RecordingSource
from tests.format.embd.build import ALIGNED, CHECKSUMS, COMPRESSED, HEADER, Entry, File, fnv1a, header, patch, seal

NUMPY = ["<f4", "<f2", ml_dtypes.bfloat16, "<i4", "<i2", "i1", "<u4", "<u2", "u1"]
NAMES = ["f32", "f16", "bf16", "i32", "i16", "i8", "u32", "u16", "u8"]
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "play", "##ing", "é"]
SPECIAL = (0, 1, 2, 3, 4)
W = np.arange(6, dtype="<f4").reshape(2, 3) / 7
METADATA = [("model_name", "toy"), ("b", "2"), ("a", "größe")]
CONTENT = {"w": W, "codes": np.arange(-3, 4, dtype=np.int8)}
EVERYTHING = File(
    METADATA, TOKENS, SPECIAL, [Entry("w", 0, [2, 3], W.tobytes()), Entry("codes", 5, [7], CONTENT["codes"].tobytes())]
)
DATA = EVERYTHING.data()
INDEX = struct.unpack_from("<I", DATA, 28)[0]


def one(**changes):
    """A file with a single tensor w: u8[4]."""
    return File(tensors=[Entry(**{"name": "w", "dtype": 8, "shape": [4], "payload": b"abcd", **changes})]).data()


def refused(data, *rules):
    with pytest.raises(holdall.FormatError) as caught:
        holdall.open(data, format="embd")
    assert caught.value.rule in rules, caught.value
    report = holdall.verify(data, format="embd", level="structure")
    assert not report.ok
    assert {finding.rule for finding in report.findings} & set(rules)


def found(data, level="full"):
    holdall.open(data).close()
    return {(finding.rule, finding.severity) for finding in holdall.verify(data, level=level).findings}


def written(path, content, **options):
    holdall.save(path, content, format="embd", fsync=False, **options)
    return path.read_bytes()


def rewritten(path, data, **options):
    """The bytes of a file that was opened and saved with other options."""
    with holdall.open(data) as model:
        return written(path, model, **options)


@pytest.mark.shows("E01", "E03", "E09", "E14", "E22", "E26", "E32", "E34", "E40")
@pytest.mark.parametrize("align", [True, False])
@pytest.mark.parametrize("checksums", [True, False])
def test_a_saved_file_is_the_one_that_struct_makes(align, checksums, tmp_path):
    flags = (ALIGNED if align else 0) | (CHECKSUMS if checksums else 0)
    want = File(METADATA, TOKENS, SPECIAL, EVERYTHING.tensors, flags=flags).data()
    options = {"vocab": Vocab(TOKENS), "align": align, "checksums": checksums}
    assert written(tmp_path / "a", CONTENT, metadata=dict(METADATA), **options) == want
    with holdall.open(want) as model:
        assert [(entry.key, entry.value) for entry in model.metadata.entries] == METADATA
        assert list(model.vocab.tokens) == TOKENS
        assert model.vocab.special == dict(zip(("pad", "unk", "cls", "sep", "mask"), SPECIAL, strict=True))
        assert {name: tensor.numpy().tolist() for name, tensor in model.items()} == {
            name: values.tolist() for name, values in CONTENT.items()
        }


@pytest.mark.shows("E02")
def test_the_suffix_chooses_the_format_and_the_content_tells_it(tmp_path):
    holdall.save(tmp_path / "a.weights", {"w": W})
    assert (tmp_path / "a.weights").read_bytes()[:4] == b"EMBD"
    (tmp_path / "a.bin").write_bytes(DATA)
    (tmp_path / "noname").write_bytes(DATA)
    for path in (tmp_path / "a.bin", tmp_path / "noname"):
        with holdall.open(path) as model:
            assert model.format == "embd"


@pytest.mark.shows("E03")
@pytest.mark.parametrize("name", ["metadata_offset", "vocab_offset", "index_offset", "data_offset", "data_size"])
def test_a_section_is_where_its_field_says(name):
    """A field that points elsewhere is noticed."""
    at, kind = HEADER[name]
    value = struct.unpack_from(f"<{kind}", DATA, at)[0]
    for change in (-1, 1, 4096):
        with pytest.raises(holdall.FormatError):
            holdall.open(header(DATA, **{name: value + change}))


@pytest.mark.shows("E04")
@pytest.mark.parametrize("magic", [b"EMBX", b"DBME", b"embd"])
def test_another_magic_is_refused(magic):
    refused(patch(DATA, 0, magic), "embd.header.magic")


@pytest.mark.shows("E05")
def test_the_major_version_is_1_and_the_minor_one_is_free():
    for major in (0, 2, 65535):
        refused(header(DATA, major=major), "embd.header.version", "embd.sequential.header")
    for minor in (1, 65535):
        with holdall.open(header(DATA, minor=minor)) as model:
            assert model.version == (1, minor)
            assert model["w"].numpy().tolist() == W.tolist()


@pytest.mark.shows("E06")
@pytest.mark.parametrize("change", [-1, 1, 1 << 40])
def test_the_size_of_the_file_is_stated(change):
    refused(header(DATA, file_size=len(DATA) + change), "embd.header.file_size")
    refused(DATA + b"\0", "embd.header.file_size")


@pytest.mark.shows("E07")
@pytest.mark.parametrize("at", [6, 12, 36, 56, 59])
def test_the_checksum_of_the_header_is_compared_when_a_file_is_opened(at):
    changed = bytearray(DATA)
    changed[at] ^= 0x10
    with pytest.raises(holdall.FormatError) as caught:
        holdall.open(bytes(changed))
    assert caught.value.rule == "embd.header.checksum"


@pytest.mark.shows("E08")
def test_a_vocabulary_is_there_or_not(tmp_path):
    bare = File(METADATA, None, SPECIAL, EVERYTHING.tensors).data()
    assert written(tmp_path / "a", CONTENT, metadata=dict(METADATA)) == bare
    assert struct.unpack_from("<I", bare, 8)[0] & 1 == 0
    assert struct.unpack_from("<II", bare, 20) == (0, 0)
    assert holdall.open(bare).vocab is None
    assert struct.unpack_from("<I", DATA, 8)[0] & 1


@pytest.mark.shows("E09", "E39")
def test_payloads_start_at_multiples_of_64_with_zeros_between():
    model = holdall.open(DATA)
    assert [model[name].offset % 64 for name in ("w", "codes")] == [0, 0]
    packed = File(METADATA, TOKENS, SPECIAL, EVERYTHING.tensors, flags=CHECKSUMS).data()
    model = holdall.open(packed)
    assert model["codes"].offset == model["w"].offset + W.nbytes
    moved = patch(DATA, INDEX + 32 + 24, struct.pack("<Q", 32))
    refused(moved, "embd.tensor.align")


@pytest.mark.shows("E39")
def test_padding_that_is_not_zero_is_an_error_at_strict():
    model = holdall.open(DATA)
    between = range(model["w"].offset + W.nbytes, model["codes"].offset)
    before = range(INDEX + 64 + len("wcodes"), model["w"].offset)
    assert found(DATA, "strict") == found(DATA)
    for at in (between[0], between[-1], before[0], before[-1]):
        damaged = patch(DATA, at, b"\1")
        assert holdall.verify(damaged).ok
        assert not holdall.verify(damaged, level="strict").ok, at


@pytest.mark.shows("E10")
def test_without_checksums_the_fields_are_zero_and_not_looked_at(tmp_path):
    data = written(tmp_path / "a", CONTENT, checksums=False)
    assert (data[56:60], data[-16:-8]) == (bytes(4), bytes(8))
    wrong = bytearray(data)
    wrong[56:60] = wrong[-16:-12] = wrong[-12:-8] = b"\7\7\7\7"
    assert holdall.verify(bytes(wrong), level="strict").ok


@pytest.mark.shows("E11")
def test_the_compressed_flag_is_reserved():
    with pytest.raises(holdall.UnsupportedError, match="COMPRESSED"):
        holdall.open(header(DATA, flags=7 | COMPRESSED))
    report = holdall.verify(header(DATA, flags=7 | COMPRESSED))
    assert not report.ok
    assert [finding.rule for finding in report.findings] == ["embd.header.compressed"]


@pytest.mark.shows("E12")
@pytest.mark.parametrize("bit", [4, 16, 31])
def test_reserved_flags_are_an_error_at_strict(bit):
    damaged = header(DATA, flags=7 | 1 << bit)
    assert ("embd.header.flags", "error") not in found(damaged)
    assert ("embd.header.flags", "error") in found(damaged, "strict")


@pytest.mark.shows("E13", "E34")
@pytest.mark.parametrize("at", [60, -4])
def test_reserved_words_are_zero(at, tmp_path):
    assert written(tmp_path / "a", CONTENT)[60:64] == written(tmp_path / "a", CONTENT)[-4:] == bytes(4)
    assert ("embd.header.reserved", "warning") in found(patch(DATA, at, b"\1\0\0\0"))


@pytest.mark.shows("E14")
def test_metadata_is_text_in_its_order_and_may_be_empty_or_repeat():
    pairs = [("z", ""), ("", "empty key"), ("a", "1"), ("a", "2"), ("日本", "語 " * 9000)]
    with holdall.open(File(pairs).data()) as model:
        assert [(entry.key, entry.value) for entry in model.metadata.entries] == pairs
        assert model.metadata["a"] == "2"


@pytest.mark.shows("E15")
@pytest.mark.parametrize(
    "change", [{"entry_count": 2}, {"entry_count": 4}, {"entry_count": 2**32 - 1}, {"metadata_total": 0},
               {"metadata_total": 38}, {"metadata_total": 2**32 - 1}],
)  # fmt: skip
def test_metadata_that_does_not_add_up_is_refused(change):
    refused(File(METADATA, **change).data(), "embd.metadata.size", "embd.metadata.entry", "core.limit")


@pytest.mark.shows("E15")
@pytest.mark.parametrize("size", [0, 7, -1, 1])
def test_the_size_of_the_metadata_section_is_exact(size):
    real = struct.unpack_from("<I", DATA, 16)[0]
    refused(header(DATA, metadata_size=size if size in (0, 7) else real + size),
            "embd.metadata.size", "embd.metadata.entry", "embd.header.overlap")  # fmt: skip


@pytest.mark.shows("E16")
@pytest.mark.parametrize("pair", [(b"\xff", "v"), ("k", b"\xc3"), ("k", b"\xed\xa0\x80")])
def test_metadata_that_is_no_text_is_refused(pair):
    refused(File([pair]).data(), "embd.metadata.utf8")


COMPLETE = {"model_name": "toy", "model_version": "1.0.0", "embedding_dim": "8", "vocab_size": "8", "num_layers": "2",
            "num_attention_heads": "2", "hidden_size": "8", "intermediate_size": "16", "max_position_emb": "12",
            "created_at": "2025-01-16T12:00:00Z"}  # fmt: skip
PROFILE = profiles.from_config({
    "model_type": "bert", "vocab_size": 8, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 16, "max_position_embeddings": 12,
})  # fmt: skip


def metadata_breaches(metadata):
    with holdall.open(File(list(metadata.items()), TOKENS, SPECIAL).data()) as model:
        return [f for f in profiles.check(model, PROFILE) if f.rule == "profile.metadata"]


@pytest.mark.shows("E17")
@pytest.mark.parametrize("key", COMPLETE)
def test_each_required_key_is_missed(key):
    assert set(COMPLETE) == set(KEYS)
    assert metadata_breaches(COMPLETE) == []
    less = {name: value for name, value in COMPLETE.items() if name != key}
    report = holdall.verify(File(list(less.items()), TOKENS, SPECIAL).data())
    assert report.ok
    assert [(f.rule, f.severity) for f in report.findings] == [("embd.model.keys", "warning")]
    assert key in report.findings[0].message
    (breach,) = metadata_breaches(less)
    assert breach.severity == "error"
    assert key in breach.message


@pytest.mark.shows("E41")
@pytest.mark.parametrize("date", ["2025-01-16T12:00:00Z", "2025-01-16", "2025-01-16T12:00:00+02:00"])
def test_dates_of_iso_8601(date):
    assert metadata_breaches({**COMPLETE, "created_at": date}) == []


@pytest.mark.shows("E41")
@pytest.mark.parametrize("date", ["yesterday", "", "16.01.2025", "2025-13-01T00:00:00Z", "1737028800"])
def test_other_dates_are_a_breach_of_the_profile(date):
    assert [f.severity for f in metadata_breaches({**COMPLETE, "created_at": date})] == ["error"]


@pytest.mark.shows("E20", "E21")
def test_each_required_tensor_is_missed():
    """The table of the document, written down here again: 5 tensors, and 16 for each of 6 layers."""
    h, f = 384, 1536
    shapes = {"embeddings.word_embeddings.weight": (30522, h), "embeddings.position_embeddings.weight": (512, h),
              "embeddings.token_type_embeddings.weight": (2, h), "embeddings.LayerNorm.weight": (h,),
              "embeddings.LayerNorm.bias": (h,)}  # fmt: skip
    for n in range(6):
        square = ["attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"]
        layer = dict.fromkeys(square, (h, h)) | {"intermediate.dense": (f, h), "output.dense": (h, f)}
        for name, shape in layer.items():
            shapes[f"encoder.layer.{n}.{name}.weight"] = shape
            shapes[f"encoder.layer.{n}.{name}.bias"] = shape[:1]
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes[f"encoder.layer.{n}.{name}.weight"] = shapes[f"encoder.layer.{n}.{name}.bias"] = (h,)
    assert len(shapes) == 101
    profile = profiles.load("all-MiniLM-L6-v2")

    def breaches(shapes, dtypes=None):
        tensors = [holdall.Tensor(n, DTYPES[(dtypes or {}).get(n, "f32")], s, None) for n, s in shapes.items()]
        findings = profiles.check(holdall.Model(tensors), profile)
        return [(f.rule, f.severity) for f in findings if f.rule.startswith("profile.tensor")]

    assert breaches(shapes) == []
    assert breaches({**shapes, "pooler.dense.weight": (h, h), "pooler.dense.bias": (h,)}) == []
    assert breaches({**shapes, "pooler.dense.bias": (h, 2)}) == [("profile.tensor.shape", "error")]
    for name, shape in shapes.items():
        without = {other: size for other, size in shapes.items() if other != name}
        assert breaches(without) == [("profile.tensor.missing", "error")], name
        assert breaches({**shapes, name: (*shape[:-1], shape[-1] + 1)}) == [("profile.tensor.shape", "error")], name
        assert breaches(shapes, {name: "f16"}) == [("profile.tensor.dtype", "error")], name


@pytest.mark.shows("E22", "E23")
def test_ids_of_tokens_are_their_places_and_special_ids_are_stored():
    special = (7, 2**32 - 1, 3, 5, 6)
    with holdall.open(File(METADATA, TOKENS, special).data()) as model:
        assert [model.vocab.id(token) for token in TOKENS] == list(range(8))
        assert model.vocab[6] == "##ing"
        assert list(model.vocab.special.values()) == list(special)


@pytest.mark.shows("E23")
def test_unusual_special_ids_are_kept(tmp_path):
    unusual = File(METADATA, TOKENS, (7, 2**32 - 1, 3, 5, 6), EVERYTHING.tensors).data()
    assert rewritten(tmp_path / "a", unusual) == unusual


@pytest.mark.shows("E24")
def test_the_place_of_the_special_ids_may_count_from_the_section():
    at = 64 + struct.unpack_from("<I", DATA, 16)[0]
    relative = File(METADATA, TOKENS, SPECIAL, EVERYTHING.tensors, special_offset=12).data()
    absolute = File(METADATA, TOKENS, SPECIAL, EVERYTHING.tensors, special_offset=at + 12).data()
    assert absolute == DATA
    with holdall.open(relative) as model:
        assert list(model.vocab.special.values()) == list(SPECIAL)
        assert list(model.vocab.tokens) == TOKENS
    refused(File(METADATA, TOKENS, SPECIAL, special_offset=2**31).data(), "embd.vocab.special")


@pytest.mark.shows("E25")
@pytest.mark.parametrize(
    ("change", "rule"),
    [({"tokens": [b"\xff"]}, "utf8"), ({"tokens": ["a", b"\xc3"]}, "utf8"), ({"token_count": 7}, "token"),
     ({"token_count": 9}, "token"), ({"token_count": 2**32 - 1}, "token"), ({"token_total": 3}, "size"),
     ({"token_total": 2**32 - 1}, "size")],
)  # fmt: skip
def test_vocabularies_that_do_not_add_up_are_refused(change, rule):
    refused(File(**{"metadata": METADATA, "tokens": TOKENS, **change}).data(), f"embd.vocab.{rule}", "core.limit")


@pytest.mark.shows("E26")
@pytest.mark.parametrize("code", range(9))
def test_every_type(code, tmp_path):
    values = np.array([[0, 1, 2], [3, 100, 7]]).astype(NUMPY[code])
    data = File(tensors=[Entry("w", code, [2, 3], values.tobytes())]).data()
    with holdall.open(data) as model:
        assert (str(model["w"].dtype), model["w"].shape) == (NAMES[code], (2, 3))
        assert model["w"].numpy().tolist() == values.tolist()
    assert written(tmp_path / "a", {"w": values}) == data


@pytest.mark.shows("E27")
def test_other_types_are_refused(tmp_path):
    for code in (9, 10, 255):
        refused(one(dtype=code), "embd.tensor.dtype")
    for kind in (np.float64, np.int64, np.uint64, np.bool_):
        with pytest.raises(holdall.ContentError):
            written(tmp_path / "a", {"w": np.zeros(2, kind)})


@pytest.mark.shows("E28")
@pytest.mark.parametrize("rank", [1, 2, 3, 4])
def test_one_to_four_dims(rank, tmp_path):
    shape = [2, 3, 1, 2][:rank]
    values = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    data = File(tensors=[Entry("w", 8, shape, values.tobytes())]).data()
    assert written(tmp_path / "a", {"w": values}) == data
    assert holdall.open(data)["w"].numpy().tolist() == values.tolist()


@pytest.mark.shows("E28")
def test_no_dims_and_five_are_refused(tmp_path):
    for ndim in (0, 5, 255):
        refused(one(ndim=ndim), "embd.tensor.rank")
    for shape in ((), (1, 1, 1, 1, 1)):
        with pytest.raises(holdall.ContentError):
            written(tmp_path / "a", {"w": np.zeros(shape, np.float32)})


@pytest.mark.shows("E29")
@pytest.mark.parametrize("unused", [1, 4, 2**32 - 1])
def test_unused_entries_of_the_shape_are_zero(unused):
    refused(one(unused=unused), "embd.tensor.dims")


@pytest.mark.shows("E30")
def test_the_hash_of_a_name_is_fnv_1a():
    assert [fnv1a(text) for text in (b"", b"a", b"foobar")] == [0x811C9DC5, 0xE40C292C, 0xBF9CF968]
    for name in ("w", "größe", "encoder.layer.0.attention.self.query.weight"):
        assert list(holdall.open(one(name=name))) == [name]
        refused(one(name=name, hash=fnv1a(name.encode()) ^ 1), "embd.index.hash")


@pytest.mark.shows("E31")
@pytest.mark.parametrize("pair", [("costarring", "liquid"), ("declinate", "macallums"), ("altarage", "zinke")])
def test_names_of_one_hash_are_told_apart(pair, tmp_path):
    assert fnv1a(pair[0].encode()) == fnv1a(pair[1].encode())
    values = {name: np.full(3, number, np.float32) for number, name in enumerate(pair)}
    with holdall.open(written(tmp_path / "a", values)) as model:
        assert {name: tensor.numpy().tolist() for name, tensor in model.items()} == {
            pair[0]: [0, 0, 0], pair[1]: [1, 1, 1],
        }  # fmt: skip
    twice = File(tensors=[Entry("w", 8, [1], b"a"), Entry("w", 8, [1], b"b")]).data()
    refused(twice, "embd.index.duplicate")


@pytest.mark.shows("E32")
def test_names_follow_the_descriptors_in_their_order():
    names = ["long.name", "b", "", "é"]
    data = File(tensors=[Entry(name, 8, [1], bytes([n])) for n, name in enumerate(names)]).data()
    assert data[72 + 4 * 32 :][:12] == b"long.nameb\xc3\xa9"
    with holdall.open(data) as model:
        assert [(name, model[name].numpy()[0]) for name in model] == list(zip(names, range(4), strict=True))


@pytest.mark.shows("E33")
def test_elements_lie_row_after_row():
    d0, d1, d2, d3 = 2, 3, 4, 5
    payload = bytes(range(d0 * d1 * d2 * d3))
    values = holdall.open(File(tensors=[Entry("w", 8, [d0, d1, d2, d3], payload)]).data())["w"].numpy()
    for i, j, k, m in np.ndindex(d0, d1, d2, d3):
        assert values[i, j, k, m] == payload[i * (d1 * d2 * d3) + j * (d2 * d3) + k * d3 + m]


@pytest.mark.shows("E34", "E35")
def test_the_footer(tmp_path):
    data = written(tmp_path / "a", CONTENT)
    at, size = struct.unpack_from("<IQ", data, 36)
    want = (zlib.crc32(data[at : at + size]), zlib.crc32(data[:-16]), b"DBME", 0)
    assert struct.unpack("<II4sI", data[-16:]) == want
    refused(patch(DATA, -8, b"DBMX"), "embd.footer.magic", "embd.header.file_size")


@pytest.mark.shows("E35")
def test_checksums_are_compared_when_everything_is_read():
    rules = {"embd.footer.data_checksum", "embd.footer.file_checksum"}
    payload = bytearray(DATA)
    payload[holdall.open(DATA)["w"].offset] ^= 1
    data, file, metadata = bytearray(DATA), bytearray(DATA), bytearray(DATA)
    data[-16] ^= 1
    file[-12] ^= 1
    metadata[64 + 8 + 4] ^= 1  # a letter of the first key
    wants = ((payload, rules), (data, {min(rules)}), (file, {max(rules)}), (metadata, {max(rules)}))
    for damaged, want in wants:
        holdall.open(bytes(damaged)).close()
        report = holdall.verify(bytes(damaged), level="full")
        assert not report.ok
        assert {finding.rule for finding in report.findings} & rules == want
        assert holdall.verify(bytes(damaged), level="structure").ok


@pytest.mark.shows("E36")
def test_the_polynomial_of_checksums():
    def bitwise(data):
        found = 0xFFFFFFFF
        for byte in data:
            found ^= byte
            for _ in range(8):
                found = found >> 1 ^ (0xEDB88320 if found & 1 else 0)
        return found ^ 0xFFFFFFFF

    def of(data):
        return crc32_of(BytesSource(data), 0, len(data))

    assert bitwise(b"123456789") == 0xCBF43926 == of(b"123456789")
    noise = np.random.default_rng(0).bytes(5000)
    assert bitwise(noise) == of(noise) == crc32_combine(of(noise[:1234]), of(noise[1234:]), 5000 - 1234)
    assert of(b"") == 0


@pytest.mark.shows("E37", "E38")
def test_arrays_are_views_of_the_map_or_are_read(tmp_path):
    values = np.arange(3 << 20, dtype=np.float32)  # 12 MiB, beyond every buffer
    (tmp_path / "a").write_bytes(File(tensors=[Entry("w", 0, [3 << 20], values.tobytes())]).data())
    with holdall.open(tmp_path / "a") as model:
        assert np.shares_memory(model["w"].numpy(), model["w"].numpy())
        assert model["w"].numpy().ctypes.data % 64 == 0
        assert model["w"].numpy().tobytes() == values.tobytes()
    with holdall.open(tmp_path / "a", mmap=False) as model:
        assert not np.shares_memory(model["w"].numpy(), model["w"].numpy())
        assert model["w"].numpy().tobytes() == values.tobytes()
    source = RecordingSource(BytesSource((tmp_path / "a").read_bytes()))
    holdall.open(source).close()
    assert source.bytes_read < 1 << 17


@pytest.mark.shows("E40")
def test_only_data_offset_counts_from_the_tensor_data():
    """Metadata of any length moves the data; the offsets in descriptors stay."""
    for length in (0, 100, 5000):
        data = File([("k", "v" * length)], None, SPECIAL, EVERYTHING.tensors).data()
        at, start = struct.unpack_from("<I4xI", data, 28)
        assert [struct.unpack_from("<Q", data, at + 32 * n + 24)[0] for n in (0, 1)] == [0, 64]
        assert [holdall.open(data)[name].offset for name in ("w", "codes")] == [start, start + 64]


@pytest.mark.shows("E44")
def test_a_vocab_size_that_is_not_the_number_of_tokens_is_reported():
    contradiction = File([*METADATA, ("vocab_size", "9")], TOKENS, SPECIAL).data()
    assert ("embd.model.vocab_size", "warning") in found(contradiction)
    agreement = File([*METADATA, ("vocab_size", "8")], TOKENS, SPECIAL).data()
    assert ("embd.model.vocab_size", "warning") not in found(agreement)


@pytest.mark.shows("E45")
def test_a_file_that_was_cut_anywhere_is_refused():
    for size in range(len(DATA)):
        with pytest.raises(holdall.FormatError):
            holdall.open(DATA[:size], format="embd")


@pytest.mark.shows("E46")
@pytest.mark.parametrize(
    "given",
    [{"content": {"n" * 65536: W}}, {"metadata": {"k" * 65536: "v"}}, {"metadata": {"k": "v" * 65536}},
     {"metadata": {"k": "é" * 32768}}, {"vocab": ["t" * 65536]}],
)  # fmt: skip
def test_longer_strings_than_65535_bytes_are_not_written(given, tmp_path):
    with pytest.raises(holdall.ContentError, match="65535"):
        written(tmp_path / "a", **{"content": {"w": W}, **given})
    longest = {"metadata": {"k": "v" * 65535}, "vocab": ["t" * 65535]}
    with holdall.open(written(tmp_path / "a", {"n" * 65535: W}, **longest)) as model:
        assert [len(name) for name in model] == [65535]
        assert (len(model.metadata["k"]), len(model.vocab[0])) == (65535, 65535)


@pytest.mark.shows("E47")
def test_data_beyond_four_gigabytes(tmp_path):
    """A sparse file: the second tensor starts where 32 bits end."""
    first, last = 5 << 30, np.arange(16, dtype="<f4")
    small = File(tensors=[Entry("zeros", 8, [4, first // 4], b""), Entry("last", 0, [16], b"")], flags=ALIGNED).data()
    start = struct.unpack_from("<I", small, 36)[0]
    head = header(small, data_size=first + 64, file_size=start + first + 64 + 16)[:start]
    at = struct.unpack_from("<I", small, 28)[0] + 32 + 24
    with (tmp_path / "large.weights").open("wb") as file:
        file.write(head[:at] + struct.pack("<Q", first) + head[at + 8 :])
        file.seek(start + first)
        file.write(last.tobytes() + bytes(8) + b"DBME" + bytes(4))
    with holdall.open(tmp_path / "large.weights") as model:
        assert model["last"].numpy().tolist() == last.tolist()
        assert model["zeros"][3, -5:].tolist() == [0] * 5


@pytest.mark.shows("E01")
def test_checksums_of_the_builder_are_those_of_zlib():
    assert seal(DATA) == DATA
    assert struct.unpack_from("<I", DATA, 56)[0] == zlib.crc32(DATA[:56])
