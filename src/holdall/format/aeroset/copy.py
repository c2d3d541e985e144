"""Copying a set file by file: from a disk, or from URLs, which downloads it."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from holdall.base.platform import allows_name
from holdall.base.text import plural
from holdall.errors import HashError
from holdall.format.aeroset import rules
from holdall.format.aeroset.document import SUFFIX
from holdall.format.aeroset.places import open_file
from holdall.format.aeroset.read import AerosetNative
from holdall.model.payload import SourceRange
from holdall.sink.plan import FolderPlan, Plan
from holdall.source.deferred import DeferredSource

if TYPE_CHECKING:
    from holdall.format.aeroset.document import SetFile
    from holdall.model.model import Model
    from holdall.sink.plan import Results
    from holdall.source import Source

__all__ = ["plan_copy"]


def plan_copy(model: Model) -> FolderPlan:
    """Plan an unchanged copy of each file of a set. A copy is whole without its base_url, and names no URLs."""
    native = model.native
    assert isinstance(native, AerosetNative)
    document, home = native.document, native.home.unchecked
    files = [*document.parts, *([document.index] if document.index is not None else [])]
    main = _name_document(native.main)
    names = _name_files(files, main)
    plan = FolderPlan({names[file]: _plan_file(home, file) for file in files})
    plan.files[main] = Plan()
    plan.files[main].put(_make_document(native, [names[file] for file in files]))
    plan.files[main].notes = _describe_changes(native, main, sum(file.is_url for file in files))
    return plan


def _plan_file(home: Source, file: SetFile) -> Plan:
    source = DeferredSource(file.path, file.size, partial(open_file, home, file))

    def check(results: Results) -> None:
        source.close()  # a remote one keeps what it fetched last in memory
        _check_hash(file, results["sha256"].hex())

    plan = Plan(check=check)
    plan.stream(SourceRange(source, 0, file.size))
    plan.tap("sha256", "sha256", 0, file.size)
    if file.url is not None or home.is_remote:
        plan.identify = lambda: json.dumps([*source.identity, file.sha256])
    return plan


def _check_hash(file: SetFile, found: str) -> None:
    if found != file.sha256:
        message = f"aeroset: the SHA-256 of {file.path!r} is {found}, the index says {file.sha256}"
        raise HashError(rules.HASH.id, None, message)


def _name_document(main: Source) -> str:
    name = main.name.replace("\\", "/").rpartition("/")[2]
    name = unquote(name) if main.is_remote else name
    plain = name.endswith(SUFFIX) and name.isprintable() and "/" not in name and allows_name(name)
    return name if plain else "model" + SUFFIX


def _name_files(files: list[SetFile], main: str) -> dict[SetFile, str]:
    """Name the files of the copy: relative paths stay, and files at URLs get names of the usual kind."""
    names = {file: file.path for file in files if not file.is_url}
    taken = {main, *names.values()}
    for number, file in enumerate(files):
        if file not in names:
            name = f"part-{number:03}.aero" if file.shards or number < len(files) - 1 else "index.aero"
            while name in taken:
                name = f"url-{name}"
            names[file] = name
            taken.add(name)
    return names


def _describe_changes(native: AerosetNative, main: str, urls: int) -> list[str]:
    """Say what the document of the copy has otherwise, without the URLs, which may have secrets."""
    changes = ["base_url is left out"] if "base_url" in native.document.extra else []
    changes += [f"the names of files replace {plural(urls, 'URL')}"] if urls else []
    return [f"{main}: {change}, since the copy has all files" for change in changes]


def _make_document(native: AerosetNative, names: list[str]) -> bytes:
    data = native.main.read(0, native.main.size)
    document: dict[str, Any] = json.loads(data)
    entries = [*document["parts"], *([document["global_tidx"]] if native.document.index is not None else [])]
    if "base_url" not in document and [entry["path"] for entry in entries] == names:
        return data
    document.pop("base_url", None)
    for entry, name in zip(entries, names, strict=True):
        entry["path"] = name
    return json.dumps(document, indent=2).encode()
