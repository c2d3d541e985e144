"""The golden EMBD files: what is expected of them, and that content rebuilt without the reader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from holdall.model.dtypes import DTYPES
from holdall.model.metadata import Entry, Metadata
from holdall.model.model import Model
from holdall.model.payload import InMemory
from holdall.model.tensor import Tensor
from holdall.model.vocab import Vocab
from tests.golden import golden

FOLDER = golden("embd")
GOOD = sorted(path.stem for path in FOLDER.glob("*.weights"))
ODD = sorted(path.stem for path in (FOLDER / "odd").glob("*.weights"))
BAD = sorted(path.stem for path in (FOLDER / "bad").glob("*.weights"))

_NAMES = {"float": "f", "bfloat": "bf", "int": "i", "uint": "u"}


def file(name: str) -> Path:
    return next(path for path in (FOLDER / f"{name}.weights", FOLDER / "odd" / f"{name}.weights") if path.exists())


def expected(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(f"{file(name)}.expected.json").read_text())
    return found


def dtype_name(name: str) -> str:
    letters = name.rstrip("0123456789")
    return _NAMES[letters] + name[len(letters) :]


def special(want: dict[str, Any]) -> dict[str, int]:
    return {name.removesuffix("_id"): id for name, id in want.get("special", {}).items()}


def rebuild(name: str) -> Model:
    """The content that expected.json describes; payloads and long vocabularies come from the bytes of the file."""
    want, data = expected(name), file(name).read_bytes()
    tensors = []
    for row in want["tensors"]:
        payload = InMemory(data[row["offset"] : row["offset"] + row["nbytes"]])
        tensors.append(Tensor(row["name"], DTYPES[dtype_name(row["dtype"])], tuple(row["shape"]), payload))
    return Model(tensors, metadata=Metadata([Entry(*pair) for pair in want["metadata"] or ()]))


def vocab(name: str) -> Vocab | None:
    want = expected(name)["vocab"]
    if want is None or (want["token_count"] == 0 and "special" not in want):
        return None
    return Vocab(want["tokens"], special(want) if "special" in want else None)
