"""The documents MJSN and MMSG, and the metadata of a model that they hold.

The metadata is the object in MJSN, key by key; without MJSN it is the name and architecture in MMSG.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from holdall.base.check import Check, Rule
from holdall.binary.documents import msgpack
from holdall.binary.documents.base import DocumentError, TooManyValues
from holdall.errors import FormatError
from holdall.format.aero import rules
from holdall.format.aero.chunks import Chunk, read_content
from holdall.format.aero.container import Container
from holdall.format.aero.layout import MJSN, MMSG, WTSH
from holdall.model.metadata import Entry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["ARCHITECTURE", "MODEL_NAME", "is_set_index", "read_json", "read_json_bytes", "read_manifest"]
__all__ += ["FORMAT_KEYS", "IN_MANIFEST", "ROW_KEYS", "cost_of_document", "decode_json", "decode_manifest"]
__all__ += ["get_model_map", "read_metadata", "read_names"]

MODEL_NAME, ARCHITECTURE = "model_name", "architecture"
IN_MANIFEST = {MODEL_NAME: "name", ARCHITECTURE: "architecture"}
FORMAT_KEYS = frozenset(("name", "version"))
ROW_KEYS = {
    "chunks": frozenset(("role", "fourcc", "toc_index", "shard_id")),
    "shards": frozenset(("shard_id", "toc_index", "size_bytes", "tensor_count", "mmap_critical")),
}


def read_metadata(container: Container, check: Check) -> list[Entry]:
    """Read the metadata of the model; fails if the documents break a rule."""
    document = read_json(container, check)
    if document is not None:
        return [Entry(key, value, "json") for key, value in document.items()]
    model = get_model_map(read_manifest(container, check))
    return [Entry(key, model[name], "manifest") for key, name in IN_MANIFEST.items() if name in model]


def read_json(container: Container, check: Check) -> dict[str, Any] | None:
    """Read the object in the first MJSN; None if the file has no MJSN."""
    chunk = container.chunks.first(MJSN)
    with _naming_file(container):
        return None if chunk is None else decode_json(container, chunk, check)


def decode_json(container: Container, chunk: Chunk, check: Check) -> dict[str, Any]:
    """Read the object in an MJSN chunk."""
    from holdall.binary.documents import json

    data = _read_document(container, chunk, check)
    try:
        most = _values_left(container, chunk, check)
        found = json.decode(data, depth=check.limits.nesting, most=most, unique=True).value
    except TooManyValues as error:
        _refuse(container, chunk, error, check)
    except DocumentError as error:
        _fail(rules.JSON, chunk, error, check)
    if not isinstance(found, dict):
        _fail(rules.JSON, chunk, DocumentError(0, "the document is not an object"), check)
    return found


def read_json_bytes(container: Container, chunk: Chunk) -> tuple[bytes, dict[str, Any]] | None:
    """Read the bytes of MJSN and the object in them."""
    found = read_json(container, Check())
    return None if found is None else (_read_document(container, chunk, Check()), found)


def read_names(container: Container, check: Check) -> dict[str, Any] | None:
    """Read what MJSN says of name and architecture; None if the file has no MJSN.

    No objects are made of the rest, which may be a vocabulary.
    """
    import msgspec

    chunk = container.chunks.first(MJSN)
    if chunk is None:
        return None
    keys = [*IN_MANIFEST, *(f"general.{name}" for name in IN_MANIFEST.values())]
    rename = {f"field{number}": key for number, key in enumerate(keys)}
    wanted = msgspec.defstruct("Names", [(field, Any, None) for field in rename], rename=rename)
    try:
        found = msgspec.json.decode(_read_document(container, chunk, check), type=wanted)
    except msgspec.DecodeError:
        return read_json(container, check)  # which says what is wrong
    return {key: getattr(found, field) for field, key in rename.items()}


def read_manifest(container: Container, check: Check) -> dict[str, Any] | None:
    """Read the map in the first MMSG; None if the file has no MMSG."""
    chunk = container.chunks.first(MMSG)
    with _naming_file(container):
        return None if chunk is None else decode_manifest(container, chunk, check)


def decode_manifest(container: Container, chunk: Chunk, check: Check) -> dict[str, Any]:
    """Read the map in an MMSG chunk."""
    data = _read_document(container, chunk, check)
    try:
        found = msgpack.decode(data, depth=check.limits.nesting, most=_values_left(container, chunk, check))
    except TooManyValues as error:
        _refuse(container, chunk, error, check)
    except DocumentError as error:
        _fail(rules.MANIFEST, chunk, error, check)
    if not isinstance(found, dict):
        _fail(rules.MANIFEST, chunk, DocumentError(0, "the document is not a map"), check)
    return found


@contextmanager
def _naming_file(container: Container) -> Iterator[None]:
    """Name the file in errors: documents are read after opening, perhaps while another file is written."""
    try:
        yield
    except FormatError as error:
        error.file = error.file or container.source.name
        raise


def cost_of_document(size: int) -> int:
    """Estimate the memory of a document of ``size`` bytes, without the values in it, which are counted one by one."""
    return 2 * size


def _read_document(container: Container, chunk: Chunk, check: Check) -> bytes:
    """Read the bytes of a chunk that is to be decoded, within the limits for documents."""
    check.limit("metadata_bytes", chunk.ulen, chunk.offset, f"aero: {chunk.fourcc}")
    if chunk.compressed:
        cost = cost_of_document(chunk.ulen)
        container.expansion.add(chunk.what, cost, check, chunk.offset, f"aero: {chunk.fourcc}")
    return read_content(container.source, chunk, check, weighed=True)


def _values_left(container: Container, chunk: Chunk, check: Check) -> int | None:
    """The number of values that a document may have; None for any, where it is as large as its stored bytes."""
    return container.expansion.values_left(check) if chunk.compressed else None


def _refuse(container: Container, chunk: Chunk, error: TooManyValues, check: Check) -> NoReturn:
    container.expansion.refuse(check, chunk.offset, f"aero: {chunk.fourcc}, expanded, has {error.message}")


def get_model_map(manifest: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the "model" map of a manifest; empty if there is none."""
    model = (manifest or {}).get("model")
    return dict(model) if isinstance(model, dict) else {}


def is_set_index(container: Container, manifest: Mapping[str, Any] | None) -> bool:
    """Whether the file is the global index of a set: it has no shards, and its manifest lists none."""
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
