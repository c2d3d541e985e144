"""The golden GPTRS files: what is expected of them, and that content rebuilt without the reader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from holdall.format.gptrs.native import GptrsTensor
from holdall.model.dtypes import DTYPES
from holdall.model.model import Model
from holdall.model.payload import InMemory
from holdall.model.tensor import Tensor
from tests.golden import golden

FOLDER = golden("gptrs")
GOOD = sorted(path.stem for path in FOLDER.glob("*.bin"))
ODD = sorted(path.stem for path in (FOLDER / "odd").glob("*.bin"))
BAD = sorted(path.stem for path in (FOLDER / "bad").glob("*.bin"))
FORMATS = {"gptrschk": "gptrs-checkpoint", "gptrsten": "gptrs-archive"}


def file(name: str) -> Path:
    return next(path for path in (FOLDER / f"{name}.bin", FOLDER / "odd" / f"{name}.bin") if path.exists())


def expected(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(f"{file(name)}.expected.json").read_text())
    return found


def vectors() -> list[dict[str, Any]]:
    """Names with their ids and keys; a long name is stored as a text to repeat."""
    found: list[dict[str, Any]] = json.loads((FOLDER / "base_id_vectors.json").read_text())["vectors"]
    return [
        {"name": row["name_repeat"][0] * row["name_repeat"][1], **row} if "name_repeat" in row else row for row in found
    ]


def options(name: str) -> dict[str, Any]:
    """How the writer makes a file of the same form; the corpus says which program wrote each."""
    want = expected(name)
    found: dict[str, Any] = {"align": 64 if "later revision" in want["writer"] else 1}
    if want["format"] == "gptrschk":
        found["ids"] = any(int(row["stored_base_id"], 16) for row in want["tensors"])
    return found


def rebuild(name: str) -> Model:
    """The content that expected.json describes; payloads come from the bytes of the file."""
    want, data = expected(name), file(name).read_bytes()
    tensors = []
    for row in want["tensors"]:
        payload = InMemory(data[row["offset"] : row["offset"] + row["nbytes"]])
        native, mark = GptrsTensor(row["reserved"]), row["reserved"] != 0
        tensors.append(Tensor(row["name"], DTYPES[row["dtype"]], tuple(row["shape"]), payload, native, mark))
    return Model(reversed(tensors), metadata=want.get("config"))
