"""Hostile files: damage at any byte, and numbers that are not true."""

import random
from functools import partial

import numpy as np
import pytest
from blake3 import blake3

import holdall
from holdall.binary.documents import msgpack
from holdall.format.aero.layout import ENTRY, HEADER, TOC
from tests.attacks.files import aero, tidx_entry
from tests.format.aero.corpus import FOLDER

SEEDS = ["ihsh_phsh_hash_b3.aero", "multi_shard.aero", "toc_at_end.aero", "meta_uncompressed.aero"]


@pytest.mark.parametrize("name", SEEDS)
def test_mutations_raise_nothing_unexpected(name):
    original = (FOLDER / name).read_bytes()
    rng = random.Random(name)
    for _ in range(150):
        data = bytearray(original)
        for _ in range(rng.choice([1, 1, 2, 8])):
            data[rng.randrange(len(data))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        if rng.random() < 0.2:
            del data[rng.randrange(len(data)) :]
        try:
            with holdall.open(bytes(data), format="aero") as model:
                for tensor in model.tensors:
                    tensor.raw()
                dict(model.metadata)
        except holdall.HoldallError:
            pass
        holdall.verify(bytes(data), format="aero", level="strict")


def raw_file(document, shard=b"\0" * 64):
    """A file of one uncompressed TIDX and one shard, hashes right."""
    from blake3 import blake3

    content = document if isinstance(document, bytes) else msgpack.encode(document)
    chunks = [(b"TIDX", b"tensors", 4, content), (b"WTSH", b"weights.shard0", 2, shard)]
    strings = b"".join(name + b"\0" for _, name, _, _ in chunks)
    strings += bytes(-len(strings) % 8)
    at = HEADER.size + TOC.size + 2 * ENTRY.size
    cursor, name_off = -(-(at + len(strings)) // 16) * 16, 0
    entries, payloads = b"", b""
    for fourcc, name, flags, data in chunks:
        entries += ENTRY.pack(fourcc=fourcc, chunk_flags=flags, chunk_offset=cursor, chunk_length=len(data),
                              chunk_ulen=len(data), name_off=name_off, name_len=len(name), reserved0=0,
                              blake3=blake3(data).digest())  # fmt: skip
        padded = data + bytes(-len(data) % 16)
        payloads, cursor, name_off = payloads + padded, cursor + len(padded), name_off + len(name) + 1
    head = HEADER.pack(magic=b"AERO", version_major=0, version_minor=1, header_size=96, toc_offset=96,
                       toc_length=TOC.size + 2 * ENTRY.size, string_table_offset=at, string_table_length=len(strings),
                       file_flags=0, uuid=bytes(16), reserved=bytes(28))  # fmt: skip
    control = head + TOC.pack(entry_count=2, reserved0=0, reserved1=0) + entries + strings
    return control + bytes(-len(control) % 16) + payloads


def entry(**changes):
    plain = {"name": "w", "dtype": 1, "shape": [4], "shard_id": 0, "data_off": 0, "data_len": 16, "flags": 0}
    return {key: value for key, value in {**plain, **changes}.items() if value is not ...}


def test_the_plain_file_opens():
    with holdall.open(raw_file({"tensors": [entry()]})) as model:
        assert model["w"].numpy().tolist() == [0, 0, 0, 0]
    with holdall.open(raw_file({"tensors": []})) as model:
        assert len(model) == 0
    nil = entry(quant_id=None, quant_params=None, hash_b3=None)
    with holdall.open(raw_file({"tensors": [nil]})) as model:
        assert model["w"].native.hash_b3 is None


@pytest.mark.parametrize(
    "changes",
    [
        {"name": ""}, {"name": "x" * 4097}, {"name": b"w"}, {"name": ...}, {"dtype": True}, {"dtype": 1.0},
        {"dtype": None}, {"shape": [2**63]}, {"shape": [True]}, {"shape": [2**62, 4]}, {"shape": {}}, {"shard_id": -1},
        {"data_off": 2**64 - 1}, {"data_len": 2**64 - 1}, {"data_len": 15}, {"data_off": 49}, {"data_off": ...},
        {"flags": "0"}, {"quant_id": "0"}, {"quant_params": []}, {"hash_b3": "g" * 64}, {"hash_b3": 5},
    ],
    ids=str,
)  # fmt: skip
def test_entries_that_lie_are_refused(changes):
    data = raw_file({"tensors": [entry(), entry(name="second"), entry(**{"name": "bad", **changes})]})
    with pytest.raises(holdall.FormatError):
        holdall.open(data)
    assert not holdall.verify(data).ok


def test_tidx_documents_that_lie_are_refused():
    for document in ([], {"tensors": {}}, {"tensors": [1]}, {"tensors": [{}]}, {"x": []}, b"", b"\xc1", b"\x81\xa7ten"):
        with pytest.raises(holdall.FormatError):
            holdall.open(raw_file(document))
    with pytest.raises(holdall.FormatError, match="bytes follow"):
        holdall.open(raw_file(msgpack.encode({"tensors": []}) + b"\0"))
    with pytest.raises(holdall.FormatError, match="called 'w'"):
        holdall.open(raw_file({"tensors": [entry(), entry()]}))


def test_limits_are_the_callers(tmp_path):
    holdall.save(tmp_path / "m.aero", {f"t{n}": np.ones(2) for n in range(10)})
    with pytest.raises(holdall.LimitError):
        holdall.open(tmp_path / "m.aero", limits=holdall.Limits(tensors=9))
    with pytest.raises(holdall.LimitError):
        holdall.open(tmp_path / "m.aero", limits=holdall.Limits(chunks=3))


def test_a_long_data_len_is_strict_only_and_the_first_bytes_count():
    data = raw_file({"tensors": [entry(data_len=24)]}, shard=np.arange(16, dtype=np.float32).tobytes())
    with holdall.open(data) as model:
        assert model["w"].nbytes == 16
        assert model["w"].numpy().tolist() == [0, 1, 2, 3]
    assert holdall.verify(data).ok
    assert "aero.tidx.long" in {f.rule for f in holdall.verify(data, level="strict").findings}


def test_overlapping_tensors_are_strict_only():
    data = raw_file({"tensors": [entry(), entry(name="v", data_off=8)]})
    assert holdall.verify(data).ok
    assert "aero.tidx.overlap" in {f.rule for f in holdall.verify(data, level="strict").findings}


def index_chunk(name, *entries, **changes):
    """An index as a chunk for :func:`aero`."""
    return b"TIDX", name, 4, msgpack.encode({"tensors": list(entries), **changes})


other_index = partial(index_chunk, b"more")


def test_a_second_index_that_disagrees_is_refused():
    first = [tidx_entry(), tidx_entry(name="v", data_off=16)]
    index = index_chunk(b"tensors", *first)
    agreeing = [
        other_index(*first),
        other_index(*first, more=1),
        other_index(first[0], dict(reversed(first[1].items()))),
    ]
    for chunk in agreeing:
        data = aero(chunks=[index, chunk])
        with holdall.open(data) as model:
            assert list(model) == ["w", "v"]
        assert holdall.verify(data).ok
    others = {
        "'v' f32[4], 16 bytes at 16 of shard 0, but 'w'": other_index(first[1], first[0]),
        "tensor 1 is missing, but 'v'": other_index(first[0]),
        "tensor 2 is 'x' f32[4], 16 bytes at 0 of shard 0, but missing": other_index(*first, tidx_entry(name="x")),
        "16 bytes at 32 of shard 0, but 'v' f32[4], 16 bytes at 16": other_index(
            first[0], {**first[1], "data_off": 32}
        ),
        "tensor 0 is 'w' i32[4]": other_index({**first[0], "dtype": 8}, first[1]),
        "tensor 0 is 'w' f32[2, 2]": other_index({**first[0], "shape": [2, 2]}, first[1]),
        "of shard 1, but 'v'": other_index(first[0], {**first[1], "shard_id": 1}),
    }
    for message, chunk in others.items():
        data = aero(chunks=[index, chunk])
        with pytest.raises(holdall.FormatError, match="chunk 2 TIDX 'more'") as caught:
            holdall.open(data)
        assert caught.value.rule == "aero.tidx.agree" and message in str(caught.value)
        assert "in chunk 1 TIDX 'tensors'" in str(caught.value)
        report = holdall.verify(data, level="structure")
        assert not report.ok and "aero.tidx.agree" in {each.rule for each in report.findings}


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({"hash_b3": "0" * 64}, {"hash_b3": "f" * 64}, f"has hash_b3 {'f' * 64}, but hash_b3 {'0' * 64} in"),
        ({"hash_b3": "0" * 64}, {}, f"has no hash_b3, but hash_b3 {'0' * 64} in"),
        ({}, {"hash_b3": "f" * 64}, f"has hash_b3 {'f' * 64}, but no hash_b3 in"),
        ({"flags": 1}, {"flags": 2}, "has flags 2, but flags 1 in"),
        ({}, {"flags": 2}, "has flags 2, but no flags in"),
        ({"quant_id": 0}, {"quant_id": 1}, "has quant_id 1, but quant_id 0 in"),
        ({"quant_id": 0}, {}, "has no quant_id, but quant_id 0 in"),
        ({"quant_params": {"bits": 4}}, {"quant_params": {"bits": 8}}, "has quant_params"),
        ({"mine": [1]}, {"mine": [1.0]}, "has mine [1.0], but mine [1] in"),
    ],
)
def test_a_second_index_with_other_values_is_refused(first, second, message):
    plain = [tidx_entry(name=f"t{number}") for number in range(3)]
    index = index_chunk(b"tensors", *plain, tidx_entry(**first))
    data = aero(chunks=[index, other_index(*plain, tidx_entry(**second))])
    with pytest.raises(holdall.FormatError, match="chunk 2 TIDX 'more': tensor 3, 'w', ") as caught:
        holdall.open(data)
    assert caught.value.rule == "aero.tidx.agree" and message in str(caught.value)
    assert "aero.tidx.agree" in {each.rule for each in holdall.verify(data, level="structure").findings}


def test_a_second_index_may_spell_the_same_values_otherwise():
    values = {"quant_params": {"a": float("nan"), "b": [1, 2]}, "hash_b3": "ab" * 32, "mine": {"x": 1}}
    other = {"mine": {"x": 1}, "quant_params": {"b": [1, 2], "a": float("nan")}, "hash_b3": "AB" * 32, "flags": 0}
    data = aero(chunks=[index_chunk(b"tensors", tidx_entry(**values)), other_index(tidx_entry(**other, quant_id=None))])
    with holdall.open(data) as model:
        assert model["w"].native.extra == {"mine": {"x": 1}}
    assert holdall.verify(data, level="structure").ok


def test_a_second_index_of_other_bytes_than_its_hash_is_found_by_verify():
    """Its hash is that of the first, so that opening has no reason to read it."""
    first = msgpack.encode({"tensors": [tidx_entry()]})
    damaged = first.replace(b"\xa1w", b"\xa1x")
    more = (b"TIDX", b"more", 4, damaged, len(first), blake3(first).digest())
    data = aero(chunks=[index_chunk(b"tensors", tidx_entry()), more])
    with holdall.open(data) as model:
        assert list(model) == ["w"]
    assert "aero.chunk.blake3" in {each.rule for each in holdall.verify(data, level="structure").findings}


def test_a_fourcc_that_is_not_ascii_is_strict_only():
    data = aero(tidx_entry(), chunks=[(b"X\xe9Y\x80", b"extra", 0, b"content")])
    with holdall.open(data) as model:
        assert [chunk.fourcc for chunk in model.native.extras] == ["X\xe9Y\x80"]
    assert holdall.verify(data).ok
    found = {each.rule: each for each in holdall.verify(data, level="strict").findings}["aero.chunk.fourcc"]
    assert "chunk 2" in found.message and "58e95980" in found.message and found.offset == 96 + 16 + 2 * 80
    sound = aero(tidx_entry(), chunks=[(b"XTRA", b"extra", 0, b"content")])
    assert "aero.chunk.fourcc" not in {each.rule for each in holdall.verify(sound, level="strict").findings}
