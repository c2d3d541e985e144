"""Commands on sets whose members lie outside, by hostile names and by links: they fail, and nothing outside is read."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdall.cli import main
from tests.attacks.paths import LINKS, TRAVERSAL

COMMANDS = (
    ("convert", "{path}", "{out}/c.npz"),
    ("convert", "{path}", "{out}/k.oinf", "--carry"),
    ("extract", "{path}", "--all", "{out}/all"),
    ("verify", "{path}", "--stats"),
    ("diff", "{path}", "{path}"),
)


@cache
def opened() -> list[str]:
    """The paths that are opened from now on; an audit hook cannot be taken away again."""
    seen: list[str] = []
    sys.addaudithook(lambda event, args: seen.append(str(args[0])) if event == "open" else None)
    return seen


@pytest.mark.parametrize("format", ["aeroset", "hf", "onnx", "gguf"])
@pytest.mark.parametrize("family", [TRAVERSAL, LINKS], ids=lambda family: family.name)
def test_no_command_leaves_the_folder(family, format, tmp_path):
    (tmp_path / "made").mkdir()
    for number, attack in enumerate(family.attacks(format, tmp_path / "made")):
        if attack.by == "never":
            continue
        out = tmp_path / f"out{number}"
        out.mkdir()
        for words in COMMANDS:
            opened().clear()
            done = CliRunner().invoke(main, [word.format(path=attack.what, out=out) for word in words])
            assert done.exit_code in (1, 3), (attack.name, words, done.output)
            assert "should not happen" not in done.output, (attack.name, words, done.output)
            beyond = [path for path in opened() if Path(path).name in ("passwd", "secret", "zero", "outside")]
            assert beyond == [], (attack.name, words)
        assert list(out.iterdir()) in ([], [out / "all"]), attack.name
