"""MJSN and MMSG: the documents beside the tensors, and what they mean to a model.

A model's metadata is the object in MJSN, key by key. Without MJSN it is the name and architecture that MMSG has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from holdall.check import Check, Rule
from holdall.documents import msgpack
from holdall.documents.base import DocumentError
from holdall.formats.aero import rules
from holdall.formats.aero.chunks import Chunk, Container, content
from holdall.formats.aero.layout import MJSN, MMSG, WTSH
from holdall.metadata import Entry

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ARCHITECTURE", "MODEL_NAME", "is_set_index", "json_bytes", "json_object", "manifest_map"]
__all__ += ["metadata_entries", "model_map"]

MODEL_NAME, ARCHITECTURE = "model_name", "architecture"
_IN_MANIFEST = {MODEL_NAME: "name", ARCHITECTURE: "architecture"}


def metadata_entries(container: Container, check: Check) -> list[Entry]:
    """The metadata of the model; fails where the documents are not what they should be."""
    document = json_object(container, check)
    if document is not None:
        return [Entry(key, value, "json") for key, value in document.items()]
    model = model_map(manifest_map(container, check))
    return [Entry(key, model[name], "manifest") for key, name in _IN_MANIFEST.items() if name in model]


def json_object(container: Container, check: Check) -> dict[str, Any] | None:
    """The object in MJSN; None without that chunk."""
    from holdall.documents import json

    chunk = container.chunks.first(MJSN)
    if chunk is None:
        return None
    data = _document(container, chunk, check)
    try:
        document = json.decode(data, depth=check.limits.nesting)
    except DocumentError as error:
        _fail(rules.JSON, chunk, error, check)
    if document.duplicates:
        twice = document.duplicates[0]
        _fail(rules.JSON, chunk, DocumentError(twice.offset, "a key comes twice", twice.path), check)
    if not isinstance(document.value, dict):
        _fail(rules.JSON, chunk, DocumentError(0, "the document is not an object"), check)
    return document.value


def json_bytes(container: Container, chunk: Chunk) -> tuple[bytes, dict[str, Any]] | None:
    """The bytes of MJSN and the object in them."""
    found = json_object(container, Check())
    return None if found is None else (content(container.source, chunk, Check()), found)


def manifest_map(container: Container, check: Check) -> dict[str, Any] | None:
    """The map in MMSG; None without that chunk."""
    chunk = container.chunks.first(MMSG)
    if chunk is None:
        return None
    data = _document(container, chunk, check)
    try:
        found = msgpack.decode(data, depth=check.limits.nesting)
    except DocumentError as error:
        _fail(rules.MANIFEST, chunk, error, check)
    if not isinstance(found, dict):
        _fail(rules.MANIFEST, chunk, DocumentError(0, "the document is not a map"), check)
    return found


def _document(container: Container, chunk: Chunk, check: Check) -> bytes:
    """The bytes of a chunk that becomes Python values."""
    check.limit("metadata_bytes", chunk.ulen, chunk.offset, f"aero: {chunk.fourcc}")
    if chunk.compressed:
        check.limit_document(chunk.ulen, container.source.size, chunk.offset, f"aero: {chunk.fourcc}, expanded")
    return content(container.source, chunk, check)


def model_map(manifest: Mapping[str, Any] | None) -> dict[str, Any]:
    """The "model" map of a manifest; empty where there is none."""
    model = (manifest or {}).get("model")
    return dict(model) if isinstance(model, dict) else {}


def is_set_index(container: Container, manifest: Mapping[str, Any] | None) -> bool:
    """Whether the file is the global index of a set: no shards, and a manifest that promises none."""
    chunks = container.chunks
    if chunks.rows(WTSH) or chunks.rows(MJSN) or manifest is None or manifest.get("shards"):
        return False
    listed = manifest.get("chunks")
    roles = [row.get("role") for row in listed if isinstance(row, dict)] if isinstance(listed, list) else []
    return "weights" not in roles


def _fail(rule: Rule, chunk: Chunk, error: DocumentError, check: Check) -> NoReturn:
    place = chunk.offset if chunk.compressed else chunk.offset + error.offset
    inner = f"byte {error.offset} of {chunk.fourcc}, {error.path}"
    check.fail(rule, place, f"aero: {chunk.what}: {error.message}", inner=inner)
