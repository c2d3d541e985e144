"""model.aeroset.json, the document that lists the files of a set."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from holdall.base.once import computed_once
from holdall.base.repeats import find_repeat
from holdall.base.text import file_text
from holdall.binary.documents.base import DocumentError, member_path
from holdall.errors import FormatError
from holdall.format.aeroset import rules
from holdall.format.aeroset.places import Places

if TYPE_CHECKING:
    from holdall.base.check import Check
    from holdall.binary.documents.json import Tape

__all__ = ["SetDocument", "SetFile", "read_document"]

VERSIONS = ((0, 1), (0, 2))
SUFFIX = ".aeroset.json"
MAX_BYTES = 256 << 20
MAX_SHARDS = 1 << 32  # bound of shard numbers: huge ones can be chosen to collide in a dict, which takes quadratic time
_SHA256 = re.compile("[0-9a-fA-F]{64}")


@dataclass(frozen=True, slots=True)
class SetFile:
    """One file of a set. ``shards`` are the global numbers of the shards of a part, in the order of the part.

    ``path`` is how messages call it, without the secrets of a URL. ``url`` is where the file is fetched; None for a
    file beside the document. For such a file ``base`` is the origin of a base_url that is not followed.
    ``locate(key)`` is the byte of the document at which it states ``key`` of the file.
    """

    path: str
    sha256: str
    size: int
    shards: tuple[int, ...] = ()
    url: str | None = None
    base: str | None = None
    locate: Callable[[str], int | None] = field(default=lambda key: None, compare=False, repr=False)

    @property
    def is_url(self) -> bool:
        """Whether the document states a full URL."""
        return "://" in self.path


@dataclass(frozen=True, slots=True)
class SetDocument:
    """The content of the document. ``index`` is None for a set without a global index."""

    version: tuple[int, int] = (0, 1)
    model: dict[str, Any] = field(default_factory=dict)
    parts: tuple[SetFile, ...] = ()
    index: SetFile | None = None
    extra: dict[str, Any] = field(default_factory=dict)  # base_url, cache, and unknown keys


class _Offsets:
    """Where a document states its values. Many parts are walked over once, and only if one is asked for."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape

    def of(self, path: str) -> int | None:
        """The byte at which the value at ``path`` begins; None when there is none."""
        try:
            return self._tape.offset(self._tape.find(path))
        except KeyError:
            return None

    def of_member(self, path: str, key: str) -> int | None:
        """The byte of the value of ``key`` in the object at ``path``."""
        return self.of(path + member_path(key))

    def of_part(self, number: int, key: str) -> int | None:
        """The byte of the value of ``key`` of a part."""
        members = self._tape.members(self._parts[number])
        return next((self._tape.offset(value) for name, value in members if self._tape.text(name) == key), None)

    @computed_once
    def _parts(self) -> list[int]:
        return list(self._tape.items(self._tape.find("$.parts")))


def read_document(data: bytes, check: Check, origins: Collection[str] = ()) -> SetDocument:
    """Read the document in ``data``; no file is opened. Files at full URLs must be at one of ``origins``.

    A relative path is below ``base_url`` if that is at one of ``origins``, else beside the document.
    """
    from holdall.binary.documents import json

    try:
        document = json.decode(data, depth=check.limits.nesting, unique=True)
    except DocumentError as error:
        check.fail(rules.JSON, error.offset, f"aeroset: {error.message}", inner=error.path)

    offsets = _Offsets(document.tape)

    def fail(path: str, message: str) -> NoReturn:
        check.fail(rules.FIELD, offsets.of(path), f"aeroset: {message}", inner=path)

    root = document.value
    if not isinstance(root, dict):
        fail("$", "the index is not an object")
    version = _read_version(root.get("format"), check, offsets)
    stored = root.get("parts")
    if not isinstance(stored, list):
        fail("$.parts", "'parts' is not a list")
    read_file = partial(_read_file, fail=fail, places=Places(root.get("base_url"), origins))
    parts = tuple(
        read_file(item, f"$.parts[{number}]", locate=partial(offsets.of_part, number), part=True)
        for number, item in enumerate(stored)
    )
    _check_parts(parts, check)
    index = None
    if root.get("global_tidx") is None:
        check.note(rules.NO_INDEX, 0, "aeroset: there is no global_tidx; the parts alone say what the set holds")
    else:
        locate = partial(offsets.of_member, "$.global_tidx")
        index = read_file(root["global_tidx"], "$.global_tidx", locate=locate, part=False)
    model = root.get("model")
    if model is not None and not isinstance(model, dict):
        fail("$.model", "'model' is not an object")
    own = {"format", "model", "parts", "global_tidx"}
    extra = {key: value for key, value in root.items() if key not in own}
    return SetDocument(version, model or {}, parts, index, extra)


def _check_parts(parts: tuple[SetFile, ...], check: Check) -> None:
    """No file is two parts, and no shard is in two of them."""
    repeat = find_repeat([part.url or part.path for part in parts])
    if repeat is not None:  # otherwise a short document could have one file read over and over
        check.fail(rules.TWICE, parts[repeat].locate("path"), f"aeroset: {parts[repeat].path!r} is two parts")
    owners: dict[int, str] = {}
    for part in parts:
        for shard in part.shards:
            if shard in owners:
                message = f"aeroset: shard {shard} is in {owners[shard]!r} and in {part.path!r}"
                check.fail(rules.SHARDS, part.locate("shards"), message)
            owners[shard] = part.path


def _read_version(stored: Any, check: Check, offsets: _Offsets) -> tuple[int, int]:
    name = stored.get("name") if isinstance(stored, dict) else None
    version = stored.get("version") if isinstance(stored, dict) else None
    whole = isinstance(version, list) and all(type(number) is int for number in version)
    found = next((known for known in VERSIONS if name == "AEROSET" and whole and version == list(known)), None)
    if found is None:
        wrong = "version" if name == "AEROSET" else "name"
        at = next((at for path in (f"$.format.{wrong}", "$.format", "$") if (at := offsets.of(path)) is not None), None)
        check.fail(rules.VERSION, at, f"aeroset: the format is {name!r} {version!r}; AEROSET 0.1 and 0.2 are known")
    return found


def _read_file(
    stored: Any, path: str, *, fail: Any, places: Places, locate: Callable[[str], int | None], part: bool
) -> SetFile:
    if not isinstance(stored, dict):
        fail(path, "a file of the set is not an object")
    name, digest, size = (stored.get(key) for key in ("path", "sha256", "size_bytes"))
    if not isinstance(name, str):
        fail(f"{path}.path", f"a path is {name!r}, not text")
    try:
        url, shown = places.locate(name), file_text(name)
    except FormatError as error:
        raise FormatError(error.rule, locate("path"), error.message) from None
    if not isinstance(digest, str) or not _SHA256.fullmatch(digest):
        fail(f"{path}.sha256", f"the sha256 of {shown!r} is not 64 hex digits")
    if type(size) is not int or not 0 <= size < 1 << 63:
        fail(f"{path}.size_bytes", f"the size of {shown!r} is {size!r}")
    shards: tuple[int, ...] = ()
    if part:
        numbers = stored.get("shards")
        if not isinstance(numbers, list) or any(type(n) is not int or not 0 <= n < MAX_SHARDS for n in numbers):
            fail(f"{path}.shards", f"the shards of {shown!r} are not a list of numbers from 0 to {MAX_SHARDS - 1}")
        shards = tuple(numbers)
    return SetFile(shown, digest.lower(), size, shards, url, places.base if url is None else None, locate)
