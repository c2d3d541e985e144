"""The golden AERO files, and what is expected of each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.golden import golden

FOLDER = golden("aero")

GOOD = sorted(path for path in FOLDER.rglob("*.aero") if "bad" not in path.relative_to(FOLDER).parts)
SETS = sorted(path.parent for path in FOLDER.rglob("model.aeroset.json") if "bad" not in path.relative_to(FOLDER).parts)
BAD = sorted(path.name.removesuffix(".reason.txt") for path in (FOLDER / "bad").glob("*.reason.txt"))


def name_of(path: Path) -> str:
    return str(path.relative_to(FOLDER))


def expected(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.with_suffix(".expected.json").read_text())
    return found


def bad_file(kind: str) -> Path:
    single = FOLDER / "bad" / f"{kind}.aero"
    return single if single.exists() else FOLDER / "bad" / kind / "set" / "model.aeroset.json"


def stage(kind: str) -> str:
    lines = (FOLDER / "bad" / f"{kind}.reason.txt").read_text().splitlines()
    return next(line.split(":")[1].strip() for line in lines if line.startswith("must_reject_by"))
