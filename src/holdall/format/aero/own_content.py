"""What only AERO holds, gathered from one file or several: chunks, keys and values without a place elsewhere.

Chunks that nothing of the model is read from, and unknown keys of MMSG, of TIDX and of tensors go into every AERO file
that is made of a file. What is made anew instead, and so lost, is listed by :func:`list_unkept`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdall.base.check import Check
from holdall.base.text import plural
from holdall.errors import FormatError
from holdall.format.aero.integrity import list_control_keys
from holdall.format.aero.layout import COMPRESSED, IHSH, IS_INDEX, MMAP_CRITICAL, OPTIONAL, TIDX
from holdall.format.aero.manifest import FORMAT_KEYS, IN_MANIFEST, ROW_KEYS, get_model_map, read_names
from holdall.format.aero.tidx import KEYS
from holdall.model.dtypes import DType
from holdall.model.metadata import same_value

if TYPE_CHECKING:
    from holdall.format.aero.chunks import Chunk
    from holdall.format.aero.read import AeroNative

__all__ = ["OwnContent", "describe_own", "gather_own", "list_unkept", "list_values"]

_DEFINED = frozenset(("format", "model", "chunks", "shards"))
_UNKNOWN = "unknown"  # what writers put where they know no name
_FLAGS = COMPRESSED | MMAP_CRITICAL | IS_INDEX | OPTIONAL
_UNDEFINED = "a key that the format does not define"
_BEYOND = {TIDX: "an index of the same tensors", IHSH: "a further hash of header, TOC and string table"}


@dataclass(slots=True)
class OwnContent:
    """The content of all files together; of things with the same name, those of the first file.

    ``clashes`` describes the others, if they differ: one file has no place for both.
    """

    chunks: dict[tuple[str, str], tuple[AeroNative, Chunk]] = field(default_factory=dict)  # by fourcc and name
    model: dict[str, Any] = field(default_factory=dict)  # the "model" map of MMSG
    manifest: dict[str, Any] = field(default_factory=dict)  # keys of MMSG that the format does not define
    index: dict[str, Any] = field(default_factory=dict)  # keys of TIDX that the format does not define
    clashes: dict[str, str] = field(default_factory=dict)


def gather_own(files: Iterable[AeroNative]) -> OwnContent:
    """Gather the content of ``files``; raises FormatError if a manifest is damaged."""
    found = OwnContent()
    for file in files:
        for chunk in file.extras:
            _, first = found.chunks.setdefault((chunk.fourcc, chunk.name), (file, chunk))
            if (first.ulen, first.blake3) != (chunk.ulen, chunk.blake3):
                what = f"a chunk of {chunk.length} bytes, and another of its name is kept"
                found.clashes[f"{file.name}: {chunk.what}"] = what
        manifest = file.manifest or {}
        unknown = {key: manifest[key] for key in manifest if key not in _DEFINED}
        root = {} if file.table is None else file.table.tidx.read_root()
        for known, more, where in (
            (found.model, get_model_map(manifest), "MMSG model"),
            (found.manifest, unknown, "MMSG"),
            (found.index, root, "TIDX"),
        ):
            for key in _add_keys(known, more):
                found.clashes[f"{file.name}: {where} {key}"] = "another value, and the first is kept"
    return found


def _add_keys(known: dict[str, Any], more: dict[str, Any]) -> Iterator[str]:
    """Add the keys that are not ``known``, and yield those with another value."""
    for key, value in more.items():
        stays = known.setdefault(key, value)
        if stays == _UNKNOWN:
            known[key] = value
        elif value != _UNKNOWN and not same_value(stays, value):
            yield key


def list_values(files: Iterable[AeroNative]) -> dict[str, Any]:
    """List the content by name: keys of MMSG and TIDX with their values, chunks with their hashes."""
    own = gather_own(files)
    found: dict[str, Any] = {f"chunk {fourcc} {name!r}": row.blake3 for (fourcc, name), (_, row) in own.chunks.items()}
    found |= {f"MMSG model {key}": value for key, value in own.model.items() if key not in IN_MANIFEST.values()}
    found |= {f"MMSG {key}": value for key, value in own.manifest.items()}
    return found | {f"TIDX {key}": value for key, value in own.index.items()}


def list_unkept(files: list[AeroNative]) -> dict[str, str]:
    """Describe what an AERO file that is made of ``files`` does not keep: what is made anew, and what clashes."""
    found = {f"{file.name}: {name}": what for file in files for name, what in _list_remade(file)}
    return found | gather_own(files).clashes


def describe_own(file: AeroNative) -> dict[str, str]:
    """Describe what other formats have no place for. The name and the architecture of the model are metadata."""
    found = {chunk.what: f"a chunk of {chunk.length} bytes" for chunk in file.extras}
    try:
        own = gather_own([file])
        found |= dict(_list_remade(file))
        names = _compare_names(file, file.manifest or {})
    except FormatError:
        return found | {"MMSG": "a manifest that cannot be read"} | _describe_tensors(file)
    keys = [*(f"MMSG model {key}" for key in own.model if key not in IN_MANIFEST.values())]
    keys += [*(f"MMSG {key}" for key in own.manifest), *(f"TIDX {key}" for key in own.index)]
    found |= dict.fromkeys(keys, _UNDEFINED) | {f"MMSG model {name}": what for name, what, _ in names}
    return found | _describe_tensors(file)


def _list_remade(file: AeroNative) -> Iterator[tuple[str, str]]:
    """Name and describe what the writer makes anew without keeping it: further hashes, unknown keys in hashes."""
    for fourcc, what in _BEYOND.items():
        yield from ((chunk.what, f"{what}, {chunk.length} bytes") for chunk in file.chunks.all(fourcc)[1:])
    kept = {chunk.index: chunk.name for chunk in file.extras}
    for row in (file.chunks.table["chunk_flags"] > _FLAGS).nonzero()[0].tolist():
        if row not in kept:
            flags = file.chunks[row].flags & ~_FLAGS
            yield f"{file.chunks[row].what}, flags", f"the flags {flags:#x}, which the format does not define"
    pages = ((name, key) for name, key in file.stated.list_page_keys() if name not in kept.values())
    unknown = [*list_control_keys(file.container), *((f"PHSH {name!r}", key) for name, key in pages)]
    manifest = file.manifest or {}
    unknown += [("MMSG format", key) for key in _list_unknown([manifest.get("format")], FORMAT_KEYS)]
    for part, defined in ROW_KEYS.items():
        rows = manifest.get(part)
        unknown += [(f"MMSG {part}", key) for key in _list_unknown(rows if isinstance(rows, list) else (), defined)]
    yield from ((f"{where}, {key}", _UNDEFINED) for where, key in unknown)
    if not isinstance(manifest.get("model", {}), dict):
        yield "MMSG model", "a value that is not a map"
    for name, what, replaced in _compare_names(file, manifest):
        if replaced:
            yield f"MMSG model {name}", what


def _list_unknown(maps: Iterable[Any], defined: Iterable[str]) -> list[str]:
    """List the keys of ``maps`` that are not ``defined``, each once."""
    keys = (key for each in maps if isinstance(each, dict) for key in each)
    return list(dict.fromkeys(key for key in keys if key not in defined))


def _compare_names(file: AeroNative, manifest: Mapping[str, Any]) -> Iterator[tuple[str, str, bool]]:
    """Yield the names in MMSG that MJSN does not have, described, and whether a writer puts those of MJSN there."""
    document = read_names(file.container, Check())
    if document is None:
        return  # then they are the metadata
    for name, value in get_model_map(manifest).items():
        key = next((key for key, named in IN_MANIFEST.items() if named == name), "")
        other = document.get(key, document.get(f"general.{name}"))
        if key and value != _UNKNOWN and not same_value(value, other):
            yield name, f"{value!r}, but MJSN has {other!r}", isinstance(other, str)


def _describe_tensors(file: AeroNative) -> dict[str, str]:
    """Describe the values of tensors that have no place elsewhere: what the type of a tensor says is not among them."""
    if file.table is None:
        return {}
    index = file.table.tidx
    found: dict[str, list[int]] = {}
    for row in index.valued.nonzero()[0].tolist():
        entry = index.read_stated(row)
        keys = [key for key in entry if key not in KEYS] + (["flags"] if entry.get("flags") else [])
        params = entry.get("quant_params") or {}
        if isinstance(index.dtypes[int(index.codes[row])], DType):
            keys += [key for key in ("quant_id", "quant_params") if entry.get(key) is not None]
        else:
            keys += [f"quant_params {key}" for key in params if key != "ggml_type"]
        for key in keys:
            found.setdefault(key, [row, 0])[1] += 1
    return {
        f"tensors, {key}": f"a value of {plural(count, 'tensor')}, such as {index.names[row]!r}"
        for key, (row, count) in found.items()
    }
