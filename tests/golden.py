"""Where the golden corpus is, and what happens where it is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent / "shared" / "golden"


def golden(name: str) -> Path:
    """The corpus folder ``name``: skips where the corpus is missing, fails where it is required."""
    folder = ROOT / name
    if not folder.is_dir():
        if os.environ.get("HOLDALL_REQUIRE_GOLDEN") == "1" or os.environ.get("CI") == "true":
            pytest.fail(f"the golden corpus is required, but {folder} does not exist", pytrace=False)
        pytest.skip("the golden corpus is not here", allow_module_level=True)
    return folder
