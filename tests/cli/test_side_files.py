"""Files beside the model that are broken or hostile: one sentence, and never "this should not happen"."""

from __future__ import annotations

import json
import os
import threading
import tracemalloc

import numpy as np
import pytest
from click.testing import CliRunner

import holdall
from holdall.cli import main

DEEP = "[" * 200_000


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "m.safetensors"
    holdall.save(path, {"w": np.ones((64, 64), np.float32)})
    return path


CONTENTS = {
    "empty": b"",
    "zeros": bytes(64),
    "cut zip": b"PK\3\4broken",
    "deep list": DEEP.encode(),
    "deep object": b'{"w":' + DEEP.encode(),
    "not text": bytes(range(256)),
    "number": b"1",
    "null": b"null",
    "wrong values": json.dumps({"w": [["a"]], "v": None}).encode(),
}
PLACES = {
    "--importance": ("quantize", "{model}", "{out}.mcf", "--importance", "{side}.npz"),
    "--clips": ("quantize", "{model}", "{out}.mcf", "--method=int8", "--domain=activations", "--clips", "{side}.json"),
    "--rename-file": ("convert", "{model}", "{out}.npz", "--rename-file", "{side}.json"),
    "-o config": ("convert", "{model}", "{out}.gptrs", "-o", "config=@{side}.json"),
    "-o vocab": ("convert", "{model}", "{out}.weights", "-o", "vocab=@{side}.txt"),
    "--config": ("embed", "{model}", "text", "--config", "{side}.json"),
    "--vocab": ("embed", "{model}", "text", "--vocab", "{side}.txt"),
    "--order": ("diff", "{model}", "{model}", "--trace", "--order", "{side}.txt"),
    "--asset": ("edit", "{model}", "--asset", "config.json={side}.json"),
    "repair --from": ("repair", "{model}", "--from", "{side}.aero"),
}  # fmt: skip


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("place", PLACES)
def test_a_broken_side_file_is_a_sentence(place, content, model, tmp_path):
    words = [word.format(model=model, out=tmp_path / "out", side=tmp_path / "side") for word in PLACES[place]]
    for suffix in (".npz", ".json", ".txt", ".aero"):
        (tmp_path / f"side{suffix}").write_bytes(CONTENTS[content])
    done = CliRunner().invoke(main, words)
    assert "should not happen" not in done.output, done.output[-500:]
    assert done.exit_code in (0, 1, 2)
    assert len(done.output) < 5000
    if done.exit_code:
        assert "Error:" in done.output or "holdall:" in done.output


def test_a_value_that_is_nested_too_deeply(model):
    done = CliRunner().invoke(main, ["edit", str(model), "--set", f"x={DEEP}"])
    assert done.exit_code == 2
    assert "nested too deeply" in done.output


HELD = {
    **{place: words for place, words in PLACES.items() if place not in ("--importance", "repair --from")},
    "embed --input": ("embed", "{model}", "--input", "{side}.txt"),
    "embed --against": ("embed", "{model}", "text", "--against", "{side}.txt"),
    "calibrate --input": ("calibrate", "{model}", "--input", "{side}.txt"),
    "--profile": ("verify", "{model}", "--profile", "{side}.json"),
}


@pytest.mark.parametrize("place", HELD)
def test_a_side_file_is_read_within_the_limits(place, model, tmp_path):
    words = [word.format(model=model, out=tmp_path / "out", side=tmp_path / "side") for word in HELD[place]]
    for suffix in (".json", ".txt"):
        (tmp_path / f"side{suffix}").write_bytes(b" " * 3000)
    done = CliRunner().invoke(main, [*words, "--limit", "metadata_bytes=2000"])
    assert done.exit_code == 3
    assert "has more than 2000 bytes" in done.output and "--limit metadata_bytes=" in done.output
    done = CliRunner().invoke(main, [*words, "--limit", "metadata_bytes=4000"])
    assert "has more than" not in done.output


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="there is no device without an end")  # noqa: PTH110
@pytest.mark.parametrize("place", HELD)
def test_a_side_file_without_an_end_is_refused(place, model, tmp_path):
    for suffix in (".json", ".txt"):
        (tmp_path / f"side{suffix}").symlink_to("/dev/zero")
    words = [word.format(model=model, out=tmp_path / "out", side=tmp_path / "side") for word in HELD[place]]
    done = CliRunner().invoke(main, [*words, "--limit", "metadata_bytes=8M"])
    assert done.exit_code == 3 and "has more than 8000000 bytes" in done.output


def test_a_chunk_of_aero_is_copied_and_never_held(model, tmp_path):
    """Its file is no document, so that ``metadata_bytes`` is not for it."""
    size = 128 << 20  # many times the buffers of a conversion
    with (tmp_path / "side.bin").open("wb") as side:
        side.write(b"begin")
        side.truncate(size)
    out = tmp_path / "o.aero"
    words = ["convert", str(model), str(out), "-o", f"chunk=XTRA:one@{tmp_path / 'side.bin'}", "--no-fsync"]
    tracemalloc.start()
    done = CliRunner().invoke(main, [*words, "--limit", "metadata_bytes=2000"])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert done.exit_code == 0, done.output
    assert peak < size // 3
    assert out.read_bytes().count(b"begin" + bytes(1000)) == 1 and out.stat().st_size > size


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="there is no device without an end")  # noqa: PTH110
def test_a_chunk_of_aero_has_an_end(model, tmp_path):
    done = CliRunner().invoke(main, ["convert", str(model), str(tmp_path / "o.aero"), "-o", "chunk=XTRA:one@/dev/zero"])
    assert done.exit_code == 2 and "is not a regular file" in done.output
    assert not (tmp_path / "o.aero").exists()


def test_a_document_of_too_many_values_and_levels_is_refused(model, tmp_path):
    side = tmp_path / "side.json"
    words = ["quantize", str(model), str(tmp_path / "o.mcf"), "--method=int8", "--domain=activations"]
    words += ["--clips", str(side)]
    side.write_text(json.dumps({f"t{row}": [0, 1] for row in range(500)}))
    done = CliRunner().invoke(main, [*words, "--limit", "metadata_entries=1000"])
    assert done.exit_code == 3 and "--limit metadata_entries=" in done.output
    side.write_text("[" * 60 + "]" * 60)
    done = CliRunner().invoke(main, [*words, "--limit", "nesting=50"])
    assert done.exit_code == 1 and "is not JSON" in done.output and "50" in done.output


def test_importance_that_expands_is_refused(model, tmp_path):
    bomb = tmp_path / "bomb.npz"
    np.savez_compressed(bomb, **{f"w{row}": np.zeros(20 << 20, np.uint8) for row in range(24)})
    done = CliRunner().invoke(main, ["quantize", str(model), str(tmp_path / "o.mcf"), "--importance", str(bomb)])
    assert done.exit_code == 3 and "--limit decompression_ratio=" in done.output


def test_names_from_a_pipe_are_read_once(model, tmp_path):
    pipe = tmp_path / "names"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text('{"w": "weight"}'))
    writer.start()
    done = CliRunner().invoke(main, ["convert", str(model), str(tmp_path / "o.npz"), "--rename-file", str(pipe)])
    writer.join()
    assert done.exit_code == 0, done.output
    with holdall.open(tmp_path / "o.npz") as written:
        assert list(written) == ["weight"]
