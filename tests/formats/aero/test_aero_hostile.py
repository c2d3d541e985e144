"""What strangers may put into a file: damage anywhere, and numbers that lie."""

import random

import numpy as np
import pytest

import holdall
from holdall.documents import msgpack
from holdall.formats.aero.layout import ENTRY, HEADER, TOC
from tests.formats.aero.corpus import FOLDER

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
