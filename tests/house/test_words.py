"""Words that hide who does what are in no prose that people read, and in no name of a test."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.rooms import PACKAGE

ROOT = PACKAGE.parents[1]
LOST = ("whoever", "nobody", "somebody", "strangers?", "from afar", "far away", "hears", "is told", "for want of")
LOST += ("in words", "as they are", "what it is")
PROSE = re.compile(r"\b(" + "|".join(LOST).replace(" ", r"\s+") + r")\b", re.IGNORECASE)
NAME = re.compile("_(" + "|".join(LOST).replace(" ", "_") + r")(_|$|\.py$)|_are_told$")


def prose_of(path: Path) -> str:
    """The text of a page; of a module, its comments and strings; of C and TOML, all of it."""
    text = path.read_text()
    if path.suffix != ".py":
        return text
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return "\n".join(token.string for token in tokens if token.type in (tokenize.COMMENT, tokenize.STRING))


def files(*patterns: str) -> Iterator[Path]:
    return (path for pattern in patterns for path in ROOT.glob(pattern) if ".venv" not in path.parts)


@pytest.mark.parametrize("text", ["for whoever reads it", "of a stranger", "answered in\n    words", "Nobody knows"])
def test_the_words_are_found(text):
    assert PROSE.search(text)


def test_no_page_and_no_module_uses_them():
    python = files("src/**/*.py", "tools/**/*.py", "bench/**/*.py", "examples/**/*.py")
    read = [*files("*.md", "docs/**/*.md", "*.toml"), *python, *files("src/**/*.[ch]", "src/**/*.toml")]
    assert len(read) > 300
    assert {str(path): PROSE.findall(prose_of(path)) for path in read if PROSE.search(prose_of(path))} == {}


def test_no_test_is_named_with_them():
    found = []
    for path in files("tests/**/*.py", "src/holdall/testing/*.py"):
        names = re.findall(r"^ *def (test_\w+)", path.read_text(), re.MULTILINE)
        found += [f"{path.name}: {name}" for name in [path.name, *names] if NAME.search(name)]
    assert found == []
