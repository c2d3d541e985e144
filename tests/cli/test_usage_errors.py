"""Usage errors show the arguments of the user without control characters and without secrets of URLs."""

from __future__ import annotations

import os
import subprocess
import sys
import unicodedata

import pytest
from click.testing import CliRunner

from holdall.cli import COMMANDS, main

SECRET = "hunter2-9f3c"
URLS = [
    f"https://user:{SECRET}@host/x",
    f"https://host/x?sig={SECRET}",
    f"https://user:my {SECRET}@host/x",
    f"https://user:it's('{SECRET})@host/x",
    f"s3://key:{SECRET}@bucket/x",
    f"a=https://host/,b=https://user:{SECRET}@host/x",
    f"HTTPS://host/x#{SECRET}",
]
CONTROLS = [
    "\x1b[31mred",
    "\x1b]0;title\x07",
    "a\nholdall: fine",
    "\r\x1b[2K",
    "\x9b31m",
    "\u202etxt",
    "\x7f",
    "\udcff",
]
WHERE = {
    "command": lambda text: [text],
    "extra argument": lambda text: ["diff", "a", "b", text],
    "several extra": lambda text: ["restore", "a", "b", text, text],
    "option": lambda text: ["info", f"--{text}", "x"],
    "option of the group": lambda text: [f"--{text}", "info", "x"],
    "short option": lambda text: ["info", f"-Z{text}"],
    "choice": lambda text: ["verify", "--level", text, "x"],
    "number": lambda text: ["embed", "m", "--top-k", text],
    "size": lambda text: ["convert", "a", "b", "--split", text],
    "limit": lambda text: ["info", "--limit", text, "x"],
    "value of a limit": lambda text: ["info", "--limit", f"tensors={text}", "x"],
    "format": lambda text: ["info", "--format", text, "x"],
    "origin": lambda text: ["info", "--follow", text, "x"],
    "slice": lambda text: ["extract", "a", "n", "--slice", text],
    "cast": lambda text: ["extract", "a", "n", "--cast", text],
    "shell": lambda text: ["completion", text],
    "report": lambda text: ["quantize", "a", "b", "--report", text],
    "rule": lambda text: ["quantize", "a", "b.mcf", "--rule", f"{text.replace('=', '')}=none such"],
}


def run(words):
    done = CliRunner().invoke(main, words, prog_name="holdall")
    assert done.exit_code in (1, 2), done.output
    return done.output


@pytest.mark.parametrize("where", WHERE.values(), ids=list(WHERE))
@pytest.mark.parametrize("text", URLS)
def test_no_secret_is_shown(where, text):
    shown = run(where(text))
    assert SECRET not in shown
    assert "Error: " in shown or shown.startswith("holdall: ")


@pytest.mark.parametrize("where", WHERE.values(), ids=list(WHERE))
@pytest.mark.parametrize("text", CONTROLS, ids=ascii)
def test_no_control_is_shown(where, text):
    """As on a terminal: into a pipe click strips some of them by itself."""
    done = CliRunner().invoke(main, where(text), prog_name="holdall", color=True)
    assert done.exit_code in (1, 2)
    for line in done.output.splitlines():
        assert not [c for c in line if unicodedata.category(c) in ("Cc", "Cf", "Cs")], done.output
    assert "\nholdall: fine" not in done.output


def test_messages_say_what_was_meant():
    assert "there is no command '\\x1b[31mx'" in run(["\x1b[31mx"])
    assert "unexpected extra argument (https://host/x)" in run(["diff", "a", "b", URLS[0]])
    assert "'https://host/x' is not one of 'structure'" in run(["verify", "--level", URLS[2], "x"])
    assert "Missing argument 'B'" in run(["diff", "a"])
    assert "Did you mean" in run(["info", "--folow", "x"])


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_cleans_an_extra_option(name):
    shown = run([name, f"--no\x1b-{URLS[0]}"])
    assert SECRET not in shown and "\x1b" not in shown


def test_no_argument_shows_the_help():
    done = subprocess.run([sys.executable, "-m", "holdall"], capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 2
    assert "\nCommands:\n" in done.stdout + done.stderr


def test_a_long_argument_ends():
    assert "…" in run(["verify", "--level", "a" * 120_000 + "://x", "x"])
