"""The development environment is pinned, all of it, and by versions alone."""

from __future__ import annotations

import re
import sys
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.supply.pin import PINS, ROOT, normal, requirements


def pins() -> dict[str, str]:
    lines = [line for line in PINS.read_text().splitlines() if not line.startswith("#")]
    return dict(line.split("==") for line in lines)


def test_every_line_is_a_name_and_a_version():
    for line in PINS.read_text().splitlines():
        assert line.startswith("#") or re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", line), line
    assert "://" not in PINS.read_text()  # the user chooses where packages come from
    assert list(pins()) == sorted(pins())


@pytest.mark.parametrize("line", requirements())
def test_everything_that_is_stated_is_pinned_as_stated(line):
    wanted = Requirement(line)
    assert wanted.specifier.contains(pins()[normal(wanted.name)])


def test_the_makefile_installs_by_them():
    makefile = (ROOT / "Makefile").read_text()
    assert "export PIP_CONSTRAINT       := $(CURDIR)/constraints.txt" in makefile
    assert "export PIP_BUILD_CONSTRAINT := $(PIP_CONSTRAINT)" in makefile
    assert re.search(r"^\$\(READY\):.* constraints\.txt", makefile, re.M), "new pins make a new environment"
    for line in re.findall(r"pip install .*", makefile):  # what is not pinned there is pinned here
        assert re.search(r"--upgrade pip setuptools$|--group|==|torch transformers$", line), line
    pinned = (ROOT / f"constraints-transformers{major}.txt" for major in (4, 5))
    assert all(re.search(r"^transformers==\d", file.read_text(), re.M) for file in pinned)


@pytest.mark.skipif(Path(sys.prefix) != ROOT / ".venv", reason="this is another environment")
def test_what_is_installed_is_what_is_pinned():
    wrong = {}
    for found in distributions():
        name, version = normal(found.metadata["Name"]), found.version.partition("+")[0]
        if pins().get(name, version) != version:
            wrong[name] = version
    assert not wrong
