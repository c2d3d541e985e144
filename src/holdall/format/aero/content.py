"""Preparing a model for an AERO file: documents, and the entries of the index."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdall.base.utf8 import utf8_breach
from holdall.binary.documents.json import breach as json_breach
from holdall.errors import ContentError
from holdall.format.aero.layout import CODE_OF, MAX_NAME, MAX_RANK, MJSN, PACKED
from holdall.format.aero.manifest import ARCHITECTURE, MODEL_NAME, read_json_bytes
from holdall.format.aero.own_content import OwnContent
from holdall.format.aero.read import AeroNative, TensorNative
from holdall.format.aero.settings import Settings
from holdall.format.hf_assets import find_model_name
from holdall.format.refusals import check_entries
from holdall.model.dtypes import DType
from holdall.model.encodings import Opaque
from holdall.model.ggml import Blocks
from holdall.model.model import Model
from holdall.model.tensor import Tensor

__all__ = ["Documents", "documents_of", "make_entry", "metadata_breach", "name_breach"]


def name_breach(name: str) -> str | None:
    """Why ``name`` cannot be a tensor's name; None when it can."""
    wrong = utf8_breach(name)
    if wrong:
        return f"the name {wrong}"
    size = len(name.encode())
    return None if 1 <= size <= MAX_NAME else f"names take 1 to {MAX_NAME} bytes, not {size}"


def metadata_breach(key: str, value: Any) -> str | None:
    """Why a metadata value cannot be in JSON; None when it can."""
    try:
        to_json_value(value)
    except ContentError as error:
        return str(error)
    return utf8_breach(key)


def to_json_value(value: Any, depth: int = 0) -> Any:
    """Return ``value`` as JSON has it; raises ContentError if JSON cannot hold it unchanged."""
    if depth > 64:
        raise ContentError("nested deeper than 64")
    if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0 and value.dtype.kind in "biuf":
        value = value.item()
    if isinstance(value, (list, tuple)):
        return [to_json_value(item, depth + 1) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {to_json_value(key): to_json_value(item, depth + 1) for key, item in value.items()}
    if wrong := json_breach(value):
        raise ContentError(wrong)
    return value


def make_entry(tensor: Tensor, quants: Mapping[int, int]) -> dict[str, Any]:
    """Make the entry of TIDX for a tensor, without its place. ContentError for a tensor that AERO cannot hold."""
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
        if native is not None and not native.packed:
            entry |= _state_quant(native)
    elif isinstance(dtype, Blocks):
        params = dict(native.quant_params or {}) if native else {}
        params["ggml_type"] = dtype.id
        entry["quant_id"] = native.quant_id if native and native.quant_id is not None else quants.get(dtype.id, 0)
        entry["quant_params"] = params
    elif isinstance(dtype, Opaque) and native is not None and dtype.name.split(".")[0] in ("ggml", "packed"):
        entry |= _state_quant(native)
    else:
        raise ContentError(f"aero: tensor {tensor.name!r}: {dtype} is not an AERO type")
    if tensor.payload is not None and tensor.nbytes != dtype.nbytes(tensor.shape):
        message = f"{dtype}{list(tensor.shape)} takes {dtype.nbytes(tensor.shape)} bytes, not {tensor.nbytes}"
        raise ContentError(f"aero: tensor {tensor.name!r}: {message}")
    if native is not None:
        entry |= native.extra
    return entry


def _state_quant(native: TensorNative) -> dict[str, Any]:
    """The quant_id and quant_params that the file of the tensor has, if it has them."""
    stated = {"quant_id": native.quant_id, "quant_params": native.quant_params}
    return {key: value for key, value in stated.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Documents:
    """The content of MJSN and MMSG. ``json`` is None for a file without MJSN; ``pending`` if it is not final."""

    json: bytes | None
    model: dict[str, Any]  # the "model" map of MMSG
    manifest: dict[str, Any]  # keys of MMSG that the format does not define
    quants: dict[int, int]  # ggml type -> quant_id
    pending: bool = False


def documents_of(model: Model, settings: Settings, own: OwnContent) -> Documents:
    """The documents for ``model``. MJSN keeps its bytes if the metadata is unchanged."""
    native = model.native if isinstance(model.native, AeroNative) else None
    own_entries = [entry for entry in model.metadata.entries if entry.kind != "manifest"]
    meta = check_entries("aero", own_entries, metadata_breach)
    quants = _number_quants(model, meta, settings.sort)
    named = dict(own.model)
    if "name" not in named:
        named["name"] = find_model_name(model) or "unknown"
    for key, name in ((MODEL_NAME, "name"), (ARCHITECTURE, "architecture")):
        value = model.metadata.get(key, model.metadata.get(f"general.{name}", named.get(name)))
        named[name] = value if isinstance(value, str) else named.get(name, "unknown")
    if model.format == "gguf":
        meta.setdefault("source_format", "gguf")
        meta.setdefault("shape_order", "row-major")
    wanted = {key: to_json_value(value) for key, value in meta.items()}
    absent = native is not None and not native.chunks.rows(MJSN) and not wanted
    json = None if absent else _encode_json(native, wanted)
    return Documents(json, named, own.manifest, quants, model.metadata.pending)


def _encode_json(native: AeroNative | None, wanted: dict[str, Any]) -> bytes:
    import json

    chunk = native.chunks.first(MJSN) if native else None
    if native is not None and chunk is not None:
        stored = read_json_bytes(native.container, chunk)
        if stored is not None and stored[1] == wanted:
            return stored[0]
    return json.dumps(wanted, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _number_quants(model: Model, meta: dict[str, Any], sort: bool) -> dict[int, int]:
    """quant_id by ggml type; if the metadata has no descriptors and they are needed, they are added to ``meta``."""
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
