"""Where the golden files are: the generated ones in tests/golden, the published ones in a folder outside the clone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent / "golden"
_BESIDE = ROOT.parents[2] / "shared" / "golden"


def golden(name: str) -> Path:
    """The folder of generated files called ``name``."""
    folder = ROOT / name
    assert folder.is_dir(), f"{folder} does not exist"
    return folder


def golden_files(name: str, pattern: str) -> list[Path]:
    """The good files of a folder that match ``pattern``; the published ones come last, where they are present."""
    return sorted(golden(name).glob(pattern)) + sorted(_published(name).glob(f"real_{pattern}"))


def published_file(name: str, file: str) -> Path:
    """One file that an upstream project published: skips where it is missing, fails where it is required.

    These files belong to their projects, so the repository does not hold them. ``HOLDALL_GOLDEN`` names the folder that
    does; otherwise it is ``../shared/golden``. ``HOLDALL_REQUIRE_GOLDEN=1`` makes a missing file a failure.
    """
    path = _published(name) / file
    if not path.exists():
        if os.environ.get("HOLDALL_REQUIRE_GOLDEN") == "1":
            pytest.fail(f"the published files are required, but {path} does not exist", pytrace=False)
        pytest.skip("the published golden files are not here")
    return path


def _published(name: str) -> Path:
    return Path(os.environ.get("HOLDALL_GOLDEN") or _BESIDE) / name
