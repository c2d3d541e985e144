"""model.aeroset.json: which files make up a set."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from holdall.documents.base import DocumentError
from holdall.formats.aeroset import rules
from holdall.source import contained

if TYPE_CHECKING:
    from holdall.check import Check

__all__ = ["Member", "SetDocument", "read_document"]

VERSIONS = ((0, 1), (0, 2))
SUFFIX = ".aeroset.json"
MAX_BYTES = 256 << 20
MAX_SHARDS = 1 << 32  # numbers above it could all have one hash, and take quadratic time
_SHA256 = re.compile("[0-9a-fA-F]{64}")


@dataclass(frozen=True, slots=True)
class Member:
    """One file of a set. ``shards`` are the global numbers of a part's shards, in its own order."""

    path: str
    sha256: str
    size: int
    shards: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SetDocument:
    """What the index of a set says. ``index`` is None for a set without a global index."""

    version: tuple[int, int] = (0, 1)
    model: dict[str, Any] = field(default_factory=dict)
    parts: tuple[Member, ...] = ()
    index: Member | None = None
    extra: dict[str, Any] = field(default_factory=dict)  # base_url, cache, and keys that nobody knows


def read_document(data: bytes, check: Check) -> SetDocument:
    """The document in ``data``; no file is opened."""
    from holdall.documents import json

    try:
        document = json.decode(data, depth=check.limits.nesting)
    except DocumentError as error:
        check.fail(rules.JSON, error.offset, f"aeroset: {error.message}", inner=error.path)
    if document.duplicates:
        twice = document.duplicates[0]
        check.fail(rules.JSON, twice.offset, "aeroset: a key comes twice", inner=twice.path)

    def fail(path: str, message: str) -> NoReturn:
        try:
            at: int | None = document.offset(path)
        except KeyError:
            at = None
        check.fail(rules.FIELD, at, f"aeroset: {message}", inner=path)

    root = document.value
    if not isinstance(root, dict):
        fail("$", "the index is not an object")
    version = _version(root.get("format"), check)
    stored = root.get("parts")
    if not isinstance(stored, list):
        fail("$.parts", "'parts' is not a list")
    parts = tuple(_member(item, f"$.parts[{number}]", fail, part=True) for number, item in enumerate(stored))
    owners: dict[int, str] = {}
    paths: set[str] = set()
    for part in parts:
        if part.path in paths:  # a short document could have one file read over and over
            check.fail(rules.TWICE, None, f"aeroset: {part.path!r} is two parts")
        paths.add(part.path)
        for shard in part.shards:
            if shard in owners:
                message = f"aeroset: shard {shard} is in {owners[shard]!r} and in {part.path!r}"
                check.fail(rules.SHARDS, None, message)
            owners[shard] = part.path
    index = None
    if root.get("global_tidx") is None:
        check.note(rules.NO_INDEX, 0, "aeroset: there is no global_tidx; the parts alone say what the set holds")
    else:
        index = _member(root["global_tidx"], "$.global_tidx", fail, part=False)
    model = root.get("model")
    if model is not None and not isinstance(model, dict):
        fail("$.model", "'model' is not an object")
    own = {"format", "model", "parts", "global_tidx"}
    extra = {key: value for key, value in root.items() if key not in own}
    return SetDocument(version, model or {}, parts, index, extra)


def _version(stored: Any, check: Check) -> tuple[int, int]:
    name = stored.get("name") if isinstance(stored, dict) else None
    version = stored.get("version") if isinstance(stored, dict) else None
    whole = isinstance(version, list) and all(type(number) is int for number in version)
    found = next((known for known in VERSIONS if name == "AEROSET" and whole and version == list(known)), None)
    if found is None:
        check.fail(rules.VERSION, None, f"aeroset: the format is {name!r} {version!r}; AEROSET 0.1 and 0.2 are known")
    return found


def _member(stored: Any, path: str, fail: Any, *, part: bool) -> Member:
    if not isinstance(stored, dict):
        fail(path, "a file of the set is not an object")
    name, digest, size = (stored.get(key) for key in ("path", "sha256", "size_bytes"))
    if not isinstance(name, str):
        fail(f"{path}.path", f"a path is {name!r}, not text")
    contained(name)  # refuses whatever leaves the folder
    if not isinstance(digest, str) or not _SHA256.fullmatch(digest):
        fail(f"{path}.sha256", f"the sha256 of {name!r} is not 64 hex digits")
    if type(size) is not int or not 0 <= size < 1 << 63:
        fail(f"{path}.size_bytes", f"the size of {name!r} is {size!r}")
    shards: tuple[int, ...] = ()
    if part:
        numbers = stored.get("shards")
        if not isinstance(numbers, list) or any(type(n) is not int or not 0 <= n < MAX_SHARDS for n in numbers):
            fail(f"{path}.shards", f"the shards of {name!r} are not a list of numbers from 0 to {MAX_SHARDS - 1}")
        shards = tuple(numbers)
    return Member(name, digest.lower(), size, shards)
