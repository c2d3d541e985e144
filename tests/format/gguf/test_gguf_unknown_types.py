"""Tensors of types that holdall does not know: opaque bytes up to the next tensor, kept by every operation."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import holdall
from holdall.cli import main
from holdall.errors import ContentError, UnsupportedError
from holdall.model.encodings import Opaque
from holdall.model.payload import InMemory
from holdall.model.tensor import Tensor
from tests.format.gguf.build import file, info, u32

NEWEST = (1 << 32) - 1


def noise(size: int, seed: int = 0) -> bytes:
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8).tobytes()


# In the order of the table, the payloads are at 64, 0 and 4 MiB + 128: sizes follow from offsets, not from the order.
LARGE = (4 << 20) + 64
DATA = noise(LARGE + 128)
INFOS = (
    info("middle", (64, 3), 200, 64),
    info("plain", (4, 4), 0, 0),
    info("last", (100,), NEWEST, LARGE + 64),
    info("empty", (0, 7), 77, 0),
)
FILE = file((u32("a", 1),), INFOS, DATA)
EXPECTED = {"middle": DATA[64 : LARGE + 64], "plain": DATA[:64], "last": DATA[LARGE + 64 :], "empty": b""}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "new.gguf").write_bytes(FILE)
    return tmp_path / "new.gguf"


def contents(path: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    with holdall.open(path) as model:
        return {tensor.name: (str(tensor.dtype), tensor.shape, bytes(tensor.raw())) for tensor in model.tensors}


def run(*arguments: object, code: int = 0) -> str:
    ran = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert ran.exit_code == code, ran.output
    return ran.output


def test_bytes_run_to_the_next_offset_or_the_end(path: Path) -> None:
    found = contents(path)
    assert {name: data for name, (_, _, data) in found.items()} == EXPECTED
    assert found["middle"][:2] == ("ggml.200", (3, 64))
    assert found["last"][:2] == (f"ggml.{NEWEST}", (100,))
    with holdall.open(path) as model, pytest.raises(UnsupportedError, match=r"ggml.200: these bytes have no decoder"):
        model["middle"].numpy()


def test_verify_notes_them_at_every_level(path: Path) -> None:
    for level in ("structure", "full", "strict"):
        report = holdall.verify(path, level=level)  # type: ignore[arg-type]
        noted = [finding.message for finding in report.findings if finding.rule == "gguf.tensor.type"]
        assert len(noted) == 3 and "'middle' is of type 200, which is unknown: 4194368 bytes" in noted[0]
        assert report.ok


def test_every_command_that_reads_lists_them(path: Path, tmp_path: Path) -> None:
    rows = {row["name"]: row for row in map(json.loads, run("ls", "--json", path).splitlines())}
    assert (rows["middle"]["dtype"], rows["middle"]["nbytes"]) == ("ggml.200", LARGE)
    assert "ggml.200" in run("info", path)
    assert "'middle' is of type 200" in run("explain", path)
    assert "middle" in run("verify", "--stats", path)
    run("extract", path, "middle", "-o", tmp_path / "out.bin")
    assert (tmp_path / "out.bin").read_bytes() == EXPECTED["middle"]
    assert run("diff", path, path)


def test_converting_to_gguf_keeps_the_bytes(path: Path, tmp_path: Path) -> None:
    before = contents(path)
    run("convert", path, tmp_path / "copy.gguf")
    assert contents(tmp_path / "copy.gguf") == before
    run("convert", path, tmp_path / "fewer.gguf", "--exclude", "plain", "--meta", "x=1")
    assert contents(tmp_path / "fewer.gguf") == {name: found for name, found in before.items() if name != "plain"}
    run("convert", path, tmp_path / "parts", "--format", "gguf", "--split", "1MB")
    assert len(list((tmp_path / "parts").glob("*.gguf"))) > 1
    assert contents(tmp_path / "parts") == before
    run("convert", tmp_path / "parts", tmp_path / "joined.gguf")
    assert contents(tmp_path / "joined.gguf") == before


def test_a_last_tensor_without_padding_keeps_its_size(tmp_path: Path) -> None:
    data = file(infos=(info("w", (16,), 0, 0), info("odd", (10,), 99, 64)), data=noise(64 + 50))
    (tmp_path / "odd.gguf").write_bytes(data)
    before = contents(tmp_path / "odd.gguf")
    assert len(before["odd"][2]) == 50
    run("convert", tmp_path / "odd.gguf", tmp_path / "out.gguf", "--meta", "x=1")
    assert contents(tmp_path / "out.gguf") == before


def test_padding_that_would_become_content_is_refused(tmp_path: Path) -> None:
    odd = Tensor("odd", Opaque("ggml.99", 50), (10,), InMemory(noise(50)))
    plain = Tensor.of("w", np.zeros(4, np.float32))
    holdall.save(tmp_path / "fine.gguf", [plain, odd])
    message = r"'odd': 50 bytes of the unknown type ggml.99 end at the next tensor.*alignment 32"
    with pytest.raises(ContentError, match=message):
        holdall.save(tmp_path / "x.gguf", [odd, plain])
    with pytest.raises(ContentError, match=r"gguf: tensor 'w': .*has no ggml.31"):
        holdall.save(tmp_path / "x.gguf", [Tensor("w", Opaque("ggml.31", 64), (64,), InMemory(bytes(64)))])


@pytest.mark.parametrize("suffix", ["safetensors", "npz", "aero", "oinf", "pt", "mcf"])
def test_converting_to_other_formats_is_refused_with_the_reason(suffix: str, path: Path, tmp_path: Path) -> None:
    target = tmp_path / f"out.{suffix}"
    for options in ((), ("--dequantize",)):
        said = run("convert", path, target, *options, code=1)
        assert "ggml.200" in said and "middle" in said and "Traceback" not in said
    assert not target.exists()
    run("convert", path, target, "--include", "plain")
    assert contents(target)["plain"][2] == EXPECTED["plain"]


def q2_0(count: int, block: int) -> bytes:
    """Random blocks of Q2_0: a float16 scale, then two bits for each element."""
    scales = np.random.default_rng(count).normal(size=count // block).astype("<f2")
    return b"".join(scale.tobytes() + noise(block // 4, row) for row, scale in enumerate(scales))


def test_q2_0_is_known(tmp_path: Path) -> None:
    stored = q2_0(256, 64)
    assert len(stored) == 72
    (tmp_path / "q.gguf").write_bytes(file(infos=(info("w", (128, 2), 42, 0),), data=stored + bytes(24)))
    with holdall.open(tmp_path / "q.gguf") as model:
        tensor = model["w"]
        assert (str(tensor.dtype), tensor.shape, tensor.nbytes) == ("ggml.q2_0", (2, 128), 72)
        expected = []
        for at in range(0, 72, 18):
            (scale,) = struct.unpack_from("<e", stored, at)
            expected += [scale * ((stored[at + 2 + i // 4] >> i % 4 * 2 & 3) - 1) for i in range(64)]
        assert tensor.numpy().reshape(-1).tolist() == expected
        assert tensor[1].tolist() == expected[128:]
    run("convert", tmp_path / "q.gguf", tmp_path / "q.safetensors", "--dequantize")
    with holdall.open(tmp_path / "q.safetensors") as model:
        assert model["w"].numpy().reshape(-1).tolist() == expected


def test_q2_0_of_other_blocks_is_opaque(tmp_path: Path) -> None:
    """With 128 elements in 34 bytes, as a fork writes it, the large tensor cannot have blocks of 64."""
    small, large = q2_0(128, 128).ljust(64, b"\0"), q2_0(128 * 200, 128)
    assert len(large) == 6800
    rows = (info("small", (128,), 42, 0), info("large", (128, 200), 42, 64))
    path = tmp_path / "fork.gguf"
    path.write_bytes(file(infos=rows, data=small + large + bytes(16)))
    before = contents(path)
    assert before == {
        "small": ("ggml.42", (128,), small),
        "large": ("ggml.42", (200, 128), large + bytes(16)),
    }
    run("convert", path, tmp_path / "copy.gguf", "--meta", "x=1")
    assert contents(tmp_path / "copy.gguf") == before


def test_opaque_tensors_that_would_be_read_as_a_known_type_are_refused(tmp_path: Path) -> None:
    """Without the tensor that shows the fork, the small one would become Q2_0 of 64 elements a block."""
    small, large = q2_0(128, 128).ljust(64, b"\0"), q2_0(128 * 200, 128)
    path, out = tmp_path / "fork.gguf", tmp_path / "out.gguf"
    rows = (info("small", (128,), 42, 0), info("large", (128, 200), 42, 64))
    path.write_bytes(file(infos=rows, data=small + large + bytes(16)))
    said = run("convert", path, out, "--exclude", "large", code=1)
    assert "tensor 'small': its type is unknown and has the id 42" in said and "read as ggml.q2_0" in said
    said = run("convert", path, tmp_path / "parts", "--format", "gguf", "--split", "6kB", code=1)
    assert "tensor 'small'" in said
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["fork.gguf"]
    run("convert", path, out, "--exclude", "small")
    assert contents(out) == {"large": contents(path)["large"]}
    known = tmp_path / "known.gguf"
    known.write_bytes(file(infos=(info("q", (64,), 42, 0),), data=q2_0(64, 64) + bytes(14)))
    message = r"tensor 'q' is ggml.q2_0, which would become unknown beside 'large'"
    with holdall.open(path) as fork, holdall.open(known) as other, pytest.raises(ContentError, match=message):
        holdall.save(tmp_path / "both.gguf", [fork["large"], other["q"]])


@pytest.mark.parametrize("number", [0, 2, 42])
def test_opaque_tensors_under_known_ids_are_refused(number: int, tmp_path: Path) -> None:
    tensor = Tensor("w", Opaque(f"ggml.{number}", 128), (32,), InMemory(noise(128)))
    with pytest.raises(ContentError, match=rf"tensor 'w': its type is unknown and has the id {number}, .* read as "):
        holdall.save(tmp_path / "x.gguf", [tensor])
