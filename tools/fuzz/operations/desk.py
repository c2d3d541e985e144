"""The folder of one case: what the call may read, where it may write, and bait that it must not touch."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdall.format import registry
from tools.fuzz.documents import JSON
from tools.fuzz.framing import MAIN, unframe
from tools.fuzz.operations.material import CONFIG, LARGEST, WORDS, make_mutant, plain_seeds
from tools.fuzz.operations.recipe_files import make_recipe
from tools.fuzz.subjects import SUBJECTS
from tools.fuzz.trees import change_tree, damage_bytes

__all__ = ["BAIT", "Desk", "read_tree"]

_LARGE = 4 << 20  # bytes of files that are not looked into
BAIT = "bait"  # the folder beside the case's own that links in it point to
_BAITED = ("w.npy", "a.npy", "w", "s0.npy", "w.bin")  # links where extract writes under names from the model

_DOCUMENTS: tuple[Any, ...] = (
    {"w": "v", "a": "b"},
    {"w": [0.0, 1.0], "encoder.layer.0.output": [-1, 1]},
    CONFIG,
    {"model": {"vocab": {word: number for number, word in enumerate(WORDS)}}, "added_tokens": []},
    {"cls_token": "[CLS]", "pad_token": {"content": "[PAD]"}, "do_lower_case": True, "model_max_length": 6},
    [WORDS, 1, None],
)


class Desk:
    """A case's folder below ``base``, in which the process stands while the case runs.

    ``a`` and ``b`` are the models of the case. ``outputs`` are the paths at and below which the call may write;
    ``edits`` those that it may replace where it succeeds.
    """

    def __init__(self, base: Path, chance: random.Random) -> None:
        self.base = base
        self.folder = base / "case"
        self.chance = chance
        self.names: list[str] = []  # what is in the models, for options to speak of
        self.is_known = False  # whether a recipe knows the models
        self.outputs: set[str] = set()
        self.edits: set[str] = set()
        self._sides = 0
        clear(base)
        (base / BAIT).mkdir(parents=True)
        (base / BAIT / "secret").write_bytes(b"not yours")
        for name in ("out", "home", "tmp"):
            (self.folder / name).mkdir(parents=True)
        for name in _BAITED[:: chance.choice((1, 2, 3))] if chance.random() < 0.3 else ():
            for place in (self.folder, self.folder / "out"):
                (place / name).symlink_to(base / BAIT / chance.choice(("secret", "new")))

    def put(self, name: str, data: bytes, subject: str) -> str:
        """Write a model under a name that begins with ``name``; return how to call it."""
        one, files = SUBJECTS[subject], unframe(data)
        if MAIN in files or not files:
            path = name + self._suffix(subject)
            (self.folder / path).write_bytes(files.get(MAIN, b""))
            return path
        folder = name + self.chance.choice(("", ".aeroset" if subject == "aeroset" else ""))
        self._put_members(folder, files)
        members = sorted(files) if one.start else list(files)
        begin = [member for member in members if member.endswith(one.start)]
        is_folder = registry.find(one.format(files)).folder
        if begin and (not is_folder or self.chance.random() < 0.4) and (self.folder / folder / begin[0]).is_file():
            return f"{folder}/{begin[0]}"
        return folder

    def _put_members(self, folder: str, files: Mapping[str, bytes]) -> None:
        (self.folder / folder).mkdir(exist_ok=True)
        for member, data in files.items():
            path = Path(os.path.normpath(f"{folder}/{member.replace(chr(0), '')}"))
            if path.parts[:1] != (folder,) or path.is_absolute():
                continue  # members of such names cannot be put there
            try:
                (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
                (self.folder / path).write_bytes(data)
            except (OSError, UnicodeEncodeError):  # too long, or a file where a folder should be
                continue

    def _suffix(self, subject: str) -> str:
        if self.chance.random() < 0.1:
            return self.chance.choice(("", ".bin", ".model", ".npz", ".pt", ".safetensors"))
        return str(self.chance.choice(registry.find(SUBJECTS[subject].formats[0]).suffixes or ("",)))

    def side(self, kind: str) -> str:
        """Write a file beside the model, broken more often than not, and return its path."""
        self._sides += 1
        path = f"side{self._sides}.{kind}"
        if self.chance.random() < 0.02:
            return path  # one that is not there
        (self.folder / path).write_bytes(self._content(kind)[:LARGEST])
        return path

    def _content(self, kind: str) -> bytes:
        chance = self.chance
        if kind == "npz":
            return make_mutant(chance.choice(plain_seeds("npz")), "npz", chance)
        if kind == "toml":
            return make_recipe(chance)
        if kind in ("json", "config"):
            take, make = JSON
            tree = take(json.dumps(CONFIG if kind == "config" else chance.choice(_DOCUMENTS)).encode())
            for _ in range(chance.choice((0, 0, 0, 1, 1, 2))):
                tree = change_tree(tree, chance)
            document = make(tree)
            return damage_bytes(document, chance) if chance.random() < 0.15 else document
        if kind == "vocab":
            words = "\n".join(WORDS).encode()
            return damage_bytes(words, chance) if chance.random() < 0.3 else words
        lines = [
            chance.choice([*WORDS, *self.names, *(f"{name} x.{name}" for name in self.names), "", "w v", "# note"])
            for _ in range(chance.choice((0, 1, 3, 20)))
        ]
        text = "\n".join(lines).encode("utf-8", "replace")
        return damage_bytes(text, chance) if chance.random() < 0.3 else text

    def output(self, path: str) -> str:
        """Allow a path to be written to, and return it."""
        self.outputs.add(os.path.normpath(path))
        return path


def read_tree(base: Path) -> dict[str, bytes | str | None]:
    """Return all that is below a folder: bytes of files, targets of links, None for folders."""
    found: dict[str, bytes | str | None] = {}
    folders = [(str(base), "")]
    while folders:
        folder, prefix = folders.pop()
        for entry in os.scandir(folder):
            name = prefix + entry.name
            if entry.is_symlink():
                found[name] = str(Path(entry.path).readlink())
            elif entry.is_dir():
                found[name] = None
                folders.append((entry.path, name + "/"))
            elif entry.is_file():
                size = entry.stat().st_size
                found[name] = Path(entry.path).read_bytes() if size <= _LARGE else f"{size} bytes"
            else:
                found[name] = "device"
    return found


def clear(base: Path) -> None:
    """Remove what the case before has left."""
    if base.exists():
        shutil.rmtree(base)
    base.mkdir(parents=True)
