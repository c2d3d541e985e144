"""What goes into an AERO file: documents, entries of the index, and tensors placed in shards."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdall.dtypes import DType
from holdall.encodings import Opaque
from holdall.errors import ContentError
from holdall.formats.aero.layout import CODE_OF, MAX_NAME, MAX_RANK, MJSN, PACKED
from holdall.formats.aero.manifest import ARCHITECTURE, MODEL_NAME, json_bytes, model_map
from holdall.formats.aero.read import AeroNative, TensorNative
from holdall.formats.aero.settings import Settings
from holdall.ggml import Blocks
from holdall.model import Model
from holdall.payload import Payload
from holdall.tensor import Tensor

__all__ = ["Documents", "Placement", "documents_of", "metadata_breach", "name_breach", "place"]

# -- what a file can hold ---------------------------------------------------------------------------------------------


def name_breach(name: str) -> str | None:
    """Why ``name`` cannot be a tensor's name; None when it can."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return f"the name {name!r} is not Unicode text"
    return None if 1 <= size <= MAX_NAME else f"names take 1 to {MAX_NAME} bytes, not {size}"


def metadata_breach(key: str, value: Any) -> str | None:
    """Why a metadata value cannot be in JSON; None when it can."""
    try:
        plain(value)
        key.encode()
    except (ContentError, UnicodeEncodeError) as error:
        return str(error)
    return None


def plain(value: Any, depth: int = 0) -> Any:
    """``value`` as JSON holds it, refused where that would change it."""
    if depth > 64:
        raise ContentError("nested deeper than 64")
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ContentError("half a surrogate pair is not text") from None
        return value
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ContentError(f"JSON has no {value}")
        return value
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise ContentError("keys of a JSON object are text")
        return {plain(key): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, depth + 1) for item in value]
    if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0 and value.dtype.kind in "biuf":
        return plain(value.item(), depth)
    raise ContentError(f"JSON has no {type(value).__name__}")


# -- placing tensors --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Placement:
    """A tensor, and where in which shard it goes."""

    tensor: Tensor
    payload: Payload
    shard: int
    offset: int
    entry: dict[str, Any]  # of TIDX, without shard, place and hash


def place(model: Model, settings: Settings, quants: Mapping[int, int]) -> list[Placement]:
    """Tensors into shards, greedily and in order."""
    tensors = list(model.tensors)
    if settings.sort:
        tensors.sort(key=lambda tensor: tensor.name)
    names = {tensor.name for tensor in tensors}
    if len(names) != len(tensors):
        seen: set[str] = set()
        twice = next(t.name for t in tensors if t.name in seen or seen.add(t.name))  # type: ignore[func-returns-value]
        raise ContentError(f"aero: two tensors are called {twice!r}")
    placed = []
    shard, cursor, align = 0, 0, settings.align
    for tensor in tensors:
        entry = _entry(tensor, quants)
        payload = tensor.payload
        if payload is None:
            raise ContentError(f"aero: tensor {tensor.name!r} has no data, and AERO cannot declare one without")
        offset = cursor + -cursor % align
        if cursor and offset + payload.size > settings.max_shard_bytes:
            shard, offset = shard + 1, 0
        placed.append(Placement(tensor, payload, shard, offset, entry))
        cursor = offset + payload.size
    return placed


def _entry(tensor: Tensor, quants: Mapping[int, int]) -> dict[str, Any]:
    """What TIDX says of a tensor itself."""
    wrong = name_breach(tensor.name)
    if wrong:
        raise ContentError(f"aero: tensor {tensor.name!r}: {wrong}")
    if len(tensor.shape) > MAX_RANK or any(not 0 <= dim < 1 << 63 for dim in tensor.shape):
        raise ContentError(f"aero: tensor {tensor.name!r}: the shape {list(tensor.shape)[:40]} is not storable")
    native = tensor.native if isinstance(tensor.native, TensorNative) else None
    dtype = tensor.dtype
    entry: dict[str, Any] = {"name": tensor.name, "dtype": PACKED, "shape": list(tensor.shape), "shard_id": 0,
                             "data_off": 0, "data_len": 0, "flags": native.flags if native else 0}  # fmt: skip
    if isinstance(dtype, DType):
        if dtype.name not in CODE_OF:
            raise ContentError(f"aero: tensor {tensor.name!r}: {dtype} is not an AERO type")
        entry["dtype"] = CODE_OF[dtype.name]
    elif isinstance(dtype, Blocks):
        params = dict(native.quant_params or {}) if native else {}
        params["ggml_type"] = dtype.id
        entry["quant_id"] = native.quant_id if native and native.quant_id is not None else quants.get(dtype.id, 0)
        entry["quant_params"] = params
    elif isinstance(dtype, Opaque) and native is not None and dtype.name.split(".")[0] in ("ggml", "packed"):
        if native.quant_id is not None:
            entry["quant_id"] = native.quant_id
        if native.quant_params is not None:
            entry["quant_params"] = native.quant_params
    else:
        raise ContentError(f"aero: tensor {tensor.name!r}: {dtype} is not an AERO type")
    if tensor.payload is not None and tensor.nbytes != dtype.nbytes(tensor.shape):
        message = f"{dtype}{list(tensor.shape)} takes {dtype.nbytes(tensor.shape)} bytes, not {tensor.nbytes}"
        raise ContentError(f"aero: tensor {tensor.name!r}: {message}")
    if native is not None:
        entry |= native.extra
    return entry


# -- documents --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Documents:
    """What MJSN and MMSG say. ``json`` is None for a file without MJSN; ``pending`` when some of it is not final."""

    json: bytes | None
    model: dict[str, Any]  # the "model" map of MMSG
    manifest: dict[str, Any]  # keys of MMSG that are nobody else's
    quants: dict[int, int]  # ggml type -> quant_id
    pending: bool = False


def documents_of(model: Model, settings: Settings) -> Documents:
    """The documents for ``model``. MJSN keeps its bytes as long as the metadata says the same."""
    native = model.native if isinstance(model.native, AeroNative) else None
    manifest = native.manifest if native else None
    meta = {entry.key: entry.value for entry in model.metadata.entries if entry.kind != "manifest"}
    if len(meta) < sum(entry.kind != "manifest" for entry in model.metadata.entries):
        raise ContentError("aero: two metadata entries have the same key, which JSON cannot hold")
    quants = _quants(model, meta, settings.sort)
    named = model_map(manifest)
    for key, name in ((MODEL_NAME, "name"), (ARCHITECTURE, "architecture")):
        value = model.metadata.get(key, model.metadata.get(f"general.{name}", named.get(name)))
        named[name] = value if isinstance(value, str) else named.get(name, "unknown")
    if model.format == "gguf":
        meta.setdefault("source_format", "gguf")
        meta.setdefault("shape_order", "row-major")
    own = {"format", "model", "chunks", "shards"}
    more = {key: value for key, value in (manifest or {}).items() if key not in own}
    wanted = {key: plain(value) for key, value in meta.items()}
    absent = native is not None and not native.chunks.rows(MJSN) and not wanted
    return Documents(None if absent else _json(native, wanted), named, more, quants, model.metadata.pending)


def _json(native: AeroNative | None, wanted: dict[str, Any]) -> bytes:
    import json

    chunk = native.chunks.first(MJSN) if native else None
    if native is not None and chunk is not None:
        stored = json_bytes(native.container, chunk)
        if stored is not None and stored[1] == wanted:
            return stored[0]
    return json.dumps(wanted, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _quants(model: Model, meta: dict[str, Any], sort: bool) -> dict[int, int]:
    """quant_id by ggml type; descriptors join the metadata when it has none and they are needed."""
    stored = meta.get("quant_descriptors")
    if isinstance(stored, list):
        found: dict[int, int] = {}
        for row in stored:
            params = row.get("params") if isinstance(row, dict) else None
            if isinstance(params, dict) and isinstance(params.get("ggml_type"), int) and isinstance(row.get("id"), int):
                found.setdefault(params["ggml_type"], row["id"])
        return found
    totals = model.tensors.totals()
    if not any(name.startswith("ggml.") for name in totals):
        return {}
    used: dict[int, Blocks] = {}
    for tensor in sorted(model.tensors, key=lambda tensor: tensor.name) if sort else model.tensors:
        if isinstance(tensor.dtype, Blocks):
            used.setdefault(tensor.dtype.id, tensor.dtype)
    if used:
        meta["quant_descriptors"] = [
            {"id": number, "quant_name": blocks.title, "codec": "ggml", "params": {"ggml_type": blocks.id}}
            for number, blocks in enumerate(used.values())
        ]
    return {kind: number for number, kind in enumerate(used)}
