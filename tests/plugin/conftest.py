import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


def install(site: Path, name: str, entries: str) -> None:
    """What an installer leaves behind: a folder that says which entry points a distribution has."""
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[holdall.formats]\n{entries}\n")


@pytest.fixture
def site(tmp_path):
    """A folder on the path of the processes below, with the toy installed as a plug-in."""
    folder = tmp_path / "site"
    install(folder, "toy-plugin", "toy = tests.toy:FORMAT")
    return folder


@pytest.fixture
def run(site, tmp_path):
    """Runs code in a fresh process that sees the plug-ins; returns what it printed."""

    def run(code: str) -> str:
        path = os.pathsep.join([str(site), str(ROOT), *filter(None, sys.path)])
        environment = {**os.environ, "PYTHONPATH": path}
        ran = subprocess.run(
            [sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.strip()

    return run
