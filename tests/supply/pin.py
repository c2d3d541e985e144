"""Write constraints.txt: the exact version of everything that developing holdall may bring in.

``make pins`` runs it. What is resolved is all of pyproject.toml: what holdall needs to be built and to run, its extras,
and every dependency group. Versions only: the user chooses where packages come from.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PINS = ROOT / "constraints.txt"
HEAD = """\
# The exact version of everything that developing holdall may bring in: `make pins` writes this file,
# and every `make` target installs by it. See "Supply" in docs/security.md.
"""


def project() -> dict[str, object]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def requirements() -> list[str]:
    """Every requirement that pyproject.toml states, and pip itself."""
    told = project()
    stated = [*told["build-system"]["requires"], *told["project"]["dependencies"]]
    for listed in (told["project"]["optional-dependencies"], told["dependency-groups"]):
        stated += [line for lines in listed.values() for line in lines if isinstance(line, str)]
    return sorted({*stated, "pip"})


def normal(name: str) -> str:
    """A package's name as the index spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def resolve(wanted: list[str]) -> dict[str, str]:
    """Name and version of all that ``wanted`` needs. A local version, such as +cpu, is a build of the same one."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        line = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
        subprocess.run([*line, "--report", str(report), *wanted], check=True)
        found = json.loads(report.read_text())["install"]
    packages = (entry["metadata"] for entry in found)
    return {normal(package["name"]): package["version"].partition("+")[0] for package in packages}


if __name__ == "__main__":
    pinned = resolve(requirements())
    PINS.write_text(HEAD + "".join(f"{name}=={version}\n" for name, version in sorted(pinned.items())))
