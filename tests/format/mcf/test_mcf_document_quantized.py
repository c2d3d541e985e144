"""What the format's document says of quantized tensors, on payloads that struct and numpy alone make and decode."""

from __future__ import annotations

import struct

import numpy as np
import pytest

import holdall
from holdall.quant import quantize
from holdall.quant.record import QuantRecord
from tests.format.mcf.document import BLOCKS, SHAPES, W, parse, refused, samples, strict, written
from tests.format.mcf.spec import METHODS, SUPER, Entry, File, Payload, align64, quant_info, record, unpack


@pytest.mark.shows("M20", "M22", "M33", "M34", "M37")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("mode", ["reference", "ieee", "best"])
@pytest.mark.parametrize("name", BLOCKS)
def test_payloads_are_those_of_the_document(name, mode, shape):
    values = samples(shape)
    q = quantize(values, name, mode=mode)
    payload = Payload(METHODS[name], shape, bytes(q.payload))
    assert q.numpy().tolist() == payload.decode().tolist()
    codes, limit = payload.codes(), (1 << payload.bits - 1) - 1
    assert np.abs(codes).max(initial=0) <= limit  # the most negative code is not used
    assert not codes.reshape(shape[0], -1)[:, shape[1] :].any()  # beyond the last column
    assert not any(payload.gaps())
    if METHODS[name] in SUPER:
        assert payload.subs().max() < 64
    scale = np.abs(values).max() / limit
    assert np.abs(q.numpy() - values).max() <= scale * 1.02


@pytest.mark.shows("M21")
@pytest.mark.parametrize("name", BLOCKS)
def test_quantized_tensors_are_stored_and_sliced(name, tmp_path):
    values = samples((37, 333))
    q = quantize(values, name)
    want = Payload(METHODS[name], (37, 333), bytes(q.payload)).decode()
    with holdall.open(written(tmp_path / "a", {"b": W} | {"w": q.tensor("w")})) as model:
        assert model["w"].numpy().tolist() == want.tolist()
        for index in (3, slice(30, 37), (slice(2, 9, 3), slice(30, 70)), (36, 332)):
            assert model["w"][index].tolist() == want[index].tolist()
        assert parse((tmp_path / "a").read_bytes())[3]["w"][3] == bytes(q.payload)


@pytest.mark.shows("M22")
@pytest.mark.parametrize("name", BLOCKS)
def test_the_most_negative_code_is_decoded(name):
    bits = Payload(METHODS[name], (1, 32), bytes(quantize(np.ones((1, 32), np.float32), name).payload)).bits
    head = struct.pack("<e", 0.5).ljust(64, b"\0")
    head += bytes([32]).ljust(64, b"\0") if METHODS[name] in SUPER else b""
    code = 1 << bits - 1
    stream = sum(code << bits * n for n in range(32)).to_bytes(4 * bits, "little")
    with holdall.open(File(tensors=[Entry("w", METHODS[name], [1, 32], head + stream)]).data()) as model:
        assert model["w"].numpy().tolist() == [[-0.5 * code] * 32]


@pytest.mark.shows("M23")
def test_packing_orders():
    """The first codes of one block in the bytes that the document draws: the lowest bits first."""
    pictures = {
        "k2": ([0, 1, -1, 0, 1], "3401"),  # item3 in bits 6-7 ... item0 in bits 0-1
        "k3": ([1, -1, 3, -3, 0, 1, 2, 3], "f98a68"),
        "k4": ([1, -1, 7, -7], "f197"),
        "q4": ([1, -1, 7, -7], "f197"),
        "k6": ([1, -1, 31, -31], "c1ff85"),
        "q8": ([1, -1, 127, -127], "01ff7f81"),
    }
    for name, (codes, drawn) in pictures.items():
        bits = int(name[1])
        head = struct.pack("<e", 1).ljust(64, b"\0") + (bytes([32]).ljust(64, b"\0") if name[0] == "k" else b"")
        payload = head + bytes.fromhex(drawn).ljust(4 * bits, b"\0")
        with holdall.open(File(tensors=[Entry("w", METHODS[name], [1, 32], payload)]).data()) as model:
            assert model["w"].numpy().tolist() == [codes + [0] * (32 - len(codes))], name


@pytest.mark.shows("M24", "M25", "M35")
@pytest.mark.parametrize("domain", ["weights", "activations"])
@pytest.mark.parametrize("name", ["int8", "int4"])
@pytest.mark.parametrize("shape", [(), (7,), (3, 5), (2, 3, 4)], ids=str)
def test_int_payloads_are_those_of_the_document(name, domain, shape, tmp_path):
    values = np.random.default_rng(1).uniform(-1, 3, shape).astype(np.float32)
    q = quantize(values, name, domain=domain, mode="ieee")
    count, bits = int(np.prod(shape)), int(name[3:])
    head = 128 if domain == "activations" else 64
    payload = bytes(q.payload)
    assert len(payload) == align64(4) * (2 if domain == "activations" else 1) + -(-count * bits // 8)
    (scale,) = struct.unpack_from("<f", payload)
    zero = struct.unpack_from("<f", payload, 64)[0] if domain == "activations" else 0.0
    codes = unpack(payload[head:], bits, count).reshape(shape)
    want = np.float32(scale) * (codes.astype(np.float32) - np.float32(zero))
    assert q.numpy().tolist() == want.tolist()
    assert not any(payload[4:64])
    low, high = q.clip
    if domain == "activations":
        assert not any(payload[68:128])
    if domain == "activations" and shape:
        assert low <= min(0, values.min()) <= max(0, values.max()) <= high
        assert scale == pytest.approx((high - low) / ((1 << bits) - 1), rel=1e-6)
        assert zero == pytest.approx(round(-(1 << bits - 1) - low / scale), abs=1)
    if domain == "weights":
        assert np.abs(codes).max() <= (1 << bits - 1) - 1
    data = written(tmp_path / "a", [q.tensor("w")])
    at, _ = parse(data)[2][2]
    assert data[at + 8 :][:24] == record(0, METHODS[name], int(domain == "activations"), low=low, high=high)
    with holdall.open(data) as model:
        assert model["w"].native == QuantRecord(name, domain, low, high)
        assert model["w"].numpy().tolist() == want.tolist()


@pytest.mark.shows("M27", "M28")
@pytest.mark.parametrize("name", BLOCKS)
def test_block_methods_are_for_weights_only(name):
    with pytest.raises(holdall.UnsupportedError):
        quantize(np.ones((2, 40), np.float32), name, domain="activations")
    with pytest.raises(holdall.ContentError):
        QuantRecord(name, "activations", 0, 1)
    q = quantize(np.ones((2, 40), np.float32), name)
    entry = Entry("w", METHODS[name], [2, 40], bytes(q.payload))
    holdall.open(File([quant_info(record(0, METHODS[name]))], [entry]).data()).close()
    refused(File([quant_info(record(0, METHODS[name], domain=1))], [entry]).data(), "mcf.quant.domain")


@pytest.mark.shows("M28")
@pytest.mark.parametrize("name", ["k6", "k4", "k3", "k2"])
def test_a_payload_with_super_mins_is_refused(name):
    good = Payload(METHODS[name], (2, 40), bytes(quantize(np.ones((2, 40), np.float32), name).payload))
    with_mins = good.data[:64] + bytes(64) + good.data[64:]
    for domain in (0, 1):
        info = quant_info(record(0, METHODS[name], domain=domain))
        refused(
            File([info], [Entry("w", METHODS[name], [2, 40], with_mins)]).data(), "mcf.tensor.size", "mcf.quant.domain"
        )


K4 = Entry("w", 0x31, [1, 8], bytes(144))


@pytest.mark.shows("M29", "M32")
@pytest.mark.parametrize(
    ("info", "rule"),
    [
        (quant_info(record(0, 0x31), version=0), "version"),
        (quant_info(record(0, 0x31), version=2), "version"),
        (quant_info(record(0, 0x31), count=2), "size"),
        (quant_info(record(0, 0x31), count=2**32 - 1), "size"),
        *((quant_info(record(0, 0x31, reserved=bytes(n) + b"\1" + bytes(5 - n))), "reserved") for n in range(6)),
        (quant_info(record(0, 0x31, block=64)), "block"),
        (quant_info(record(0, 0x31, super=0)), "block"),
        (quant_info(record(1, 0x31)), "index"),
        (quant_info(record(2**32 - 1, 0x31)), "index"),
        (quant_info(record(0, 0x30)), "match"),
        (quant_info(record(0, 0x31, domain=2)), "domain"),
    ],
)
def test_records_that_break_a_rule_are_refused(info, rule):
    refused(File([info], [K4]).data(), f"mcf.quant.{rule}", *(["core.limit"] if rule == "size" else []))


@pytest.mark.shows("M29")
def test_the_bytes_of_a_record(tmp_path):
    q = quantize(samples((2, 40)), "k4", clip=(-0.5, 0.25))
    data = written(tmp_path / "a", {"a": W, "w": q.tensor("w")})
    at, size = parse(data)[2][2]
    assert data[at : at + size] == struct.pack("<IIIBBHH6xff", 1, 1, 1, 0x31, 0, 32, 256, -0.5, 0.25)


@pytest.mark.shows("M33")
@pytest.mark.parametrize("name", BLOCKS)
def test_codes_beyond_the_columns_are_a_warning_at_strict(name):
    payload = bytearray(quantize(np.ones((2, 40), np.float32), name).payload)
    entry = Entry("w", METHODS[name], [2, 40], bytes(payload))
    assert strict(File(tensors=[entry]).data()) == set()
    payload[-1] ^= 0x10  # the last column of the second row
    entry = Entry("w", METHODS[name], [2, 40], bytes(payload))
    assert strict(File(tensors=[entry]).data()) == {"mcf.payload.columns"}
    assert holdall.open(File(tensors=[entry]).data())["w"].shape == (2, 40)


@pytest.mark.shows("M34")
@pytest.mark.parametrize("name", METHODS)
def test_gaps_that_are_not_zero_are_an_error_at_strict(name):
    payload = bytearray(quantize(np.ones((2, 40), np.float32), name).payload)
    payload[63] = 1
    data = File(tensors=[Entry("w", METHODS[name], [2, 40], bytes(payload))]).data()
    assert holdall.verify(data).ok
    assert strict(data) == {"mcf.payload.gap"}
    assert not holdall.verify(data, level="strict").ok


@pytest.mark.shows("M35")
def test_a_record_of_another_domain_than_the_size_says_is_refused():
    weights, activations = bytes(64 + 4), bytes(128 + 4)
    for payload, domain in ((weights, 0), (activations, 1)):
        entry = Entry("w", 0x10, [4], payload)
        holdall.open(File([quant_info(record(0, 0x10, domain))], [entry]).data()).close()
        refused(File([quant_info(record(0, 0x10, 1 - domain))], [entry]).data(), "mcf.quant.layout")


@pytest.mark.shows("M36")
@pytest.mark.parametrize(
    ("entry", "rule"),
    [
        (Entry("w", 0x31, [1, 8], bytes(200), offset=64 + 8, size=144), "align"),
        (Entry("w", 0x31, [1, 8], bytes(143)), "size"),
        (Entry("w", 0x31, [1, 8], bytes(145)), "size"),
        (Entry("w", 0x31, [8], bytes(144)), "rank"),
        (Entry("w", 0x31, [1, 1, 8], bytes(144)), "rank"),
        (Entry("w", 0x20, [2**40, 2**40], bytes(144)), "size"),
        (Entry("w", 0x10, [4], bytes(200), offset=64 + 8, size=68), "align"),
    ],
)
def test_quantized_payloads_that_do_not_fit_are_refused(entry, rule):
    refused(File(tensors=[entry]).data(), f"mcf.tensor.{rule}")


@pytest.mark.shows("M37")
@pytest.mark.parametrize("bits", [0x40, 0x80, 0xC0])
def test_the_top_bits_of_a_sub_scale_are_masked(bits):
    good = bytearray(quantize(samples((1, 40)), "k4").payload)
    want = holdall.open(File(tensors=[Entry("w", 0x31, [1, 40], bytes(good))]).data())["w"].numpy()
    good[64] |= bits
    data = File(tensors=[Entry("w", 0x31, [1, 40], bytes(good))]).data()
    assert holdall.open(data)["w"].numpy().tolist() == want.tolist()
    report = holdall.verify(data, level="strict")
    assert [(f.rule, f.severity) for f in report.findings] == [("mcf.payload.subscale", "warning")]
