"""What mutants, odd options and odd side files made of commands and calls: found by ``tools.fuzz.operations``."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from functools import partial

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner

import holdall
from holdall.binary.documents import msgpack
from holdall.binary.documents.base import DocumentError
from holdall.cli import main
from holdall.errors import ContentError, HoldallError
from holdall.format import registry
from holdall.model.model import Model, model_of
from holdall.model.tensor import Tensor
from holdall.runtime import Embedder
from tests.runtime import tiny

ODD = (
    True, False, 0, -1, 3, 64, 1 << 70, 1.5, float("nan"), float("inf"), "", "x", "-1", "1MB", "\0", None, [1], ["a"],
    {}, {"a": 1}, {"a": b"x"}, b"x", b"\xff", object(),
)  # fmt: skip
OPTIONS = [(name, option.name) for name in registry.names() for option in registry.find(name).options]
HUGE = "1" + "0" * 40


def run(*words):
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert "should not happen" not in done.output, done.output[-500:]
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


@pytest.fixture
def path(tmp_path):
    made = tmp_path / "m.safetensors"
    holdall.save(made, {"w": np.arange(4096, dtype=np.float32).reshape(64, 64)})
    return made


@pytest.mark.parametrize(("format", "option"), OPTIONS)
def test_a_writer_refuses_an_odd_option_with_a_sentence(format, option, tmp_path):
    tensors = model_of({"w": np.ones((2, 2), np.float32), "v": np.ones(3, np.float32)}).tensors
    plain, full = Model(tensors), Model(tensors, metadata={"a": "b"}, assets={"config.json": b"{}"})
    for title, model in (("plain", plain), ("full", full)):
        for number, value in enumerate(ODD):
            try:
                holdall.save(tmp_path / f"{title}-{number}", model, format=format, fsync=False, **{option: value})
            except HoldallError as error:
                assert len(str(error)) < 500


@pytest.mark.parametrize(
    "words",
    [
        ("explain", "{path}", "--rows", HUGE),
        ("quantize", "{path}", "{path}.mcf", "--threads", HUGE),
        ("quantize", "{path}", "{path}.mcf", "--min-size", HUGE),
        ("embed", "{path}", "text", "--top-k", HUGE, "--batch-size", HUGE, "--threads", HUGE, "--max-length", HUGE),
    ],
)
def test_a_number_beyond_machine_integers(words, path):
    run(*(word.format(path=path) for word in words))


@pytest.mark.parametrize("format", ["npz", "oinf", "safetensors"])
def test_a_step_beyond_machine_integers(format, tmp_path):
    values = np.arange(24, dtype=np.float32).reshape(4, 6)
    holdall.save(tmp_path / "m", {"w": values}, format=format)
    with holdall.open(tmp_path / "m", mmap=False) as model:
        for key in (slice(None, None, 1 << 62), slice(None, None, -(1 << 70)), (slice(1, None, 1 << 61), slice(None))):
            assert model["w"][key].tolist() == values[key].tolist()


@pytest.mark.parametrize("url", ["https://[", "https://[::1", "http://[x]y/"])
@pytest.mark.parametrize("command", ["info", "ls", "verify", "explain"])
def test_a_url_that_is_none(command, url):
    done = run(command, url)
    assert (done.exit_code, url in done.output) == (1, True)


NOWHERE = [
    "http://",
    "https:///x.npz",
    "http://:80/x",
    "https://@/x",
    "http://?x",
    "hf://",
    "s3://",
    "gs:///x",
    "az://",
]


def test_a_url_that_names_no_server_loads_no_client():
    script = f"""
import sys
import holdall
heard = []
sys.addaudithook(lambda event, args: heard.append(event) if event.startswith("socket.") else None)
for url in {NOWHERE!r}:
    try:
        holdall.open(url)
    except holdall.HoldallError as error:
        assert "names no server" in str(error), error
    else:
        raise AssertionError(url)
assert heard == [], heard
assert not {{"urllib3", "obstore", "huggingface_hub"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.filterwarnings("error")
def test_a_bound_beyond_float32(path, tmp_path):
    done = run("quantize", path, tmp_path / "q.mcf", "--clip", "0", "1e39")
    assert (done.exit_code, "two finite numbers" in done.output) == (1, True)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
def test_an_encoder_whose_weights_are_not_finite_warns_of_nothing(value):
    weights = tiny.tensors()
    for name in weights:
        if name.endswith(("query.weight", "value.weight", "output.dense.weight")):
            weights[name][:] = value
    vectors = Embedder(model_of(weights), vocab=tiny.VOCAB, config=tiny.CONFIG).embed(["the cats sit."])
    assert not np.isfinite(vectors).all()


@pytest.mark.parametrize("limit", [each.name for each in fields(holdall.Limits) if each.name != "nesting"])
def test_a_limit_beyond_machine_integers(limit, tmp_path):
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    for name in registry.names():
        path = tmp_path / f"m{(registry.find(name).suffixes or ('',))[0]}"
        holdall.save(path, {"w": values}, format=name, fsync=False)
        for size in (HUGE, str(1 << 63), str((1 << 64) - 1)):
            assert run("verify", path, "--limit", f"{limit}={size}").exit_code == 0
            assert run("info", path, "--limit", f"{limit}={size}").exit_code == 0


@pytest.mark.parametrize("nesting", [0, 1, 2, 3])
def test_a_nesting_of_nothing_is_a_limit_like_others(nesting, tmp_path):
    for name in registry.names():
        path = tmp_path / f"m{(registry.find(name).suffixes or ('',))[0]}"
        holdall.save(path, {"w": np.ones((2, 3), np.float32)}, format=name, fsync=False)
        done = [run(command, path, "--limit", f"nesting={nesting}") for command in ("info", "verify", "explain")]
        if name == "aero" and nesting < 3:  # a map, an array of tensors, a map of each
            assert [one.exit_code for one in done[:2]] == [1, 1]
            assert "nested" in done[0].output


def test_messagepack_of_no_depth_is_nested_too_deep():
    for read in (partial(msgpack.decode, b"\x80"), partial(msgpack.rows, b"\x80", 0, 1, 1, ("w",))):
        for depth in (0, -2):
            with pytest.raises(DocumentError, match="nested too deep"):
                read(depth=depth)


@pytest.fixture
def carrier(tmp_path):
    """An npz that carries a safetensors file with a type that numpy does not have, beyond every buffer."""
    data = np.random.default_rng(1).integers(0, 120, 5 << 20, np.uint8)
    holdall.save(tmp_path / "o.safetensors", {"w": data.view(ml_dtypes.float8_e4m3fn)})
    holdall.convert(tmp_path / "o.safetensors", tmp_path / "c.npz", carry=True)
    return tmp_path / "c.npz"


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_carrier_that_another_program_compressed(is_damaged, carrier, tmp_path):
    with np.load(carrier) as arrays:
        content = dict(arrays)
    content["w"][-1] ^= is_damaged
    np.savez_compressed(tmp_path / "d.npz", **content)
    if is_damaged:
        with pytest.raises(holdall.HashError, match="tensor 'w', which carries f8_e4m3"):
            holdall.convert(tmp_path / "d.npz", tmp_path / "e.safetensors")
        return
    holdall.convert(tmp_path / "d.npz", tmp_path / "e.safetensors")
    with holdall.open(tmp_path / "e.safetensors") as model:
        assert (str(model["w"].dtype), bytes(model["w"].raw())) == ("f8_e4m3", content["w"].tobytes()[: 5 << 20])


def test_a_carrier_whose_tensor_has_lost_its_bytes(tmp_path):
    values = np.arange(8, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn)
    holdall.save(tmp_path / "o.safetensors", {"w": values, "v": np.ones(3, np.float32)})
    holdall.convert(tmp_path / "o.safetensors", tmp_path / "c.oinf", carry=True)
    with holdall.open(tmp_path / "c.oinf") as model:
        bare = [Tensor(each.name, each.dtype, each.shape, None) for each in model.tensors]
        holdall.save(tmp_path / "d.oinf", Model(bare, metadata=model.metadata))
    holdall.convert(tmp_path / "d.oinf", tmp_path / "e.oinf")
    with holdall.open(tmp_path / "e.oinf") as model:
        assert [(each.name, each.has_data) for each in model.tensors] == [("v", False), ("w", False)]


def test_a_bool_that_is_neither_0_nor_1_is_not_written_as_oinf(tmp_path):
    data = np.zeros(5 << 20, np.uint8)
    data[::3] = 1
    whole = {"a": np.ones(3, np.float32), "w": data.view(np.bool_)}
    holdall.save(tmp_path / "right.npz", whole)
    holdall.convert(tmp_path / "right.npz", tmp_path / "right.oinf")
    assert holdall.verify(tmp_path / "right.oinf", level="strict").ok
    with holdall.open(tmp_path / "right.oinf") as model:
        assert model["w"].numpy().tobytes() == data.tobytes()
    data[(4 << 20) + 7] = 2  # beyond the first piece
    holdall.save(tmp_path / "wrong.npz", whole)
    with pytest.raises(ContentError, match=r"oinf: tensor 'w': element 4194311 is 2, not 0 or 1"):
        holdall.convert(tmp_path / "wrong.npz", tmp_path / "wrong.oinf")
    assert not (tmp_path / "wrong.oinf").exists()


def test_what_the_campaign_takes_for_asked_for_is_what_is_documented(path, tmp_path, monkeypatch):
    holdall.save(tmp_path / "s.weights", {"s": np.float32(2)}, format="gptrs-checkpoint", scalars="as-vector")
    with holdall.open(tmp_path / "s.weights") as model:
        assert (model["s"].shape, model["s"].numpy().tolist()) == ((1,), [2.0])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w.bin").write_bytes(b"another file")
    assert run("extract", path, "w", "--raw").exit_code == 0
    assert (tmp_path / "w.bin").read_bytes() == np.arange(4096, dtype=np.float32).tobytes()
    assert run("convert", path, "x.gguf", "-o", f"alignment={1 << 20}").exit_code == 0
    assert (1 << 20) < (tmp_path / "x.gguf").stat().st_size <= 3 << 20
