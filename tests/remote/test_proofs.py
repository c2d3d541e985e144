"""AERO files with hashes: a wrong byte from a server is never handed out."""

from __future__ import annotations

import numpy as np
import pytest

import holdall
from holdall.errors import FormatError
from tests.remote.servers import range_server

SHAPE = (512, 256)  # 512 KiB


@pytest.fixture(params=["tensor_hash", "page_hash", "both"])
def kind(request):
    return request.param


@pytest.fixture
def values():
    rng = np.random.default_rng(3)
    return {f"w{n}": rng.standard_normal(SHAPE, np.float32) for n in range(8)}


@pytest.fixture
def data(tmp_path, values, kind):
    options = {"tensor_hash": kind != "page_hash", "page_hash": False if kind == "tensor_hash" else 64 << 10}
    holdall.save(tmp_path / "x.aero", values, **options)
    return (tmp_path / "x.aero").read_bytes()


def damaged(data, values, name):
    """One bit of a tensor wrong, far from both ends of the file."""
    at = data.index(values[name].tobytes()) + 300_000
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.shows("A39", "A40")
def test_whole_tensors_slices_and_streams_are_proven(data, values):
    with range_server({"/x.aero": data}) as good, holdall.open(good.url + "/x.aero") as model:
        for name, array in values.items():
            np.testing.assert_array_equal(model[name].numpy(), array)
            np.testing.assert_array_equal(model[name][100:102], array[100:102])
            np.testing.assert_array_equal(np.concatenate(list(model[name].blocks(10_000))), array.reshape(-1))
        for tensor in model.fetch():
            np.testing.assert_array_equal(tensor.numpy(), values[tensor.name])


@pytest.mark.shows("A39", "A40")
def test_a_wrong_byte_is_never_handed_out(data, values, tmp_path):
    row = 300_000 // (4 * SHAPE[1])
    with range_server({"/x.aero": damaged(data, values, "w4")}) as bad, holdall.open(bad.url + "/x.aero") as model:
        for read in (
            lambda: model["w4"].numpy(),
            lambda: model["w4"].raw(),
            lambda: model["w4"][row],
            lambda: [tensor.numpy() for tensor in model.fetch(["w3", "w4"])],
            lambda: holdall.convert(bad.url + "/x.aero", tmp_path / "x.oinf"),
        ):
            with pytest.raises(FormatError) as caught:
                read()
            assert caught.value.rule in ("aero.tensor.blake3", "aero.page.blake3", "aero.tidx.hash_b3")
        got = []
        with pytest.raises(FormatError):
            got.extend(bytes(piece) for piece in model["w4"].payload.chunks(100_000))
        assert values["w4"].tobytes().startswith(b"".join(got))  # nothing wrong came before the error
        np.testing.assert_array_equal(model["w5"].numpy(), values["w5"])
    assert not (tmp_path / "x.oinf").exists()


@pytest.mark.shows("A40")
def test_slices_move_pages_not_tensors(data, kind, values):
    with range_server({"/x.aero": data}) as good, holdall.open(good.url + "/x.aero") as model:
        model["w4"][0]
        good.log.clear()
        model["w4"][300]
        moved = SHAPE[0] * SHAPE[1] * 4 if kind == "tensor_hash" else 2 * (64 << 10)
        assert good.log.sent <= moved
