"""What people at a terminal see: narrow ones lose nothing, and escapes come only where they are wanted."""

from __future__ import annotations

import re

import numpy as np
import pytest

import holdall

LONG = "model.encoder.layers.11.self_attention.query_key_value.projection.w"


@pytest.fixture
def named_path(tmp_path):
    path = tmp_path / "named.safetensors"
    holdall.save(path, {LONG: np.ones((64, 64), np.float32), "b": np.ones(2065, np.float16)})
    return path


def bare(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


@pytest.mark.parametrize("columns", [20, 40, 80])
def test_info_shows_every_cell(terminal, named_path, columns):
    shown, code = terminal(columns, "info", named_path)
    words = bare(shown).split()
    assert code == 0
    assert {"dtype", "f32", "f16", "79.9%", "20.1%", LONG, "16.4", "4.13"} <= set(words)


def test_diff_shows_every_cell(terminal, named_path):
    other = named_path.with_name("other.safetensors")
    holdall.save(other, {LONG: np.full((64, 64), 3.875, np.float32), "b": np.ones(2065, np.float16)})
    shown, code = terminal(40, "diff", named_path, other)
    assert code == 1
    assert {LONG, "different", "2.88", "cosine", "4,096"} <= set(bare(shown).split())


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_formats_breaks_lines_between_words_only(terminal, columns):
    shown, code = terminal(columns, "formats")
    lines = bare(shown).splitlines()
    assert code == 0
    assert max(map(len, lines)) <= columns
    assert {"gptrs-checkpoint", ".safetensors", "metadata", "declared", "(Open", "Infer"} <= set(bare(shown).split())


@pytest.mark.parametrize("extra", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=["NO_COLOR", "TERM"])
@pytest.mark.parametrize("name", ["info", "ls", "explain"])
def test_escapes_can_be_turned_off(terminal, named_path, name, extra):
    assert "\x1b[" in terminal(80, name, named_path)[0]
    plain, code = terminal(80, name, named_path, **extra)
    assert code == 0
    assert "\x1b" not in plain


def test_no_bar_is_left_before_what_a_command_prints(terminal, tmp_path):
    holdall.save(tmp_path / "m.safetensors", {"w": np.random.default_rng(0).random((2048, 1024), np.float32)})
    shown, code = terminal(200, "quantize", tmp_path / "m.safetensors", tmp_path / "m.mcf", "--rule", "x=q8")
    assert code == 0
    lines = bare(shown).splitlines()
    assert lines[0] == "holdall: --rule 'x' matches no tensor"
    assert lines[1] == "policy: k4, mode best"
    assert "quantizing into" in shown  # the bar comes later
    *_, last = bare(shown).split("quantizing into")
    assert "\nwrote " in last.replace("\r", "\n")
